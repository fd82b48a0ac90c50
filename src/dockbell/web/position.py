"""Where a reader is in a feed: the store's epoch, and the number of the last event that it has seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from dockbell.config.values import show

_FORM: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9]{1,18})")
_CURSOR: Final = re.compile(r"(.+)\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Position:
    """The event after which a reader goes on; written ``epoch.sequence``.

    Attributes:
        epoch: The random mark of the store; a new store has another.
        sequence: The number of the last event that was seen; 0 before the first.
    """

    epoch: str
    sequence: int

    def __str__(self) -> str:
        """Return it as in headers, parameters and the ids of a stream."""
        return f"{self.epoch}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position that a text states.

        Raises:
            ValueError: It states none.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f'must be a position, "<epoch>.<sequence>" as it was given, got {show(text)}')
        return cls(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a reader is in the stored records of a feed.

    Attributes:
        position: That of the first page, from which the feed is to be followed.
        row: The row of the last record that was shown.
    """

    position: Position
    row: int

    def __str__(self) -> str:
        """Return it as in parameters."""
        return f"{self.position}.{self.row}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the cursor that a text states.

        Raises:
            ValueError: It states none.
        """
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise ValueError(f"must be a cursor as it was given, got {show(text)}")
        return cls(Position.parse(match[1]), int(match[2]))
