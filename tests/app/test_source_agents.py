"""Each source is loaded by itself: the others neither wait for it nor end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import pytest

from dockbell.app import load_config
from dockbell.app.agent_task import AgentTask
from dockbell.app.agents import assemble
from dockbell.app.daemon import Daemon
from dockbell.app.scheduler import Scheduler
from dockbell.app.systemd import Supervisor
from dockbell.core.model import Feed
from dockbell.errors import StoreError, StoreFull
from dockbell.ports import Bell, FeedState
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.stores.handles.feed_store import SqlFeedStore
from dockbell.telemetry import Fact, RequestSent, RunEnded, Started, Telemetry

SOURCE = """
[sources.{name}]
base_url = "{api}"
api_key = "sandbox"
"""
SINK = """
[resources]
shipments = { every = "200ms" }
stock = { every = "1h" }
[sinks.out]
type = "stdout"
resources = ["notices"]
"""
SHIPMENTS = [Feed(name, "shipments") for name in ("first", "second", "third")]


@dataclass
class Yard:
    """A daemon that reads sources of one API; the store does not answer for a source before it is let go."""

    path: Path
    api: str
    held: dict[str, anyio.Event] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    failures: dict[str, StoreError] = field(default_factory=dict)
    daemon: Daemon = field(init=False)
    stop: anyio.Event = field(default_factory=anyio.Event)

    def write(self, *names: str, more: str = SINK) -> None:
        self.path.write_text("".join(SOURCE.format(name=name, api=self.api) for name in names) + more)

    def hold(self, *names: str) -> None:
        self.held.update((name, anyio.Event()) for name in names)

    @property
    def loaded(self) -> set[str]:
        return {feed.source for feed in self.daemon._agents.feeds}

    async def until_read(self, *names: str) -> None:
        """Wait until these sources were read, from now on."""
        seen = len(self.facts)
        with anyio.fail_after(30):
            while {*names} - {fact.feed.source for fact in self.facts[seen:] if isinstance(fact, RunEnded)}:  # noqa: ASYNC110
                await anyio.sleep(0.02)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Have the daemon work, and end it by the stop that SIGTERM sets."""
        async with assemble(load_config(self.path), Telemetry(self.facts.append)) as agents, Scheduler() as scheduler:
            self.daemon = Daemon(
                agents,
                scheduler,
                config=agents.config,
                read_again=lambda: load_config(self.path),
                supervisor=Supervisor(),
            )
            async with anyio.create_task_group() as group:
                task = AgentTask(group, partial(self.daemon.run, self.stop, Bell()))
                await anyio.wait_all_tasks_blocked()
                yield
                self.stop.set()
                with anyio.fail_after(10):
                    await task.wait()


@pytest.fixture
async def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    opened = SqlFeedStore.open

    async def open_later(store: SqlFeedStore) -> FeedState:
        source = store._feed.source
        if source in there.held:
            await there.held[source].wait()
        if source in there.failures:
            raise there.failures.pop(source)
        return await opened(store)

    monkeypatch.setattr(SqlFeedStore, "open", open_later)
    async with serve(Sandbox(SandboxOptions(records=20, requests_per_minute=0))) as api:
        there = Yard(tmp_path / "dockbell.toml", api)
        yield there


async def test_a_source_is_read_while_another_is_still_loaded(yard: Yard) -> None:
    yard.write("first", "second", "third")
    yard.hold("second")
    async with yard.working():
        assert [(fact.feeds, fact.sinks) for fact in yard.facts if isinstance(fact, Started)] == [(6, ("out",))]
        await yard.until_read("first", "third")
        assert yard.loaded == {"first", "third"}
        yard.held["second"].set()
        await yard.until_read("first", "second", "third")


async def test_a_stop_while_sources_are_loaded_ends_the_daemon(yard: Yard) -> None:
    yard.write("first", "second")
    yard.hold("second")
    async with yard.working():
        await yard.until_read("first")
    assert yard.loaded == {"first"}


async def test_a_reload_removes_and_adds_sources_while_others_are_loaded(yard: Yard) -> None:
    yard.write("first", "second")
    yard.hold("second")
    async with yard.working():
        await yard.until_read("first")
        yard.write("first", "third")
        with anyio.fail_after(10):
            outcome = str(await yard.daemon.reload())
        assert outcome == (
            "complete: feed third/shipments added, feed third/stock added,"
            " feed second/shipments removed, feed second/stock removed"
        )
        assert yard.loaded == {"first", "third"}
        await yard.until_read("third")


async def test_a_reload_goes_on_with_loading_what_it_does_not_change(yard: Yard) -> None:
    yard.write("first", "second")
    yard.hold("second")
    async with yard.working():
        await yard.until_read("first")
        task = yard.daemon._agents.sources["first"]._tasks[SHIPMENTS[0]]
        yard.write("first", "second", "third")
        async with anyio.create_task_group() as group:
            group.start_soon(yard.daemon.reload)
            await yard.until_read("third")
            yard.held["second"].set()
        await yard.until_read("first", "second", "third")
        assert yard.daemon._agents.sources["first"]._tasks[SHIPMENTS[0]] is task


async def test_a_configuration_that_cannot_be_used_does_not_stop_the_loading(yard: Yard) -> None:
    yard.write("first", "second")
    yard.hold("second")
    async with yard.working():
        yard.write("first", more="[sinks")
        assert str(await yard.daemon.reload()).startswith("failed: nothing was changed")
        yard.held["second"].set()
        await yard.until_read("first", "second")


