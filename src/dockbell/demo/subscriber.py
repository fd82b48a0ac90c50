"""The demo's MQTT subscriber: an ordinary paho client with its thread, as anybody would write one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import anyio
from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from dockbell.demo.arrival import MQTT, Arrival
from dockbell.demo.broker import HOST, Broker

TOPICS: Final = "dockbell/event/#"

_SUBSCRIBE_LIMIT: Final = 5.0


@asynccontextmanager
async def subscribe(broker: Broker, take: Callable[[Arrival], None]) -> AsyncIterator[None]:
    """Subscribe to all events until the block is left; entered when the broker has granted it.

    Args:
        broker: Where.
        take: Called in the event loop with each event.

    Raises:
        OSError: The broker does not answer; :class:`TimeoutError` when it does not grant the subscription.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()  # paho's thread has none of its own, and anyio finds its event loop by the context
    granted = asyncio.Event()

    def on_connect(client: paho.Client, *_: Any) -> None:
        client.subscribe(TOPICS, qos=1)

    def on_subscribe(*_: Any) -> None:
        loop.call_soon_threadsafe(granted.set)

    def on_message(_client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        arrival = Arrival.of(MQTT, message.payload, datetime.now(UTC))
        loop.call_soon_threadsafe(take, arrival, context=context)

    client = paho.Client(CallbackAPIVersion.VERSION2, "dockbell-demo-subscriber", protocol=paho.MQTTv5)
    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    client.on_message = on_message
    await to_thread.run_sync(partial(client.connect, HOST, broker.port))
    client.loop_start()
    try:
        with anyio.fail_after(_SUBSCRIBE_LIMIT):
            await granted.wait()
        yield
    finally:
        client.disconnect()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(client.loop_stop)
