"""In which order sources are loaded that other processes had, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.app import load_config, source_loader
from dockbell.app.agents import Agents, assemble
from dockbell.app.scheduler import Scheduler
from dockbell.app.source_agents import SourceAgents
from dockbell.app.source_loader import SourceLoader
from dockbell.core.model import Feed
from dockbell.host import system
from dockbell.telemetry import Telemetry

SOURCE = """
[sources.{name}]
base_url = "http://127.0.0.1:1/{name}"
api_key = "sandbox"
"""
SINK = '[sinks.out]\ntype = "stdout"\n[resources.stock]\n'


@dataclass
class Ramp:
    """Agents whose sources are loaded.

    Attributes:
        loaded: The sources, in the order in which they were.
    """

    agents: Agents
    loader: SourceLoader
    loaded: list[str]


@asynccontextmanager
async def open_ramp(
    folder: Path, monkeypatch: pytest.MonkeyPatch, due_in: Mapping[str, float | None]
) -> AsyncIterator[Ramp]:
    """Open the agents of some sources, which are due after so many seconds; None: nothing tells when."""
    path = folder / "dockbell.toml"
    path.write_text("".join(SOURCE.format(name=name) for name in due_in) + SINK)
    async with assemble(load_config(path), Telemetry()) as agents, Scheduler() as scheduler:
        loaded, load = list[str](), agents.load_source

        async def note_and_load(source: SourceAgents) -> None:
            loaded.append(source.client.name)
            await load(source)

        monkeypatch.setattr(agents, "load_source", note_and_load)
        for name, seconds in due_in.items():
            agents.sources[name].due_at = None if seconds is None else system.elapsed() + timedelta(seconds=seconds)
        yield Ramp(agents, SourceLoader(agents, scheduler), loaded)


async def test_what_is_due_comes_first_then_what_may_be_and_then_what_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due_in = {"soon": 60.0, "unknown": None, "late": -1.0, "later": 70.0, "latest": -9.0}
    async with open_ramp(tmp_path, monkeypatch, due_in) as ramp, anyio.create_task_group() as group:
        await ramp.loader.run(group)
        group.cancel_scope.cancel()
    assert ramp.loaded == ["latest", "late", "unknown", "soon", "later"]


async def test_what_is_not_due_is_loaded_little_by_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_loader, "_PAUSE", timedelta(seconds=0.3))
    due_in = {"hour": 3600.0, "day": 86400.0, "soon": 60.0}
    began_at = anyio.current_time()
    async with open_ramp(tmp_path, monkeypatch, due_in) as ramp, anyio.create_task_group() as group:
        await ramp.loader.run(group)
        group.cancel_scope.cancel()
    assert ramp.loaded == ["soon", "hour", "day"]
    assert anyio.current_time() - began_at >= 0.9


async def test_what_is_not_due_is_loaded_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_loader, "_PAUSE", timedelta(hours=1))
    async with open_ramp(tmp_path, monkeypatch, {"soon": 2.2}) as ramp, anyio.create_task_group() as group:
        with anyio.fail_after(10):
            await ramp.loader.run(group)
        group.cancel_scope.cancel()
    assert ramp.loaded == ["soon"]


async def test_what_is_asked_for_is_loaded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_loader, "_PAUSE", timedelta(hours=1))
    due_in = {"first": 7200.0, "second": 7300.0, "third": 7400.0}
    async with open_ramp(tmp_path, monkeypatch, due_in) as ramp, anyio.create_task_group() as group:
        group.start_soon(ramp.loader.run, group)
        with anyio.fail_after(10):
            assert await ramp.agents.find(Feed("third", "stock")) is not None
        assert ramp.loaded == ["third"]
        group.cancel_scope.cancel()


async def test_a_reload_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_loader, "_PAUSE", timedelta(hours=1))
    due_in = dict.fromkeys(("first", "second", "third"), 7200.0)
    async with open_ramp(tmp_path, monkeypatch, due_in) as ramp, anyio.create_task_group() as group:
        with anyio.fail_after(10):
            await ramp.loader.run(group, at_once=True)
        group.cancel_scope.cancel()
    assert sorted(ramp.loaded) == ["first", "second", "third"]
