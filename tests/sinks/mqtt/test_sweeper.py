"""What is retained of records that are gone is cleared, and nothing that is not ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from dockbell.core.model import Feed
from dockbell.sinks.mqtt import retained_repair, sweeper
from dockbell.sinks.mqtt.sweeper import Sentinel, Tree
from dockbell.telemetry import StateRepaired
from dockbell.testing.outbox import SHIPMENTS, STOCK, open_outbox
from tests.brokers import Broker, Mosquitto, Subscriber, started
from tests.sinks.conftest import Facts, running
from tests.sinks.mqtt.conftest import FEED, Records, make_sink, needs_mosquitto, open_mosquitto, until
from tests.sinks.mqtt.handmade import HandMade, listening
from tests.sinks.mqtt.whole import SENTINEL, Whole, keys, persistent

pytestmark = pytest.mark.usefixtures("quick_backoff", "quick_sentinel", "quick_sweep")

TEMPLATE = "dockbell/state/{source}/{resource}/{key}"
FOREIGN = {
    "lights/hall": b"on",
    "dockbell/state/other/shipments/shp_1": b"another's",
    "dockbell/state/main/returns/shp_1": b"another's",
    "dockbell/state/main/shipments/shp_1/deeper": b"another's",
    "dockbell/status/another": b"{}",
}


@pytest.fixture
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear at once, and wait no longer than a broker on the same machine takes."""
    monkeypatch.setattr(retained_repair, "_SWEEP_AFTER", timedelta(0))
    monkeypatch.setattr(retained_repair, "_SWEEP_AGAIN", timedelta(milliseconds=50))
    monkeypatch.setattr(sweeper, "_QUIET", timedelta(milliseconds=200))
    monkeypatch.setattr(sweeper, "_TRY_AGAIN", timedelta(milliseconds=50))


