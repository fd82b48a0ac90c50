"""Pages of records, and a judge and a composer for them: what tests of stores put into a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dockbell.config import Expression
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.page_diff import PageDiff, Pending
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import Change, ClockSource, Event, Feed, Page, RunKind, Statement, StatementKind, Via
from dockbell.core.publishing.event import Composer, NamedEvent
from dockbell.ports import Committed, Compose, FeedState, RunRecord, Store
from tests.fakes import NOON

FEED = Feed("main", "shipments")
OTHER = Feed("main", "stock")


def make_detector(*, detail: Collection[str] = ()) -> ChangeDetector:
    """Return a change detector for records whose key is ``id``."""
    return ChangeDetector(
        FEED, key=("/id",), updated_at="/at", created_at=None, canon=Canon(updated_at="/at"), detail=detail
    )


DETECTOR = make_detector()
DETAILED = make_detector(detail=["lines"])


def make_composer(epoch: str = "epoch", **named: str) -> Composer:
    """Return a composer; ``named`` has the conditions of named events."""
    events = [NamedEvent(name, Expression(when)) for name, when in named.items()]
    return Composer(FEED, name="acme", singular="shipment", epoch=epoch, named=events)


COMPOSE = make_composer()


def later(**units: float) -> datetime:
    """Return a moment after the one at which all clocks of these tests stand."""
    return NOON + timedelta(**units)


def page(*records: Mapping[str, Any] | bytes, at: float = 0) -> Page:
    """Return a page that was asked for some seconds after noon."""
    raws = tuple(each if isinstance(each, bytes) else json.dumps(each).encode() for each in records)
    asked_at = later(seconds=at)
    return Page(raws, None, "shipments", asked_at, ClockSource.DATE, asked_at, NOON)


async def commit(
    store: Store,
    state: FeedState,
    *records: Mapping[str, Any] | bytes,
    compose: Compose = COMPOSE,
    detector: ChangeDetector = DETECTOR,
    find_statement: Callable[[PageDiff], Statement | None] | None = None,
    at: float = 0,
    **reading: Any,
) -> Committed:
    """Commit one page of records; ``reading`` says how it was read where that matters."""
    read = ReadContext(Via.POLL, NOON, **reading)
    detect = partial(detector.detect, page(*records, at=at), read)
    return await store.feed(state.feed).commit_page(detect, compose, via=Via.POLL, find_statement=find_statement)


async def delete_records(store: Store, state: FeedState, *rows: int, detector: ChangeDetector = DETECTOR) -> int:
    """Delete rows that are suspected."""
    return await store.feed(state.feed).delete_records(rows, partial(detector.deletion, until=NOON, now=NOON), COMPOSE)


async def complete(store: Store, state: FeedState, row: int, detail: Mapping[str, Any] | None, **named: str) -> int:
    """Complete a change with the detail of its record."""
    raw = None if detail is None else json.dumps(detail).encode()

    def detect(pending: Pending, before: bytes | None, revision: int) -> Change | None:
        return DETAILED.complete(pending, before, raw, revision, now=NOON)

    return await store.feed(state.feed).complete(row, detect, make_composer(**named))


async def close_pass(
    store: Store,
    state: FeedState,
    run: RunRecord | None = None,
    *,
    suspected: Sequence[int] = (),
    statements: Sequence[Statement] = (),
    **end: Any,
) -> None:
    """End a complete pass, which suspects rows, as the reconciler does."""
    run = run or a_run()
    await store.feed(state.feed).suspect(suspected, run.ended_at)
    defaults = {
        "held": 0,
        "confirm_at": None,
        "proven": False,
        "newest": None,
        "lateness": None,
        "drift_before": NOON,
        "compose": COMPOSE,
    }
    await store.feed(state.feed).close_pass(run, statements=statements, **(defaults | end))


def a_run(kind: RunKind = RunKind.PASS, problem: str = "", hours: float = 0, **fields: Any) -> RunRecord:
    """Return a run that was asked for and ended some hours after noon."""
    at = later(hours=hours)
    since = None if kind is RunKind.PASS else NOON
    return RunRecord(kind, at, since, at, pages=1, records=2, events=3, problem=problem, **fields)


def a_statement(kind: StatementKind = StatementKind.RECONCILED, **details: Any) -> Statement:
    """Return something that is said of the feed."""
    return Statement(FEED, kind, NOON, details)


async def told(store: Store, feed: Feed = FEED, after: int = 0) -> list[str]:
    """Return the events after a sequence as ``key change revision``, having checked that no number is left out."""
    events = await store.read_events(feed, after, 100_000)
    assert [event.sequence for event in events] == list(range(after + 1, after + 1 + len(events)))
    return [f"{event.key} {event.change} {event.revision}".strip() for event in events]


async def datas(store: Store, feed: Feed = FEED) -> list[dict[str, Any]]:
    """Return what the events say."""
    return [read_data(event) for event in await store.read_events(feed, 0, 100_000)]


def read_data(event: Event) -> dict[str, Any]:
    """Return what an event says."""
    data: dict[str, Any] = json.loads(event.body)["data"]
    return data
