from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.admin import shared_read
from dockbell.app import daemon as at_work
from dockbell.app import load_config
from dockbell.app.agents import assemble
from dockbell.app.daemon import Daemon
from dockbell.app.scheduler import Scheduler
from dockbell.app.systemd import Supervisor
from dockbell.core.model import NOTICES, Feed
from dockbell.errors import StoreFull
from dockbell.ports import Bell
from dockbell.stores.handles.feed_store import SqlFeedStore
from dockbell.telemetry import ProcessDied, Reloaded, ReloadRefused
from tests.fakes import Ear

CONFIG = """
[sources.main]
base_url = "http://127.0.0.1:1"
api_key = "k"
[resources]
shipments = {{ every = "1h" }}
{resources}
[sinks.out]
type = "stdout"
resources = ["notices"]
{sinks}
"""
ITEMS = Feed("main", "items")
SHIPMENTS = Feed("main", "shipments")


def write(folder: Path, *, resources: str = "", sinks: str = "") -> Path:
    path = folder / "dockbell.toml"
    path.write_text(CONFIG.format(resources=resources, sinks=sinks))
    return path


@asynccontextmanager
async def working(path: Path, ear: Ear, *, loaded: bool = True) -> AsyncIterator[Daemon]:
    """Have a daemon work meanwhile, from when its sources are loaded on, or from its start."""
    stop = anyio.Event()
    async with assemble(load_config(path), ear.telemetry) as agents, Scheduler() as scheduler:
        daemon = Daemon(
            agents, scheduler, config=agents.config, read_again=lambda: load_config(path), supervisor=Supervisor()
        )
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.run, stop, Bell())
            with anyio.fail_after(10):
                while not hasattr(daemon, "_loading"):  # noqa: ASYNC110  # nothing tells that it has started
                    await anyio.sleep(0.01)
            await anyio.wait_all_tasks_blocked()
            if loaded:
                await daemon._loading.wait()
            yield daemon
            stop.set()


async def test_a_full_disk_while_it_reloads_delays_what_is_new_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ear = write(tmp_path), Ear()
    async with working(path, ear) as daemon:
        agents = daemon._agents
        save, failures = SqlFeedStore.save_read_settings, [StoreFull("store: disk full")]

        async def save_later(*args: Any, **kwargs: Any) -> None:
            if failures:
                agents.store.engine.outage.begin(failures[0])  # type: ignore[attr-defined]
                raise failures.pop()
            await save(*args, **kwargs)

        monkeypatch.setattr(SqlFeedStore, "save_read_settings", save_later)
        write(tmp_path, resources='items = { every = "1h" }', sinks='[sinks.other]\ntype = "stdout"')
        with anyio.fail_after(10):
            outcome = await daemon.reload()
        assert str(outcome) == "complete: feed main/items added, sink other added"
        assert not failures
        assert set(agents.feeds) == set(agents.sources["main"]._tasks) == {SHIPMENTS, ITEMS}
        assert set(agents.relays) == set(daemon._relays) == {"out", "other"}
    assert any(isinstance(fact, Reloaded) for fact in ear.facts)


async def test_the_operator_is_told_that_the_process_before_was_killed(tmp_path: Path) -> None:
    path, ear = write(tmp_path), Ear()
    async with working(path, ear):
        assert (tmp_path / "dockbell.db.lock").read_text() == f"process {os.getpid()}"
    assert (tmp_path / "dockbell.db.lock").read_text() == ""
    (tmp_path / "dockbell.db.lock").write_text("process 4711")
    async with working(path, ear) as daemon:
        store = daemon._agents.store
        with anyio.fail_after(10):
            rings = 0
            while not (notices := await store.read_events(NOTICES, 0, 10)):
                rings = await store.outbox.wait(rings)
    assert [event.key for event in notices] == ["died,process,4711"]
    assert [fact for fact in ear.facts if isinstance(fact, ProcessDied)] == [ProcessDied("process 4711")]


async def test_of_two_reloads_at_once_the_last_configuration_is_followed(tmp_path: Path) -> None:
    path = write(tmp_path)
    async with working(path, Ear()) as daemon:
        write(tmp_path, resources='items = { every = "1h" }')
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.reload)
            await anyio.lowlevel.checkpoint()
            write(tmp_path, resources='items = { every = "2h" }')
            group.start_soon(daemon.reload)
        (every,) = (each.settings.every for each in daemon._agents.config.feeds() if each.resource == "items")
        assert str(every) == "2:00:00"


async def test_a_sink_that_is_kept_begins_with_a_feed_that_is_added(tmp_path: Path) -> None:
    path = write(tmp_path)
    async with working(path, Ear()) as daemon:
        write(tmp_path, resources='items = { every = "1h" }')
        assert str(await daemon.reload()) == "complete: feed main/items added"
        positions, _ = await daemon._agents.store.sink("out").load_queue()
        assert {SHIPMENTS, ITEMS} <= positions.keys()


async def test_a_sink_that_is_kept_mirrors_what_is_configured_now(tmp_path: Path) -> None:
    other = '[sinks.other]\ntype = "stdout"'
    path = write(tmp_path, resources='items = { every = "1h" }', sinks=other)
    async with working(path, Ear()) as daemon:
        relay = daemon._agents.relays["other"]
        assert relay._has_states(ITEMS)
        write(tmp_path, sinks=other)
        assert str(await daemon.reload()) == "complete: feed main/items removed"
        assert daemon._agents.relays["other"] is relay
        assert not relay._has_states(ITEMS)
        assert relay._has_states(SHIPMENTS)


async def test_a_bug_met_by_a_reload_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ear = write(tmp_path), Ear()
    async with working(path, ear) as daemon:
        monkeypatch.setattr(daemon, "_read_again", lambda: int("x"))
        assert str(await daemon.reload()).startswith("failed: not everything was changed, ValueError")
        path.write_text("[sources")
        monkeypatch.setattr(daemon, "_read_again", lambda: load_config(path))
        assert str(await daemon.reload()).startswith("failed: nothing was changed")
        assert set(daemon._agents.sources["main"]._tasks) == {SHIPMENTS}
    assert any(isinstance(fact, ReloadRefused) for fact in ear.facts)


# What systemd is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("web", ["", '[web]\nlisten = "127.0.0.1:0"\n'], ids=["without a site", "with one"])
async def test_it_tells_how_many_reasons_there_are_to_look_and_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: str
) -> None:
    monkeypatch.setattr(shared_read, "KEPT", timedelta(0))
    path = write(tmp_path)
    path.write_text(web + path.read_text())
    async with working(path, Ear()) as daemon:
        store = daemon._agents.store
        state = await store.feed(SHIPMENTS).open()
        await store.feed(state.feed).save_problem("HTTP 401; mend the key")
        assert await daemon._look() == ("1 feed, 1 sink; 1 reason to look: main/shipments: HTTP 401; mend the key")
        await store.sink("out").pause("maintenance")
        told = await daemon._look()
    assert told == "1 feed, 1 sink; 2 reasons to look, first main/shipments: HTTP 401; mend the key"


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_store_that_cannot_be_read_keeps_nobody_from_answering_the_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    async def load(*_: object, **__: object) -> None:
        if hangs:
            await anyio.sleep_forever()
        raise OSError("disk I/O error")

    monkeypatch.setattr(at_work, "load_status", load)
    monkeypatch.setattr(at_work, "_LOOK_MOST", timedelta(seconds=0.05))
    async with working(write(tmp_path), Ear()) as daemon:
        why = "the store is slow to answer" if hangs else "disk I/O error"
        assert await daemon._look() == f"1 feed, 1 sink; their status is unknown: {why}"
