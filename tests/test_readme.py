"""What the README says holds; what it shows to be run is run by ``tests/docs``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
import pytest

from dockbell.app import load_config
from dockbell.cli import main
from dockbell.config.resources import BUILT_IN
from dockbell.core.model import RESOURCES, Feed, RunKind
from dockbell.core.planning.costs import pass_cost
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import divide
from dockbell.core.planning.supply import Supply
from dockbell.sandbox.options import SandboxOptions

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def block(language: str, having: str) -> str:
    """Return the code block that has a text in it."""
    (found,) = [text for text in blocks(language) if having in text]
    return found


def test_the_first_commands_run_the_demo_and_the_second_the_tests() -> None:
    demo, tests = blocks("sh")
    assert demo.splitlines()[-1] == ".venv/bin/dockbell demo"
    assert tests.splitlines()[-1] == ".venv/bin/python -m pytest -n 3 --dist worksteal"


def test_every_command_that_is_shown_exists() -> None:
    rows = re.findall(r"(?m)^\| (`dockbell [^|]+)\|", README)
    shown = {name for row in rows for name in re.findall(r"`(?:dockbell )?([a-z]+)[ A-Z]*`", row)}
    assert len(shown) > 15
    assert shown - set(main.list_commands(click.Context(main))) == set()


def test_the_receiver_is_as_short_as_it_says() -> None:
    lines = [line for line in block("python", "BaseHTTPRequestHandler").splitlines() if line]
    assert f"in {len(lines)} lines" in README


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_table_of_delays_promises_the_defaults(resource: str, tmp_path: Path) -> None:
    config = tmp_path / "dockbell.toml"
    config.write_text('[sources.main]\nbase_url = "https://api.example.com"\napi_key = "k"\n')
    (feed,) = [feed for feed in load_config(config).feeds() if feed.resource == resource]
    assert feed.settings.every == "auto"
    number, unit = cells(resource)[2].removeprefix("every ").split()
    assert feed.settings.at_most == int(number) * {"min": timedelta(minutes=1), "h": timedelta(hours=1)}[unit]


CHANGES: Final = {"shipments": 10, "packages": 10, "items": 1, "stock": 30, "warehouses": 1 / 1440}
"""A minute, in the example."""


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_delays_of_the_example_are_those_of_the_division(resource: str) -> None:
    counts = SandboxOptions().counts()
    assert f"{counts['stock']} stock levels" in README
    assert cells(resource)[3] == ", ".join(map(in_words, delays(resource, counts)))


@pytest.mark.parametrize("resource", ["shipments", "stock"])
def test_so_are_those_of_a_large_account(resource: str) -> None:
    half, whole = map(in_words, delays(resource, SandboxOptions().counts() | {"stock": 10_000}))
    assert f"{half} and {whole} for {resource}" in " ".join(README.split())


def cells(resource: str) -> list[str]:
    """Return the cells of the row that tells of a resource."""
    (row,) = [line for line in README.splitlines() if line.startswith("|") and resource in line.split("|")[1]]
    return [cell.strip() for cell in row.strip("|").split("|")]


def delays(resource: str, counts: Mapping[str, int]) -> tuple[float, float]:
    """Return half of the interval and the whole that the planner would choose for a resource, in seconds."""
    demands = [
        Demand(
            feed=Feed("main", name),
            kind=RunKind.POLL if polled else RunKind.PASS,
            rate=changes / 60,
            cost=1 if polled else pass_cost(counts[name]),
            most=BUILT_IN[name].at_most,
        )
        for name, changes in CHANGES.items()
        for polled in [RESOURCES[name].polled]
    ]
    division = divide(Supply(limit=300, allowed=270).available, demands)
    interval = division.intervals[Feed("main", resource)].total_seconds()
    return interval / 2, interval


def in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:.0f} s"
