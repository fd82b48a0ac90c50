"""Signatures by a key that the sender alone has: ``v1a`` of Standard Webhooks 1.0.0, Ed25519.

A receiver verifies them with the public key, with which it cannot sign.
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
"""

from __future__ import annotations

import base64
from importlib.util import find_spec
from typing import Final

from dockbell.core.publishing.signature import decode_key, write_signed
from dockbell.errors import ConfigError

PREFIX: Final = "whsk_"
PUBLIC_PREFIX: Final = "whpk_"
_VERSION: Final = "v1a"
_SEED_SIZE: Final = 32
_SIZES: Final = (_SEED_SIZE, 2 * _SEED_SIZE)
"""Of the seed alone, or with the public key behind it, as some libraries keep it."""


class SigningKey:
    """Signs for one sink.

    Args:
        text: ``whsk_`` and base64 of the private key.

    Raises:
        ConfigError: The library is missing.
        ValueError: It is no such key; the text does not show it.
    """

    def __init__(self, text: str) -> None:
        if find_spec("cryptography") is None:
            raise ConfigError("cryptography is not installed; pip install 'dockbell[ed25519]'")
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Key  # noqa: PLC0415

        self._key = Key.from_private_bytes(_parse(text))

    @property
    def public(self) -> str:
        """``whpk_`` and base64 of the public key, for receivers."""
        return PUBLIC_PREFIX + base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, event_id: str, timestamp: int, body: bytes) -> str:
        """Return a signature for the header ``webhook-signature``."""
        signature = self._key.sign(write_signed(event_id, timestamp, body))
        return f"{_VERSION},{base64.b64encode(signature).decode()}"


def mint(random_bytes: bytes) -> str:
    """Return the ``whsk_`` form of 32 random bytes."""
    text = PREFIX + base64.b64encode(random_bytes).decode()
    _parse(text)
    return text


def _parse(text: str) -> bytes:
    key = decode_key(text, PREFIX)
    if len(key) not in _SIZES:
        raise ValueError(
            f'must be {PREFIX} followed by base64 of {_SIZES[0]} or {_SIZES[1]} bytes; make one with "dockbell secret'
            ' --ed25519"'
        )
    return key[:_SEED_SIZE]
