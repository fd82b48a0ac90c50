"""Debian's NATS, as the tests start it: on loopback, with JetStream and its files in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from tests.brokers import find_free_port


class NatsServer:
    """A server that keeps what it stored, and its port, while it is stopped and started; ``lines`` are of its file."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.port = find_free_port()
        self._log = folder / "nats.log"
        self._file = folder / "nats.conf"
        self._file.write_text("\n".join([f'jetstream {{ store_dir: "{folder}/streams" }}', *lines]))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it is ready."""
        program = shutil.which("nats-server")
        if program is None:
            assert "DOCKBELL_REQUIRE_QUEUES" not in os.environ, "not installed: nats-server"
            pytest.skip("nats-server is not installed")
        self._log.unlink(missing_ok=True)
        command = [program, "-a", "127.0.0.1", "-p", str(self.port), "-c", str(self._file), "-l", str(self._log)]
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + 10
        while not (self._log.exists() and "Server is ready" in self._log.read_text()):
            assert time.monotonic() < deadline, "NATS is not ready"
            time.sleep(0.01)

    def stop(self) -> None:
        """End it; harmless where it is not there."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(10)

    @asynccontextmanager
    async def connecting(self, **login: Any) -> AsyncIterator[Client]:
        """Yield a client of its own library."""
        client = await nats.connect(f"nats://127.0.0.1:{self.port}", **login)
        try:
            yield client
        finally:
            await client.close()

    async def add_stream(self, *subjects: str, **options: Any) -> None:
        """Have a stream for some subjects, if it is not there."""
        async with self.connecting() as client:
            await client.jetstream().add_stream(name="dock", subjects=[*subjects], **options)
