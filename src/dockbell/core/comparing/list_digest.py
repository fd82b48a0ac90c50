"""The digest of a list: equal digests mean equal records, whatever their order (docs/guarantees.md).

It is the sum, modulo 2 to the 128th, of the hashes of key and fingerprint of every record that is there: so it follows
a record that changes without a look at the others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_SIZE: Final = 16  # bytes


def digest_record(key: str, fingerprint: bytes) -> int:
    """Return what a record adds to the digest of its list."""
    return int.from_bytes(blake2b(key.encode() + b"\n" + fingerprint, digest_size=_SIZE).digest())


def format_digest(total: int) -> str:
    """Return the digest, in hexadecimal, of what all records add."""
    return f"{total % (1 << 8 * _SIZE):032x}"


def parse_digest(digest: str) -> int:
    """Return the number that :func:`format_digest` has written."""
    return int(digest, 16)
