"""Removes from the stored records of a feed what must no longer be stored, before its next pass.

It works in portions, so that nothing waits for long, and goes on where it was interrupted. Pages that are read
meanwhile come without it, and the change detector leaves it out of comparisons.
"""

from __future__ import annotations

from typing import Final

from dockbell.detection.feed import TrackedFeed
from dockbell.telemetry import FeedCleaned

_AT_ONCE: Final = 500


async def scrub(feed: TrackedFeed, *, rewrite_most: int | None) -> None:
    """Scrub the stored records of a feed, if that is due; it stays due until no trace is left in the store's files.

    ``rewrite_most`` is of :meth:`dockbell.ports.Privacy.wipe`.
    """
    state = await feed.state()
    if not state.cleaning or feed.erasure is None:
        return
    records = events = 0
    fingerprint = None if state.shape is None else feed.detector.fingerprint
    while (found := await feed.store.clean(feed.erasure, fingerprint, _AT_ONCE)) is not None:
        records, events = records + found[0], events + found[1]
    problem = await feed.privacy.wipe(rewrite_most=rewrite_most)
    if not problem:
        await feed.store.end_cleaning()
    feed.telemetry.emit(FeedCleaned(feed.feed, state.cleaning, records, events, problem))
    await feed.reload()
