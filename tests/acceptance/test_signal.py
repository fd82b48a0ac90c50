"""Stock that items show: the real agents over a sandbox whose items are bumped when their stock moves, or are not."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from dockbell.app.agent_task import AgentTask
from dockbell.core.model import Feed
from dockbell.core.moment import parse_moment
from dockbell.core.reading.signal import Phase
from dockbell.detection.guarded import run_guarded
from dockbell.detection.signal import Signal, find_signals
from tests.acceptance.altering import Answer, alter
from tests.acceptance.deployment import START, Deployment, SkippingLoop, deploy

if TYPE_CHECKING:
    from dockbell.app.scheduler import Scheduler

ITEMS, STOCK = Feed("main", "items"), Feed("main", "stock")
POLL_EVERY, PASS_EVERY = 5, 120


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


class VirtualAlarm:
    """Rings by the time of the loop."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._moved = anyio.Event()

    def ring_in(self, delay: timedelta) -> None:
        self._due = anyio.current_time() + max(0.0, delay.total_seconds())
        self._moved.set()
        self._moved = anyio.Event()

    async def wait(self) -> None:
        while self._due is None or anyio.current_time() < self._due:
            with anyio.move_on_after(None if self._due is None else self._due - anyio.current_time()):
                await self._moved.wait()
        self._due = None

    def close(self) -> None:
        pass


class VirtualScheduler:
    """Makes alarms; the agents and the planner then work as they do in the daemon."""

    def alarm(self, _: str) -> VirtualAlarm:
        return VirtualAlarm()


