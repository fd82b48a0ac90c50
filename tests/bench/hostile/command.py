"""``python -m tests.bench hostile [HAZARD …]``: scripts, dlt and dockbell side by side on a service with its faults."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import anyio

from tests.bench.hostile.hazards import HAZARDS
from tests.bench.hostile.trial import Times, list_tools, try_hazard
from tests.bench.hostile.verdict import Verdict


def measure_hostile(arguments: Sequence[str]) -> bool:
    """Print what each tool loses and invents under some hazards; return whether dockbell does neither."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench hostile", description=__doc__)
    known = [each.name for each in HAZARDS]
    parser.add_argument("hazards", nargs="*", metavar="hazard", help=f"{', '.join(known)}; all if none is named")
    parser.add_argument("--learn", type=float, default=15, help="seconds before anything changes")
    parser.add_argument("--change", type=float, default=30, help="seconds in which records change")
    parser.add_argument("--drain", type=float, default=80, help="seconds until all should have been told")
    options = parser.parse_args(arguments)
    if unknown := {*options.hazards} - {*known}:
        parser.error(f"no such hazard: {', '.join(sorted(unknown))}")
    hazards = [each for each in HAZARDS if not options.hazards or each.name in options.hazards]
    times = Times(options.learn, options.change, options.drain)
    tools = list_tools(times.every)
    if "dlt" not in {tool.name for tool in tools}:
        print("dlt is left out, because it is not installed: pip install dlt", file=sys.stderr)
    verdicts = list[Mapping[str, Verdict]]()
    print_row("changes lost / invented", *(tool.name for tool in tools))
    print_row("---", *("---:" for _ in tools))
    for hazard in hazards:
        verdicts.append(found := anyio.run(try_hazard, hazard, tools, times))
        print_row(hazard.words, *(f"{each.lost} / {each.invented}" for each in found.values()))
    undeleted = [sum(found[tool.name].undeleted for found in verdicts) for tool in tools]
    print_row("deletions not told, in all of these", *map(str, undeleted))
    return all(found["dockbell"] == Verdict() for found in verdicts)


def print_row(*cells: str) -> None:
    """Print a row of the table as soon as it is known: the whole takes twenty minutes."""
    print(f"| {' | '.join(cells)} |", flush=True)
