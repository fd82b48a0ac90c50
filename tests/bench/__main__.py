"""Figures for docs/benchmarks.md, printed, not asserted.

``python -m tests.bench [passes] [running] [delivery] [backlog] [endpoints] [latency] [pages] [startup] [commits]
[outbox] [freshness]``,
``python -m tests.bench fleet --help`` for many processes on one PostgreSQL, and ``python -m tests.bench hostile`` for
other tools beside dockbell on a service that does what services do.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from tests.bench.commits import measure_commits
from tests.bench.delivery import measure_backlog, measure_delivery, measure_endpoints
from tests.bench.fleet.command import measure_fleet
from tests.bench.freshness import LOADS, SMOKE, Times, measure_freshness
from tests.bench.hostile.command import measure_hostile
from tests.bench.latency import measure_latency
from tests.bench.outbox import measure_outbox
from tests.bench.pages import measure_pages
from tests.bench.reading import measure_reading
from tests.bench.running import measure_running
from tests.bench.startup import measure_startup


def main() -> None:
    """Measure what is asked for, everything when nothing is, and print it as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="part",
        help="passes, running, delivery, backlog, endpoints, latency, pages, startup, commits, outbox, freshness;"
        " if none, all but the last two",
    )
    parser.add_argument("--records", type=int, default=300_000, help="records read, over all five feeds")
    parser.add_argument("--events", type=int, default=20_000, help="events delivered to each kind of sink")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="events that wait for a sink")
    parser.add_argument("--seconds", type=int, default=30, help="how long changes are timed")
    parser.add_argument("--every", type=float, default=15, help="seconds between two cycles of a running daemon")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured in turn; medians are shown")
    freshness = parser.add_argument_group("freshness")
    freshness.add_argument("--load", choices=LOADS, default="lists", help="what changes, and who reads")
    freshness.add_argument("--learn", type=float, default=10, help="minutes before anything is measured")
    freshness.add_argument("--minutes", type=float, default=20, help="minutes that are measured")
    freshness.add_argument("--drain", type=float, default=7, help="minutes that the last changes may take to arrive")
    freshness.add_argument("--smoke", action="store_true", help="few records and no wait: less than a minute in all")
    freshness.add_argument("--at-most", type=float, default=inf, help="exit 1 if the mean is more times the floor")
    if sys.argv[1:2] == ["hostile"]:
        _print_command()
        sys.exit(not measure_hostile(sys.argv[2:]))
    if sys.argv[1:2] == ["fleet"]:
        _print_command()
        sys.exit(not measure_fleet(sys.argv[2:]))
    options = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "passes": lambda: measure_reading(options.records, options.rounds),
        "running": lambda: measure_running(options.records, options.every, 2 * options.rounds - 1),
        "delivery": lambda: measure_delivery(options.events, options.rounds),
        "backlog": lambda: measure_backlog(options.backlog),
        "endpoints": lambda: measure_endpoints(options.events // 10, options.rounds),
        "latency": lambda: measure_latency(options.seconds),
        "pages": lambda: measure_pages(options.events, options.rounds),
        "startup": measure_startup,
        "commits": lambda: measure_commits(10 * options.rounds),
    }
    if unknown := set(options.parts) - {*parts, "outbox", "freshness"}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    _print_command()
    for name, measure in parts.items():
        if name in options.parts or not options.parts:
            measure()
    if "outbox" in options.parts:
        measure_outbox(options.backlog, options.rounds)
    if "freshness" in options.parts:
        load, minutes = LOADS[options.load], (options.learn, options.minutes, options.drain)
        load, times = (load.smoke(), SMOKE) if options.smoke else (load, Times(*(60 * each for each in minutes)))
        sys.exit(not measure_freshness(load, times, at_most=options.at_most))


def _print_command() -> None:
    print(f"`{' '.join(('python -m tests.bench', *sys.argv[1:]))}` on {_describe_machine()}.\n", flush=True)


def _describe_machine() -> str:
    """Return the date and what the figures depend on, the other load included."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({model}), {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, load {os.getloadavg()[0]:.1f} before"
    )


if __name__ == "__main__":
    main()
