"""``python -m tests.bench fleet takeover | throughput | memory | big | move``: many processes, one PostgreSQL."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from tests.bench.fleet.big import measure_big
from tests.bench.fleet.memory import measure_memory
from tests.bench.fleet.move import measure_move
from tests.bench.fleet.takeover import Trial, measure_takeover
from tests.bench.fleet.throughput import measure_throughput

_TRIAL: Final = Trial()


def measure_fleet(arguments: Sequence[str]) -> bool:
    """Measure what is asked for; return whether nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench fleet", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    takeover = parts.add_parser("takeover", help="who goes on, and when, after processes and the database die")
    takeover.add_argument("--processes", type=int, default=_TRIAL.processes)
    takeover.add_argument("--sources", type=int, default=_TRIAL.sources)
    takeover.add_argument("--every", type=float, default=_TRIAL.every, help="seconds between two polls of a source")
    takeover.add_argument("--deaths", type=int, default=_TRIAL.deaths, help="of processes, half of them by kill -9")
    takeover.add_argument("--no-outages", action="store_true", help="leave the database alone")
    takeover.add_argument("--pgbouncer", action="store_true", help="put it before the database")
    memory = parts.add_parser("memory", help="memory and CPU of a process by its sources")
    memory.add_argument("--sources", type=int, nargs="+", default=[1000, 2000])
    throughput = parts.add_parser("throughput", help="pages and deliveries a second, one to four processes")
    throughput.add_argument("--events", type=int, default=24_000)
    throughput.add_argument("--rounds", type=int, default=3)
    big = parts.add_parser("big", help="the delays of small feeds beside one with very many records")
    big.add_argument("--sources", type=int, default=10_000)
    big.add_argument("--records", type=int, default=1_000_000, help="of the large one")
    big.add_argument("--every", type=float, default=180, help="seconds between two polls of a small one")
    big.add_argument("--seconds", type=float, default=180, help="how long changes are timed")
    move = parts.add_parser("move", help="dockbell move-store, compared row by row, and killed in its commit")
    move.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    match options.part:
        case "takeover":
            return measure_takeover(
                Trial(
                    options.processes,
                    options.sources,
                    options.every,
                    deaths=options.deaths,
                    outages=not options.no_outages,
                    pooler=options.pgbouncer,
                )
            )
        case "memory":
            measure_memory(options.sources)
        case "throughput":
            measure_throughput(options.events, options.rounds)
        case "big":
            measure_big(options.sources, options.records, options.every, options.seconds)
        case "move":
            return measure_move(options.rows)
    return True
