"""What ``dockbell run`` takes for a cycle, with the pages of its passes spread over the interval as it spreads them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from dockbell.core.model import RESOURCES
from tests.bench import bare_reading
from tests.bench.processes import Cost, cpu_seconds, peak_memory, run_alone, serving
from tests.bench.reading import UNPACED
from tests.bench.servers import serve_restless, serve_sandbox
from tests.bench.table import BARE, print_table
from tests.services import Daemon

_SETTLED_AFTER: Final = 3
"""So many cycles after its start a daemon has learned the listings and spreads its passes."""
_SETTLED_LEAST: Final = 15  # seconds, in which the first read comes to its end


def measure_running(records: int, every: float, cycles: int) -> None:
    """Print what a cycle takes: every so many seconds, three feeds are polled and two read whole. There is no sink."""
    rows, pages = [], 0
    for what, serve in (("idle cycle", serve_sandbox), ("cycle with changes", serve_restless)):
        with serving(serve, records) as url, TemporaryDirectory() as name:
            folder = Path(name)
            run_alone(bare_reading.read_first, url, folder / "bare.db")
            bare = run_alone(bare_reading.read_spread_cycles, url, folder / "bare.db", every, cycles)
            costs = {BARE: bare, "dockbell run": _run(url, folder, every, cycles)}
        pages = bare[0].pages
        for who, each in costs.items():
            cpu = median(cost.cpu for cost in each)
            share = median(cost.cpu for cost in bare) / cpu
            peak = max(cost.peak for cost in each)
            rows.append((f"{what}, {who}", f"{cpu:.2f}", f"{1000 * cpu / pages:.1f}", f"{peak:.0f}", f"{share:.0%}"))
    title = f"{records:,} records in five feeds; {pages} pages in {every:g} s"
    print_table((title, "CPU/cycle, s", "CPU/page, ms", "peak, MB", "of the bare loop, by CPU"), *rows)


def _run(url: str, folder: Path, every: float, cycles: int) -> list[Cost]:
    """Return what each interval costs a daemon that has run for a while."""
    limit = "".join(f"{name} = {value}\n" for name, value in UNPACED.items())
    feeds = "".join(f'[resources.{name}]\nevery = "{every:g}s"\n' for name in RESOURCES)
    (folder / "dockbell.toml").write_text(f'[sources.main]\nbase_url = "{url}"\napi_key = "sandbox"\n{limit}{feeds}')
    costs = []
    with Daemon(folder) as daemon:
        daemon.start()
        time.sleep(max(_SETTLED_AFTER * every, _SETTLED_LEAST))
        for _ in range(cycles):
            began, before = time.perf_counter(), cpu_seconds(daemon.pid)
            time.sleep(every)
            cpu, wall = cpu_seconds(daemon.pid) - before, time.perf_counter() - began
            costs.append(Cost(0, wall, cpu, peak_memory(str(daemon.pid))))
        assert daemon.end(signal.SIGTERM) == 0, (folder / "dockbell.log").read_text()
    return costs
