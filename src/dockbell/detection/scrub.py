"""Takes out of what is stored of a feed what must not be stored from now on, before its next pass.

In portions, so that nothing waits for long; it goes on where it was interrupted. What is read meanwhile comes without
it, and the judge takes it out of whatever it compares with.
"""

from __future__ import annotations

from typing import Final

from dockbell.detection.reader import Reader
from dockbell.telemetry import FeedCleaned

_AT_ONCE: Final = 500


async def scrub(reader: Reader, *, rewrite_most: int | None) -> None:
    """Clean what is stored of a feed, if that is due; it stays due until no trace is left in the store's files.

    Args:
        reader: Of the feed.
        rewrite_most: See :meth:`dockbell.ports.Store.wipe`.
    """
    state = await reader.state()
    if not state.cleaning or reader.erasure is None:
        return
    records = events = 0
    fingerprint = None if state.shape is None else reader.detector.fingerprint
    while (found := await reader.store.clean(state.id, reader.erasure, fingerprint, _AT_ONCE)) is not None:
        records, events = records + found[0], events + found[1]
    problem = await reader.store.wipe(rewrite_most=rewrite_most)
    if not problem:
        await reader.store.end_cleaning(state.id)
    reader.telemetry.emit(FeedCleaned(reader.feed, state.cleaning, records, events, problem))
    await reader.reload()
