"""How long a person waits for commands, a process for its imports, and what CPU both take."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from dockbell.stores.sqlite import SqliteStore
from tests.bench.table import print_table

_RUNS: Final = 10
_DAEMON: Final = "dockbell.cli, dockbell.app.process, dockbell.sinks.mqtt, dockbell.sinks.webhook"
_STATUS: Final = "dockbell status"
"""It exits with 1: no daemon is running."""
_LIBRARIES: Final = """
import atexit, gc, os
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
atexit.register(gc.freeze)
import sqlite3
import anyio, click, msgspec, rich.console, rich.table
from pydantic import BaseModel, Field, field_validator, model_validator

class Model(BaseModel):
    number: int = 0

@click.command()
def main():
    Model.model_validate({})
    anyio.run(anyio.sleep, 0)
    sqlite3.connect(":memory:").execute("SELECT 1")
    rich.console.Console().print("printed")

main()
"""
"""The least that a command can do with the libraries that ``dockbell status`` uses."""
_CONFIG: Final = """
[sources.main]
base_url = "http://127.0.0.1:9"
api_key = "none"

[resources.shipments]

[sinks.out]
type = "stdout"
"""


def measure_startup() -> None:
    """Print how long starting takes, the interpreter and its end included."""
    program = str(Path(sys.executable).with_name("dockbell"))
    with TemporaryDirectory() as folder:
        config = Path(folder, "dockbell.toml")
        config.write_text(_CONFIG)
        config.chmod(0o600)
        anyio.run(_make_store, config.with_name("dockbell.db"))
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "dockbell --help": [program, "--help"],
            "the libraries of dockbell status": [sys.executable, "-c", _LIBRARIES],
            _STATUS: [program, "status", "--config", str(config)],
            "import of the whole daemon": [sys.executable, "-c", f"import {_DAEMON}"],
        }
        rows = ((name, *(f"{1000 * each:.0f}" for each in _time(name, command))) for name, command in commands.items())
        print_table(("", "wall, ms", "CPU, ms", "CPU at its least, ms"), *rows)


async def _make_store(path: Path) -> None:
    store = await SqliteStore.open(path, now=lambda: datetime.now(UTC))
    await store.aclose()


def _time(name: str, command: list[str]) -> tuple[float, float, float]:
    """Return the median of the seconds, and median and least of the CPU seconds.

    The first run, which compiles and reads the disk, does not count.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    walls, cpus = [], []
    for _ in range(1 + _RUNS):
        started, before = time.perf_counter(), _read_cpu()
        ended = subprocess.run(command, check=False, capture_output=True, env=environment)
        assert ended.returncode == (name == _STATUS), ended.stderr
        walls.append(time.perf_counter() - started)
        cpus.append(_read_cpu() - before)
    return median(walls[1:]), median(cpus[1:]), min(cpus[1:])


def _read_cpu() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
