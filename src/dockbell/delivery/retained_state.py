"""The stored records as one sink may see them, for sinks that keep a copy of each at the receiver."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import RecordId
from dockbell.ports import Extent, Store, StoredState

_AT_ONCE: Final = 200


class StoredRetainedState:
    """Implements :class:`dockbell.ports.RetainedState`.

    ``wants`` returns whether the sink takes events of a feed, and the feed is configured and this process's; ``knows``
    the same of the feeds of all processes; ``render`` the part of a record's raw JSON that the sink may see.
    """

    def __init__(
        self,
        sink: str,
        store: Store,
        *,
        wants: Callable[[Feed], bool],
        knows: Callable[[Feed], bool] | None = None,
        render: Callable[[bytes], bytes],
    ) -> None:
        self._sink = sink
        self._store = store
        self._sink_store = store.sink(sink)
        self._wants = wants
        self._knows = wants if knows is None else knows
        self._render = render

    @property
    def epoch(self) -> str:
        return self._store.epoch

    async def feeds(self) -> Sequence[Feed]:
        return [feed for feed in sorted(await self._store.find_extents()) if self._knows(feed)]

    async def count_stored(self, feed: Feed) -> int | None:
        """Return how many records of a feed are stored; None before its first complete pass."""
        if not (await self._store.find_extents())[feed].is_complete:
            return None
        return sum([kept.body is not None async for portion in self._read_all(feed) for kept in portion])

    async def find_stored(self, record_ids: Sequence[RecordId]) -> AbstractSet[RecordId]:
        return set(await self._store.read_states([each for each in record_ids if self._knows(each[0])]))

    async def mark(self, since: str) -> tuple[str, bool]:
        """Return the mark of the settled events, and whether states since another mark must be read."""
        known = _read_mark(since, self._store.epoch)
        positions, blocked = await self._sink_store.load_queue()
        starts = await self._sink_store.load_starts()
        backfilled_to = {feed for feed, start in starts.items() if start.backfilled_to is None}
        settled: dict[str, list[float]] = {}
        must_read = False
        for feed, extent in sorted((await self._store.find_extents()).items()):
            if self._wants(feed) and extent.is_complete and feed in backfilled_to and feed in positions:
                # The position passes blocked keys. A key that is blocked for longer than events are kept does not
                # count: otherwise all records would be read at each connection.
                owed = (each.sequence for each in blocked if each.feed == feed and each.sequence > extent.pruned)
                settled[str(feed)] = [extent.baselines, min(positions[feed], min(owed, default=inf) - 1)]
                must_read |= _find_position(known.get(str(feed)), extent) is None
        return json.dumps({"epoch": self._store.epoch, "settled": settled}), must_read

    async def read_since(self, mark: str) -> AsyncIterator[Sequence[StoredState]]:
        """Yield the states that have changed since a mark, in portions; all states where the mark is too old."""
        known = _read_mark(mark, self._store.epoch)
        for feed, extent in (await self._store.find_extents()).items():
            if not (self._wants(feed) and extent.is_complete):
                continue
            position = _find_position(known.get(str(feed)), extent)
            portions = self._read_all(feed) if position is None else self._read_changed(feed, position)
            async for portion in portions:
                yield [kept if kept.body is None else replace(kept, body=self._render(kept.body)) for kept in portion]

    async def _read_changed(self, feed: Feed, after: int) -> AsyncIterator[Sequence[StoredState]]:
        while True:
            portion, end = await self._store.read_changed(feed, after, _AT_ONCE)
            if end == after:
                return
            after = end
            yield portion

    async def _read_all(self, feed: Feed) -> AsyncIterator[Sequence[StoredState]]:
        row = 0
        while True:
            portion, end = await self._store.read_stored(feed, row, _AT_ONCE)
            if end == row:
                return
            row = end
            yield portion


def _read_mark(mark: str, epoch: str) -> Mapping[str, Any]:
    """Return a mark's entry for each feed; none where the mark is unreadable or of another epoch of the store."""
    try:
        read = json.loads(mark)
    except ValueError:
        return {}
    if not isinstance(read, dict) or read.get("epoch") != epoch or not isinstance(read.get("settled"), dict):
        return {}
    settled: Mapping[str, Any] = read["settled"]
    return settled


def _find_position(known: Any, extent: Extent) -> int | None:
    """Return the sequence after which the stored events have all changes since a mark; None where some are pruned."""
    match known:
        case [extent.baselines, int(position)] if extent.pruned <= position <= extent.last:
            return position
    return None
