"""The real reader, poller, reconciler and store of one feed, over the model: all that these tests know of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dockbell.admin.commands import purge_record
from dockbell.config import ResourceSettings
from dockbell.core.comparing.page_diff import UNDECIDED
from dockbell.core.model import RESOURCES, Event, Feed
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.poller import Poller
from dockbell.detection.reconciler import Reconciler
from dockbell.ports import FeedState
from dockbell.telemetry import Fact, StoreWrittenAside, Telemetry
from tests.model.api import ModelApi
from tests.model.disks import Disk
from tests.stores.standings import read as query


class Crash(BaseException):
    """The process is gone; nothing of it does anything any more."""


@dataclass
class Fuse:
    """Ends the process at an await.

    Attributes:
        left: How many awaits it has left; None for any number.
        blown: It is gone.
    """

    left: int | None = None
    blown: bool = False

    def burn(self) -> None:
        """Take in one await."""
        if self.left is not None and not self.blown:
            self.left -= 1
            self.blown = self.left < 0
        if self.blown:
            raise Crash


class Fused:
    """A source or a store whose every call may be the process's last, before it or after it."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "feed":  # the handle of one
            return lambda feed: Fused(found(feed), self._fuse)
        return partial(self._call, found) if callable(found) and name != "outbox" else found

    async def _call(self, function: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
        self._fuse.burn()
        result = await function(*args, **named)
        self._fuse.burn()
        return result


@dataclass
class Rig:
    """One feed, whole; it can be crashed at any await and begins again from what is on the disk."""

    api: ModelApi
    disk: Disk
    settings: dict[str, Any] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        resource = RESOURCES[self.api.deployment.resource]
        self.polled = resource.polled
        self.feed = Feed(self.api.name, resource.name)

    # Lives ------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and put the agents together, as the program does when it starts."""
        schedule: dict[str, Any] = {"every": "15s", "reconcile": "24h"} if self.polled else {"every": "5m"}
        self._settings = ResourceSettings(**(schedule | self.settings))
        self.fuse = Fuse()
        self._store = await self.disk.open(self.api.clock)
        store, source = Fused(self._store, self.fuse), Fused(self.api, self.fuse)
        telemetry = Telemetry(self.facts.append)
        self.tracked = TrackedFeed(
            self.feed,
            self._settings,
            name="acme",
            base_url="http://model",
            source=source,
            store=store,
            telemetry=telemetry,
            now=self.api.clock,
            steady=self.api.clock.steady,
            next_time=_next_time,
        )
        self.poller = Poller(self.tracked)
        self.reconciler = Reconciler(self.tracked)

    async def stop(self) -> None:
        """Close the store, as the program does when it ends."""
        self._check_known_pages()
        await self._store.aclose()

    async def crash(self) -> None:
        """Begin again from what the disk holds at this moment."""
        self._check_known_pages()
        await self.disk.crash(self._store)
        await self.start()

    async def restart(self) -> None:
        """End politely and start again."""
        await self.stop()
        await self.start()

    def _check_known_pages(self) -> None:
        """Check that each page which was known, and was compared all the same, came to what was known of it."""
        assert not any(isinstance(fact, StoreWrittenAside) for fact in self.facts)

    # What the agents do -----------------------------------------------------------------------------------------------

    async def poll(self) -> str | None:
        """Poll; return why the run is incomplete, None when nothing was asked yet."""
        run = await self.poller.run_once()
        return None if run is None else run.problem

    async def trail(self) -> str | None:
        """Poll from long before; return why the run is incomplete, None when nothing was asked yet."""
        run = await self.poller.trail_once()
        return None if run is None else run.problem

    async def read_whole(self) -> str:
        """Make a pass; return why it is incomplete."""
        return (await self.reconciler.run_once()).problem

    async def ask(self) -> None:
        """Ask for what the last pass did not show."""
        await self.reconciler.absence_check.run_once()

    async def purge(self, key: str) -> None:
        """Erase what is stored of a record of the model, as the program does when an operator says so."""
        await self.tracked.state()
        await purge_record(self._store, self.feed, self.text(key), name="acme")
        await self.tracked.reload()

    # What is to be seen of it -----------------------------------------------------------------------------------------

    async def state(self) -> FeedState:
        """Return what is stored about the feed."""
        return await self._store.feed(self.feed).open()

    async def is_provisional(self) -> bool:
        """Return whether nothing is published yet: the key was learned, and is neither the own id nor proven."""
        await self.tracked.state()
        return self.tracked.is_withholding

    async def events(self, after: int = 0) -> list[Event]:
        """Return the events after a sequence."""
        return list(await self._store.read_events(self.feed, after, 1_000_000))

    async def stored(self) -> dict[str, Any]:
        """Return what counts of every record that is stored, by the model's key."""
        keys = {(self.feed, self.text(key)): key for key in self.api.history}
        return {keys[place]: read(body) for place, body in (await self._store.read_states(list(keys))).items()}

    def undecided(self) -> set[str]:
        """Return the keys of the records that the second pass has met for the first time, and not settled yet."""
        texts = {text for (text,) in query(self.disk.place, "SELECT key FROM records WHERE raw_hash = ?", UNDECIDED)}
        return {key for key in self.api.history if self.text(key) in texts}

    def text(self, key: str) -> str:
        """Return the key string of a record of the model."""
        return ",".join(self.api.identity(key).values())


def _next_time(schedule: timedelta | str, after: datetime) -> datetime:
    assert isinstance(schedule, timedelta)
    return after + schedule


def read(record: Any) -> Any:
    """Return what counts of a record: neither its identity nor its timestamp, nor how its members and numbers stand."""
    if record is None:
        return None
    fields = json.loads(record) if isinstance(record, bytes) else dict(record)
    return {name: value for name, value in fields.items() if name not in ("id", "sku", "warehouse_id", "updated_at")}