async def test_a_full_disk_delays_the_loading_of_a_source(yard: Yard) -> None:
    yard.write("first", "second")
    yard.failures["second"] = StoreFull("store: disk full")
    async with yard.working():
        await yard.until_read("first", "second")
    assert not yard.failures


async def test_a_store_that_cannot_be_read_ends_the_daemon_but_not_one_that_reloads(yard: Yard) -> None:
    yard.write("first")
    async with yard.working():
        await yard.until_read("first")
        yard.write("first", "second")
        yard.failures["second"] = StoreError("store: malformed")
        assert str(await yard.daemon.reload()) == "failed: not everything was changed, reload again\nstore: malformed"
        await yard.until_read("first")
        assert str(await yard.daemon.reload()) == "complete: nothing changed"
        await yard.until_read("first", "second")
    yard.failures["second"] = StoreError("store: malformed")
    yard.stop = anyio.Event()
    with pytest.raises(ExceptionGroup) as caught:
        async with yard.working():
            await anyio.sleep(5)
    assert caught.group_contains(StoreError, match="malformed")


async def test_sources_with_one_key_share_its_budget_and_its_planner_also_after_a_reload(yard: Yard) -> None:
    yard.write("first", "second")
    async with yard.working():
        await yard.until_read("first", "second")
        yard.write("second", "third")
        assert str(await yard.daemon.reload()).startswith("complete")
        await yard.until_read("second", "third")
        second, third = yard.daemon._agents.sources.values()
        assert second.client.key_budget is third.client.key_budget
        assert second.planning is third.planning
        await second.planning.planner.plan()
        division = second.planning.planner.division
    assert division is not None
    assert {planned.demand.feed.source for planned in division.feeds} == {"second", "third"}
    asked = [fact.source for fact in yard.facts if isinstance(fact, RequestSent)]
    assert second.client.budget.used == len(asked)
    assert {*asked} == {"first", "second", "third"}


async def test_sources_with_two_keys_share_nothing(yard: Yard) -> None:
    yard.write("first", "second")
    yard.path.write_text(yard.path.read_text().replace('"sandbox"', '"other"', 1))
    async with assemble(load_config(yard.path), Telemetry()) as agents:
        first, second = agents.sources.values()
        assert first.client.key_budget is not second.client.key_budget
        assert first.planning is not second.planning


async def test_a_paused_source_is_not_read_until_it_is_resumed(yard: Yard) -> None:
    yard.write("first", "second")
    yard.path.write_text(f"[source_defaults]\npaused = true\n{yard.path.read_text()}")
    async with yard.working():
        assert await yard.daemon._agents.find(SHIPMENTS[0]) is None
        yard.write("first", "second")
        assert str(await yard.daemon.reload()) == "complete: source first resumed, source second resumed"
        await yard.until_read("first", "second")
        yard.path.write_text(yard.path.read_text().replace('"sandbox"\n', '"sandbox"\npaused = true\n', 1))
        assert str(await yard.daemon.reload()) == "complete: source first paused"
        assert yard.loaded == {"second"}
        seen = len(yard.facts)
        await yard.until_read("second")
        assert {fact.source for fact in yard.facts[seen:] if isinstance(fact, RequestSent)} == {"second"}
        assert SHIPMENTS[0] in yard.daemon._agents.configured, "sinks get what they are owed"


async def test_the_planner_of_a_key_ends_with_its_last_source(yard: Yard) -> None:
    yard.write("first", "second")
    async with yard.working():
        await yard.until_read("first", "second")
        sources = list(yard.daemon._agents.sources.values())
        await sources[0].end()
        assert sources[1].planning._task is not None
        await sources[1].end()
        assert sources[1].planning._task is None


async def test_a_command_waits_until_its_feed_is_loaded(yard: Yard) -> None:
    yard.write("first")
    found = []
    async with (
        assemble(load_config(yard.path), Telemetry()) as agents,
        anyio.create_task_group() as group,
    ):

        async def find() -> None:
            found.append(await agents.find(SHIPMENTS[0]))

        group.start_soon(find)
        await anyio.wait_all_tasks_blocked()
        assert not found
        assert await agents.find(SHIPMENTS[1]) is None
        await agents.load()
    assert found == [agents.feeds[SHIPMENTS[0]]]


async def test_a_signal_listens_while_both_of_its_feeds_are_read(yard: Yard) -> None:
    def list_signals() -> list[tuple[str, str]]:
        source = yard.daemon._agents.sources["first"]
        for feed, agents in source.feeds.items():
            pairs = [signal.pair for signal in source._signals]
            heard = [pair for pair in pairs if feed.resource in (pair.carrier, pair.target)]
            assert len(agents.tracked.listeners) == len(heard)
        return [(signal.pair.carrier, signal.pair.target) for signal in source._signals]

    async def reload(resources: str) -> list[tuple[str, str]]:
        yard.write("first", more=f"[resources]\n{resources}\n")
        with anyio.fail_after(10):
            await yard.daemon.reload()
        await yard.until_read("first")
        return list_signals()

    items, stock, off = 'items = { every = "200ms" }', 'stock = { every = "1h" }', 'stock = { signal = "off" }'
    yard.write("first", more=f"[resources]\n{items}\n{stock}\n")
    async with yard.working():
        await yard.until_read("first")
        assert list_signals() == [("items", "stock")]
        assert await reload(items) == []
        assert await reload(f'{items}\nstock = {{ every = "2h" }}') == [("items", "stock")]
        assert await reload('items = { every = "300ms" }\nstock = { every = "2h" }') == [("items", "stock")]
        assert await reload(f"{items}\n{off}") == []
        assert await reload('shipments = { every = "200ms" }\npackages = {}') == [("shipments", "packages")]
