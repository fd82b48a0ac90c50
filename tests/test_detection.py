"""Poller and reconciler over a real store, against a source with offset cursors whose pages drift."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dockbell.config import ResourceSettings
from dockbell.core.model import Feed, RunKind, Urgency
from dockbell.errors import CursorExpired, SchemaMismatch, SourceRefused, SourceUnavailable
from dockbell.poller import Poller
from dockbell.ports import Store
from dockbell.reading import Reader, tend
from dockbell.reconciler import Reconciler
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import AgentFails, DeletionsHeld, FeedFails, FeedMended
from tests.fakes import NOON, Clock, Ear, FakeSource, expire_cursors

SHIPMENTS = Feed("main", "shipments")


@dataclass
class Rig:
    """One feed, whole."""

    store: Store
    clock: Clock
    source: FakeSource
    feed: Feed = SHIPMENTS
    settings: dict[str, Any] = field(default_factory=dict)
    ear: Ear = field(default_factory=Ear)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again from what is stored, as after a crash."""
        settings = ResourceSettings(**({"every": "15s", "reconcile": "24h", "lookback": "60s"} | self.settings))
        self.reader = Reader(
            self.feed,
            settings,
            name="acme",
            source=self.source,
            store=self.store,
            telemetry=self.ear.telemetry,
            now=self.clock,
        )
        self.poller = Poller(self.reader)
        self.reconciler = Reconciler(self.reader, self.ear.telemetry, lambda last: last + timedelta(hours=24))

    async def poll(self, after: float = 15) -> str:
        """Poll once, some seconds later; return why the run was incomplete."""
        self.clock.pass_(after)
        run = await self.poller.run_once()
        assert run is not None
        return run.problem

    async def read_whole(self, after: float = 15) -> str:
        """Make a pass, some seconds later; return why the run was incomplete."""
        self.clock.pass_(after)
        return (await self.reconciler.run_once()).problem

    async def events(self) -> list[str]:
        """Return the events so far, as ``key change revision``."""
        events = await self.store.read_events(self.feed, 0, 10_000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        return [f"{event.key} {event.change} {event.revision}" for event in events]

    async def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(event.body)["data"] for event in await self.store.read_events(self.feed, 0, 10_000)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    yield store
    await store.aclose()


@pytest.fixture
def rig(store: SqliteStore) -> Rig:
    clock = Clock()
    source = FakeSource(clock)
    for key in "abcde":
        source.put(key, status="open")
    return Rig(store, clock, source)


# The first pass ------------------------------------------------------------------------------------------------------


async def test_the_first_pass_is_silent_and_polls_publish_what_changes_after_it(rig: Rig) -> None:
    await rig.read_whole()
    assert await rig.events() == []
    rig.clock.pass_(1)
    rig.source.put("b", status="packed")
    rig.source.put("f", status="open")
    await rig.poll()
    assert await rig.events() == ["b updated 1", "f created 1"]


async def test_the_first_pass_states_each_record_where_that_is_wanted(rig: Rig) -> None:
    rig.settings = {"first_pass": "emit"}
    rig.restart()
    await rig.read_whole()
    assert await rig.events() == [f"{key} snapshot 0" for key in "abcde"]


async def test_what_happens_while_the_first_pass_reads_is_news_and_what_it_skipped_is_not(rig: Rig) -> None:
    def change(request: int) -> None:
        if request == 2:
            rig.clock.pass_(1)
            rig.source.put("a", status="packed")

    rig.source.before_page = change
    await rig.read_whole()
    await rig.poll()
    assert await rig.events() == ["a updated 1"]  # and no word of d, which slipped past the first pass at a page edge
    assert [urgency for _, _, urgency in rig.source.asked] == [Urgency.PASS, Urgency.PASS, Urgency.POLL, Urgency.POLL]


async def test_nothing_is_polled_before_the_first_request_was_answered(rig: Rig) -> None:
    assert await rig.poller.run_once() is None
    assert rig.source.asked == []


async def test_a_first_pass_that_a_crash_cut_short_begins_again_silently(rig: Rig) -> None:
    def crash(request: int) -> None:
        if request == 2:
            raise KeyboardInterrupt

    rig.source.before_page = crash
    with pytest.raises(KeyboardInterrupt):
        await rig.read_whole()
    rig.source.before_page = lambda _: None
    rig.restart()
    await rig.read_whole()
    assert await rig.events() == []
    assert (await rig.reader.state()).passes == 1


async def test_a_feed_that_begins_empty_reports_its_first_record_as_created(rig: Rig) -> None:
    rig.source.records.clear()
    await rig.read_whole()
    rig.clock.pass_(1)
    rig.source.put("a")
    await rig.poll()
    assert await rig.events() == ["a created 1"]


# Polls and the watermark ---------------------------------------------------------------------------------------------


async def test_reading_the_same_records_again_is_no_change(rig: Rig) -> None:
    await rig.read_whole()
    for _ in range(5):
        await rig.poll()
    assert await rig.events() == []


async def test_a_poll_asks_from_the_watermark_less_the_lookback(rig: Rig) -> None:
    await rig.read_whole(after=0)
    rig.clock.pass_(100)
    rig.source.records = {}
    await rig.poll()
    await rig.poll()
    assert [since for _, since, _ in rig.source.asked][-2:] == [
        NOON - timedelta(seconds=60),
        NOON + timedelta(seconds=55),
    ]


async def test_a_run_of_several_pages_is_repeated_before_the_watermark_moves(rig: Rig) -> None:
    await rig.read_whole(after=0)
    for key in "abcd":
        rig.source.put(key, status="packed")
    await rig.poll()
    state = await rig.reader.state()
    assert (state.progress.watermark, state.progress.candidate) == (NOON, NOON + timedelta(seconds=15))
    await rig.poll()
    assert (await rig.reader.state()).progress.watermark == NOON + timedelta(seconds=15)


async def test_a_record_that_drifted_past_a_page_edge_is_found_by_the_repeat(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(100)
    for key in "abcdef":
        rig.source.put(key, status="packed")

    def move(request: int) -> None:
        if request == asked + 2:
            rig.clock.pass_(0.1)
            rig.source.put("a", status="shipped")  # d slips to the first page, which was read already

    asked = len(rig.source.asked)
    rig.source.before_page = move
    await rig.poll()
    assert "d updated 1" not in await rig.events()
    rig.source.before_page = lambda _: None
    rig.clock.pass_(3600)  # an outage: were the watermark to move by itself, d would be out of every later window
    await rig.poll()
    assert "d updated 1" in await rig.events()


async def test_a_run_that_is_cut_short_keeps_what_it_saw_and_moves_nothing(rig: Rig) -> None:
    await rig.read_whole()
    before = (await rig.reader.state()).progress
    rig.clock.pass_(100)
    for key in "abcde":
        rig.source.put(key, status="packed")

    def fail(request: int) -> None:
        if request == asked + 2:
            raise SourceUnavailable("HTTP 503")

    asked = len(rig.source.asked)
    rig.source.before_page = fail
    assert await rig.poll() == "HTTP 503"
    assert await rig.events() == ["a updated 1", "b updated 1", "c updated 1"]
    assert (await rig.reader.state()).progress == before


async def test_a_run_whose_cursor_was_forgotten_begins_again(rig: Rig) -> None:
    rig.source.before_page = expire_cursors
    assert await rig.read_whole() == ""
    assert [cursor for cursor, _, _ in rig.source.asked] == [None, "3", None, "3"]


async def test_what_a_run_met_before_it_began_again_still_speaks_against_the_candidate(rig: Rig) -> None:
    await rig.read_whole(after=0)
    rig.clock.pass_(100)
    for key in "bcde":
        rig.source.put(key, status="packed")
    missed = rig.source.records.pop("b")
    await rig.poll(after=100)
    candidate = (await rig.reader.state()).progress.candidate
    rig.source.records = {"b": missed, **rig.source.records}
    asked = len(rig.source.asked)

    def expire(request: int) -> None:
        if request == asked + 2:
            raise CursorExpired("HTTP 410")

    rig.source.before_page = expire
    await rig.poll(after=100)
    progress = (await rig.reader.state()).progress
    assert (progress.watermark, progress.candidate) == (NOON, rig.clock())
    assert progress.candidate != candidate


async def test_a_pass_that_ends_incomplete_leaves_what_polls_prove_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.read_whole()
    close_run = rig.store.close_run

    async def close_late(*args: Any) -> None:
        monkeypatch.setattr(rig.store, "close_run", close_run)
        rig.source.before_page = lambda _: None
        await rig.poll()
        await close_run(*args)

    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    rig.source.records = {"a": rig.source.records["a"]}
    rig.source.before_page = fail
    monkeypatch.setattr(rig.store, "close_run", close_late)
    await rig.read_whole()
    assert (await rig.reader.reload()).progress.watermark == rig.clock()


# Passes and deletions ------------------------------------------------------------------------------------------------


async def test_a_record_is_deleted_when_two_complete_passes_did_not_show_it(rig: Rig) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    assert await rig.events() == []
    assert await rig.reconciler.due() == rig.clock() + timedelta(minutes=2)
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1"]
    (deleted,) = await rig.bodies()
    assert (deleted["reason"], deleted["before"]["id"], deleted["after"]) == ("absent", "b", None)
    assert deleted["changed_between"] == ["2026-11-21T12:00:15.000Z", "2026-11-21T12:02:30.000Z"]
    assert await rig.reconciler.due() == rig.clock() + timedelta(hours=24)


async def test_a_second_pass_that_comes_too_soon_confirms_nothing(rig: Rig) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    await rig.read_whole(after=60)
    assert await rig.events() == []


async def test_a_record_that_comes_back_before_the_second_pass_was_never_away(rig: Rig) -> None:
    await rig.read_whole()
    record = rig.source.records.pop("b")
    await rig.read_whole()
    rig.source.records["b"] = record
    await rig.read_whole(after=120)
    del rig.source.records["b"]
    await rig.read_whole(after=120)
    assert await rig.events() == []


async def test_a_deleted_record_that_returns_is_restored(rig: Rig) -> None:
    await rig.read_whole()
    record = rig.source.records.pop("b")
    await rig.read_whole()
    await rig.read_whole(after=120)
    rig.source.records["b"] = record
    await rig.read_whole()
    assert await rig.events() == ["b deleted 1", "b restored 2"]


async def test_a_record_that_only_a_poll_showed_during_a_pass_is_not_suspected(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(100)
    await rig.poll()
    await rig.poll()
    watching = await rig.reader.watch()
    rig.source.put("b", status="packed")
    await rig.poll()
    assert [row for row, _ in await rig.store.find_absent(1, watching)] == [1, 3, 4, 5]


@pytest.mark.parametrize("lost", [SourceUnavailable("truncated"), SchemaMismatch("no records"), OSError("reset")])
async def test_a_pass_that_dies_confirms_and_suspects_nothing(rig: Rig, lost: Exception) -> None:
    def fail(request: int) -> None:
        if request == asked + 2:
            raise lost

    await rig.read_whole()
    asked = len(rig.source.asked)
    rig.source.before_page = fail
    await tend(rig.reader, rig.read_whole, pause=False)
    rig.source.before_page = lambda _: None
    await rig.read_whole(after=300)
    assert await rig.events() == []
    assert (await rig.reader.state()).confirm_at is None


async def test_deletions_of_most_of_a_feed_are_held(rig: Rig) -> None:
    await rig.read_whole()
    kept = rig.source.records
    rig.source.records = {"a": kept["a"]}
    await rig.read_whole()
    await rig.read_whole(after=600)
    assert await rig.events() == []
    assert (await rig.reader.state()).held == 4
    assert any(isinstance(fact, DeletionsHeld) for fact in rig.ear.facts)
    rig.source.records = kept
    await rig.read_whole()
    assert (await rig.reader.state()).held == 0


async def test_an_empty_pass_deletes_nothing(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.records = {}
    for _ in range(3):
        await rig.read_whole(after=600)
    assert await rig.events() == []


async def test_a_pass_that_failed_is_made_again_soon_but_not_at_once(rig: Rig) -> None:
    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    await rig.read_whole()
    rig.clock.pass_(86_400)
    assert await rig.reconciler.due() <= rig.clock()
    rig.source.before_page = fail
    await rig.read_whole(after=0)
    assert await rig.reconciler.due() == rig.clock() + timedelta(seconds=5)


async def test_a_pass_that_always_ends_incomplete_is_made_less_and_less_often(rig: Rig) -> None:
    rig.source.records["bad"] = {"status": "lost"}
    pauses = []
    for _ in range(12):
        await rig.read_whole(after=0)
        pauses.append((await rig.reconciler.due() - rig.clock()).total_seconds())
    assert (pauses[:4], pauses[-1]) == ([5, 10, 20, 40], 3600)
    del rig.source.records["bad"]
    await rig.read_whole()
    rig.source.records["bad"] = {"status": "lost"}
    await rig.read_whole(after=86_400)
    assert await rig.reconciler.due() == rig.clock() + timedelta(seconds=5)


# Lists that never end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "anomaly"),
    [
        (lambda _: "3", "the API gave a cursor a second time"),
        (lambda cursor: str(int(cursor) % 6), "the API gave a cursor a second time"),
    ],
)
async def test_a_list_that_never_ends_is_left_and_named(
    rig: Rig, turn: Callable[[str], str], anomaly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_page = rig.source.read_page

    async def read_for_ever(resource: str, **request: Any) -> Any:
        page = await read_page(resource, **request)
        return replace(page, next_cursor=turn(page.next_cursor or "6"))

    monkeypatch.setattr(rig.source, "read_page", read_for_ever)
    assert await rig.read_whole() == anomaly


async def test_pages_that_come_again_in_turn_under_new_cursors_are_noticed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_page = rig.source.read_page

    async def read_in_turn(resource: str, **request: Any) -> Any:
        number = len(rig.source.asked)
        page = await read_page(resource, **request | {"cursor": "3" if number % 2 else None})
        return replace(page, next_cursor=f"new {number}")

    monkeypatch.setattr(rig.source, "read_page", read_in_turn)
    assert await rig.read_whole() == "the API gave the same page twice"


# Without timestamps, and what the operator must mend -----------------------------------------------------------------


async def test_stock_without_timestamps_is_compared_by_content(store: SqliteStore) -> None:
    clock = Clock()
    source = FakeSource(clock, stamped=False)
    rig = Rig(store, clock, source, Feed("main", "stock"), {"reconcile": None, "every": "5m", "key": "/id"})
    source.put("a", available=5)
    source.put("b", available=9)
    await rig.read_whole()
    await rig.read_whole()
    source.put("a", available=4)
    await rig.read_whole()
    assert await rig.events() == ["a updated 1"]
    assert (await rig.bodies())[0]["changed"] == ["/available"]


async def test_records_that_nothing_identifies_stop_the_feed_with_the_remedy(rig: Rig) -> None:
    rig.source.records = {"x": {"colour": "red", "size": 1}, "y": {"colour": "red", "size": 1}}
    await tend(rig.reader, rig.read_whole, pause=False)
    problem = (await rig.reader.state()).problem
    assert problem == (
        'resource "shipments": no field identifies the records, got fields colour, size; set key in '
        "[resources.shipments]"
    )


async def test_a_refused_key_is_told_stored_and_mended(rig: Rig) -> None:
    def refuse(_: int) -> None:
        raise SourceRefused("source main: HTTP 401; check api_key")

    rig.source.before_page = refuse
    await tend(rig.reader, rig.read_whole, pause=False)
    assert (await rig.reader.state()).problem == "source main: HTTP 401; check api_key"
    rig.source.before_page = lambda _: None
    await tend(rig.reader, rig.read_whole, pause=False)
    assert (await rig.reader.state()).problem == ""
    assert [type(fact) for fact in rig.ear.facts if isinstance(fact, FeedFails | FeedMended)] == [FeedFails, FeedMended]


async def test_an_error_that_nobody_foresaw_stays_with_the_feed(rig: Rig) -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError

    rig.source.before_page = fail
    await tend(rig.reader, rig.read_whole, pause=False)
    assert any(isinstance(fact, AgentFails) for fact in rig.ear.facts)


async def test_a_store_that_takes_nothing_does_not_end_the_agent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse_to_save(*_: object) -> None:
        raise OSError("database or disk is full")

    rig.source.records = {"x": {"colour": "red"}, "y": {"colour": "red"}}
    monkeypatch.setattr(rig.store, "save_problem", refuse_to_save)
    await tend(rig.reader, rig.read_whole, pause=False)
    assert "main/shipments: OSError: database or disk is full" in rig.ear.texts()


async def test_a_record_without_a_key_is_left_out_and_the_run_proves_nothing(rig: Rig) -> None:
    await rig.read_whole()
    before = (await rig.reader.state()).progress
    rig.clock.pass_(100)
    rig.source.put("a", status="packed")
    rig.source.records["bad"] = {"status": "lost", "updated_at": rig.source.records["a"]["updated_at"]}
    assert "key /id" in await rig.poll()
    assert await rig.events() == ["a updated 1"]
    assert (await rig.reader.state()).progress == before


async def test_the_kind_of_run_is_stored_with_what_it_read(rig: Rig) -> None:
    await rig.read_whole()
    state = await rig.reader.state()
    assert state.full is not None
    assert (state.full.kind, state.full.pages, state.full.records) == (RunKind.PASS, 2, 5)
