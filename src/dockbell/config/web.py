"""``[web]``: where the daemon listens, who may ask, and under which names."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from dockbell.config.secret import Secret
from dockbell.config.values import PORT_MOST, BaseUrl, as_tuple, matching, show
from dockbell.config.wording import Settings, misfit

_LISTEN: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>[0-9]{1,5})")


def _check_listen(given: object) -> object:
    match = _LISTEN.fullmatch(given) if isinstance(given, str) else None
    if match is None or (match["v6"] and _find_address(match["v6"]) is None):
        raise ValueError(f'must be an address and a port such as "127.0.0.1:8470" or "[::1]:8470", got {show(given)}')
    if int(match["port"]) > PORT_MOST:
        raise ValueError(f"must have a port from 0 to {PORT_MOST}, got {show(given)}")
    return given


_HOST: Final = matching(
    r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]",
    'a name such as "dockbell.example.com", without a port',
)


def _check_proxy(text: str) -> str:
    wanted = 'must be an address or a network such as "10.0.0.1" or "192.168.0.0/24"'
    try:
        given = ipaddress.ip_interface(text)
    except ValueError:
        raise ValueError(f"{wanted}, got {show(text)}; write the address that the proxy connects from") from None
    if int(given.ip) != int(given.network.network_address):
        remedy = f"write {show(str(given.network))}"
        raise ValueError(f"must begin with the first address of its network, got {show(text)}; {remedy}")
    return text


def _find_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def normalise_host(host: str) -> str:
    """Return a host as it is compared: in lower case, without brackets, an address in its shortest form."""
    name = host.lower().removeprefix("[").removesuffix("]").rstrip(".")
    address = _find_address(name)
    return name if address is None else str(getattr(address, "ipv4_mapped", None) or address)


def is_loopback(host: str) -> bool:
    """Return whether a host, in the form in which it is compared, can only be this machine."""
    address = _find_address(host)
    return host == "localhost" if address is None else address.is_loopback


class WebSettings(Settings):
    """``[web]``: pull feeds and stored records over HTTP; without the table nothing listens."""

    listen: Annotated[str, BeforeValidator(_check_listen)] = "127.0.0.1:8470"
    token: Secret | None = None
    hosts: Annotated[tuple[Annotated[str, _HOST], ...], BeforeValidator(as_tuple)] = ()
    url: BaseUrl | None = None
    trusted_proxies: Annotated[tuple[Annotated[str, AfterValidator(_check_proxy)], ...], BeforeValidator(as_tuple)] = ()

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen: an address or a name, and a port, of which 0 is any that is free."""
        match = _LISTEN.fullmatch(self.listen)
        assert match is not None
        return match["v6"] or match["host"], int(match["port"])

    @property
    def proxy_networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        return tuple(map(ipaddress.ip_network, self.trusted_proxies))

    @property
    def base_url(self) -> str:
        """How others reach it, without a slash at the end: ``url``, else what ``listen`` gives."""
        if self.url is not None:
            return self.url
        host, port = self.address
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # no client can connect to these
        return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    @property
    def public_url(self) -> str:
        """How other machines reach it, as far as that is known: ``url``, else what ``listen`` gives; or empty."""
        host, port = self.address
        address = _find_address(host)
        is_local = is_loopback(normalise_host(host)) or (address is not None and address.is_unspecified) or not port
        return "" if self.url is None and is_local else self.base_url

    @model_validator(mode="after")
    def _need_a_token(self) -> Self:
        if self.token is None and not is_loopback(normalise_host(self.address[0])):
            others = f"because other machines can reach {self.listen}"
            remedy = 'add token = { env = "DOCKBELL_WEB_TOKEN" }, or listen on 127.0.0.1'
            raise misfit((("token",), f"missing, {others}; {remedy}"))
        return self
