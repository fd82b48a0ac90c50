"""The catalogue of what is published, with schemas learned from the records that are stored."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import msgspec

from dockbell._version import __version__
from dockbell.config import Config
from dockbell.core.document import decode
from dockbell.core.model import Feed
from dockbell.core.publishing.catalogue.document import Catalogue
from dockbell.ports import ReadStore

_RECORDS_MOST: Final = 2000
_EVENTS_MOST: Final = 1000
_AT_ONCE: Final = 500
_NULL: Final = b"null"


class _Data(msgspec.Struct):
    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)


class _Event(msgspec.Struct):
    data: _Data


async def find_catalogue(config: Config, read_store: ReadStore | None) -> Catalogue:
    """Return the catalogue of a configuration.

    Args:
        config: The configuration.
        read_store: Of the store; without one the schemas of records stay open.
    """
    feeds = [Feed(each.source, each.resource) for each in config.feeds()]
    records = {feed: [] if read_store is None else await _sample(read_store, feed) for feed in feeds}
    contract = decode((files("dockbell.core.publishing") / "event.schema.json").read_bytes())
    return Catalogue(config, contract=contract, records=records, version=__version__)


async def _sample(read_store: ReadStore, feed: Feed) -> list[bytes]:
    """Return records as they are stored, and as the last events show them: before the change, and the deleted ones."""
    records: list[bytes] = []
    row = 0
    while len(records) < _RECORDS_MOST:
        _, found = await read_store.read_records(feed, row, _AT_ONCE)
        records += [record.body for record in found if record.body is not None]
        if len(found) < _AT_ONCE:
            break
        row = found[-1].row
    extent = await read_store.find_extent(feed)
    if extent is not None:
        after = max(extent.pruned, extent.last - _EVENTS_MOST)
        for event in await read_store.read_events(feed, after, _EVENTS_MOST):
            data = msgspec.json.decode(event.body, type=_Event).data
            records += [raw for raw in (bytes(data.before), bytes(data.after)) if raw != _NULL]
    return records
