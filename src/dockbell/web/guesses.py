"""How many wrong tokens may be sent: by one address, and by all together. Pure.

Each address has a bucket, and so have all together: a wrong token takes one out, time puts them back. Who finds a
bucket empty has to wait until there is one again, and is not looked at before. An address that has shown the right
token lately does not wait for what others guess, only for what was guessed from its own. And a token that was wrong
before is no guess: a program that goes on with an old one keeps nobody out, though all may come through one proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from dockbell.web.address import find_network

REMEMBERED_MOST: Final = 2000
"""So many addresses are remembered, of either kind, and so many wrong tokens; those that were heard of last."""

_ONES_OWN: Final = (10, 6.0)
"""How many an address may send at once, and after how many seconds one more."""
_ALL: Final = (100, 0.6)


@dataclass(slots=True)
class _Bucket:
    """Holds some; what it held was counted at a time.

    Attributes:
        held: How many.
        at: When, in seconds of a monotonic clock.
    """

    most: int
    every: float
    held: float
    at: float

    def look(self, now: float) -> float:
        """Return how many it holds now."""
        self.held = min(self.most, self.held + max(0.0, now - self.at) / self.every)
        self.at = now
        return self.held

    def delay(self, now: float) -> float:
        """Return in how many seconds it will hold one."""
        return max(0.0, 1 - self.look(now)) * self.every

    def take(self, now: float) -> None:
        """Take one out."""
        self.held = max(0.0, self.look(now) - 1)


_T = TypeVar("_T")


class _Memory(Generic[_T]):
    """Remembers what was noted last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _T] = OrderedDict()

    def find(self, name: str) -> _T | None:
        return self._known.get(name)

    def note(self, name: str, value: _T) -> None:
        self._known[name] = value
        self._known.move_to_end(name)
        if len(self._known) > REMEMBERED_MOST:
            self._known.popitem(last=False)


class Guesses:
    """The buckets."""

    def __init__(self) -> None:
        self._all = _Bucket(*_ALL, held=_ALL[0], at=0)
        self._guessing: _Memory[_Bucket] = _Memory()
        self._right: _Memory[bool] = _Memory()
        self._wrong: _Memory[bool] = _Memory()

    def is_known(self, mark: str) -> bool:
        """Return whether a token was wrong lately; it must not be looked at again.

        Args:
            mark: Of the token, from which nobody can tell it.
        """
        return bool(self._wrong.find(mark))

    def delay(self, peer: str, now: float) -> float:
        """Return how many seconds a peer has to wait before its token is looked at."""
        network = find_network(peer)
        bucket = self._guessing.find(network)
        own = bucket.delay(now) if bucket is not None else 0.0
        return own if self._right.find(network) else max(own, self._all.delay(now))

    def note_wrong(self, peer: str, mark: str, now: float) -> None:
        """Note that a peer has sent a token that is wrong."""
        network = find_network(peer)
        bucket = self._guessing.find(network) or _Bucket(*_ONES_OWN, held=_ONES_OWN[0], at=now)
        bucket.take(now)
        self._guessing.note(network, bucket)
        self._all.take(now)
        self._wrong.note(mark, value=True)

    def note_right(self, peer: str) -> None:
        """Note that a peer has sent the right token."""
        self._right.note(find_network(peer), value=True)
