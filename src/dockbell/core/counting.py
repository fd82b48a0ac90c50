"""Numbers and lists of things in words."""

from __future__ import annotations

from collections.abc import Iterable


def count_of(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 page``, ``2 pages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def list_of(names: Iterable[str]) -> str:
    """Return names as a list in a sentence: ``items, packages and stock``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
