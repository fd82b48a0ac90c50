"""The values of the operator's secrets: the keys that sign, and the headers of every request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from dockbell._version import __version__
from dockbell.config import RevealedBytes, Secret
from dockbell.core.publishing.signature import parse_secret
from dockbell.errors import ConfigError
from dockbell.sinks.webhook.settings import WebhookSettings

Headers: TypeAlias = list[tuple[bytes, bytes]]

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BEARER: Final = re.compile(r"[\x21-\x7e]+")
_OWN: Final = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "dockbell-replay",
        "transfer-encoding",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
_OF_CONNECTION: Final = frozenset({"expect", "keep-alive", "proxy-connection", "te", "upgrade"})
"""Headers by which a server would wait, or change the protocol."""


def reveal_keys(sink: str, secrets: Sequence[Secret]) -> list[bytes]:
    """Return the signing key of each secret.

    Raises:
        ConfigError: One cannot be looked up, or is no ``whsec_`` secret.
    """
    try:
        return [parse_secret(secret.reveal()) for secret in secrets]
    except ValueError as error:
        raise ConfigError(f"[sinks.{sink}] secret: {error}") from None


def make_headers(sink: str, settings: WebhookSettings) -> Headers:
    """Return the headers that every request has, those of the settings before our own of the same name.

    Raises:
        ConfigError: One cannot be looked up, is no header, or is dockbell's own.
    """
    headers = {"user-agent": f"dockbell/{__version__}"}
    for name, secret in settings.headers.items():
        value, place = secret.reveal(), f"[sinks.{sink}] headers.{name}"
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{place}: is no name of a header")
        if name.lower() in _OWN:
            raise ConfigError(f"{place}: is set by dockbell; remove it")
        if name.lower() in _OF_CONNECTION:
            raise ConfigError(f"{place}: is about the connection, which is dockbell's; remove it")
        if not value.isascii():
            raise ConfigError(f"{place}: must be printable ASCII")
        headers[name.lower()] = value
    if settings.bearer is not None:
        if "authorization" in headers:
            raise ConfigError(f"[sinks.{sink}] headers.authorization: is set by bearer; remove one of them")
        token = settings.bearer.reveal()
        if not _BEARER.fullmatch(token):
            raise ConfigError(f'[sinks.{sink}] bearer: must be the token alone, without spaces or "Bearer"')
        headers["authorization"] = f"Bearer {token}"
    return [(name.encode(), RevealedBytes(value.encode())) for name, value in headers.items()]
