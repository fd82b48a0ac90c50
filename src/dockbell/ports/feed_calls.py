"""The methods of :class:`dockbell.ports.FeedStore` by the number of a feed, until detection holds handles."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from dockbell.core.model import Feed
from dockbell.ports.runs import Absentees, Awaited, Checkpoint, Committed, FeedState


class FeedCalls(Protocol):
    """Each takes the feed's number first, but for those that take rows."""

    async def open_feed(self, feed: Feed) -> FeedState:
        """See :meth:`dockbell.ports.FeedStore.open`."""
        ...

    begin_feed: Callable[..., Coroutine[Any, Any, None]]
    save_read_settings: Callable[..., Coroutine[Any, Any, None]]
    save_shape: Callable[..., Coroutine[Any, Any, None]]
    save_listing_profile: Callable[..., Coroutine[Any, Any, None]]
    save_problem: Callable[..., Coroutine[Any, Any, None]]
    last_row: Callable[..., Coroutine[Any, Any, int]]
    commit_page: Callable[..., Coroutine[Any, Any, Committed]]
    close_run: Callable[..., Coroutine[Any, Any, None]]
    publish: Callable[..., Coroutine[Any, Any, None]]
    save_checkpoint: Callable[..., Coroutine[Any, Any, None]]
    load_checkpoint: Callable[..., Coroutine[Any, Any, Checkpoint | None]]
    drop_checkpoint: Callable[..., Coroutine[Any, Any, None]]
    find_absent: Callable[..., Coroutine[Any, Any, Absentees]]
    count_deleted: Callable[..., Coroutine[Any, Any, int]]
    suspect: Callable[..., Coroutine[Any, Any, None]]
    close_pass: Callable[..., Coroutine[Any, Any, None]]
    decide: Callable[..., Coroutine[Any, Any, int]]
    end_baseline: Callable[..., Coroutine[Any, Any, None]]
    keep: Callable[..., Coroutine[Any, Any, None]]
    find_suspected: Callable[..., Coroutine[Any, Any, Sequence[int]]]
    find_told_apart: Callable[..., Coroutine[Any, Any, Sequence[int]]]
    count_holds: Callable[..., Coroutine[Any, Any, int]]
    end_suspicion: Callable[..., Coroutine[Any, Any, bool]]
    delete_records: Callable[..., Coroutine[Any, Any, int]]
    load_awaited: Callable[..., Coroutine[Any, Any, Sequence[Awaited]]]
    complete: Callable[..., Coroutine[Any, Any, int]]
    complete_overdue: Callable[..., Coroutine[Any, Any, None]]
    load_waits: Callable[..., Coroutine[Any, Any, Sequence[datetime]]]
    begin_emitting: Callable[..., Coroutine[Any, Any, None]]
    emit_snapshots: Callable[..., Coroutine[Any, Any, int]]
    decide_drift: Callable[..., Coroutine[Any, Any, None]]
    mark_dropped: Callable[..., Coroutine[Any, Any, bool]]
    clean: Callable[..., Coroutine[Any, Any, tuple[int, int] | None]]
    end_cleaning: Callable[..., Coroutine[Any, Any, None]]
    read_bodies: Callable[..., Coroutine[Any, Any, Mapping[int, bytes]]]
    note_missing: Callable[..., Coroutine[Any, Any, None]]
    note_found: Callable[..., Coroutine[Any, Any, None]]
    find_missing: Callable[..., Coroutine[Any, Any, Mapping[int, datetime | None]]]
    postpone: Callable[..., Coroutine[Any, Any, None]]
