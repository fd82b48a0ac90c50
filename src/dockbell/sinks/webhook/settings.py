"""The settings of a webhook, ``[sinks.NAME]``, and the checks of each value."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Final, Literal, Self

import httpx
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dockbell.config import ConfigPath, Interval, ProxyUrl, Secret, SecretUrl, SinkSettings
from dockbell.config.values import conceal_url
from dockbell.core.publishing.addresses import Address, AddressRules, parse_network
from dockbell.errors import ConfigError
from dockbell.net.network import explain, split_url

_NEVER_DEAD: Final = (HTTPStatus.GONE, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_FAILURES: Final = range(300, 600)


class HookUrl(SecretUrl):
    """The URL of a receiver, a secret: its path or query may be what authorizes requests."""

    @classmethod
    def _check_value(cls, value: str) -> None:
        example = '"https://erp.example.com/hooks/dockbell"'
        parts = split_url(value, schemes=("http", "https"), example=example, show_url=conceal_url)
        if "@" in parts.netloc:
            raise ValueError("must not hold a user or password; use headers or bearer")
        _check_parsable(value)


def _check_parsable(url: str) -> None:
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"cannot be used, {explain(error)}") from error


class HookProxyUrl(ProxyUrl):
    """The URL of a proxy on the way to a receiver."""

    @classmethod
    def _check_value(cls, value: str) -> None:
        super()._check_value(value)
        _check_parsable(value)


@dataclass(frozen=True)
class Target:
    """The receiver of the events, and the proxy on the way.

    Attributes:
        url: Of the receiver.
        proxy: The URL of the proxy, if there is one.
    """

    url: httpx.URL = field(repr=False)  # it would show the path
    proxy: str | None = None

    @property
    def place(self) -> str:
        """The receiver's host and port, which may be shown."""
        return self.url.netloc.decode()


def _find_address(host: str) -> Address | None:
    """Return the address in a URL's host, None for a name; ``2852039166`` is an address too, as for the socket API."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return ip_address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _check_network(text: str) -> str:
    return str(parse_network(text))


def _check_dead(status: int) -> int:
    if status in _NEVER_DEAD:
        raise ValueError(f"{status} is never said of a single event; remove it")
    if status not in _FAILURES:
        raise ValueError(f"must be a status from {_FAILURES[0]} to {_FAILURES[-1]}, got {status}")
    return status


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _as_secrets(value: object) -> object:
    return tuple(value) if isinstance(value, list) else (value,)


Statuses = Annotated[tuple[Annotated[int, AfterValidator(_check_dead)], ...], BeforeValidator(_as_tuple)]
Networks = Annotated[tuple[Annotated[str, AfterValidator(_check_network)], ...], BeforeValidator(_as_tuple)]


class WebhookSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "webhook"``."""

    type: Literal["webhook"]
    url: HookUrl
    secret: Annotated[tuple[Secret, ...], BeforeValidator(_as_secrets), Field(min_length=1)]
    timeout: Interval = timedelta(seconds=20)
    lanes: int = Field(default=4, ge=1, le=64)
    dead_on: Statuses = (400, 413, 415, 422)
    headers: dict[str, Secret] = Field(default_factory=dict)
    bearer: Secret | None = None
    ca_file: ConfigPath | None = None
    cert_file: ConfigPath | None = None
    key_file: ConfigPath | None = None
    proxy: HookProxyUrl | None = None
    deny_networks: Networks = ()
    strict: bool = False

    @property
    def rules(self) -> AddressRules:
        """Which addresses may be dialled."""
        return AddressRules(tuple(map(parse_network, self.deny_networks)), strict=self.strict)

    def find_target(self, sink: str) -> Target:
        """Resolve the secrets in the URLs.

        Args:
            sink: As in ``[sinks.NAME]``.

        Raises:
            ConfigError: A URL cannot be looked up, is invalid, or conflicts with another key.
        """
        target = Target(httpx.URL(self.url.reveal()), None if self.proxy is None else self.proxy.reveal())
        try:
            self._check_url(target.url)
        except ValueError as error:
            raise ConfigError(f"[sinks.{sink}] {error}") from None
        return target

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")
        if self.proxy and (self.strict or self.deny_networks):
            key = "strict" if self.strict else "deny_networks"
            raise ValueError(
                f"{key} has no effect with a proxy, which dials for itself; remove it, and let the proxy deny"
            )
        if self.url.value is not None:
            self._check_url(httpx.URL(self.url.reveal()))
        return self

    def _check_url(self, url: httpx.URL) -> None:
        if self.cert_file and url.scheme != "https":
            raise ValueError('cert_file needs a url that begins with "https:"')
        host = url.raw_host.decode()
        address = _find_address(host.rstrip("."))
        objection = None if address is None else self.rules.judge(address)
        if objection is not None:
            shown = host if host == str(address) else f"{host}, that is {address}"
            raise ValueError(f"url has {shown}, which is never dialled: {objection}")
