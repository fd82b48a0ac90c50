"""What may be told, by what it is told of; whoever tells or listens takes it from :mod:`dockbell.telemetry`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and that somebody may want to know."""

    @property
    def level(self) -> int:
        """How much it matters, on the scale of :mod:`logging`."""
        return self.weight

    weight: ClassVar[int] = logging.INFO


def count(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 page``, ``2 pages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
