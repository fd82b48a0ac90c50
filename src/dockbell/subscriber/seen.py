"""Which events were taken already: at least once means that some come twice, under the same id."""

from __future__ import annotations

from typing import Protocol


class SeenIds(Protocol):
    """A memory of ids. Ask, do what the event wants, then add: what fails in between comes again.

    A durable one adds the id in the transaction in which it does what the event wants; then a crash repeats nothing.
    """

    def __contains__(self, event_id: object, /) -> bool:
        """Return whether an id was added."""
        ...

    def add(self, event_id: str, /) -> None:
        """Remember an id."""
        ...


class Seen:
    """The latest ids, in memory.

    Args:
        limit: How many; about 150 bytes each. Repetitions come within seconds of each other but for retries (three
            days) and replays; a :class:`State` drops those that are forgotten here by their revision.
    """

    def __init__(self, limit: int = 100_000) -> None:
        if limit < 1:
            raise ValueError(f"limit: must be 1 or more, got {limit}")
        self._limit = limit
        self._ids: dict[str, None] = {}

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, event_id: str) -> None:
        """Remember an id; the one that was added first is forgotten when there are too many."""
        self._ids[event_id] = None
        if len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]
