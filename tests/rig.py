"""One feed, whole: its state, poller and reconciler over a real store and a source whose pages drift."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from dockbell.app.next_time import next_time
from dockbell.config import ResourceSettings
from dockbell.core.model import Feed, Page, RunKind
from dockbell.detection import reading
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.poller import Poller
from dockbell.detection.reading import open_page
from dockbell.detection.reconciler import Reconciler
from dockbell.detection.run import Run
from dockbell.ports import Alarm, Committed
from dockbell.stores.sqlite import SqliteStore
from tests.fakes import Clock, Ear, FakeSource

PACKAGES: Final = Feed("main", "packages")
SHIPMENTS: Final = Feed("main", "shipments")
STOCK: Final = Feed("main", "stock")


@dataclass
class Rig:
    """One feed, whole."""

    store: SqliteStore
    clock: Clock
    source: FakeSource
    feed: Feed = PACKAGES
    settings: dict[str, Any] = field(default_factory=dict)
    ear: Ear = field(default_factory=Ear)
    base_url: str = "https://api.example.com"

    def __post_init__(self) -> None:
        self.restart()

    def name_by_code(self) -> None:
        """Let records have no id of their own: what identifies them must be proven before anything is published."""
        self.source.id_field = "code"
        for record in self.source.records.values():
            record["code"] = record.pop("id")

    def restart(self, **settings: Any) -> None:
        """Begin again from what is stored, as after a crash; the settings given are other ones from then on."""
        self.settings |= settings
        defaults: dict[str, Any] = {"every": "15s", "reconcile": "24h", "lookback": "60s"}
        merged = ResourceSettings(**(defaults | self.settings))
        self.tracked = TrackedFeed(
            self.feed,
            merged,
            name="acme",
            base_url=self.base_url,
            source=self.source,
            store=self.store,
            telemetry=self.ear.telemetry,
            now=self.clock,
            steady=self.clock.steady,
            next_time=next_time,
        )
        self.poller = Poller(self.tracked)
        self.reconciler = Reconciler(self.tracked)

    def set_clock(self, seconds: float) -> None:
        """Set our clock; that of the service goes on as before."""
        self.clock.step(seconds)
        self.source.ahead -= timedelta(seconds=seconds)
        self.source.offset -= timedelta(seconds=seconds)

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

    async def inquire(self, after: float = 60) -> bool:
        """Ask for absent records, some seconds later; return whether usable answers were lacking."""
        self.clock.pass_(after)
        return await self.reconciler.absence_check.run_once()

    def spoil(self, spoil: Callable[[Page], Page]) -> Callable[[], None]:
        """Let every page come spoilt from now on, until the function that is returned is called."""
        read_page = type(self.source).read_page

        async def read_spoilt(*args: Any, **request: Any) -> Page:
            return spoil(await read_page(self.source, *args, **request))

        self.source.read_page = read_spoilt  # type: ignore[method-assign]
        return partial(delattr, self.source, "read_page")

    def meanwhile(self, kind: RunKind, act: Callable[[], Awaitable[object]]) -> None:
        """Let something happen once, after the next page of a run of this kind."""
        left = [kind]

        def is_first(met: RunKind) -> bool:
            return bool(met in left and left.pop())

        self.after_pages(is_first, act)

    def after_pages(self, when: Callable[[RunKind], bool], act: Callable[[], Awaitable[object]]) -> None:
        """Let something happen after the pages of runs of some kinds, outside of the feed's turn."""

        @asynccontextmanager
        async def open_and_act(feed: TrackedFeed, run: Run, *request: Any) -> AsyncIterator[Page]:
            async with open_page(feed, run, *request) as page:
                yield page
            if when(run.kind):
                await act()

        reading.open_page = open_and_act  # type: ignore[assignment]  # until the rig is closed

    async def delay(self) -> float:
        """Return after how many seconds the next pass is due."""
        return round((await self.reconciler.delay()).total_seconds())

    async def events(self) -> list[str]:
        """Return the events so far, as ``key change revision``."""
        events = await self.store.read_events(self.feed, 0, 10_000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        return [f"{event.key} {event.change} {event.revision}" for event in events if event.key]

    async def bodies(self) -> list[dict[str, Any]]:
        """Return what the events of records say."""
        events = await self.store.read_events(self.feed, 0, 10_000)
        return [json.loads(event.body)["data"] for event in events if event.key]

    async def statements(self, change: str = "") -> list[dict[str, Any]]:
        """Return what was stated about the feed, of one kind or all."""
        events = await self.store.read_events(self.feed, 0, 10_000)
        return [json.loads(event.body)["data"] for event in events if not event.key and change in ("", event.change)]


class CountedCommits:
    """The store of a feed, which counts how many pages were compared."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        self._commit = rig.tracked.store.commit_page
        monkeypatch.setattr(rig.tracked.store, "commit_page", self)

    async def __call__(self, *args: Any, **named: Any) -> Committed:
        self._count += 1
        return await self._commit(*args, **named)

    def take(self) -> int:
        """Return how many were compared since this was called last."""
        count, self._count = self._count, 0
        return count


class CountedAlarm:
    """An alarm that rings so often, and then not any more; it remembers what it was set to, in seconds."""

    def __init__(self, rings: int) -> None:
        self._left = rings
        self.delays: list[float] = []
        self.is_quiet = anyio.Event()

    def ring_in(self, delay: timedelta) -> None:
        self.delays.append(round(delay.total_seconds()))

    async def wait(self) -> None:
        if not self._left:
            self.is_quiet.set()
            await anyio.sleep_forever()
        self._left -= 1


class TimedAlarm(CountedAlarm):
    """An alarm for which time passes until it is due, and some seconds more where it is ``late``."""

    def __init__(self, clock: Clock, rings: int, *, late: float = 0) -> None:
        super().__init__(rings)
        self._clock = clock
        self._late = late
        self._delay = 0.0

    def ring_in(self, delay: timedelta) -> None:
        super().ring_in(delay)
        self._delay = delay.total_seconds()

    async def wait(self) -> None:
        if self._left:
            self._clock.pass_(self._delay + self._late)
        await super().wait()


async def run_until_quiet(run: Callable[[Alarm], Coroutine[Any, Any, None]], alarm: CountedAlarm) -> None:
    """Let an agent run until its alarm rings no more."""
    async with anyio.create_task_group() as group:
        group.start_soon(run, alarm)
        await alarm.is_quiet.wait()
        group.cancel_scope.cancel()


@asynccontextmanager
async def open_rig(folder: Path, **settings: Any) -> AsyncIterator[Rig]:
    """Yield a rig whose source lists five packages, two pages of them."""
    clock = Clock()
    store = await SqliteStore.open(folder / "dockbell.db", now=clock)
    try:
        source = FakeSource(clock)
        for key in "abcde":
            source.put(key, status="open")
        rig = Rig(store, clock, source, settings=settings)
        yield rig
        store = rig.store  # it may have been opened anew
    finally:
        reading.open_page = open_page
        await store.aclose()


@asynccontextmanager
async def open_stock(folder: Path, **settings: Any) -> AsyncIterator[Rig]:
    """Yield a rig of a feed that cannot be polled, whose records have no timestamps; there are none yet."""
    async with open_rig(folder, reconcile=None, every="5m", **settings) as rig:
        rig.feed = STOCK
        rig.source = FakeSource(rig.clock, stamped=False)
        rig.restart()
        yield rig
