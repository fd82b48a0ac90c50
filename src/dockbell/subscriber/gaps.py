"""What did not arrive, where that can be known.

A record's revisions count up by one, so a subscriber that gets every change of it sees what is missing as soon as the
next one comes. A feed's sequence does the same for a reader in order, which only pull feeds promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dockbell.subscriber.errors import GapsUnknowable
from dockbell.subscriber.events import SNAPSHOT, VIA_STATE, Change, Event


class Missing(NamedTuple):
    """Changes or events that were made and did not arrive, or not yet.

    Attributes:
        where: The ``partitionkey`` of a record, when they are revisions; of a feed, when they are sequence numbers.
        first: The first of the numbers.
        last: The last of them.
    """

    where: str
    first: int
    last: int


class RevisionGaps:
    """Finds missing changes of records by their revisions, for subscribers of a sink that holds no change back.

    Args:
        changes: As in the sink's table of the configuration; also when an MQTT topic filter names a change.
        where: As in the sink's table.
        from_beginning: This subscriber has had every event since dockbell's first: a record that it never heard of
            has had no change. Otherwise such a record's chain begins with the first event that comes.

    Raises:
        GapsUnknowable: The sink holds changes back: what is filtered looks the same as what was lost.
    """

    def __init__(
        self, *, changes: Sequence[str] | None = None, where: str | None = None, from_beginning: bool = False
    ) -> None:
        for name, value in {"changes": changes, "where": where}.items():
            if value is not None:
                raise GapsUnknowable(
                    f"gaps: the sink has a filter, {name} = {value!r}, and what it holds back looks the same as what "
                    "was lost; subscribe without it, or read the pull feed"
                )
        self._from_beginning = from_beginning

    def find(self, event: Event, seen: int | None) -> Missing | None:
        """Return what is missing before an event.

        A snapshot tells how a record is, as does all that a sink is told when it begins, so nothing is ever missing
        before it; named events and statements have no revision of their own.

        Args:
            event: Which, before it is applied.
            seen: The record's highest revision so far; None where none was seen.
        """
        data = event.data
        if type(data) is not Change or data.change == SNAPSHOT or data.via == VIA_STATE:
            return None
        if seen is None:
            if not self._from_beginning:
                return None
            seen = 0
        return Missing(event.partitionkey, seen + 1, data.revision - 1) if data.revision > seen + 1 else None


class SequenceGaps:
    """Finds missing events of one feed by their sequence, for those who read all of it in order: pull feeds only.

    Webhooks and MQTT keep the order of each record, not that of a feed, so there a number that is missing may be on
    its way.

    Args:
        after: The sequence of the position from which on the feed is read.
    """

    def __init__(self, after: int) -> None:
        self._last = after

    def find(self, event: Event) -> Missing | None:
        """Return what is missing before an event."""
        last, self._last = self._last, max(self._last, event.sequence)
        return Missing(event.feed, last + 1, event.sequence - 1) if event.sequence > last + 1 else None
