"""How long a person waits for ``dockbell --help``, and a process for its imports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.table import print_table

_RUNS: Final = 10
_DAEMON: Final = "dockbell.cli, dockbell.app.process, dockbell.sinks.mqtt, dockbell.sinks.webhook"


def measure_startup() -> None:
    """Print how long starting takes, the interpreter included."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "dockbell --help": [str(Path(sys.executable).with_name("dockbell")), "--help"],
        "import of the whole daemon": [sys.executable, "-c", f"import {_DAEMON}"],
    }
    print_table(("", "wall, ms"), *((name, f"{_time(command):.0f}") for name, command in commands.items()))


def _time(command: list[str]) -> float:
    """Return the median in ms; the first run, which compiles and reads the disk, does not count."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = []
    for _ in range(1 + _RUNS):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        times.append(1000 * (time.perf_counter() - started))
    return median(times[1:])
