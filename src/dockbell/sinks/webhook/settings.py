"""What ``[sinks.NAME]`` holds for a webhook, and how each value is checked before anything is asked."""

from __future__ import annotations

import socket
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Final, Literal, Self

import httpx
from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, model_validator

from dockbell.config import ConfigPath, Interval, ProxyUrl, Secret, SinkSettings
from dockbell.core.publishing.addresses import Address, AddressRules, parse_network
from dockbell.network import explain, split_url

_NEVER_DEAD: Final = (HTTPStatus.GONE, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_FAILURES: Final = range(300, 600)


def _check_url(url: str) -> str:
    parts = split_url(url, schemes=("http", "https"), example='"https://erp.example.com/hooks/dockbell"')
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password; use headers or bearer")
    return _check_parsable(url)


def _check_parsable(url: str) -> str:
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"cannot be used, {explain(error)}") from error
    return url


def _find_address(host: str) -> Address | None:
    """Return the address that a host is, or None of a name; as connecting to it would, ``2852039166`` is one too."""
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
    url: Annotated[str, AfterValidator(_check_url)]
    secret: Annotated[tuple[Secret, ...], BeforeValidator(_as_secrets), Field(min_length=1)]
    timeout: Interval = timedelta(seconds=20)
    lanes: int = Field(default=4, ge=1, le=64)
    requests_per_minute: int | None = Field(default=None, ge=1)
    dead_on: Statuses = (400, 413, 415, 422)
    headers: dict[str, Secret] = Field(default_factory=dict)
    bearer: Secret | None = None
    ca_file: ConfigPath | None = None
    cert_file: ConfigPath | None = None
    key_file: ConfigPath | None = None
    proxy: Annotated[ProxyUrl, AfterValidator(_check_parsable)] | None = None
    deny_networks: Networks = ()
    strict: bool = False

    @property
    def rules(self) -> AddressRules:
        """Which addresses may be dialled."""
        return AddressRules(tuple(map(parse_network, self.deny_networks)), strict=self.strict)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        url = httpx.URL(self.url)
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")
        if self.cert_file and url.scheme != "https":
            raise ValueError('cert_file needs a url that begins with "https:"')
        if self.proxy and (self.strict or self.deny_networks):
            key = "strict" if self.strict else "deny_networks"
            raise ValueError(
                f"{key} has no effect with a proxy, which dials for itself; remove it, and let the proxy deny"
            )
        host = url.raw_host.decode()
        address = _find_address(host.rstrip("."))
        objection = None if address is None else self.rules.judge(address)
        if objection is not None:
            shown = host if host == str(address) else f"{host}, that is {address}"
            raise ValueError(f"url has {shown}, which is never dialled: {objection}")
        return self

    @field_serializer("url", when_used="json")
    def _show_url(self, url: str) -> str:
        """Return what anybody may see: a path or query may hold a token."""
        parts = httpx.URL(url)
        return f"{parts.scheme}://{parts.netloc.decode()}/{'' if parts.raw_path == b'/' else '***'}"
