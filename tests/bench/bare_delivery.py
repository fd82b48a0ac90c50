"""The bare loops beside the relay: the same events over the same libraries, from memory, with nothing remembered.

No order per key, no retries, no positions; but the same window, the same bytes, the same signature.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dockbell.core.publishing.signature import sign
from tests.bench.processes import Cost, Meter

WINDOW: Final = 20
"""The default ``in_flight`` of the MQTT sink, and what Mosquitto takes by default."""
SECRET: Final = bytes(range(32))

_TYPE: Final = "application/cloudevents+json; charset=utf-8"


class _Row(NamedTuple):
    source: str
    resource: str
    key: str
    change: str
    id: str
    body: bytes
    state: bytes


def _load(path: Path) -> list[_Row]:
    with sqlite3.connect(path) as connection:
        return [
            _Row(*row)
            for row in connection.execute(
                "SELECT source, resource, events.key, change, events.id, events.body, bodies.body FROM events"
                " JOIN feeds ON feeds.id = events.feed"
                " JOIN records ON records.feed = events.feed AND records.key = events.key"
                " JOIN bodies ON bodies.feed = records.feed AND bodies.row = records.row"
            )
        ]


def publish(host: str, port: int, path: Path, *, states: bool) -> Cost:
    """Publish every event with QoS 1 and wait for all acknowledgements; with ``states`` each record after its event."""
    rows = _load(path)
    publications = [(f"dockbell/event/{row[0]}/{row[1]}/{row[2]}/{row[3]}", row.body, False) for row in rows]
    if states:
        after = [(f"dockbell/state/{row[0]}/{row[1]}/{row[2]}", row.state, True) for row in rows]
        publications = [each for pair in zip(publications, after, strict=True) for each in pair]
    meter = Meter()
    asyncio.run(_publish(host, port, iter(publications)))
    return meter.read(len(rows), size=sum(len(payload) for _, payload, _ in publications) // len(rows))


async def _publish(host: str, port: int, publications: Iterator[tuple[str, bytes, bool]]) -> None:
    loop, done, in_flight = asyncio.get_running_loop(), asyncio.Event(), 0
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own are not typed
    properties.PayloadFormatIndicator = 1
    properties.ContentType = _TYPE
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.max_inflight_messages_set(0)
    client.connect(host, port)
    sock = client.socket()
    assert isinstance(sock, socket.socket)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read() -> None:
        client.loop_read()
        # As the sink does: otherwise the broker's acknowledgements wait 40 ms for ours.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if client.is_connected():
            fill()

    def fill() -> None:
        nonlocal in_flight
        while in_flight < WINDOW and (publication := next(publications, None)) is not None:
            topic, payload, retain = publication
            client.publish(topic, payload, qos=1, retain=retain, properties=properties)
            in_flight += 1
        if client.want_write():
            loop.add_writer(sock, write)
        if not in_flight:
            done.set()

    def write() -> None:
        client.loop_write()
        if not client.want_write():
            loop.remove_writer(sock)

    def acknowledged(*_: Any) -> None:
        nonlocal in_flight
        in_flight -= 1

    client.on_publish = acknowledged
    loop.add_reader(sock, read)
    await done.wait()
    loop.remove_reader(sock)
    client.disconnect()


def post(url: str, path: Path, lanes: int) -> Cost:
    """Post every event, signed, over as many connections as there are lanes."""
    rows = _load(path)
    meter = Meter()
    asyncio.run(_post(url, iter(rows), lanes))
    return meter.read(len(rows), size=sum(len(row.body) for row in rows) // len(rows))


async def _post(url: str, rows: Iterator[_Row], lanes: int) -> None:
    limits, address = httpx.Limits(max_connections=1), httpx.URL(url)
    timeout = httpx.Timeout(None)  # as in the sink, which limits the whole attempt instead

    async def run_lane() -> None:
        async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client:
            for row in rows:
                timestamp = int(time.time())
                headers = {
                    "content-type": _TYPE,
                    "webhook-id": row.id,
                    "webhook-timestamp": str(timestamp),
                    "webhook-signature": sign([SECRET], row.id, timestamp, row.body),
                }
                response = await client.post(address, content=row.body, headers=headers)
                response.raise_for_status()

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(run_lane())
