"""The recorded events, as an operator looks at them: the last ones, those that follow, those that are asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio

from dockbell.config import Config
from dockbell.core.model import RESOURCES, ChangeKind, Event, NoticeKind, StatementKind
from dockbell.ports import ReadStore

CHANGES: Final = tuple(kind.value for kinds in (ChangeKind, StatementKind, NoticeKind) for kind in kinds)
"""What an event may tell of: a change of a record, what is said of a feed, a notice to the operator."""
_AT_ONCE: Final = 1000
_LOOK_EVERY: Final = timedelta(seconds=0.5)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which events are asked for; what is empty chooses nothing."""

    sources: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def takes(self, event: Event) -> bool:
        """Tell whether an event is asked for."""
        return all(
            not chosen or value in chosen
            for chosen, value in (
                (self.sources, event.feed.source),
                (self.resources, event.feed.resource),
                (self.keys, event.key),
                (self.types, event.type),
                (self.changes, event.change),
            )
        )


def find_types(config: Config) -> Sequence[str]:
    """Return the types of all events that there can be with this configuration."""
    names = [f"feed.{kind}" for kind in StatementKind] + [f"notice.{kind}" for kind in NoticeKind]
    for each in config.feeds():
        named = (event.name for event in each.settings.events)
        names += [f"{RESOURCES[each.resource].singular}.{kind}" for kind in (*ChangeKind, *named)]
    return [f"dockbell.{name}" for name in dict.fromkeys(names)]


async def find_last(read_store: ReadStore, choice: Choice, count: int) -> tuple[Sequence[Event], int]:
    """Return the last ``count`` events that are asked for, oldest first, and the place after which others will come."""
    newest = await read_store.read_latest(-1, 1)
    end = newest[-1][0] if newest else 0
    found: list[Event] = []
    top = end
    while top > 0 and len(found) < count:
        start = max(0, top - _AT_ONCE)
        events = [event for place, event in await read_store.read_latest(start, top - start) if place <= top]
        found[:0] = filter(choice.takes, events)
        top = start
    return found[max(0, len(found) - count) :], end


async def follow(read_store: ReadStore, choice: Choice, after: int) -> AsyncIterator[Event]:
    """Yield the events that are asked for as they are recorded after a place, for ever."""
    while True:
        events = await read_store.read_latest(after, _AT_ONCE)
        for place, event in events:
            after = place
            if choice.takes(event):
                yield event
        if len(events) < _AT_ONCE:
            await anyio.sleep(_LOOK_EVERY.total_seconds())
