"""A first read, an unchanged pass and the idle cycle of a daemon, by the daemon's own parts, beside the bare loop."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

import dockbell.cli  # noqa: F401  # it sets how often garbage is looked for, as in the daemon
from dockbell.app.agents import Agents, assemble
from dockbell.config import Config, validate
from dockbell.core.model import RESOURCES
from dockbell.detection.reconciler import Reconciler
from dockbell.ports import RunRecord
from dockbell.sinks import load_sink_type
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import Telemetry
from tests.bench import bare_reading
from tests.bench.processes import Cost, Meter, run_alone, serving
from tests.bench.servers import serve_restless, serve_sandbox
from tests.bench.table import BARE, print_costs

UNPACED: Final = {"requests_per_minute": 1_000_000_000}


def make_config(url: str, path: Path, **tables: Any) -> Config:
    """Return a configuration with everything at its default but the budget, which never makes a request wait."""
    main = {"base_url": url, "api_key": "sandbox", **UNPACED}
    table = {"store": {"url": f"sqlite:///{path}"}, "sources": {"main": main}, **tables}
    return validate(table, lambda kind: load_sink_type(kind).Settings)


def read_all(url: str, path: Path, **tables: Any) -> Cost:
    """Pass once over each of the five feeds, all at once, as the daemon does."""
    return anyio.run(_read_all, make_config(url, path, **tables))


def read_cycle(url: str, path: Path) -> Cost:
    """Pass over the feeds that cannot be polled, as a daemon does for the third time since it started."""
    return anyio.run(
        _read_all, make_config(url, path), [name for name, each in RESOURCES.items() if not each.polled], 2
    )


def poll(url: str, path: Path) -> Cost:
    """Poll one feed again and again, as a daemon does that has run for a while; nothing changes meanwhile."""
    return anyio.run(_poll, make_config(url, path))


def fill(url: str, path: Path) -> Cost:
    """Read everything for the first time, with an event for each record."""
    resources = {name: {"first_pass": "emit"} for name in RESOURCES}
    return anyio.run(_read_all, make_config(url, path, resources=resources))


async def _read_all(config: Config, resources: Collection[str] = RESOURCES, before: int = 0) -> Cost:
    """Pass once over the feeds of some resources, after so many passes that are not measured."""
    runs: list[RunRecord] = []

    async def pass_over(reconciler: Reconciler) -> None:
        run = await reconciler.run_once()
        assert not run.problem, run
        runs.append(run)

    async def pass_over_all(agents: Agents) -> None:
        runs.clear()
        async with anyio.create_task_group() as group:
            for feed, each in agents.feeds.items():
                if feed.resource in resources:
                    group.start_soon(pass_over, each.reconciler)

    async with assemble(config, Telemetry()) as agents:
        assert isinstance(agents.store, SqliteStore)
        await agents.load()
        for _ in range(before):
            await pass_over_all(agents)
        database = agents.store.engine.writer  # only its own connection knows what it wrote
        meter, written = Meter(), database.total_changes
        await pass_over_all(agents)
        return meter.read(
            sum(run.records for run in runs),
            pages=sum(run.pages for run in runs),
            written=database.total_changes - written,
        )


async def _poll(config: Config) -> Cost:
    async with assemble(config, Telemetry()) as agents:
        assert isinstance(agents.store, SqliteStore)
        await agents.load()
        (poller,) = [each.poller for feed, each in agents.feeds.items() if feed.resource == bare_reading.POLLED]
        assert poller is not None
        for _ in range(20):
            await poller.run_once()
        database = agents.store.engine.writer
        meter, written = Meter(), database.total_changes
        runs = []
        for _ in range(bare_reading.POLLS):
            run = await poller.run_once()
            assert run is not None
            assert not run.problem, run
            runs.append(run)
        return meter.read(
            sum(run.records for run in runs),
            pages=sum(run.pages for run in runs),
            written=database.total_changes - written,
        )


def measure_reading(records: int, rounds: int) -> None:
    """Print what reading costs."""
    measurements = {
        f"first read, {BARE}": (bare_reading.read_first, "bare.db"),
        "first read, dockbell": (read_all, "dockbell.db"),
        f"unchanged pass, {BARE}": (bare_reading.read_again, "bare.db"),
        "unchanged pass, dockbell": (read_all, "dockbell.db"),
        f"idle cycle, {BARE}": (bare_reading.read_cycle, "bare.db"),
        "idle cycle, dockbell": (read_cycle, "dockbell.db"),
        f"idle polls, {BARE}": (bare_reading.poll, "bare.db"),
        "idle polls, dockbell": (poll, "dockbell.db"),
    }
    changing = {
        f"cycle with changes, {BARE}": (bare_reading.read_changing_cycle, "bare.db"),
        "cycle with changes, dockbell": (read_cycle, "dockbell.db"),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in measurements | changing}
    with serving(serve_sandbox, records) as url, serving(serve_restless, records) as restless:
        for _ in range(rounds):
            with TemporaryDirectory() as folder:
                for name, (measure, file) in measurements.items():
                    costs[name].append(run_alone(measure, url, Path(folder, file)))
                for name, (measure, file) in changing.items():
                    costs[name].append(run_alone(measure, restless, Path(folder, file)))
    print_costs(
        f"{records:,} records in five feeds",
        (
            ("records/s", lambda cost: cost.count / cost.wall, ",.0f"),
            ("pages/s", lambda cost: cost.pages / cost.wall, ",.0f"),
            ("CPU/page, ms", lambda cost: 1000 * cost.cpu / cost.pages, ".1f"),
            ("rows written", lambda cost: cost.written, ",.0f"),
        ),
        costs,
    )
