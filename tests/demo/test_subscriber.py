from __future__ import annotations

import json

import anyio
from anyio import to_thread
from paho.mqtt import publish

from dockbell.demo.arrival import Arrival
from dockbell.demo.broker import Broker
from dockbell.demo.subscriber import subscribe
from tests import brokers


async def test_it_takes_events_in_the_event_loop_and_nothing_else(mosquitto: brokers.Broker) -> None:
    arrivals: list[Arrival] = []
    arrived = anyio.Event()

    def take(arrival: Arrival) -> None:
        arrivals.append(arrival)
        arrived.set()

    def publish_both() -> None:
        event = json.dumps({"id": "evt_1"})
        for topic in ("dockbell/state/main/shipments/shp_1", "dockbell/event/main/shipments/shp_1/updated"):
            publish.single(topic, event, qos=1, hostname=mosquitto.host, port=mosquitto.port)

    async with subscribe(Broker("test", mosquitto.port), take):
        await to_thread.run_sync(publish_both)
        with anyio.fail_after(5):
            await arrived.wait()
    assert [(each.sink, each.event["id"]) for each in arrivals] == [("mqtt", "evt_1")]
