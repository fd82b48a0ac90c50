"""Real MQTT 5 brokers on loopback ports, and a subscriber that records what they deliver."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

import anyio
import iotcore
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

MOSQUITTO: Final = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

_PATIENCE: Final = 10.0

_PORTS: Final = range(12_000, 32_000)
_WORKERS: Final = 20

_RUMQTTD: Final = """
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 1000
max_segment_size = 104857600
max_segment_count = 10
[v5.1]
name = "v5-1"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 268435455
max_inflight_count = 100
"""


def find_free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on, another one at every call.

    It is below those that the kernel gives to outgoing connections: from these, another test could be given it before
    a server of this one listens there. Each worker of pytest-xdist has ports of its own.
    """
    while True:
        port = next(_ports)
        with socket.socket() as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not stand in the way
            sock.bind(("127.0.0.1", port))
            return port


def _count_ports() -> Iterator[int]:
    """Return the ports of this worker, from one that another run on this machine seldom begins with."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _PORTS.start + worker % _WORKERS * (len(_PORTS) // _WORKERS)
    own = range(first, first + len(_PORTS) // _WORKERS)
    begin = os.getpid() % len(own)
    return itertools.cycle((*own[begin:], *own[:begin]))


_ports: Final = _count_ports()


class Broker(Protocol):
    """A broker of either kind; its port stays when it is restarted."""

    host: str
    port: int

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class Mosquitto:
    """The real Mosquitto; ``lines`` are added to its configuration."""

    folder: Path
    lines: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = field(default_factory=find_free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        assert MOSQUITTO is not None
        lines = self.lines
        if not any(line.startswith("allow_anonymous") for line in lines):
            lines = ("allow_anonymous true", *lines)
        config = self.folder / f"mosquitto-{self.port}.conf"
        config.write_text("\n".join(["user root", f"listener {self.port} {self.host}", *lines, ""]))
        with (self.folder / f"mosquitto-{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen([MOSQUITTO, "-c", str(config)], stderr=log)
        wait_until(lambda: accepts(self.host, self.port), "mosquitto does not accept connections")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP lets it hang, SIGCONT go on, SIGKILL crash."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it; connections are closed, retained state is gone unless ``lines`` say otherwise."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(_PATIENCE)
            self._process = None


class Iotcore:
    """The broker of the ``demo`` extra."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.port = find_free_port()
        config = folder / f"rumqttd-{self.port}.toml"
        config.write_text(_RUMQTTD.format(port=self.port))
        self._broker = iotcore.Broker(config_path=str(config))

    @property
    def url(self) -> str:
        return f"mqtt://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        self._broker.start()

    def stop(self) -> None:
        """End it."""
        self._broker.stop()


_AMQTT: Final = """
import asyncio, sys
from amqtt.broker import Broker
async def serve(port):
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    anonymous = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    await Broker({"listeners": {"default": listener}, "plugins": anonymous}).start()
    await asyncio.Event().wait()
asyncio.run(serve(int(sys.argv[1])))
"""


class Amqtt:
    """The broker of PyPI's ``amqtt``, in a process of its own: it speaks 3.1.1 only."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        self._process = subprocess.Popen([sys.executable, "-c", _AMQTT, str(self.port)], stderr=subprocess.DEVNULL)
        wait_until(lambda: accepts(self.host, self.port), "amqtt does not accept connections")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE)
            self._process = None


def make_broker(folder: Path) -> Broker:
    """Return Mosquitto where it is installed, otherwise iotcore unless the environment insists; not started yet."""
    if MOSQUITTO is None and os.environ.get("DOCKBELL_REQUIRE_MOSQUITTO"):
        raise FileNotFoundError("mosquitto: not installed, and DOCKBELL_REQUIRE_MOSQUITTO is set; install it")
    return Mosquitto(folder) if MOSQUITTO else Iotcore(folder)


@dataclass(frozen=True)
class Received:
    """One publication as a subscriber got it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any]


class Subscriber:
    """Records what a broker delivers on a topic filter, in a thread of its own.

    Attributes:
        received: All of it, in order.
    """

    def __init__(
        self, broker: Broker, topic_filter: str = "#", *, version: int = 5, qos: int = 1, **login: str
    ) -> None:
        self.received: list[Received] = []
        self._filter = topic_filter
        self._qos = qos
        self._subscribed = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion(version))
        if login:
            self._client.username_pw_set(**login)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._on_message
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        assert self._subscribed.wait(_PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    async def until(self, holds: Callable[[list[Received]], object]) -> list[Received]:
        """Return what was received once ``holds`` is true of it."""
        with anyio.fail_after(_PATIENCE):
            while not holds(self.received):  # noqa: ASYNC110  # a thread fills it
                await anyio.sleep(0.01)
        return self.received

    @property
    def topics(self) -> list[str]:
        """The topics of all that was received, in order."""
        return [each.topic for each in self.received]

    def retained(self) -> dict[str, bytes]:
        """The latest payload of each topic, but those that were cleared."""
        latest = {each.topic: each.payload for each in self.received}
        return {topic: payload for topic, payload in latest.items() if payload}

    def _on_connect(self, client: paho.Client, *_: Any) -> None:
        client.subscribe(self._filter, qos=self._qos)

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        properties = message.properties.json() if message.properties else {}  # type: ignore[no-untyped-call]
        self.received.append(Received(message.topic, bytes(message.payload), message.qos, message.retain, properties))


@contextmanager
def started(broker: Broker) -> Iterator[Broker]:
    """Start a broker, and stop it in the end."""
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def accepts(host: str, port: int) -> bool:
    """Return whether a port takes connections."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], problem: str) -> None:
    """Return once something is so; AssertionError with the problem where it is not for long."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, problem
        time.sleep(0.01)
