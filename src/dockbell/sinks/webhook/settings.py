"""The settings of a webhook, ``[sinks.NAME]``, and what its secrets give: the target, signing keys and headers."""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Final, Literal, Self, TypeAlias

import httpx
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dockbell._version import __version__
from dockbell.config import ConfigPath, Interval, ProxyUrl, RevealedBytes, Secret, SecretUrl, Settings, SinkSettings
from dockbell.config.expression import ValueText
from dockbell.config.values import Duration, ListAsTuple, conceal_url, split_url
from dockbell.core.publishing.addresses import Address, AddressRules, parse_network
from dockbell.core.publishing.signature import parse_secret
from dockbell.errors import ConfigError
from dockbell.net.network import explain
from dockbell.sinks.webhook.signing_key import SigningKey

_NEVER_DEAD: Final = (HTTPStatus.GONE, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_FAILURES: Final = range(300, 600)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BEARER: Final = re.compile(r"[\x21-\x7e]+")
_OWN_HEADERS: Final = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "dockbell-replay", "transfer-encoding"),
        *("webhook-id", "webhook-request-origin", "webhook-signature", "webhook-timestamp", "x-hub-signature-256"),
    }
)
_OF_CONNECTION: Final = frozenset({"expect", "keep-alive", "proxy-connection", "te", "upgrade"})
"""Headers by which a server would wait, or change the protocol."""

Headers: TypeAlias = list[tuple[bytes, bytes]]
Fate: TypeAlias = Literal["retry", "dead", "ok"]
"""What a status means for its event: another attempt, a dead letter, or that the receiver has it."""


class HookUrl(SecretUrl):
    """The URL of a receiver, a secret: its path or query may be what authorizes requests."""

    @classmethod
    def _check_value(cls, value: str) -> None:
        parts = split_url(value, '"https://erp.example.com/hooks/dockbell"', show_url=conceal_url)
        if "@" in parts.netloc:
            raise ValueError("must not contain a user or password; use headers or bearer")
        _check_parsable(value)


def _check_parsable(url: str) -> None:
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"must be a valid URL, {explain(error)}") from error


class HookProxyUrl(ProxyUrl):
    """The URL of a proxy on the way to a receiver."""

    @classmethod
    def _check_value(cls, value: str) -> None:
        super()._check_value(value)
        _check_parsable(value)


@dataclass(frozen=True)
class Target:
    """The receiver of the events, and the URL of the proxy on the way, if there is one."""

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


class Basic(Settings):
    """``basic`` of a webhook: how it presents itself, as a browser would."""

    user: str = Field(min_length=1, pattern="^[^:]*$")
    password: Secret


def _check_token_url(url: str) -> str:
    parts = split_url(url, '"https://login.example.com/oauth2/token"')
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; use client_id and client_secret")
    _check_parsable(url)
    return url


class OAuth2(Settings):
    """``oauth2`` of a webhook: who gives the access token that its requests bear, and what for."""

    token_url: Annotated[str, AfterValidator(_check_token_url)]
    client_id: str = Field(min_length=1)
    client_secret: Secret
    scope: str | None = None
    audience: str | None = None
    client_auth: Literal["basic", "post"] = "basic"


def _check_fates(fates: dict[str, Fate]) -> dict[str, Fate]:
    for status, fate in fates.items():
        if not re.fullmatch("[345][0-9][0-9]", status):
            raise ValueError(f'must have statuses from {_FAILURES[0]} to {_FAILURES[-1]} as keys, got "{status}"')
        if fate == "dead":
            _check_dead(int(status))
    return fates


def _check_dead(status: int) -> int:
    if status in _NEVER_DEAD:
        raise ValueError(f"{status} never concerns a single event; remove it")
    if status not in _FAILURES:
        raise ValueError(f"must be a status from {_FAILURES[0]} to {_FAILURES[-1]}, got {status}")
    return status


class WebhookSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "webhook"``."""

    type: Literal["webhook"]
    url: HookUrl
    secret: Annotated[
        tuple[Secret, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else (value,)),
        Field(min_length=1),
    ]
    github_secret: Secret | None = None
    signing_key: Secret | None = None
    mode: Literal["structured", "binary"] = "structured"
    body: ValueText | None = None
    content_type: Annotated[str, Field(pattern=r"^[\x20-\x7e]+$")] | None = None
    batch: int = Field(default=1, ge=1, le=500)
    linger: Duration = timedelta(0)
    compression: Literal["none", "gzip"] = "none"
    origin: Annotated[str, Field(pattern=r"^[0-9A-Za-z.:-]+$")] | None = None
    timeout: Interval = timedelta(seconds=20)
    lanes: int = Field(default=4, ge=1, le=64)
    dead_on: ListAsTuple[Annotated[int, AfterValidator(_check_dead)]] = (400, 413, 415, 422)
    on_status: Annotated[dict[str, Fate], AfterValidator(_check_fates)] = Field(default_factory=dict)
    keep_answers: bool = True
    headers: dict[str, Secret] = Field(default_factory=dict)
    bearer: Secret | None = None
    basic: Basic | None = None
    oauth2: OAuth2 | None = None
    ca_file: ConfigPath | None = None
    cert_file: ConfigPath | None = None
    key_file: ConfigPath | None = None
    proxy: HookProxyUrl | None = None
    deny_networks: ListAsTuple[Annotated[str, AfterValidator(lambda text: str(parse_network(text)))]] = ()
    strict: bool = False

    @property
    def fates(self) -> Mapping[int, Fate]:
        """What statuses mean by the operator's word."""
        told: dict[int, Fate] = dict.fromkeys(self.dead_on, "dead")
        return told | {int(status): fate for status, fate in self.on_status.items()}

    @property
    def rules(self) -> AddressRules:
        return AddressRules(tuple(map(parse_network, self.deny_networks)), strict=self.strict)

    def find_target(self, sink: str) -> Target:
        """Resolve the secrets in the URLs; ConfigError where one cannot be used, or conflicts with another key."""
        target = Target(httpx.URL(self.url.reveal()), None if self.proxy is None else self.proxy.reveal())
        try:
            self._check_url(target.url)
        except ValueError as error:
            raise ConfigError(f"[sinks.{sink}] {error}") from None
        return target

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        """Refuse keys of which one would have no effect."""
        if self.body is not None and self.mode == "binary":
            raise ValueError('body replaces the event that mode = "binary" sends; remove one of them')
        if self.batch > 1 and (self.body is not None or self.mode == "binary"):
            key = 'mode = "binary"' if self.body is None else "body"
            raise ValueError(
                f"batch sends a list of CloudEvents, but {key} sends each event by itself; remove one of them"
            )
        if self.linger and self.batch == 1:
            raise ValueError("linger waits for more events of a batch; set batch, or remove linger")
        if self.content_type and self.body is None:
            raise ValueError("content_type describes body; set body, or remove content_type")
        return self

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")
        if self.proxy and (self.strict or self.deny_networks):
            key = "strict" if self.strict else "deny_networks"
            remedy = "remove it, and deny these networks in the proxy"
            raise ValueError(f"{key} has no effect with a proxy, which connects by itself; {remedy}")
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
            shown = host if host == str(address) else f"{host} ({address})"
            raise ValueError(f"url: dockbell never connects to {shown}: {objection}")


def reveal_keys(sink: str, secrets: Sequence[Secret]) -> list[bytes]:
    """Return the signing key of each secret; ConfigError where one cannot be looked up, or is no ``whsec_`` secret."""
    try:
        return [parse_secret(secret.reveal()) for secret in secrets]
    except ValueError as error:
        raise ConfigError(f"[sinks.{sink}] secret: {error}") from None


def reveal_github_secret(sink: str, secret: Secret | None) -> bytes:
    """Return the key of GitHub's signature, the secret's text; empty where there is none.

    ConfigError says that it cannot be looked up.
    """
    try:
        return b"" if secret is None else secret.reveal().encode()
    except ValueError as error:
        raise ConfigError(f"[sinks.{sink}] github_secret: {error}") from None


def reveal_signing_key(sink: str, secret: Secret | None) -> SigningKey | None:
    """Return what signs with Ed25519; ConfigError where it cannot be looked up, or is no key."""
    try:
        return None if secret is None else SigningKey(secret.reveal())
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"[sinks.{sink}] signing_key: {error}") from None


def reveal_client_secret(sink: str, settings: OAuth2 | None) -> str:
    """Return the secret of the client of OAuth 2.0; ConfigError where it cannot be looked up, empty without it."""
    try:
        return "" if settings is None else settings.client_secret.reveal()
    except ValueError as error:
        raise ConfigError(f"[sinks.{sink}] oauth2.client_secret: {error}") from None


def make_headers(sink: str, settings: WebhookSettings) -> Headers:
    """Return the headers that every request has, those of the settings before our own of the same name.

    ConfigError says which cannot be looked up, is no header, or is dockbell's own.
    """
    headers = {"user-agent": f"dockbell/{__version__}"}
    for name, secret in settings.headers.items():
        value, place = secret.reveal(), f"[sinks.{sink}] headers.{name}"
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{place}: not a valid header name; rename it")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("ce-"):
            raise ConfigError(f"{place}: dockbell sets this header; remove it")
        if name.lower() in _OF_CONNECTION:
            raise ConfigError(f"{place}: dockbell manages the connection; remove it")
        if not value.isascii():
            raise ConfigError(f"{place}: must be printable ASCII")
        headers[name.lower()] = value
    for key, find in (("bearer", _find_bearer), ("basic", _find_basic)):
        shown = find(sink, settings)
        if shown and "authorization" in headers:
            raise ConfigError(f"[sinks.{sink}] {key}: another key sets the header authorization; remove one of them")
        if shown:
            headers["authorization"] = shown
    if settings.oauth2 is not None and "authorization" in headers:
        raise ConfigError(f"[sinks.{sink}] oauth2: another key sets the header authorization; remove one of them")
    return [(name.encode(), RevealedBytes(value.encode())) for name, value in headers.items()]


def _find_bearer(sink: str, settings: WebhookSettings) -> str:
    if settings.bearer is None:
        return ""
    token = settings.bearer.reveal()
    if not _BEARER.fullmatch(token):
        raise ConfigError(f'[sinks.{sink}] bearer: must be the token alone, without spaces or "Bearer"')
    return f"Bearer {token}"


def _find_basic(_: str, settings: WebhookSettings) -> str:
    if settings.basic is None:
        return ""
    pair = f"{settings.basic.user}:{settings.basic.password.reveal()}"
    return f"Basic {b64encode(pair.encode()).decode()}"
