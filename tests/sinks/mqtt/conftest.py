"""Sinks to run, brokers to run them against, and stored records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import RecordId
from dockbell.ports import StoredState
from dockbell.sinks.mqtt import MqttSettings, MqttSink, connecting, flow, retained_repair
from tests.brokers import MOSQUITTO, Broker, Iotcore, Mosquitto, started
from tests.sinks.conftest import Facts

needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed")

FEED = Feed("main", "shipments")
STATUS = "dockbell/status/dockbell-floor"


def make_sink(url: str, facts: Facts | None = None, **settings: Any) -> MqttSink:
    """Return the sink ``[sinks.floor]``."""
    return MqttSink("floor", MqttSettings(type="mqtt", url=url, **settings), (facts or Facts()).telemetry)


@contextmanager
def open_mosquitto(folder: Path, *lines: str) -> Iterator[Mosquitto]:
    """Run Mosquitto with more lines of configuration."""
    broker = Mosquitto(folder, lines)
    with started(broker):
        yield broker


@pytest.fixture(params=["mosquitto", "iotcore"])
def each_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """Mosquitto, and the broker of the demo."""
    if request.param == "mosquitto" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed")
    with started(Mosquitto(tmp_path) if request.param == "mosquitto" else Iotcore(tmp_path)) as broker:
        yield broker


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dial again within a moment, and soon take a connection for one that lasts."""
    monkeypatch.setattr(flow, "_PROVEN", timedelta(milliseconds=50))
    monkeypatch.setattr(connecting, "_BACKOFF_FIRST", timedelta(milliseconds=20))
    monkeypatch.setattr(connecting, "_BACKOFF_MOST", timedelta(milliseconds=200))


@pytest.fixture
def quick_sentinel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the sentinel often; wait for it, and for deliveries, no longer than a broker on the same machine takes."""
    monkeypatch.setattr(retained_repair, "_WRITE_EVERY", timedelta(milliseconds=20))
    monkeypatch.setattr(retained_repair, "_LATE", timedelta(0))
    monkeypatch.setattr(retained_repair, "_ECHO_LIMIT", timedelta(milliseconds=500))
    monkeypatch.setattr(flow, "_LULL", timedelta(0))


@dataclass
class Records:
    """A retained state that tests fill.

    Attributes:
        bodies: The records by key, None for those that are gone.
        changed: The keys in the order of their changes: a mark is how many of them there were, and
        baselines: how often records were stored without any event.
        epoch: The life that they are of.
        feeds_told: What is configured.
        is_complete: Whether these are all records.
        read: The marks that were read from.
    """

    bodies: dict[str, bytes | None] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    baselines: int = 0
    epoch: str = "now"
    feeds_told: tuple[Feed, ...] = (FEED,)
    is_complete: bool = True
    read: list[str] = field(default_factory=list)
    portion: int = 100

    def put(self, key: str, body: bytes | None) -> None:
        """Change a record."""
        self.bodies[key] = body
        self.changed.append(key)

    def fill(self, count: int) -> None:
        """Put so many records."""
        for number in range(count):
            self.put(f"shp_{number}", b'{"v":%d}' % number)

    async def feeds(self) -> Sequence[Feed]:
        return self.feeds_told

    async def count_stored(self, feed: Feed) -> int | None:
        held = sum(body is not None for body in self.bodies.values()) if feed == FEED else 0
        return held if self.is_complete else None

    async def find_stored(self, places: Sequence[RecordId]) -> set[RecordId]:
        return {(feed, key) for feed, key in places if feed == FEED and self.bodies.get(key) is not None}

    async def mark(self, since: str) -> tuple[str, bool]:
        return f"{len(self.changed)}/{self.baselines}", since.partition("/")[2] != str(self.baselines)

    async def read_since(self, mark: str) -> AsyncIterator[Sequence[StoredState]]:
        self.read.append(mark)
        place, _, baselines = mark.partition("/")
        is_known = place.isdigit() and baselines == str(self.baselines)
        keys = list(dict.fromkeys(self.changed[int(place) :] if is_known else self.bodies))
        for start in range(0, len(keys), self.portion):
            await self.before_portion()
            yield [StoredState(0, FEED, key, 1, self.bodies[key]) for key in keys[start : start + self.portion]]

    async def before_portion(self) -> None:
        """Do something while a portion is being read."""

    def states(self) -> dict[str, bytes]:
        """Return what a broker should retain."""
        return {f"dockbell/state/main/shipments/{key}": body for key, body in self.bodies.items() if body is not None}


async def until(holds: Any, backoff: float = 10) -> None:
    """Wait until something holds."""
    with anyio.fail_after(backoff):
        while not holds():  # noqa: ASYNC110  # brokers know no events
            await anyio.sleep(0.005)
