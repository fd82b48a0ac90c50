"""What the README says holds; what it shows to be run is run by ``tests/docs``."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
import pytest

from dockbell.app import load_config
from dockbell.cli import main

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


@pytest.mark.parametrize(
    ("resource", "told"),
    [("shipments", "15 s"), ("packages", "15 s"), ("items", "60 s"), ("stock", "5 min"), ("warehouses", "hour")],
)
def test_the_table_of_delays_has_the_defaults(resource: str, told: str, tmp_path: Path) -> None:
    config = tmp_path / "dockbell.toml"
    config.write_text('[sources.main]\nbase_url = "https://api.example.com"\napi_key = "k"\n')
    (feed,) = [feed for feed in load_config(config).feeds() if feed.resource == resource]
    seconds = {"15 s": 15, "60 s": 60, "5 min": 300, "hour": 3600}[told]
    assert isinstance(feed.settings.every, timedelta)
    assert feed.settings.every.total_seconds() == seconds
    (row,) = [line for line in README.splitlines() if line.startswith("|") and resource in line.split("|")[1]]
    assert f"every {told}" in row
