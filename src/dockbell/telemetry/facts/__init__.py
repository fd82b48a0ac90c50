"""What happened, by subject: a fact is reported once, and the log, the metrics and the page listen."""

from __future__ import annotations

import logging
import string
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and that an operator may want to know."""

    weight: ClassVar[int] = logging.INFO
    """How much it matters, on the scale of :mod:`logging`."""
    line: ClassVar[str] = ""
    """The log line, a template of the fields: ``{sink}``; ``{pages:# page}`` counts things, ``{delay:.1f}`` seconds."""

    @property
    def level(self) -> int:
        """How much this one matters; the weight of its kind, unless its fields say otherwise."""
        return self.weight

    def __str__(self) -> str:
        return _LINES.vformat(self.line, (), {name: getattr(self, name) for name in self.__dataclass_fields__})


class _Lines(string.Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        if format_spec.startswith("# ") and isinstance(value, int):
            return count(value, format_spec[2:])
        seconds = value.total_seconds() if isinstance(value, timedelta) and format_spec else value
        return str(super().format_field(seconds, format_spec))


_LINES: Final = _Lines()


def count(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 page``, ``2 pages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
