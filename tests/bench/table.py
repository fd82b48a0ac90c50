"""Figures as Markdown, ready for docs/benchmarks.md: medians over the rounds, each measurement beside its bare loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final, TypeAlias

from tests.bench.processes import Cost

BARE: Final = "bare loop"
Figure: TypeAlias = tuple[str, Callable[[Cost], float], str]
"""A column: its head, what it shows of a cost, and the format of that."""

_SHARED: Final[tuple[Figure, ...]] = (
    ("wall, s", lambda cost: cost.wall, ".1f"),
    ("peak, MB", lambda cost: cost.peak, ".0f"),
)


def print_costs(title: str, figures: Sequence[Figure], costs: Mapping[str, Sequence[Cost]]) -> None:
    """Print a row for each measurement, named ``what, who``; those by the bare loop are what the others are held to."""
    columns = (*figures, *_SHARED)
    rows = []
    for name, rounds in costs.items():
        bare = costs[f"{name.rpartition(', ')[0]}, {BARE}"]
        shown = [format(median(map(figure, rounds)), style) for _, figure, style in columns]
        wall = median(base.wall / cost.wall for base, cost in zip(bare, rounds, strict=True))
        cpu = median(base.cpu / cost.cpu for base, cost in zip(bare, rounds, strict=True))
        rows.append((name, *shown, f"{wall:.0%}", f"{cpu:.0%}"))
    print_table((title, *(head for head, _, _ in columns), f"of the {BARE}, by wall", "by CPU"), *rows)


def print_table(*rows: Sequence[str]) -> None:
    """Print rows as a Markdown table; the first is its head, and but for the first column all are numbers."""
    head, *body = rows
    for row in (head, ["---", *("---:" for _ in head[1:])], *body):
        print(f"| {' | '.join(row)} |")
    print(flush=True)
