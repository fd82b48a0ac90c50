"""The examples in the help of every command: each is a right usage, and those that end are carried out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from dockbell.cli import main
from tests.cli.filled import Filled
from tests.stores.standings import kill

_ENDLESS: Final = {"demo", "run", "sandbox"}
# What stands for a real thing in the examples, and what stands for it here.
_STAND_INS: Final = {
    "https://api.example.com": "http://127.0.0.1:9",
    "http://127.0.0.1:8480": "http://127.0.0.1:9",
    "/etc/dockbell.toml": "dockbell.toml",
    "old.toml": "dockbell.toml",
    "/run/secrets/key": "key",
    "shp_000123": "a",
    "42": "4",
    "main/items": "main/stock",
    "main/warehouses": "main/stock",
    "/var/backups/dockbell.db": "copy.db",
    "postgresql://dockbell@db.example.com/dockbell": "postgresql://dockbell@127.0.0.1:9/dockbell",
    "/var/backups/dockbell-$(date +%F).db": "copy.db",
    "eu-*": "m*",
}


def find_examples(command: click.Command, context: click.Context) -> Iterator[list[str]]:
    """Yield the arguments of each example of a command and of its own commands, without what a shell does."""
    text = (command.help or "").replace("\b", "").partition("Example")[2]
    for line in text.splitlines():
        found = re.search(r"\bdockbell (.*)", line)
        if found:
            yield shlex.split(re.split(r" \| | [<>] | {3,}|\)$", found[1])[0])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None
            yield from find_examples(sub, click.Context(sub, parent=context))


EXAMPLES: Final = [
    example
    for name in main.list_commands(click.Context(main))
    if (command := main.get_command(click.Context(main), name)) is not None
    for example in find_examples(command, click.Context(command))
]


@pytest.fixture
def furnished(filled: Filled, sandbox: str, monkeypatch: pytest.MonkeyPatch) -> Filled:
    """Return a folder in which what the examples name is there."""
    config = filled.folder / "dockbell.toml"
    config.write_text(config.read_text().replace("http://127.0.0.1:9", sandbox))
    kill(filled.store, "erp", "a", 4)
    monkeypatch.chdir(filled.folder)
    monkeypatch.setenv("DOCKBELL_API_KEY", "sandbox")
    monkeypatch.setenv("DOCKBELL_CONFIG", "dockbell.toml")
    Path("key").write_text("sandbox")
    Path("customers.csv").write_text("name,api_key.file\nacme,key\n")
    Path("customers.toml").write_text("[sources.acme]\n")
    return filled


def test_every_command_has_an_example() -> None:
    assert {example[0] for example in EXAMPLES} >= set(main.list_commands(click.Context(main)))


@pytest.mark.parametrize("example", EXAMPLES, ids=" ".join)
def test_an_example_is_right_usage(example: list[str], furnished: Filled) -> None:
    name, *args = [_STAND_INS.get(word, word) for word in example]
    command = main.get_command(click.Context(main), name)
    assert command is not None
    if name in _ENDLESS or "--follow" in args or example == ["init"]:
        command.make_context(name, args).close()
        return
    if name == "init" or (name == "probe" and "-o" in args):  # what they write is not there yet
        Path("dockbell.toml").unlink()
    if name == "sources" and "remove" in args:  # there is no terminal to ask at
        args.append("--yes")
    result = CliRunner(catch_exceptions=False).invoke(main, [name, *args], input="name\nacme\n")
    assert result.exit_code in (0, 1), result.output
