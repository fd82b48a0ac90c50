"""Wishes of operators, which the daemon finds in its store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from dockbell.app.command_runner import CommandRunner, reconcile
from dockbell.app.source_agents import FeedAgents
from dockbell.core.model import Feed, RunKind
from dockbell.errors import SchemaMismatch, SourceUnavailable, StoreError, StoreUnavailable
from dockbell.ports import Command, CommandKind
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import AgentFails, CommandFinished
from tests.detection.test_feed import make_drift
from tests.rig import CountedAlarm, Rig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as rig:
        yield rig


@pytest.fixture
async def command_store(rig: Rig) -> AsyncIterator[SqliteCommandStore]:
    await rig.tracked.state()
    command_store = await SqliteCommandStore.open(rig.store.path)
    yield command_store
    await command_store.aclose()


class Rings:
    """An alarm that rings when it is told."""

    def __init__(self) -> None:
        self._rings = anyio.Semaphore(0)
        self.ring = self._rings.release
        self.wait = self._rings.acquire

    def ring_in(self, delay: object) -> None:
        raise AssertionError(delay)


def make_runner(rig: Rig) -> CommandRunner:
    async def find(feed: Feed) -> FeedAgents | None:
        return FeedAgents(rig.tracked, rig.reconciler) if feed == rig.feed else None

    return CommandRunner(rig.store, find, rig.ear.telemetry)


async def find_none(_: Feed) -> None:
    """Find no feed: none is configured."""


async def kind(rig: Rig, command_store: SqliteCommandStore, kind: CommandKind) -> str | None:
    """Leave a command, let the runner look, and return the outcome."""
    number = await command_store.make_command(rig.feed, kind, rig.clock())
    command_runner = make_runner(rig)
    for command in await rig.store.commands.take():
        await command_runner.execute(command)
    outcome = (await command_store.load_command(number)).outcome
    return None if outcome is None else str(outcome)


async def test_a_pass_is_made_when_it_is_asked_for(rig: Rig, command_store: SqliteCommandStore) -> None:
    rig.clock.pass_(1)  # the records were there before
    outcome = await kind(rig, command_store, CommandKind.RECONCILE)
    assert outcome == "complete: 2 pages, 5 records, 0 created, 0 updated, 0 deleted, 0 restored"
    assert [fact.outcome for fact in rig.ear.facts if isinstance(fact, CommandFinished)] == [outcome]


async def run_with_alarm(rig: Rig, command_store: SqliteCommandStore, *commands: CommandKind) -> CountedAlarm:
    """Let the agent sleep until its alarm rings, while a command waits; return the alarm."""
    alarm = CountedAlarm(0)
    async with anyio.create_task_group() as group:
        group.start_soon(rig.reconciler.run, alarm)
        await alarm.is_quiet.wait()
        for each in commands:
            await kind(rig, command_store, each)
        group.cancel_scope.cancel()
    return alarm


async def test_the_pass_that_confirms_a_requested_one_does_not_wait_for_the_old_alarm(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    alarm = await run_with_alarm(rig, command_store, CommandKind.RECONCILE)
    assert alarm.delays == [86_400, 120]


async def test_the_pass_that_repeats_a_requested_one_that_failed_does_not_wait_either(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    await rig.read_whole()
    rig.source.before_page = fail
    alarm = await run_with_alarm(rig, command_store, CommandKind.RECONCILE)
    assert alarm.delays == [86_400, 5]


async def test_absences_beside_approved_deletions_are_confirmed_soon(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    await rig.read_whole()
    rig.source.records = {key: rig.source.records[key] for key in "ae"}
    await rig.read_whole()
    del rig.source.records["e"]  # no pass has missed it yet
    alarm = await run_with_alarm(rig, command_store, CommandKind.APPROVE)
    assert alarm.delays[-1] == 120


@pytest.mark.parametrize("decision", [CommandKind.ABSORB, CommandKind.PUBLISH])
async def test_what_is_absent_when_a_drift_is_decided_is_confirmed_soon(
    rig: Rig, command_store: SqliteCommandStore, decision: CommandKind
) -> None:
    await make_drift(rig)
    del rig.source.records["b"]
    alarm = await run_with_alarm(rig, command_store, decision)
    assert alarm.delays[-1] == 120


async def test_a_pass_that_came_due_during_a_requested_one_is_not_made_after_it(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(86_400)
    alarm = CountedAlarm(1)
    rig.meanwhile(RunKind.PASS, partial(anyio.sleep, 0.2))
    async with anyio.create_task_group() as group:
        group.start_soon(rig.reconciler.reconcile)
        await anyio.sleep(0.05)
        rig.clock.pass_(6)
        group.start_soon(rig.reconciler.run, alarm)
        await alarm.is_quiet.wait()
        group.cancel_scope.cancel()
    assert len(await rig.statements("reconciled")) == 2


async def test_a_record_is_purged_when_that_is_asked_for(rig: Rig, command_store: SqliteCommandStore) -> None:
    await rig.read_whole()
    number = await command_store.make_command(rig.feed, CommandKind.PURGE, rig.clock(), "b")
    (command,) = await rig.store.commands.take()
    await make_runner(rig).execute(command)
    assert str((await command_store.load_command(number)).outcome) == "complete: 0 emptied, 1 published"
    assert [fact.command for fact in rig.ear.facts if isinstance(fact, CommandFinished)] == ["purge b"]
    assert await rig.events() == ["b deleted 1"]
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1", "b restored 2"]
    run = (await rig.tracked.state()).full
    assert run is not None
    assert run.tally.missed == 0


async def test_a_record_of_a_feed_that_has_left_the_configuration_is_purged(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    await rig.read_whole()
    number = await command_store.make_command(rig.feed, CommandKind.PURGE, rig.clock(), "b")
    (command,) = await rig.store.commands.take()
    await CommandRunner(rig.store, find_none, rig.ear.telemetry).execute(command)
    assert str((await command_store.load_command(number)).outcome) == "complete: 0 emptied, 1 published"


async def lose_most(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.records = {"a": rig.source.records["a"]}
    await rig.read_whole()
    assert (await rig.tracked.state()).held == 4


async def test_approved_deletions_are_published(rig: Rig, command_store: SqliteCommandStore) -> None:
    await lose_most(rig)
    rig.clock.pass_(5)
    assert "4 deleted" in (await kind(rig, command_store, CommandKind.APPROVE) or "")
    assert await rig.events() == [f"{key} deleted 1" for key in "bcde"]


async def test_rejected_deletions_are_present_until_they_are_seen_and_lost_again(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    kept = dict(rig.source.records)
    await lose_most(rig)
    assert await kind(rig, command_store, CommandKind.REJECT) == "complete: 4 records will be kept until seen again"
    for _ in range(2):
        await rig.read_whole(after=600)
    assert await rig.events() == []
    assert (await rig.tracked.state()).held == 0
    rig.source.records["b"] = kept["b"]
    await rig.read_whole(after=600)
    del rig.source.records["b"]
    await rig.read_whole(after=600)
    await rig.read_whole(after=600)
    assert await rig.events() == ["b deleted 1"]


async def test_there_is_nothing_to_reject_where_no_deletions_are_held(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    assert await kind(rig, command_store, CommandKind.REJECT) == "complete: 0 records will be kept until seen again"
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1"]


@pytest.mark.parametrize(("decision", "count"), [(CommandKind.ABSORB, 0), (CommandKind.PUBLISH, 15)])
async def test_drift_is_absorbed_or_published_at_once(
    rig: Rig, command_store: SqliteCommandStore, decision: CommandKind, count: int
) -> None:
    await make_drift(rig)
    outcome = await kind(rig, command_store, decision)
    assert outcome is not None
    assert f"{count} updated" in outcome
    assert len(await rig.events()) == count
    assert (await rig.tracked.state()).drift is None


async def test_a_command_for_a_feed_that_is_not_configured_is_refused(
    rig: Rig, command_store: SqliteCommandStore
) -> None:
    number = await command_store.make_command(rig.feed, CommandKind.RECONCILE, rig.clock())
    await CommandRunner(rig.store, find_none, rig.ear.telemetry).execute(
        Command(number, CommandKind.RECONCILE, Feed("main", "x"))
    )
    outcome = str((await command_store.load_command(number)).outcome)
    assert outcome == "failed: the feed is not configured, or its source is paused"


async def test_commands_are_executed_as_they_come_and_once(rig: Rig, command_store: SqliteCommandStore) -> None:
    alarm = Rings()
    first = await command_store.make_command(rig.feed, CommandKind.RECONCILE, rig.clock())
    async with anyio.create_task_group() as group:
        group.start_soon(make_runner(rig).run, alarm)
        for _ in range(3):
            alarm.ring()
        while (await command_store.load_command(first)).outcome is None:  # noqa: ASYNC110  # the store says it, and nobody rings
            await anyio.sleep(0.01)
        second = await command_store.make_command(rig.feed, CommandKind.RECONCILE, rig.clock())
        alarm.ring()
        while (await command_store.load_command(second)).outcome is None:  # noqa: ASYNC110  # same
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert len(await rig.statements("reconciled")) == 2


async def test_a_store_that_cannot_be_read_for_once_ends_nothing(
    rig: Rig, command_store: SqliteCommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, alarm = rig.store.commands.take, Rings()

    async def fail_once() -> object:
        monkeypatch.setattr(rig.store.commands, "take", take)
        raise StoreUnavailable("store dockbell.db: disk I/O error; check its disk")

    monkeypatch.setattr(rig.store.commands, "take", fail_once)
    number = await command_store.make_command(rig.feed, CommandKind.RECONCILE, rig.clock())
    async with anyio.create_task_group() as group:
        group.start_soon(make_runner(rig).run, alarm)
        for _ in range(2):
            alarm.ring()
        while (await command_store.load_command(number)).outcome is None:  # noqa: ASYNC110  # the store says it, and nobody rings
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert not any(isinstance(fact, AgentFails) for fact in rig.ear.facts)


async def test_commands_that_cannot_be_read_are_reported_once_and_read_later(
    rig: Rig, command_store: SqliteCommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, alarm, looks = rig.store.commands.take, Rings(), 0

    async def fail_thrice() -> object:
        nonlocal looks
        looks += 1
        if looks == 3:
            monkeypatch.setattr(rig.store.commands, "take", take)
        raise StoreError("store dockbell.db: database disk image is malformed")

    monkeypatch.setattr(rig.store.commands, "take", fail_thrice)
    number = await command_store.make_command(rig.feed, CommandKind.RECONCILE, rig.clock())
    async with anyio.create_task_group() as group:
        group.start_soon(make_runner(rig).run, alarm)
        for _ in range(4):
            alarm.ring()
        with anyio.fail_after(10):
            while (await command_store.load_command(number)).outcome is None:  # noqa: ASYNC110  # the store says it, and nobody rings
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert len([fact for fact in rig.ear.facts if isinstance(fact, AgentFails)]) == 1


async def test_a_command_that_fails_unforeseen_waits_and_stops_no_other(
    rig: Rig, command_store: SqliteCommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store.commands, "finish", refuse)
        assert await kind(rig, command_store, CommandKind.RECONCILE) is None
    assert any(isinstance(fact, AgentFails) for fact in rig.ear.facts)
    (waiting,) = await rig.store.commands.take() or [Command(1, CommandKind.RECONCILE, rig.feed)]
    await make_runner(rig).execute(waiting)
    assert (await command_store.load_command(waiting.id)).outcome is not None


async def test_what_is_under_way_for_a_feed_is_left_for_the_next_agents(
    rig: Rig, command_store: SqliteCommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = anyio.Event()

    async def reconcile(_: object) -> str:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    number = await command_store.make_command(rig.feed, CommandKind.RECONCILE, rig.clock())
    command_runner, alarm = make_runner(rig), Rings()
    with monkeypatch.context() as patch:
        patch.setattr("dockbell.app.command_runner.reconcile", reconcile)
        async with anyio.create_task_group() as group:
            group.start_soon(command_runner.run, alarm)
            alarm.ring()
            with anyio.fail_after(5):
                await begun.wait()
                await command_runner.leave([Feed("main", "other")])
                assert command_runner._busy
                await command_runner.leave([rig.feed])
            assert not command_runner._busy
            group.cancel_scope.cancel()
    assert (await command_store.load_command(number)).outcome is None
    await make_runner(rig).execute(await command_store.load_command(number))
    assert str((await command_store.load_command(number)).outcome).startswith("complete")


async def test_a_command_that_meets_a_bug_ends_with_its_error(
    rig: Rig, command_store: SqliteCommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reconcile(_: object) -> str:
        raise KeyError("row")

    monkeypatch.setattr("dockbell.app.command_runner.reconcile", reconcile)
    assert await kind(rig, command_store, CommandKind.RECONCILE) == "failed: KeyError: 'row'; see the log for details"
    assert isinstance(rig.ear.facts[0], AgentFails)


async def test_the_outcome_of_a_pass_has_its_counts_or_its_problem(rig: Rig) -> None:
    rig.clock.pass_(15)
    outcome = await reconcile(rig.reconciler)
    assert (outcome.status, outcome.counts["pages"], outcome.counts["records"]) == ("complete", 2, 5)
    assert str(outcome) == "complete: 2 pages, 5 records, 0 created, 0 updated, 0 deleted, 0 restored"
    rig.source.before_page = refuse(SourceUnavailable("HTTP 503"))
    assert str(await reconcile(rig.reconciler)) == "incomplete: HTTP 503"
    rig.source.before_page = refuse(SchemaMismatch("no records"))
    assert str(await reconcile(rig.reconciler)) == "failed: no records"


def refuse(error: Exception) -> Callable[[int], None]:
    def fail(_: int) -> None:
        raise error

    return fail
