"""What is to be done so that what runs is what a configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Difference(Generic[_K]):
    """How what is wanted differs from what there is; each in the order of its side.

    Attributes:
        added: Only wanted.
        changed: There, but wanted otherwise.
        removed: There, and no longer wanted.
        kept: There as it is wanted.
    """

    added: tuple[_K, ...] = ()
    changed: tuple[_K, ...] = ()
    removed: tuple[_K, ...] = ()
    kept: tuple[_K, ...] = ()

    @property
    def ending(self) -> tuple[_K, ...]:
        """What must end."""
        return self.removed + self.changed

    @property
    def beginning(self) -> tuple[_K, ...]:
        """What must begin, or begin anew."""
        return self.changed + self.added

    def describe(self, noun: str) -> list[str]:
        """Return it in words: ``sink erp added``; what is kept gives none."""
        words = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        return [f"{noun} {name} {verb}" for verb, names in words for name in names]


def compare(there: Mapping[_K, _V], wanted: Mapping[_K, _V]) -> Difference[_K]:
    """Return how what is wanted differs from what there is."""
    return Difference(
        tuple(name for name in wanted if name not in there),
        tuple(name for name in wanted if name in there and there[name] != wanted[name]),
        tuple(name for name in there if name not in wanted),
        tuple(name for name in wanted if name in there and there[name] == wanted[name]),
    )
