"""What is named as a command of dockbell anywhere is one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from dockbell.cli import main
from tests.docs.markdown import DOCUMENTS, ROOT, find_blocks, read, strip_code_blocks

COMMANDS: Final = {*main.list_commands(click.Context(main))}
PLACES: Final = [
    *DOCUMENTS,
    "config.example.toml",
    "docs/operations/alerts.yml",
    "docs/operations/grafana-dashboard.json",
    "docs/operations/compose.yaml",
    "docs/operations/compose-postgres.yaml",
    "docs/operations/dockbell.service",
    "docs/operations/dockbell@.service",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.suffix in {".py", ".js", ".html"}
    ),
]
_QUOTED: Final = re.compile(r"[\"`>]dockbell ([a-z]+(?:-[a-z]+)*)")
_TYPED: Final = re.compile(r"(?:^|[\s/(])dockbell (?!dockbell)([a-z]+(?:-[a-z]+)*)")


def find_named(place: str, text: str) -> set[str]:
    """Return the words that a text names as commands: in quotes, as code, or in what is typed at a shell."""
    match Path(place).suffix:
        case ".py":
            texts = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
            return {name for each in texts if isinstance(each, str) for name in _QUOTED.findall(each)}
        case ".json" | ".yml":
            values = json.loads(text) if place.endswith(".json") else yaml.safe_load(text)
            return {name for each in _find_texts(values) for name in _QUOTED.findall(each)}
        case ".service" | ".yaml":
            return {name for line in text.splitlines() if "exec" in line.lower() for name in _TYPED.findall(line)}
        case ".js":
            return {name for each in re.findall(r"'[^'\n]*'|`[^`]*`", text) for name in _QUOTED.findall(each[1:-1])}
        case _:
            return {*_QUOTED.findall(strip_code_blocks(text))}


def _find_texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _find_texts(each)
        case list():
            for each in value:
                yield from _find_texts(each)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_named_as_a_command_is_one(place: str) -> None:
    assert find_named(place, read(place)) - COMMANDS == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_typed_as_a_command_is_one(document: str) -> None:
    blocks = [block for block in find_blocks(document) if block.language in ("sh", "console")]
    lines = [line.partition(" #")[0] for block in blocks for line in block.text.splitlines()]
    assert {name for line in lines for name in _TYPED.findall(line)} - COMMANDS == set()


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("a.md", "Ask `dockbell plan --json`, or not: dockbell knows."),
        ("a.py", 'def f():\n    raise ValueError(f\'{f}: "dockbell plan" says it\', "dockbell knows")\n'),
        ("a.json", '{"a": ["see \\"dockbell plan\\"", "dockbell knows"]}'),
        ("a.yml", 'a: [{b: \'ask "dockbell plan"\', c: "dockbell knows"}]'),
        ("a.service", "Description=dockbell: knows\nExecStart=/opt/bin/dockbell plan --x\n"),
        ("a.yaml", "# Then: docker compose exec dockbell dockbell plan\nname: dockbell\n"),
        ("a.js", "say('dockbell knows', 'ask \"dockbell plan\"')"),
        ("a.html", "<p>dockbell knows, <code>dockbell plan</code></p>"),
    ],
)
def test_a_command_that_is_not_there_is_found(place: str, text: str) -> None:
    assert {name for name in find_named(place, text) if name != "knows"} == {"plan"}
