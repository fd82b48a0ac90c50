"""The world outside: an MQTT broker, an ordinary subscriber, and a webhook receiver that wants signatures."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import Process
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dockbell.core.publishing.signature import Finding, parse_secret, verify
from dockbell.demo.arrival import HOOK, MQTT, Arrival
from dockbell.net.listening import listening
from dockbell.sandbox.sandbox import bind

HOST: Final = "127.0.0.1"

_ADMIN_FOLDERS: Final = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
"""Where Mosquitto is, although the PATH of plain users does not lead there."""
_START_LIMIT: Final = 10.0
_STOP_LIMIT: Final = 2.0
_LOOK_EVERY: Final = 0.02

_MOSQUITTO: Final = """\
listener {port} {host}
allow_anonymous true
persistence false
set_tcp_nodelay true
"""
_IOTCORE: Final = """\
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 1000
max_segment_size = 104857600
max_segment_count = 10
[v5.1]
name = "v5-1"
listen = "{host}:{port}"
next_connection_delay_ms = 0
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 268435455
max_inflight_count = 100
"""


class Broker(msgspec.Struct, frozen=True):
    """A broker that runs, on the loopback address."""

    name: str
    port: int

    @property
    def url(self) -> str:
        return f"mqtt://{HOST}:{self.port}"


@asynccontextmanager
async def start_broker(folder: Path) -> AsyncIterator[Broker | str]:
    """Run the first broker that starts until the block is left; where there is none, the value says why.

    That is an installed Mosquitto, or else the broker of the ``demo`` extra. The folder is for its configuration.
    """
    problem = "no broker found; pip install 'dockbell[demo]' installs one"
    for name, command, config in _find_brokers():
        port = find_free_port()
        config_path = folder / f"{name}.toml"  # iotcore goes by the suffix
        config_path.write_text(config.format(host=HOST, port=port))
        log_path = folder / f"{name}.log"
        with log_path.open("wb") as log:
            process = await anyio.open_process(
                [*command, str(config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops it when its clients have said goodbye
            )
        try:
            if await _accepts(process, port):
                yield Broker(name, port)
                return
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
        problem = f"{name} did not start: {_last_line(log_path)}"
    yield problem


def _find_brokers() -> Iterator[tuple[str, list[str], str]]:
    """Yield the name of each broker that is installed, how to start it, and its configuration."""
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path=_ADMIN_FOLDERS)
    if mosquitto is not None:
        yield "Mosquitto", [mosquitto, "-c"], _MOSQUITTO
    if find_spec("iotcore") is not None:
        # -P: no folder named iotcore in the working folder may stand in for it.
        yield "iotcore", [sys.executable, "-P", "-m", "iotcore", "--log-level", "CRITICAL", "--config"], _IOTCORE


def find_free_port(*wanted: int) -> int:
    """Return the first wanted port on which nothing listens, else any that is free."""
    for port in wanted:
        with suppress(OSError), socket.create_server((HOST, port)):
            return port
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


async def _accepts(process: Process, port: int) -> bool:
    """Wait until a broker accepts connections; return whether it came to that."""
    with anyio.move_on_after(_START_LIMIT):
        while process.returncode is None:
            with suppress(OSError):
                async with await anyio.connect_tcp(HOST, port):
                    return True
            await anyio.sleep(_LOOK_EVERY)
    return False


def _last_line(path: Path) -> str:
    return (path.read_text(errors="replace").splitlines() or ["no reason given"])[-1]


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
        with anyio.move_on_after(_STOP_LIMIT):
            await process.wait()
            return
        process.kill()
    await process.wait()


_SUBSCRIBE_LIMIT: Final = 5.0


@asynccontextmanager
async def subscribe(broker: Broker, take: Callable[[Arrival], None]) -> AsyncIterator[None]:
    """Subscribe to all events until the block is left; ``take`` is called in the event loop with each.

    It is an ordinary paho client with its thread, as a user would write one.

    Raises:
        OSError: The broker does not answer; :class:`TimeoutError` when it does not grant the subscription.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()  # paho's thread has none of its own, and anyio finds its event loop by the context
    granted = asyncio.Event()

    def on_connect(client: paho.Client, *_: Any) -> None:
        client.subscribe("dockbell/event/#", qos=1)

    def on_subscribe(*_: Any) -> None:
        loop.call_soon_threadsafe(granted.set)

    def on_message(_client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        arrival = Arrival(MQTT, json.loads(message.payload), datetime.now(UTC))
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


_NO_CONTENT, _UNAUTHORIZED = 204, 401


@asynccontextmanager
async def receive(secret: str, take: Callable[[Arrival], None], refuse: Callable[[str], None]) -> AsyncIterator[str]:
    """Receive webhooks until the block is left; the value is the URL to send them to.

    ``take`` is called with each event that the secret has signed, ``refuse`` with the reason for each other.
    """
    keys = [parse_secret(secret)]

    async def answer(request: Request) -> Response:
        body = await request.body()
        at = datetime.now(UTC)
        id_, sent_at, signature = (
            request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
        )
        finding = verify(keys, id_, sent_at, signature, body, now=int(time.time()))
        if finding is not Finding.GENUINE:
            refuse(finding)
            return Response(finding, status_code=_UNAUTHORIZED)
        take(Arrival(HOOK, json.loads(body), at))
        return Response(status_code=_NO_CONTENT)

    listener = bind(HOST, 0)
    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    async with listening(app, listener):
        yield f"http://{HOST}:{listener.getsockname()[1]}"