class Shop:
    """A dockbell that polls items every 5 seconds and reads stock every 2 minutes."""

    def __init__(self, dockbell: Deployment) -> None:
        self.dockbell = dockbell
        self.dice = random.Random(7)
        self.began = 0.0
        self.signal = self.make_signal()
        self.numbers: list[float] = []
        self._second = 0

    def make_signal(self) -> Signal:
        feeds = {feed.resource: agents.tracked for feed, agents in self.dockbell.agents.feeds.items()}
        (signal,) = find_signals(feeds)
        signal.attach()
        return signal

    def restart(self) -> None:
        """Begin anew with what is stored of the signal."""
        self.signal.detach()
        self.signal = self.make_signal()

    @property
    def phase(self) -> Phase:
        return self.signal.state.phase

    def change(self, share: float = 0.4) -> None:
        if self.dice.random() < share:
            levels = list(self.dockbell.sandbox.records("stock"))
            self.dockbell.sandbox.edit("stock", identity=self.dice.choice(levels))

    async def live(
        self, seconds: int, change: Callable[[], None] | None = None, *, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Let something change each second, for some time or until something holds."""
        for _ in range(seconds):
            (change or self.change)()
            await self._tend()
            if until():
                return

    async def _tend(self) -> None:
        agents = self.dockbell.agents.feeds
        if self._second % PASS_EVERY == 0:
            await run_guarded(agents[STOCK].tracked, agents[STOCK].reconciler.run_once, pause=False)
        if self._second == 0:
            await run_guarded(agents[ITEMS].tracked, agents[ITEMS].reconciler.run_once, pause=False)
        poller = agents[ITEMS].poller
        assert poller is not None
        if self._second % POLL_EVERY == 0:
            await run_guarded(agents[ITEMS].tracked, poller.run_once, pause=False)
        await self.signal.run_once()
        self._second += 1
        await anyio.sleep(max(0.001, self.began + self._second - anyio.current_time()))

    async def settle(self) -> None:
        """Read all until nothing is held any more."""
        for _ in range(4):
            await self.live(PASS_EVERY, lambda: None)

    async def events(self, feed: Feed = STOCK) -> list[dict[str, Any]]:
        """Return the events of records, but for the first snapshots."""
        stored = await self.dockbell.agents.store.read_events(feed, 0, 1_000_000)
        return [json.loads(event.body)["data"] for event in stored if event.key and event.change != "snapshot"]

    async def vias(self) -> dict[str, int]:
        found = [event["via"] for event in await self.events() if event["change"] == "updated"]
        return {via: found.count(via) for via in sorted(set(found))}

    async def delays(self, since: timedelta = timedelta(0)) -> list[float]:
        """Return how long after each change of stock its event came, of those that were made since."""
        made = {
            (change.identity, str(self.dockbell.form.plain(change.after))): change.at
            for change in self.dockbell.changes()
            if change.resource == "stock" and change.after is not None
        }
        found = []
        for event in await self.events():
            at = made.get((event["key"], str(self.dockbell.form.plain(event["after"]))))
            told = parse_moment(event["detected_at"])
            assert told is not None
            if at is not None and event["change"] == "updated" and at >= START + since:
                found.append((told - at).total_seconds())
        return found


@asynccontextmanager
async def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> AsyncIterator[Shop]:
    sizes = {"items": 80, "stock": 200, "warehouses": 5, "page_cap": 200, "shipments": 0, "packages": 0}
    settings = {"stock": {"every": f"{PASS_EVERY}s", "signal": "auto"} | options.pop("settings", {})}
    settings["items"] = options.pop("items_settings", {})
    async with deploy(
        folder, monkeypatch, resources=("items", "stock"), settings=settings, **(sizes | options)
    ) as dockbell:
        yield Shop(dockbell)


async def test_where_items_are_bumped_stock_is_known_within_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        assert shop.phase is Phase.USED
        used_at = timedelta(seconds=anyio.current_time())
        assert set(await shop.vias()) <= {"first_pass", "pass"}  # it is only tried until then
        before = fmean(await shop.delays())
        await shop.live(1200)
        await shop.settle()
        after = await shop.delays(used_at)
        assert before > PASS_EVERY / 3
        assert fmean(after) < POLL_EVERY
        assert max(after) <= PASS_EVERY + POLL_EVERY
        assert (await shop.vias())["signal"] > 0.9 * len(after)
        assert shop.signal.state.missed == 0
        assert await shop.events(ITEMS) == []
        assert await shop.dockbell.judge() == []


async def test_where_items_are_not_bumped_nothing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, monkeypatch) as shop:
        await shop.live(1200)
        assert shop.phase is Phase.MEASURING
        assert shop.signal.state.best.changes > 100
        assert shop.signal.state.best.moved == 0
        assert not any("expand" in path for path in shop.dockbell.wire.paths)
        await shop.settle()
        assert set(await shop.vias()) <= {"first_pass", "pass"}
        assert await shop.dockbell.judge() == []


async def test_where_half_the_items_are_bumped_there_is_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=0.5) as shop:
        await shop.live(1500)
        best = shop.signal.state.best
        assert shop.phase is Phase.MEASURING
        assert 0.3 < best.moved / best.changes < 0.8
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_a_signal_that_is_configured_may_miss_half_of_the_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=0.5, settings={"signal": "items"}) as shop:
        await shop.live(2400)
        assert shop.phase is Phase.USED
        vias = await shop.vias()
        assert vias["signal"] > 50
        assert shop.signal.state.missed > 20
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_a_service_that_stops_bumping_is_read_by_passes_again_and_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        await shop.live(400)
        workload = shop.dockbell.agents.feeds[STOCK].tracked.workload
        assert workload.plan.lead.changes > 50
        low = workload.plan.rate.per_second
        shop.dockbell.sandbox.set(bump_most=0)
        await shop.live(2 * PASS_EVERY, until=lambda: shop.signal.state.missed > 0)
        assert shop.signal.state.missed > 0
        assert workload.plan.lead.changes < 10  # full rate at once
        assert workload.plan.rate.per_second > 1.5 * low
        await shop.live(1500)
        assert shop.phase is Phase.MEASURING
        await shop.settle()
        assert await shop.dockbell.judge() == []


@pytest.mark.parametrize("lag", [20.0, 90.0])
async def test_embedded_records_that_lag_behind_invent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: float
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0, embed_lag=lag, stock=120, items=50) as shop:
        await shop.live(2400)
        await shop.settle()
        assert await shop.dockbell.judge() == []
        if lag == 20:  # the lookback shows each item for a minute
            assert shop.phase is Phase.USED
            assert (await shop.vias())["signal"] > 100


@pytest.mark.parametrize("lag", [0.0, 20.0, 50.0])
async def test_stock_without_timestamps_comes_out_right_with_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: float
) -> None:
    """What is embedded may be an older state that was never stored, and nothing but its time tells."""

    def forget_dates(answer: Answer) -> None:
        if answer.status != 200 or answer.path not in ("/v1/items", "/v1/stock"):
            return
        body = json.loads(answer.body)
        levels = body.get("stock", [level for item in body.get("items", ()) for level in item.get("stock", ())])
        for level in levels:
            del level["updated_at"]
        answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(
        tmp_path, monkeypatch, bump_share=1.0, embed_lag=lag, settings={"signal": "items", "stale_window": "60s"}
    ) as shop:
        alter(shop.dockbell, forget_dates)

        def change() -> None:
            shop.change(0.2)
            if shop.dice.random() < 0.2:  # the same few, again and again
                shop.dockbell.sandbox.edit("stock", identity=f"stk_{shop.dice.randint(1, 5)}")

        await shop.live(1500, change)
        assert shop.phase is Phase.USED
        assert (await shop.vias())["signal"] > 100
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_a_stock_list_that_lags_behind_the_items_invents_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"replicas": 2, "replica_lag": 20.0, "replica_for": "pass"}
    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}, **options) as shop:
        await shop.live(2400)
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_business_as_usual_comes_out_right_with_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels are created, deleted and restored; arrays and members come in any order."""
    shuffled = {"shuffle_members": True, "numbers": "mixed"}
    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}, **shuffled) as shop:

        def change() -> None:
            shop.change()
            shop.dockbell.sandbox.step(1)

        await shop.live(1800, change)
        assert (await shop.vias())["signal"] > 200
        await shop.settle()
        await shop.settle()
        assert [each for each in await shop.dockbell.judge() if "untold" not in each] == []


