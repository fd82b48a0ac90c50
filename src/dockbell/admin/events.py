"""The recorded events, chosen and followed, and the catalogue of those that there can be.

The schemas of the catalogue are learned from the records that are stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from importlib.resources import files
from typing import Final

import anyio
import msgspec

from dockbell._version import __version__
from dockbell.config import Config
from dockbell.core.document import decode
from dockbell.core.model import RESOURCES, ChangeKind, Event, Feed, NoticeKind, StatementKind
from dockbell.core.publishing.catalogue.document import Catalogue
from dockbell.ports import ReadStore

CHANGES: Final = tuple(kind.value for kinds in (ChangeKind, StatementKind, NoticeKind) for kind in kinds)
"""What an event may tell of: a change of a record, what is said of a feed, a notice to the operator."""
_AT_ONCE: Final = 1000
_LOOK_EVERY: Final = timedelta(seconds=0.5)
_RECORDS_MOST: Final = 2000
_RECORDS_AT_ONCE: Final = 500
_EVENTS_MOST: Final = 1000
_NULL: Final = b"null"


class Choice(msgspec.Struct, frozen=True):
    """Which events are asked for; what is empty chooses nothing."""

    sources: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def takes(self, event: Event) -> bool:
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


async def find_by_id(read_store: ReadStore, event_id: str) -> Event | None:
    """Return the kept event with an id; None where there is none.

    There is no index of ids: the newest events are looked through first.
    """
    before: int | None = None
    while True:
        found, before = await read_store.read_earlier(before, 1, id_=event_id)
        if found:
            return found[0][1]
        if before is None:
            return None


# The catalogue -------------------------------------------------------------------------------------------------------


class _Data(msgspec.Struct):
    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)


class _Event(msgspec.Struct):
    data: _Data


async def find_catalogue(config: Config, read_store: ReadStore | None) -> Catalogue:
    """Return the catalogue of a configuration; without a store the schemas of records stay open."""
    feeds = [Feed(each.source, each.resource) for each in config.feeds()]
    records = {feed: [] if read_store is None else await _sample(read_store, feed) for feed in feeds}
    contract = decode((files("dockbell.core.publishing") / "event.schema.json").read_bytes())
    return Catalogue(config, contract=contract, records=records, version=__version__)


async def _sample(read_store: ReadStore, feed: Feed) -> list[bytes]:
    """Return records as they are stored, and as the last events show them: before the change, and the deleted ones."""
    records: list[bytes] = []
    row = 0
    while len(records) < _RECORDS_MOST:
        _, found = await read_store.read_records(feed, row, _RECORDS_AT_ONCE)
        records += [record.body for record in found if record.body is not None]
        if len(found) < _RECORDS_AT_ONCE:
            break
        row = found[-1].row
    extent = await read_store.find_extent(feed)
    if extent is not None:
        after = max(extent.pruned, extent.last - _EVENTS_MOST)
        for event in await read_store.read_events(feed, after, _EVENTS_MOST):
            data = msgspec.json.decode(event.body, type=_Event).data
            records += [raw for raw in (bytes(data.before), bytes(data.after)) if raw != _NULL]
    return records
