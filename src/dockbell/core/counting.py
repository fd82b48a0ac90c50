"""Numbers of things in words."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 page``, ``2 pages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
