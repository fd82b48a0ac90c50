"""The stored records of a feed, one after the other or by key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from dockbell.admin.why import read_key
from dockbell.ports import FeedState, ReadStore, StoredRecord

_AT_ONCE: Final = 200
"""As many as the API shows on a page: no more are in memory, and no transaction is longer than one read of them."""


async def read_all(read_store: ReadStore, state: FeedState, *, with_gone: bool) -> AsyncIterator[StoredRecord]:
    """Yield the records of a feed, each as it is stored when its turn comes; tombstones only where asked for."""
    row = 0
    while records := await read_store.read_stored(state.id, row, _AT_ONCE, with_gone=with_gone):
        for record in records:
            yield record
        row = records[-1].row


async def find_one(read_store: ReadStore, state: FeedState, given: str) -> StoredRecord | None:
    """Return the record that is meant by a key, as events or the API write it; None where none is stored.

    Raises:
        ValueError: What is given can be no key.
    """
    for key in read_key(given):
        if (record := await read_store.find_record(state.id, key)) is not None:
            return record
    return None