async def test_a_restart_goes_on_with_what_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        await shop.live(60)
        shop.restart()
        await shop.live(5)
        assert shop.phase is Phase.USED
        before = (await shop.vias()).get("signal", 0)
        await shop.live(200)
        assert (await shop.vias())["signal"] > before + 20
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_what_the_operator_has_embedded_is_used_and_left_in_the_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0, items_settings={"expand": ["stock"]}) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        await shop.live(300)
        assert (await shop.vias())["signal"] > 50
        assert any(event["changed"] and "/stock" in event["changed"][0] for event in await shop.events(ITEMS))
        await shop.settle()
        problems = [each for each in await shop.dockbell.judge() if "'items'" not in each]
        assert problems == []


async def test_an_api_that_adds_nothing_or_more_than_one_member_is_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alter_items(answer: Answer) -> None:
        if answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                item["links"] = {}
            answer.body = json.dumps(body).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, alter_items)
        await shop.live(300)
        assert shop.phase is Phase.DROPPED
        assert shop.signal.state.reason == "items?expand=stock does not just add one member"
        await shop.settle()
        assert await shop.events(ITEMS) == []
        assert await shop.dockbell.judge() == []


async def test_an_api_that_refuses_to_embed_is_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(answer: Answer) -> None:
        if "expand" in answer.query:
            answer.status, answer.body = 400, b'{"error": "expand is not for lists"}'

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, refuse)
        await shop.live(300)
        assert shop.phase is Phase.DROPPED
        assert shop.signal.state.reason.startswith("items?expand=stock is refused: ")
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_embedded_records_of_another_form_are_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shorten(answer: Answer) -> None:
        if answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                for level in item["stock"]:
                    del level["lots"]
            answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, shorten)
        await shop.live(600)
        assert shop.phase is Phase.DROPPED
        await shop.settle()
        assert "signal" not in await shop.vias()
        assert await shop.dockbell.judge() == []


async def test_a_list_that_takes_back_what_the_signal_said_drops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service begins to embed levels that are wrong: the first one invents an event, and it is the last."""
    wrong = False

    def lie(answer: Answer) -> None:
        if wrong and answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                for level in item["stock"][:1]:
                    level["on_hand"] += 1
                    level["updated_at"] = level["updated_at"].replace(".", ".9")[:26] + "Z"
            answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        alter(shop.dockbell, lie)
        wrong = True
        await shop.live(2 * PASS_EVERY, until=lambda: shop.phase is Phase.DROPPED)
        assert shop.phase is Phase.DROPPED
        assert "the list has shown" in shop.signal.state.reason
        asked = sum("expand" in path for path in shop.dockbell.wire.paths)
        await shop.live(PASS_EVERY)
        assert sum("expand" in path for path in shop.dockbell.wire.paths) == asked


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
            await anyio.sleep(500)
            await changing.end()
            await anyio.sleep(400)
            group.cancel_scope.cancel()
        assert await dockbell.judge() == []


async def test_shipments_are_a_signal_for_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are polled too, so seldom here that it shows; their polls prove what they did before."""
    settings = {"packages": {"every": "60s", "lookback": "60s", "signal": "auto"}, "shipments": {"every": "5s"}}
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
        assert vias.count("signal") > 150
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
