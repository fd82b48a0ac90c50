"""Debian's Redis, as the tests start it: on loopback, with its files in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.brokers import find_free_port


class RedisServer:
    """A server that keeps what it stored, and its port, while it is stopped and started."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = find_free_port()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        program = shutil.which("redis-server")
        if program is None:
            assert "DOCKBELL_REQUIRE_QUEUES" not in os.environ, "not installed: redis-server"
            pytest.skip("redis-server is not installed")
        command = [program, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        command += ["--appendonly", "yes", "--save", "", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self._answers():
            assert time.monotonic() < deadline, "Redis does not answer"
            time.sleep(0.01)

    def stop(self) -> None:
        """End it; harmless where it is not there."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(10)

    def connect(self) -> Any:
        """Return a client of its own library, whose types are of answers now and later at once."""
        return redis.Redis(port=self.port, decode_responses=True)

    def _answers(self) -> bool:
        try:
            return bool(self.connect().ping())
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False
