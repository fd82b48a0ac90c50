"""Readings that look like a lagging replica's: held, and believed only when they last (docs/guarantees.md).

A listing may be answered by replicas that lag behind. A reading that is *older* than what is stored is therefore no
change yet: it is held, and believed when the same content comes back in a request made ``stale_window`` later, with
no current reading in between. Where records are dated, older means an older timestamp, unless the stored one lies in
the service's future (then it says nothing of age). Where they are not, or the timestamp did not move, older means
content that was replaced less than ``stale_window`` ago.
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
        asked_at: S of the first request that showed it, in µs since 1970.
    """

    fingerprint: bytes
    asked_at: int


def supersede(superseded: bytes | None, fingerprint: bytes, at: datetime, window: timedelta) -> bytes | None:
    """Return the recently replaced fingerprints of a record after one more was replaced.

    Args:
        superseded: As stored: 24 bytes each, the fingerprint and when it was replaced; None for none.
        fingerprint: What is replaced now.
        at: The service's time when the reading that replaces it was answered: until then it may have been current.
        window: For how long it matters.
    """
    if not window:
        return None
    recent = [entry for entry in _entries(superseded) if from_micros(entry[1]) + window > at]
    recent.append((fingerprint, to_micros(at)))
    return b"".join(_ENTRY.pack(*entry) for entry in recent[-_REMEMBERED:])


def looks_stale(
    modified: datetime | None,
    stored: int | None,
    superseded: bytes | None,
    fingerprint: bytes,
    *,
    asked_at: datetime,
    answered_at: datetime,
    window: timedelta,
) -> bool:
    """Return whether a reading that differs from the stored record is older than it.

    Args:
        modified: The reading's own timestamp.
        stored: The stored record's, in µs since 1970.
        superseded: The fingerprints that the stored record replaced lately.
        fingerprint: The reading's.
        asked_at: S of the request.
        answered_at: The service's time when it answered, at the latest; what is dated later than that by more than the
            window is in its future, and says nothing of age.
        window: ``stale_window``; nothing is held when it is zero.
    """
    if not window:
        return False
    if modified is not None and stored is not None and to_micros(modified) != stored:
        return to_micros(modified) < stored <= to_micros(answered_at + window)
    return any(replaced == fingerprint and from_micros(at) + window > asked_at for replaced, at in _entries(superseded))


def is_believed(hold: Hold | None, fingerprint: bytes, asked_at: datetime, window: timedelta) -> bool:
    """Return whether a reading that looks stale has lasted long enough to be true."""
    return hold is not None and hold.fingerprint == fingerprint and from_micros(hold.asked_at) + window <= asked_at


def keep(hold: Hold | None, fingerprint: bytes, asked_at: datetime) -> Hold:
    """Return the hold of a reading: the one that it repeats, or a new one."""
    return hold if hold is not None and hold.fingerprint == fingerprint else Hold(fingerprint, to_micros(asked_at))


def _entries(superseded: bytes | None) -> Iterator[tuple[bytes, int]]:
    return _ENTRY.iter_unpack(superseded) if superseded else iter(())
