"""Reads a run of a feed to its end: each page is asked for and committed in the feed's turn.

The requests of a feed are serial: polls slip in between the pages of a pass, and between two tries of a page that does
not come, and each page is committed before the next is asked for. So pages reach the store in the order of their
requests, and no page is ever compared with the records of a later one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial

import anyio

from dockbell.core.comparing.page_diff import Collision
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Page, RunKind
from dockbell.core.planning.spreading import page_wait
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.first_request import find_first_request, store_first_request
from dockbell.detection.page_fetcher import Turn
from dockbell.detection.run import Run
from dockbell.detection.run_summary import RunSummary
from dockbell.ports import RunRecord
from dockbell.telemetry import PageRead, RunEnded


async def begin_run(feed: TrackedFeed, kind: RunKind, since: datetime | None = None, anchor: str = "") -> Run:
    """Return a run that has read nothing yet."""
    state = await feed.state()
    # A pass must know of each row whether it is older; a poll only which ones it shows twice.
    last_row = await feed.store.last_row() if kind is RunKind.PASS else state.last_row
    summary = RunSummary(
        kind, SeenRows(last_row), began_at=feed.clocks.now(), keyless_allowed=state.quarantined, anchor=anchor
    )
    return Run(summary, since, level=feed.profile.begin_level(kind))


async def read_run(feed: TrackedFeed, run: Run, save: Callable[[datetime], Awaitable[None]] | None = None) -> RunRecord:
    """Read a run to its end, and report it; it begins again where the API has lost a cursor or the limit changed.

    Raises:
        SourceRefused: The key is not accepted; :class:`RequestRefused`: the request as such is not.
        SchemaMismatch: The records cannot be told apart, or there are none where they should be.
    """
    began, asked = anyio.current_time(), feed.clocks.steady()
    state = await feed.state()
    is_whole = run.cursor is None  # else it began in another process
    is_first = not state.passes or state.rebaselining
    feed.workload.begin(run.kind, asked, every=feed.schedule.interval, is_first=is_first)
    run.page_most = feed.profile.listing.page_most
    while True:
        async with aclosing(run.pages(partial(open_page, feed, run), save)) as pages:
            async for page in pages:
                await _commit(feed, run, page)
        if run.kind is RunKind.PASS and run.is_cursor_lost and is_whole:
            life = feed.clocks.steady() - asked
            feed.schedule.cursor_life = min(life, feed.schedule.cursor_life or life)
        if not run.may_restart:
            break
        run.restart(await feed.store.last_row())
    if run.summary.is_colliding and not feed.settings.key:
        raise feed.doubt_key(run.summary)
    await feed.profile.end_run(run)
    if run.cause is not None:
        feed.gaps.blame(run.cause)
    record = run.report(feed.clocks.now())
    feed.workload.end(record)
    _report(feed, run, record, timedelta(seconds=anyio.current_time() - began), is_first=is_first)
    return record


async def _commit(feed: TrackedFeed, run: Run, page: Page) -> None:
    """Commit a page and count it, or let the run ask for it again."""
    if feed.is_provisional and run.summary.is_colliding:  # publish no more that is wrong
        raise feed.doubt_key(run.summary)
    try:
        committed = await feed.commit(page, run)
    except Collision as error:
        if not run.may_ask_again:
            raise feed.doubt_key_of_page(error) from error
        run.ask_again()
        return
    feed.gaps.take_page(run.silences, page, await feed.state())
    _report_page(feed, run, page, 0 if committed is None else committed.events)
    before = run.summary.tally
    run.take(page, committed)
    feed.workload.take_page(run.kind, len(page.records), before, run.summary.tally, page.received_at)


@asynccontextmanager
async def open_page(feed: TrackedFeed, run: Run, cursor: str | None, limit: int) -> AsyncIterator[Page]:
    """Yield a page in the feed's turn, which other runs may have between two tries of the request.

    What a feed is first asked for belongs together: no other run may come in between.
    """
    if run.kind is RunKind.PASS:
        await _wait_for_page(feed, run)
    asked = feed.clocks.steady()
    async with Turn(feed.turns) as turn:
        state = await feed.state()
        feed.check_drop(state)
        first = await find_first_request(feed) if state.first_asked_at is None else None
        between_tries = turn.lent if first is None else nullcontext
        page = await feed.fetcher.fetch(run.kind, run.since, cursor, limit, between_tries)
        feed.profile.take_clock(page)
        if first is not None:
            await store_first_request(feed, first, page)
        yield page
    feed.gaps.take_wait(feed.clocks.steady() - asked)


async def _wait_for_page(feed: TrackedFeed, run: Run) -> None:
    """Wait until the next page of a pass is due; where pages came late, those that follow catch up."""
    now = feed.clocks.steady()
    run.due = now if run.due is None else run.due + feed.schedule.page_every
    if not feed.schedule.page_every or feed.schedule.is_awaited:
        return
    if wait := page_wait(run.due, now):
        await anyio.sleep(wait.total_seconds())


def _report_page(feed: TrackedFeed, run: Run, page: Page, events: int) -> None:
    found = run.summary
    began_at, records = found.began_at or page.received_at, found.records + len(page.records)
    feed.telemetry.emit(PageRead(feed.feed, run.kind, began_at, found.pages + 1, records, found.events + events))


def _report(feed: TrackedFeed, run: Run, record: RunRecord, elapsed: timedelta, *, is_first: bool) -> None:
    asked_at = run.summary.asked_at
    feed.telemetry.emit(
        RunEnded(
            feed.feed,
            run.kind,
            record.pages,
            record.records,
            record.events,
            elapsed,
            record.problem,
            asked_at,
            feed.schedule.check_run(run.kind, asked_at),
            record.tally,
            record.sent_at,
            is_first,
        )
    )
