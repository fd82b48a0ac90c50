"""How much memory and CPU a process takes for the sources that it has, beside one that has a single source."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from tests.bench.fleet.api import Options, Testimony, serve_api
from tests.bench.fleet.daemons import Fleet, Layout, wait_until
from tests.bench.fleet.http import ask
from tests.bench.fleet.receiver import serve_receiver
from tests.bench.processes import serving as serving_by
from tests.bench.table import print_table
from tests.postgres import serving

_EVERY: Final = 3600.0
"""Long enough that no source is due while a start is measured."""
_REQUESTS_A_SECOND: Final = 20.0
_POLLED_SECONDS: Final = 30.0
_QUIET: Final = 0.2
"""A process has started once it takes less than this part of a core for some seconds."""
_LOOK_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process takes.

    Attributes:
        sources: How many it has.
        memory: In MB, after a start.
        cpu: Seconds of a start, with sources that were all polled before and are not due yet.
        requests: Those of a start.
        request: CPU seconds of each request, when polls come evenly; at least 0.
    """

    sources: int
    memory: float
    cpu: float
    requests: int
    request: float


def measure_memory(numbers: Sequence[int]) -> None:
    """Print what a start takes, after all sources were read before."""
    one, *others = [_measure(number) for number in (1, *numbers)]
    print_table(
        (
            "sources",
            "memory, MB",
            "kB a source",
            "CPU of a start, s",
            "ms a source",
            "requests of the start",
            "CPU of a request, ms",
            "ms a source, less its requests",
        ),
        *(
            (
                f"{each.sources:,}",
                f"{each.memory:.0f}",
                f"{1024 * (each.memory - one.memory) / (each.sources - 1):.0f}",
                f"{each.cpu:.1f}",
                f"{1000 * (each.cpu - one.cpu) / (each.sources - 1):.1f}",
                f"{each.requests:,}",
                f"{1000 * each.request:.1f}",
                f"{1000 * (each.cpu - one.cpu - each.requests * each.request) / (each.sources - 1):.1f}",
            )
            for each in others
        ),
    )


def _measure(number: int) -> Cost:
    polled_every = max(5.0, number / _REQUESTS_A_SECOND)
    layout = Layout([f"s{each:05}" for each in range(number)], polled_every)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(serving(shared_buffers="256MB", autovacuum="on"))
        database = urlsplit(server.make_database()).path.strip("/")
        urls = {
            "store": server.url(database),
            "api": stack.enter_context(serving_by(serve_api, Options())),
            "receiver": stack.enter_context(serving_by(serve_receiver, 0.0)),
        }
        config = folder / "dockbell.toml"
        fleet = Fleet(folder, server, database, [layout.write(config, **urls)])
        stack.callback(fleet.close)
        (daemon,) = fleet.daemons.values()

        def count_requests() -> int:
            return sum(map(len, ask(f"{urls['api']}/testimony", Testimony).requests.values()))

        def start() -> None:
            daemon.start()
            fleet.settle(number, 1)

        start()
        assert wait_until(lambda: fleet.count_read() == number, 3600, every=2) is not None
        time.sleep(3 * polled_every + _LOOK_SECONDS)  # each has been polled, in both ways
        before, spent = count_requests(), measure_cpu(daemon.pid)
        time.sleep(_POLLED_SECONDS)
        request = (measure_cpu(daemon.pid) - spent) / max(1, count_requests() - before)
        daemon.end(signal.SIGTERM)
        dataclasses.replace(layout, every=_EVERY).write(config, **urls)
        before = count_requests()
        start()
        cpu = _await_quiet(daemon.pid)
        (memory,) = fleet.measure_memory()
        return Cost(number, memory, cpu, count_requests() - before, request)


def _await_quiet(pid: int) -> float:
    """Return the CPU that a process took until it had nothing to do."""
    readings = [(time.monotonic(), measure_cpu(pid))]
    while True:
        time.sleep(_LOOK_SECONDS)
        readings.append((time.monotonic(), measure_cpu(pid)))
        (before, spent), (now, total) = readings[-2:]
        if len(readings) > 2 and total - spent < _QUIET * (now - before):
            return spent


def measure_cpu(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
