"""Signals while polls, passes, planner and what they embed are all at work, as in the daemon."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from dockbell.app.agent_task import AgentTask
from dockbell.core.model import Feed
from dockbell.core.reading.signal_state import Phase
from tests.acceptance.deployment import deploy
from tests.acceptance.shop import STOCK, Shop, VirtualScheduler
from tests.virtual_time import SkippingLoop

if TYPE_CHECKING:
    from dockbell.app.scheduler import Scheduler


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


@pytest.mark.parametrize(
    "options",
    [
        {"latency": 2.0},
        {"latency": 0.7, "error_rate": 0.1, "reset_rate": 0.05},
        {"replicas": 2, "replica_lag": 20.0},
        {"late_visibility": 15.0, "late_share": 0.5, "embed_lag": 10.0},
    ],
)
async def test_agents_at_once_on_a_hostile_service_invent_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Polls, passes and what the signal says overlap; answers are slow, late, broken, or another server's."""
    stock = {"every": "auto", "at_most": "2m", "signal": "items", "stale_window": "60s"}
    settings = {"items": {"every": "auto", "at_most": "1m"}, "stock": stock}
    sizes: dict[str, Any] = {"items": 100, "stock": 250, "warehouses": 5, "shipments": 0, "packages": 0}
    async with deploy(
        tmp_path,
        monkeypatch,
        resources=("items", "stock"),
        settings=settings,
        per_minute=120,
        bump_share=1.0,
        page_cap=100,
        **(sizes | options),
    ) as dockbell:
        (source,) = dockbell.agents.sources.values()
        shop = Shop(dockbell)
        shop.signal.detach()

        async def change() -> None:
            while True:
                await anyio.sleep(shop.dice.expovariate(1))
                shop.change(1)
                if shop.dice.random() < 0.3:  # the same few, again and again
                    dockbell.sandbox.edit("stock", identity=f"stk_{shop.dice.randint(1, 5)}")

        async with anyio.create_task_group() as group:
            source.start(group, cast("Scheduler", VirtualScheduler()))
            changing = AgentTask(group, change)
            await anyio.sleep(300)
            await changing.end()
            await anyio.sleep(300)
            group.cancel_scope.cancel()
        assert await dockbell.judge() == []


async def test_shipments_are_a_signal_for_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are polled too, so seldom here that it shows; their polls prove what they did before.

    They are passed over every two minutes, which seldom falls on a poll: whether the one or the other comes first then
    decides how soon records that did not change are found.
    """
    settings = {"packages": {"every": "70s", "lookback": "60s", "signal": "auto"}, "shipments": {"every": "5s"}}
    sizes: dict[str, Any] = {"items": 5, "stock": 5, "warehouses": 2, "shipments": 60, "packages": 200}
    async with deploy(
        tmp_path,
        monkeypatch,
        resources=("shipments", "packages"),
        settings=settings,
        bump_share=1.0,
        page_cap=200,
        **sizes,
    ) as dockbell:
        (source,) = dockbell.agents.sources.values()
        dice = random.Random(7)

        async def change() -> None:
            packages = list(dockbell.sandbox.records("packages"))
            while True:
                await anyio.sleep(dice.expovariate(0.4))
                dockbell.sandbox.edit("packages", identity=dice.choice(packages))

        async with anyio.create_task_group() as group:
            source.start(group, cast("Scheduler", VirtualScheduler()))
            changing = AgentTask(group, change)
            await anyio.sleep(1500)
            (signal,) = source._signals
            assert signal.state.phase is Phase.USED
            await changing.end()
            await anyio.sleep(400)
            group.cancel_scope.cancel()
        stored = await dockbell.agents.store.read_events(Feed("main", "packages"), 0, 1_000_000)
        vias = [json.loads(event.body)["data"].get("via") for event in stored]
        assert vias.count("signal") > 300
        assert await dockbell.judge() == []


async def test_the_planner_reads_stock_less_and_items_more_while_the_signal_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents work as in the daemon, with 60 requests a minute for 800 items and 2,000 levels."""
    auto = {"every": "auto", "at_most": "15m", "stale_window": "60s", "signal": "auto"}
    sizes: dict[str, Any] = {"items": 800, "stock": 2000, "warehouses": 5, "shipments": 0, "packages": 0}
    settings = {"items": {"every": "auto", "at_most": "1m"}, "stock": auto}
    async with deploy(
        tmp_path,
        monkeypatch,
        resources=("items", "stock"),
        settings=settings,
        per_minute=60,
        bump_share=1.0,
        page_cap=200,
        **sizes,
    ) as dockbell:
        (source,) = dockbell.agents.sources.values()
        shop = Shop(dockbell)
        shop.signal.detach()
        schedule = dockbell.agents.feeds[STOCK].tracked.schedule

        async def change() -> None:
            while True:
                await anyio.sleep(shop.dice.expovariate(0.5))
                shop.change(1)

        async def wait(minutes: float) -> float:
            """Let time pass; return the mean delay of what was made meanwhile."""
            since = timedelta(seconds=anyio.current_time())
            await anyio.sleep(60 * minutes)
            return fmean(await shop.delays(since))

        async with anyio.create_task_group() as group:
            source.start(group, cast("Scheduler", VirtualScheduler()))
            changing = AgentTask(group, change)
            await wait(2)
            before, every = await wait(8), schedule.interval
            assert every is not None
            await wait(10)
            after = await wait(10)
            assert after < before / 2
            assert (await shop.vias())["signal"] > 200
            assert schedule.interval is not None
            assert schedule.interval > 1.2 * every
            dockbell.sandbox.set(bump_most=0)
            await wait(5)
            assert schedule.interval < 1.2 * every
            await changing.end()
            await anyio.sleep(300)
            group.cancel_scope.cancel()
        assert await dockbell.judge() == []
