"""Readings that look like a lagging replica's are held, and believed only when they last (docs/guarantees.md).

A reading that looks stale (:mod:`~dockbell.core.comparing.staleness`) is no change yet: it is held, and believed when
the same content comes back in a request made ``stale_window`` later, with no current reading in between.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dockbell.core.moment import from_micros, to_micros

_ENTRY: Final = struct.Struct("<16sq")
_REMEMBERED: Final = 8


class Hold(NamedTuple):
    """A reading that is not believed yet.

    Attributes:
        fingerprint: What it showed.
        asked_at: The service's time of the first request that showed it, in µs since 1970.
    """

    fingerprint: bytes
    asked_at: int


def supersede(superseded: bytes | None, fingerprint: bytes, at: datetime, window: timedelta) -> bytes | None:
    """Return the recently replaced fingerprints of a record after one more was replaced.

    Args:
        superseded: As stored: 24 bytes each, the fingerprint and when it was replaced; None for none.
        fingerprint: What is replaced now.
        at: The service's time when it answered with the new content; the old one may have been current until then.
        window: For how long the old one matters, ``stale_window``.
    """
    if not window:
        return None
    recent = [entry for entry in _entries(superseded) if from_micros(entry[1]) + window > at]
    recent.append((fingerprint, to_micros(at)))
    return b"".join(_ENTRY.pack(*entry) for entry in recent[-_REMEMBERED:])


def was_superseded(superseded: bytes | None, fingerprint: bytes, asked_at: datetime, window: timedelta) -> bool:
    """Return whether a record had this content less than a window before a request was made."""
    if not window:
        return False
    return any(replaced == fingerprint and from_micros(at) + window > asked_at for replaced, at in _entries(superseded))


def is_believed(hold: Hold | None, fingerprint: bytes, asked_at: datetime, window: timedelta) -> bool:
    """Return whether a reading that looks stale has lasted long enough to be true."""
    return hold is not None and hold.fingerprint == fingerprint and from_micros(hold.asked_at) + window <= asked_at


def keep(hold: Hold | None, fingerprint: bytes, asked_at: datetime) -> Hold:
    """Return the hold of a reading: the one that it repeats, or a new one."""
    return hold if hold is not None and hold.fingerprint == fingerprint else Hold(fingerprint, to_micros(asked_at))


def _entries(superseded: bytes | None) -> Iterator[tuple[bytes, int]]:
    return _ENTRY.iter_unpack(superseded) if superseded else iter(())
