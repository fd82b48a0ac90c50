"""The whole job with real processes: moving records, a broker and a receiver that go away, kill -9.

There are 8,000 records where the store is SQLite, and 4,000 where it is PostgreSQL: there the kills take longer, since
a process that comes after another waits for its end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import MOSQUITTO, Mosquitto, Subscriber
from tests.oracle import Account, Place, Story, read_content
from tests.receivers import Receiver
from tests.services import Daemon
from tests.stores.places import url_of

pytestmark = pytest.mark.acceptance

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RESOURCES = ("shipments", "packages", "items", "stock", "warehouses")

CONFIG = """
name = "acme"

[store]
url = "{store}"

[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 30000

[resources]
shipments = {{ every = "2s", reconcile = "15s", confirm_after = "1s", stale_window = "1s", first_pass = "emit" }}
packages = {{ every = "2s", reconcile = "15s", confirm_after = "1s", stale_window = "1s", first_pass = "emit" }}
items = {{ every = "2s", reconcile = "15s", confirm_after = "1s", stale_window = "1s", first_pass = "emit" }}
stock = {{ every = "5s", confirm_after = "1s", stale_window = "1s", first_pass = "emit" }}
warehouses = {{ every = "15s", first_pass = "emit" }}

[sinks.floor]
type = "mqtt"
url = "{broker}"
in_flight = 100

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = "{secret}"
lanes = 8
"""


class Screen:
    """An MQTT subscriber with a session of its own: the broker keeps for it what comes while it is away."""

    def __init__(self, broker: Mosquitto, account: Account) -> None:
        self._account = account
        self._there = threading.Event()
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
        session.SessionExpiryInterval = 3600
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "screen", protocol=paho.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe("dockbell/event/#", qos=1)
        self._client.on_subscribe = lambda *_: self._there.set()
        self._client.on_message = lambda _client, _data, message: self._hear(message)
        self._client.reconnect_delay_set(min_delay=1, max_delay=1)
        self._client.connect(broker.host, broker.port, clean_start=False, properties=session)

    def _hear(self, message: paho.MQTTMessage) -> None:
        event = json.loads(message.payload)
        assert message.topic.split("/")[-2:] == [event["data"]["key"], event["data"]["change"]]
        self._account.hear(event)

    def __enter__(self) -> None:
        self._client.loop_start()
        assert self._there.wait(10)

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    if MOSQUITTO is None:
        assert "DOCKBELL_REQUIRE_MOSQUITTO" not in os.environ, "mosquitto is not installed"
        pytest.skip("needs Mosquitto: the broker must keep its state through a restart")
    persistence = ("persistence true", f"persistence_location {tmp_path}/", "autosave_interval 1")
    broker = Mosquitto(tmp_path, (*persistence, "max_queued_messages 0"))
    broker.start()
    yield broker
    broker.stop()


@asynccontextmanager
async def moving(sandbox: Sandbox, rate: float) -> AsyncIterator[None]:
    """Let records change while inside."""
    sandbox.activity.rate = rate
    yield
    sandbox.activity.rate = 0


async def read_states(broker: Mosquitto, count: int) -> dict[Place, Any]:
    """Return the retained records of a broker."""
    with Subscriber(broker, "dockbell/state/#") as subscriber:
        await subscriber.until(lambda received: len(received) >= count)
        return {
            (topic.split("/")[3], topic.split("/")[4]): read_content(payload)
            for topic, payload in subscriber.retained().items()
        }


async def disturb(daemon: Daemon, receiver: Receiver, broker: Mosquitto, dice: random.Random) -> None:
    """Kill the daemon again and again, and let receiver and broker be away for a while."""

    async def crash() -> None:
        await anyio.sleep(dice.uniform(0.5, 4))
        daemon.end(signal.SIGKILL)
        daemon.start()

    async with receiver.listening():
        await crash()  # in the first pass
        await crash()
    await crash()  # nobody receives
    await crash()
    broker.stop()
    async with receiver.listening():
        receiver.status = HTTPStatus.SERVICE_UNAVAILABLE
        await crash()  # nobody takes anything, and the broker is not there
        receiver.status = HTTPStatus.NO_CONTENT
        broker.start()
        await crash()
    async with receiver.listening():
        await crash()
        await crash()


async def settled(holds: Callable[[], bool], *accounts: Account) -> None:
    """Return when something holds; look only while nothing arrives, because looking at 8,000 records takes a while."""
    heard = -1
    while heard != (heard := sum(account.deliveries for account in accounts)) or not holds():  # noqa: ASYNC110
        await anyio.sleep(1)


async def test_every_change_arrives_in_order_whatever_is_killed_or_away(
    tmp_path: Path, place: Path | str, broker: Mosquitto
) -> None:
    records = 8_000 if isinstance(place, Path) else 4_000
    sandbox = Sandbox(SandboxOptions(seed=7, records=records, requests_per_minute=0, orders_per_minute=0))
    initial = {resource: sandbox.records(resource) for resource in RESOURCES}
    hooked, screened = Account(), Account()
    receiver = Receiver(SECRET, hooked)
    with Screen(broker, screened), Daemon(tmp_path) as daemon:
        async with serve(sandbox) as api:
            config = CONFIG.format(
                store=url_of(place), api=api, broker=broker.url, receiver=receiver.url, secret=SECRET
            )
            (tmp_path / "dockbell.toml").write_text(config)
            daemon.start()
            async with moving(sandbox, 40):
                await disturb(daemon, receiver, broker, random.Random(7))
            story = Story(initial, sandbox.changes())
            final = story.final()
            async with receiver.listening():
                with anyio.move_on_after(200):
                    await settled(lambda: hooked.state() == screened.state() == final, hooked, screened)
                retained = await read_states(broker, len(final))
                assert daemon.end(signal.SIGTERM) == 0
    assert hooked.judge(story) == []
    assert screened.judge(story) == []
    assert retained == final
    changes, told = len(sandbox.changes()), sum(len(events) for events in hooked.events.values())
    print(f"{changes} changes, {told} events, {hooked.deliveries} + {screened.deliveries} deliveries")
    assert changes > 300
