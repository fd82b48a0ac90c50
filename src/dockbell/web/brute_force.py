"""Limits how many wrong tokens one network may send, and all networks together. Pure.

Each network has a token bucket, and one more counts for all: a wrong token takes one out, time refills it. While a
bucket is empty, no token is compared. A network that has lately shown the right token is limited only by its own
bucket, so that attackers elsewhere cannot lock it out. A wrong token that is sent again does not count: a program with
an outdated token cannot lock out others behind the same proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dockbell.web.address import find_network

REMEMBERED_MOST: Final = 2000
"""Entries of each memory: networks that guessed, networks that were right, wrong tokens; the oldest are dropped."""

_PER_NETWORK: Final = (10, 6.0)
"""How many tokens a bucket holds, and after how many seconds one is put back."""
_ALL: Final = (100, 0.6)


@dataclass(slots=True)
class _Bucket:
    """A token bucket.

    Attributes:
        most: How many it holds at most.
        every: Seconds after which one is put back.
        held: How many it held at ``at``.
        at: Seconds of a monotonic clock.
    """

    most: int
    every: float
    held: float
    at: float

    def refill(self, now: float) -> float:
        """Return how many it holds now."""
        self.held = min(self.most, self.held + max(0.0, now - self.at) / self.every)
        self.at = now
        return self.held

    def delay(self, now: float) -> float:
        """Return the seconds until it holds one."""
        return max(0.0, 1 - self.refill(now)) * self.every

    def take(self, now: float) -> None:
        """Take one out."""
        self.held = max(0.0, self.refill(now) - 1)


_T = TypeVar("_T")


class _Memory(Generic[_T]):
    """Remembers the entries that were noted last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _T] = OrderedDict()

    def find(self, name: str) -> _T | None:
        return self._known.get(name)

    def note(self, name: str, value: _T) -> None:
        self._known[name] = value
        self._known.move_to_end(name)
        if len(self._known) > REMEMBERED_MOST:
            self._known.popitem(last=False)


class BruteForceLimiter:
    """The buckets of all networks."""

    def __init__(self) -> None:
        self._all = _Bucket(*_ALL, held=_ALL[0], at=0)
        self._buckets: _Memory[_Bucket] = _Memory()
        self._right: _Memory[bool] = _Memory()
        self._wrong: _Memory[bool] = _Memory()

    def was_wrong(self, mark: str) -> bool:
        """Return whether a token was lately found to be wrong.

        Args:
            mark: A keyed digest of the token.
        """
        return bool(self._wrong.find(mark))

    def delay(self, peer: str, now: float) -> float:
        """Return the seconds after which a token of a peer may be compared."""
        network = find_network(peer)
        bucket = self._buckets.find(network)
        own = bucket.delay(now) if bucket is not None else 0.0
        return own if self._right.find(network) else max(own, self._all.delay(now))

    def note_wrong(self, peer: str, mark: str, now: float) -> None:
        """Note that a peer has sent a wrong token."""
        network = find_network(peer)
        bucket = self._buckets.find(network) or _Bucket(*_PER_NETWORK, held=_PER_NETWORK[0], at=now)
        bucket.take(now)
        self._buckets.note(network, bucket)
        self._all.take(now)
        self._wrong.note(mark, value=True)

    def note_right(self, peer: str) -> None:
        """Note that a peer has sent the right token."""
        self._right.note(find_network(peer), value=True)
