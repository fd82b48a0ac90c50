"""Signatures of webhooks: Standard Webhooks 1.0.0, symmetric (``v1``), HMAC-SHA256 over ``{id}.{timestamp}.{body}``."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final

# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
PREFIX: Final = "whsec_"
VERSION: Final = "v1"
TOLERANCE: Final = timedelta(minutes=5)
_SIZES: Final = range(24, 65)
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class Finding(StrEnum):
    """What became of a verification; its text says why."""

    GENUINE = "genuine"
    MALFORMED = "the timestamp is not a number of seconds"
    TOO_OLD = "the timestamp is too old"
    TOO_NEW = "the timestamp is in the future"
    FORGED = "no signature matches"


def parse_secret(text: str) -> bytes:
    """Return the key bytes of a ``whsec_`` secret; raises a ValueError that does not show it where it is none."""
    secret = decode_key(text, PREFIX)
    if len(secret) not in _SIZES:
        raise ValueError(
            f'must be {PREFIX} followed by base64 of {_SIZES[0]} to {_SIZES[-1]} bytes; make one with "dockbell secret"'
        )
    return secret


def decode_key(text: str, prefix: str) -> bytes:
    """Return the bytes that stand in base64 behind a prefix; none where the text has another form."""
    stripped = text.strip()
    encoded = stripped.removeprefix(prefix)
    if encoded == stripped:
        return b""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        return b""


def mint(random_bytes: bytes) -> str:
    """Return the ``whsec_`` form of 24 to 64 random bytes; raises ValueError for fewer or more."""
    secret = PREFIX + base64.b64encode(random_bytes).decode()
    parse_secret(secret)
    return secret


def sign(secrets: Iterable[bytes], event_id: str, timestamp: int, body: bytes) -> str:
    """Return the ``webhook-signature`` header: one signature per secret, separated by spaces.

    There are several ``secrets`` while one is being replaced. ``event_id`` and ``timestamp`` (Unix seconds of this
    attempt) are the headers ``webhook-id`` and ``webhook-timestamp``.
    """
    signed = write_signed(event_id, timestamp, body)
    return " ".join(
        f"{VERSION},{base64.b64encode(hmac.digest(secret, signed, 'sha256')).decode()}" for secret in secrets
    )


def write_signed(event_id: str, timestamp: int, body: bytes) -> bytes:
    """Return what is signed of a webhook."""
    return b"%b.%d.%b" % (event_id.encode(), timestamp, body)


def sign_like_github(secret: bytes, body: bytes) -> str:
    """Return the header ``X-Hub-Signature-256`` as GitHub's webhooks have it: HMAC-SHA256 of the body alone.

    It does not bind the time: a receiver cannot tell a request from one that was recorded.
    """
    return f"sha256={hmac.digest(secret, body, 'sha256').hex()}"


def verify(
    secrets: Sequence[bytes],
    event_id: str,
    timestamp: str,
    signatures: str,
    body: bytes,
    *,
    now: int,
    tolerance: timedelta = TOLERANCE,
) -> Finding:
    """Verify a received webhook by its three headers, given as received; one match of any secret is enough.

    ``now`` is the receiver's time in Unix seconds. The timestamp may lie no further from it than ``tolerance``, against
    replay of recorded requests.
    """
    if not _SECONDS.fullmatch(timestamp):
        return Finding.MALFORMED
    age = now - int(timestamp)
    if abs(age) > tolerance.total_seconds():
        return Finding.TOO_OLD if age > 0 else Finding.TOO_NEW
    expected = [sign([secret], event_id, int(timestamp), body).encode() for secret in secrets]
    # All are compared, in constant time: the duration must not show which came close.
    matches = [
        hmac.compare_digest(wanted, given)
        for given in signatures.encode(errors="replace").split(b" ")
        for wanted in expected
    ]
    return Finding.GENUINE if any(matches) else Finding.FORGED
