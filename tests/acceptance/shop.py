"""A shop whose stock moves, watched by the real agents over a sandbox, in virtual time."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import Feed
from dockbell.core.moment import parse_moment
from dockbell.core.reading.signal_state import Phase
from dockbell.detection.guarded import run_guarded
from dockbell.detection.signal import Signal, find_signals
from tests.acceptance.deployment import START, Deployment, deploy

ITEMS, STOCK = Feed("main", "items"), Feed("main", "stock")
POLL_EVERY, PASS_EVERY = 5, 120


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

    def alarm(self) -> VirtualAlarm:
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
