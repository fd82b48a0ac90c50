"""One thing that the pages of a listing have in common."""

from __future__ import annotations

from typing import Final, NamedTuple

TURNS_MOST: Final = 3
"""A trait that has turned more often than this varies."""
MIXED: Final = "mixed"
"""The value of a trait in which the records of one page differ."""
_AGAIN: Final = "; it changes again and again, which is not told any more"


class Trait(NamedTuple):
    """What pages have in common in one respect.

    Attributes:
        value: What it is; empty while unknown.
        turns: How often it has become another.
    """

    value: str = ""
    turns: int = 0

    @property
    def varies(self) -> bool:
        """Whether it is not one thing, so that no page can contradict it."""
        return self.turns > TURNS_MOST or self.value == MIXED

    def learn(self, seen: str, drift: str, *, teaches: bool = True) -> tuple[Trait, str]:
        """Return the trait after a page that shows ``seen``, and the drift where that contradicts it; else empty.

        Args:
            seen: What the page shows; empty for nothing.
            drift: What to report where it contradicts.
            teaches: The page is long enough to learn from.
        """
        if not seen or seen == self.value or self.varies:
            return self, ""
        if not self.value:
            return (Trait(seen, self.turns) if teaches else self), ""
        return Trait(seen, self.turns + 1), report_turn(drift, self.turns + 1)

    def describe(self, words: str) -> str:
        """Return what to show the operator, where ``words`` describes the value; empty while that is unknown."""
        if not self.value:
            return ""
        return f"varies, last {words}" if self.turns > TURNS_MOST else words


def report_turn(drift: str, turns: int) -> str:
    """Return the report of a drift; the last of several says that it is the last."""
    return drift + _AGAIN if turns > TURNS_MOST else drift


def agree(first: str, last: str) -> str:
    """Return what both ends of a page show; what one shows where the other shows nothing."""
    return first if first == last or not last else last if not first else MIXED
