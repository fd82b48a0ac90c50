"""Debian's RabbitMQ, as the tests start it: on loopback, with its files in a folder, and a port mapper of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from tests.brokers import find_free_port

_PROGRAMS: Final = Path("/usr/lib/rabbitmq/bin")
_DEADLINE: Final = 60
_LARGEST: Final = 200_000


class RabbitMqServer:
    """A server with the user ``guest``, who may do all from loopback.

    It takes seconds to start, so tests share one, and each has exchanges and queues of its own.

    Attributes:
        port: Where it listens.
        tls_port: Where it does so with the certificate that it was given.
        largest: Bytes that a message may have.
    """

    largest: Final = _LARGEST

    def __init__(self, folder: Path, certificate: Path) -> None:
        self.port, self.tls_port = find_free_port(), find_free_port()
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        mapper = find_free_port()
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {certificate}",
            f"max_message_size = {_LARGEST}",
        ]
        (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (folder / "plugins").write_text("[].\n")
        self._mapper = ["epmd", "-port", str(mapper), "-address", "127.0.0.1"]
        self._environment = os.environ | {
            "HOME": str(folder),
            "RABBITMQ_HOME": "/usr/lib/rabbitmq/lib/rabbitmq_server",
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_NODENAME": f"dockbell{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(find_free_port()),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        if not (_PROGRAMS / "rabbitmq-server").exists() or shutil.which("epmd") is None:
            assert "DOCKBELL_REQUIRE_QUEUES" not in os.environ, "not installed: rabbitmq-server"
            pytest.skip("rabbitmq-server is not installed")
        for command in (self._mapper, [str(_PROGRAMS / "rabbitmq-server")]):
            with (self._folder / "output").open("ab") as output:
                self._processes.append(
                    subprocess.Popen(
                        command, env=self._environment, stdout=output, stderr=output, start_new_session=True
                    )
                )
        deadline = time.monotonic() + _DEADLINE
        while not all(_listens(port) for port in (self.port, self.tls_port)):
            assert time.monotonic() < deadline, (self._folder / "output").read_text()
            assert self._processes[-1].poll() is None, (self._folder / "output").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """End it; harmless where it is not there."""
        while self._processes:
            process = self._processes.pop()
            os.killpg(process.pid, signal.SIGKILL)  # a leader and what it started; nothing of it is read again
            process.wait(10)

    def control(self, *words: str) -> None:
        """Have the server's own ``rabbitmqctl`` do something."""
        command = [str(_PROGRAMS / "rabbitmqctl"), "--node", self._environment["RABBITMQ_NODENAME"], *words]
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=60)

    @asynccontextmanager
    async def connecting(self) -> AsyncIterator[AbstractChannel]:
        """Yield a channel of a client of its own library."""
        async with await aio_pika.connect(port=self.port, host="127.0.0.1") as connection, connection.channel() as own:
            yield own

    async def add_exchange(self) -> str:
        """Have a new exchange of topics; return its name."""
        name = f"dock-{uuid4().hex}"
        async with self.connecting() as channel:
            await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC)
        return name

    async def add_queue(self, exchange: str, *routing_keys: str, **arguments: int | str) -> str:
        """Bind a new queue to an exchange; return its name."""
        name = f"dock-{uuid4().hex}"
        async with self.connecting() as channel:
            queue = await channel.declare_queue(name, arguments={k.replace("_", "-"): v for k, v in arguments.items()})
            for routing_key in routing_keys:
                await queue.bind(exchange, routing_key)
        return name

    async def read(self, queue: str, count: int) -> Sequence[aio_pika.abc.AbstractIncomingMessage]:
        """Take so many messages from a queue."""
        async with self.connecting() as channel:
            taken = await channel.get_queue(queue)
            return [await taken.get(no_ack=True, timeout=5) for _ in range(count)]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