def retain(broker: Broker, states: dict[str, bytes]) -> None:
    """Let somebody else retain something."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect(broker.host, broker.port)
    client.loop_start()
    for sent in [client.publish(topic, payload, qos=1, retain=True) for topic, payload in states.items()]:
        sent.wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


def states_of(feed: Feed, *names: str, tree: str = "dockbell/state") -> set[str]:
    return {f"{tree}/{feed}/{name}" for name in names}


async def until_retained(broker: Broker, topics: set[str]) -> None:
    """Wait until these are the topics that are retained, besides what dockbell says of itself."""
    with Subscriber(broker, "#", qos=0) as subscriber:

        def of_records() -> set[str]:
            ours = ("dockbell/event/", "dockbell/feed/")
            return {topic for topic in subscriber.retained() if "floor" not in topic and not topic.startswith(ours)}

        try:
            await subscriber.until(lambda _: of_records() == topics)
        except TimeoutError:
            assert of_records() == topics


async def read_sentinel(broker: Broker) -> Sentinel:
    with Subscriber(broker, SENTINEL) as subscriber:
        await subscriber.until(len)
        return Sentinel.load(subscriber.received[-1].payload)


async def nothing_owed(broker: Broker) -> None:
    """Wait until the sentinel says that nothing is to be cleared."""
    with Subscriber(broker, SENTINEL) as subscriber:
        await subscriber.until(lambda got: got and got[-1].payload.count(b" ") and _is_clear(got[-1].payload))


def _is_clear(payload: bytes) -> bool:
    sentinel = Sentinel.load(payload)
    return bool(sentinel.client_id) and not sentinel.owed


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    """Mosquitto, which keeps what it retains, and retains something of others."""
    with started(Mosquitto(tmp_path, persistent(tmp_path))) as broker:
        assert isinstance(broker, Mosquitto)
        retain(broker, FOREIGN)
        yield broker


@asynccontextmanager
async def whole(folder: Path, broker: Mosquitto) -> AsyncIterator[Whole]:
    """Open the store in a folder."""
    await anyio.Path(folder).mkdir(exist_ok=True)
    async with open_outbox(folder, "floor") as outbox:
        yield Whole(outbox, broker)


@needs_mosquitto
async def test_what_is_retained_of_a_store_that_was_lost_is_cleared_and_nothing_foreign(
    tmp_path: Path, broker: Mosquitto
) -> None:
    async with whole(tmp_path / "old", broker) as old, old.relaying():
        await old.outbox.change(*keys(50))
        await old.outbox.change("w_1", feed=STOCK)
        await old.settled()
        await old.marked()
    async with whole(tmp_path / "new", broker) as new, new.relaying():
        await new.outbox.change(*keys(40, 60))
        await until_retained(broker, states_of(SHIPMENTS, *keys(40, 60)) | FOREIGN.keys())
        await nothing_owed(broker)
        broker.stop()
        broker.start()  # it has kept that they are cleared
        await until_retained(broker, states_of(SHIPMENTS, *keys(40, 60)) | FOREIGN.keys())
        told = [text for text in new.facts.of(StateRepaired) if "no longer exist" in text]
    assert sorted(told) == [
        "sink floor: state, cleared 1 state of records that no longer exist under dockbell/state/main/stock/+",
        "sink floor: state, cleared 40 states of records that no longer exist under dockbell/state/main/shipments/+",
    ]


@needs_mosquitto
async def test_what_came_after_the_backup_that_a_store_is_put_back_from_is_cleared(
    tmp_path: Path, broker: Mosquitto
) -> None:
    folder = tmp_path / "store"
    async with whole(folder, broker) as before, before.relaying():
        await before.outbox.change(*keys(10))
        await before.settled()
    shutil.copy(folder / "dockbell.db", tmp_path / "backup.db")
    async with whole(folder, broker) as later, later.relaying():
        await later.outbox.change(*keys(5, 20))
        await later.settled()
        await until_retained(broker, states_of(SHIPMENTS, *keys(20)) | FOREIGN.keys())
    shutil.copy(tmp_path / "backup.db", folder / "dockbell.db")
    async with whole(folder, broker) as restored, restored.relaying():
        await until_retained(broker, states_of(SHIPMENTS, *keys(10)) | FOREIGN.keys())


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_with_another_state_topic_the_states_under_the_old_one_are_cleared(
    tmp_path: Path, broker: Mosquitto, protocol: str
) -> None:
    async with whole(tmp_path / "store", broker) as run:
        await run.outbox.change(*keys(30))
        async with run.relaying():
            await run.settled()
            await run.marked()
        async with run.relaying(state_topic="elsewhere/{source}/{resource}/{key}", protocol=protocol):
            await until_retained(broker, states_of(SHIPMENTS, *keys(30), tree="elsewhere") | FOREIGN.keys())
            await nothing_owed(broker)


@needs_mosquitto
async def test_a_topic_that_tells_of_a_record_under_the_new_template_too_is_not_cleared(
    tmp_path: Path, broker: Mosquitto
) -> None:
    async with whole(tmp_path / "store", broker) as run:
        await run.outbox.change("main", *keys(3))
        async with run.relaying(state_topic="x/{source}/{resource}/{key}"):
            await run.settled()
            await run.marked()
        async with run.relaying(state_topic="x/{key}/{resource}/{source}"):
            await until_retained(broker, {f"x/{key}/shipments/main" for key in ("main", *keys(3))} | FOREIGN.keys())
            await nothing_owed(broker)
        await until_retained(broker, {f"x/{key}/shipments/main" for key in ("main", *keys(3))} | FOREIGN.keys())


@needs_mosquitto
async def test_the_states_of_a_resource_that_left_the_configuration_are_cleared_while_it_runs(
    tmp_path: Path, broker: Mosquitto
) -> None:
    feeds = [SHIPMENTS, STOCK]
    async with whole(tmp_path / "store", broker) as run, run.relaying(feeds=lambda: feeds):
        await run.outbox.change(*keys(5))
        await run.outbox.change("w_1", "w_2", feed=STOCK)
        await run.settled()
        await run.marked()
        feeds.remove(STOCK)
        await until_retained(broker, states_of(SHIPMENTS, *keys(5)) | FOREIGN.keys())
        await run.outbox.change("w_1", feed=STOCK)  # the last of it: its event is owed, its state is none
        await run.settled()
        await until_retained(broker, states_of(SHIPMENTS, *keys(5)) | FOREIGN.keys())
        feeds.append(STOCK)
        everything = states_of(SHIPMENTS, *keys(5)) | states_of(STOCK, "w_1", "w_2")
        await until_retained(broker, everything | FOREIGN.keys())


@needs_mosquitto
async def test_what_another_client_says_to_be_its_own_is_left_to_it(tmp_path: Path, broker: Mosquitto) -> None:
    other = Sentinel("x", "{}", "dock-2-floor", "e", (Tree("dockbell/state/{source}/{resource}/{key}", STOCK),))
    retain(broker, {"dockbell/positions/dock-2": other.dump()})
    feeds = [SHIPMENTS, STOCK]
    async with whole(tmp_path / "store", broker) as run, run.relaying(feeds=lambda: feeds):
        await run.outbox.change("s_1")
        await run.outbox.change("w_1", "w_2", feed=STOCK)
        await run.settled()
        await run.marked()
        feeds.remove(STOCK)
        await until(lambda: any(" to client_id " in text for text in run.facts.of(StateRepaired)))
        everything = states_of(SHIPMENTS, "s_1") | states_of(STOCK, "w_1", "w_2") | {"dockbell/positions/dock-2"}
        await until_retained(broker, everything | FOREIGN.keys())


@needs_mosquitto
async def test_what_is_to_be_cleared_is_remembered_by_the_sentinel(
    tmp_path: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with whole(tmp_path / "old", broker) as old, old.relaying():
        await old.outbox.change(*keys(5))
        await old.settled()
        await old.marked()
    monkeypatch.setattr(retained_repair, "_SWEEP_AFTER", timedelta(hours=1))
    async with whole(tmp_path / "new", broker) as new:
        async with new.relaying():
            await new.outbox.change("shp_9")
            await new.settled()
            await new.marked()
        assert {tree.feed for tree in (await read_sentinel(broker)).owed} == {SHIPMENTS, STOCK}
        monkeypatch.setattr(retained_repair, "_SWEEP_AFTER", timedelta(0))
        async with new.relaying():
            await until_retained(broker, states_of(SHIPMENTS, "shp_9") | FOREIGN.keys())
            await nothing_owed(broker)


@needs_mosquitto
async def test_more_than_is_cleared_at_once_is_cleared_by_and_by(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "_STRAYS_MOST", 100)
    records, facts = Records(), Facts()
    records.fill(20)
    retain(broker, {f"dockbell/state/main/shipments/old_{number}": b"{}" for number in range(1000)})
    retain(broker, {SENTINEL: Sentinel("x", "", "dockbell-floor", "before", (Tree(TEMPLATE, FEED),)).dump()})
    sink = make_sink(broker.url, facts)
    sink.attach(records)
    async with running(sink):
        await until_retained(broker, records.states().keys() | FOREIGN.keys())
        await nothing_owed(broker)
    assert any("cleared 1000 states of records that no longer exist" in text for text in facts.of(StateRepaired))


STRAY = "dockbell/state/main/shipments/stray"


def make_sentinel(label: str = "x", client_id: str = "floor", epoch: str = "before", mark: str = "") -> bytes:
    return Sentinel(label, mark, client_id, epoch, (Tree(TEMPLATE, FEED),)).dump()


@pytest.mark.parametrize(
    "sentinel",
    [
        b"",
        b"nonsense",
        make_sentinel(client_id="another"),
        b'1a2b3c4d {"epoch": "before", "settled": {"main/shipments": [1, 7]}}',  # older, of other settings
        make_sentinel().replace(b"dockbell/state", b"+/state"),
        make_sentinel().replace(b"main/shipments", b"main/+"),
        make_sentinel(epoch="now"),
    ],
)
async def test_where_no_sentinel_of_ours_tells_of_another_life_nothing_is_cleared(sentinel: bytes) -> None:
    records = Records()
    records.fill(2)
    async with listening(HandMade(retained={SENTINEL: sentinel, STRAY: b"{}"})) as broker:
        sink = make_sink(broker.url, client_id="floor", positions_topic=SENTINEL)
        sink.attach(records)
        async with running(sink):
            await until(lambda: broker.retained[SENTINEL].endswith(b" 2/0"))
            await anyio.sleep(0.5)
        assert broker.retained[STRAY] == b"{}"
        assert broker.topics.count(STRAY) == 0


async def test_the_sentinel_of_an_older_version_tells_of_the_feeds_under_the_same_settings() -> None:
    records = Records()
    records.fill(2)
    async with listening(HandMade()) as broker:
        sink = make_sink(broker.url)
        sink.attach(records)
        async with running(sink):
            await until(lambda: broker.retained.get(SENTINEL, b"").endswith(b" 2/0"))
        label = Sentinel.load(broker.retained[SENTINEL]).label
        older = {"epoch": "before", "settled": {"main/shipments": [1, 7]}}
        broker.retained |= {SENTINEL: f"{label} {json.dumps(older)}".encode(), STRAY: b"{}"}
        again = make_sink(broker.url)
        again.attach(records)
        async with running(again):
            await until(lambda: not broker.retained[STRAY])
        assert records.states().items() <= broker.retained.items()


async def test_nothing_is_cleared_while_a_feed_is_being_read_whole() -> None:
    records = Records(is_complete=False)
    records.fill(2)
    async with listening(
        HandMade(retained={SENTINEL: make_sentinel(client_id="dockbell-floor"), STRAY: b"{}"})
    ) as broker:
        sink = make_sink(broker.url)
        sink.attach(records)
        async with running(sink):
            await until(lambda: broker.retained[SENTINEL].endswith(b" 2/0"))
            await anyio.sleep(0.3)
            assert STRAY not in broker.topics
            records.is_complete = True
            await until(lambda: not broker.retained[STRAY])


async def test_a_broker_that_does_not_show_all_that_it_retains_is_told_and_asked_again() -> None:
    records, facts = Records(), Facts()
    records.fill(300)
    broker = HandMade(retained={SENTINEL: make_sentinel(client_id="dockbell-floor")}, shows=100)
    async with listening(broker):
        sink = make_sink(broker.url, facts)
        sink.attach(records)
        async with running(sink):
            await until(lambda: any("delivers 100 of 300" in text for text in facts.of(StateRepaired)))
            assert Sentinel.load(broker.retained[SENTINEL]).owed
            broker.shows = 1000
            await until(lambda: not Sentinel.load(broker.retained[SENTINEL]).owed)


@needs_mosquitto
async def test_a_broker_that_lets_us_read_nothing_of_an_old_tree_is_told(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite dockbell/positions/#\ntopic write #\n")
    records, facts = Records(feeds_told=()), Facts()
    with open_mosquitto(tmp_path, f"acl_file {rules}") as broker:
        retain(broker, {SENTINEL: make_sentinel(client_id="dockbell-floor"), STRAY: b"{}"})
        sink = make_sink(broker.url, facts)
        sink.attach(records)
        async with running(sink):
            await until(lambda: any("does not let dockbell read it" in text for text in facts.of(StateRepaired)))


async def test_a_state_that_may_not_be_cleared_is_told() -> None:
    records, facts = Records(), Facts()
    broker = HandMade(retained={SENTINEL: make_sentinel(client_id="dockbell-floor"), STRAY: b"{}"})
    broker.verdict = lambda topic: 0x87 * (topic == STRAY)
    async with listening(broker):
        sink = make_sink(broker.url, facts)
        sink.attach(records)
        async with running(sink):
            await until(lambda: any("1 of them refused" in text for text in facts.of(StateRepaired)))
            await until(lambda: not Sentinel.load(broker.retained[SENTINEL]).owed)


async def test_what_is_gone_is_cleared_although_another_state_cannot_be_published() -> None:
    records = Records()
    records.fill(3)
    broker = HandMade(retained={SENTINEL: make_sentinel(client_id="dockbell-floor"), STRAY: b"{}"})
    broker.verdict = lambda topic: 0x97 * topic.endswith("shp_1")
    async with listening(broker):
        sink = make_sink(broker.url)
        sink.attach(records)
        async with running(sink):
            await until(lambda: not broker.retained[STRAY])
        assert Sentinel.load(broker.retained[SENTINEL]).epoch == "before"


async def test_a_broker_that_refuses_the_filter_is_told_once_and_keeps_what_it_has() -> None:
    records, facts = Records(), Facts()
    broker = HandMade(retained={SENTINEL: make_sentinel(client_id="dockbell-floor"), STRAY: b"{}"}, wildcards=0x87)
    async with listening(broker):
        sink = make_sink(broker.url, facts)
        sink.attach(records)
        async with running(sink):
            await until(lambda: any("cannot read dockbell/positions/+" in text for text in facts.of(StateRepaired)))
            await anyio.sleep(0.3)
        assert STRAY not in broker.topics
    assert sum("cannot read" in text for text in facts.of(StateRepaired)) == 1
