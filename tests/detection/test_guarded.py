"""What stops a feed, and what becomes of it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.detection.guarded import run_guarded
from dockbell.errors import SchemaMismatch, SourceRefused, StoreError, StoreFull
from dockbell.telemetry import AgentFails, FeedFails, FeedMended
from tests.rig import Rig, open_rig

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as rig:
        yield rig


# What the operator must mend -----------------------------------------------------------------------------------------


async def test_records_that_nothing_identifies_stop_the_feed_with_the_remedy(rig: Rig) -> None:
    rig.source.records = {"x": {"colour": "red", "size": 1}, "y": {"colour": "red", "size": 1}}
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    problem = (await rig.tracked.state()).problem
    assert problem == (
        'resource "packages": no field identifies the records, got fields colour, size; set key in [resources.packages]'
    )


async def test_a_refused_key_is_told_stored_and_mended(rig: Rig) -> None:
    def refuse(_: int) -> None:
        raise SourceRefused("source main: HTTP 401; check api_key")

    rig.source.before_page = refuse
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    assert (await rig.tracked.state()).problem == "source main: HTTP 401; check api_key"
    rig.source.before_page = lambda _: None
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    assert (await rig.tracked.state()).problem == ""
    assert [type(fact) for fact in rig.ear.facts if isinstance(fact, FeedFails | FeedMended)] == [FeedFails, FeedMended]


async def test_a_refused_key_says_when_the_api_is_asked_again(rig: Rig) -> None:
    """The feed looks sooner whether the key was replaced, which costs no request."""

    def refuse(_: int) -> None:
        raise SourceRefused("GET /v1/stock: HTTP 401; check api_key", MINUTE)

    rig.source.before_page = refuse
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    assert [fact.delay for fact in rig.ear.facts if isinstance(fact, FeedFails)] == [MINUTE]
    rests = [rig.tracked.problems.note(SourceRefused("HTTP 401", MINUTE), "poll", MINUTE)[0] for _ in range(5)]
    assert rests == [timedelta(seconds=5)] * 5


async def test_a_refusal_is_mended_by_whoever_reads_again(rig: Rig) -> None:
    def refuse(_: int) -> None:
        raise SourceRefused("source main: HTTP 401; check api_key")

    await rig.read_whole()
    rig.source.before_page = refuse
    await run_guarded(rig.tracked, rig.poller.trail_once, pause=False)
    assert (await rig.tracked.state()).problem == "source main: HTTP 401; check api_key"
    rig.source.before_page = lambda _: None
    await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    assert (await rig.tracked.state()).problem == ""


async def test_a_poll_that_has_nothing_to_ask_mends_nothing(rig: Rig) -> None:
    rig.source.records = {"x": {"colour": "red"}, "y": {"colour": "red"}}
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    problem = (await rig.tracked.state()).problem
    await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    assert (await rig.tracked.state()).problem == problem != ""


async def test_an_error_that_nobody_foresaw_stays_with_the_feed(rig: Rig) -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError

    rig.source.before_page = fail
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    assert any(isinstance(fact, AgentFails) for fact in rig.ear.facts)


async def test_a_store_that_takes_nothing_does_not_end_the_agent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse_to_save(*_: object) -> None:
        raise OSError("database or disk is full")

    rig.source.records = {"x": {"colour": "red"}, "y": {"colour": "red"}}
    monkeypatch.setattr(rig.store.feed(rig.feed), "save_problem", refuse_to_save)
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    assert "main/packages: OSError: database or disk is full" in rig.ear.texts()


# The rest after a failure ---------------------------------------------------------------------------------------------


async def test_one_odd_answer_costs_little_more_than_its_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    def answer_oddly(_: int) -> None:
        raise SchemaMismatch("no array of records")

    await rig.read_whole()
    monkeypatch.setattr("dockbell.detection.guarded.anyio.sleep", sleep)
    rig.source.before_page = answer_oddly
    await run_guarded(rig.tracked, rig.poller.run_once)
    await run_guarded(rig.tracked, rig.poller.run_once)
    rig.source.before_page = lambda _: None
    await run_guarded(rig.tracked, rig.poller.run_once)
    rig.source.before_page = answer_oddly
    await run_guarded(rig.tracked, rig.poller.run_once)
    assert rests == [5, 10, 0, 5]


async def test_a_problem_that_stays_is_told_and_stored_once_a_minute(rig: Rig) -> None:
    def refuse(_: int) -> None:
        raise SourceRefused("source main: HTTP 401; check api_key")

    await rig.read_whole()
    rig.source.before_page = refuse
    for _ in range(8):
        rig.clock.pass_(10)
        await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    assert len([fact for fact in rig.ear.facts if isinstance(fact, FeedFails)]) == 2


# A store that cannot be written --------------------------------------------------------------------------------------


FULL = StoreFull("store dockbell.db: disk full; free some space")


async def test_while_the_store_cannot_be_written_nothing_is_asked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.read_whole()
    asked = len(rig.source.asked)
    mended = anyio.Event()
    monkeypatch.setattr(rig.store.health, "recovered", mended.wait)
    async with anyio.create_task_group() as group:
        group.start_soon(run_guarded, rig.tracked, rig.poller.run_once)
        await anyio.wait_all_tasks_blocked()
        assert len(rig.source.asked) == asked
        mended.set()
    assert len(rig.source.asked) > asked


async def test_a_store_that_fails_is_no_problem_of_the_feed_and_told_by_itself_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise FULL

    await rig.read_whole()
    rig.source.put("a", status="packed")
    rig.ear.facts.clear()
    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "commit_page", fail)
        with anyio.fail_after(5):  # it waits for the store, and for nothing else
            await run_guarded(rig.tracked, rig.poller.run_once)
    assert [fact for fact in rig.ear.facts if isinstance(fact, AgentFails | FeedFails)] == []
    assert (await rig.tracked.state()).problem == ""
    await run_guarded(rig.tracked, rig.poller.run_once)
    assert await rig.events() == ["a updated 1"]


@pytest.mark.parametrize("error", [FULL, StoreError("store a.db: database disk image is malformed")])
async def test_a_gap_tells_that_it_was_the_store(rig: Rig, monkeypatch: pytest.MonkeyPatch, error: StoreError) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    await rig.read_whole()
    await rig.poll()
    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "commit_page", fail)
        rig.source.put("a", status="packed")
        await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    rig.clock.pass_(3600)
    await rig.poll()
    (gap,) = await rig.statements("gap")
    assert gap["reason"] == "store_unavailable"


async def test_a_feed_that_another_process_has_taken_is_reported_and_nothing_is_stored(rig: Rig) -> None:
    await rig.read_whole()
    with closing(sqlite3.connect(rig.store.path)) as other:
        other.execute("UPDATE feeds SET token = token + 1")
        other.commit()
    rig.source.records = {"new": {"id": "new"}}
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    (reported,) = [fact.reason for fact in rig.ear.facts if isinstance(fact, FeedFails)]
    assert reported.startswith(f"feed {rig.feed}: another process took it over, and nothing was stored;")
    assert not [fact for fact in rig.ear.facts if isinstance(fact, AgentFails)]
    assert (await rig.tracked.reload()).problem == ""
