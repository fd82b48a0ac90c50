from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dockbell import __version__
from dockbell.cli import main as group
from dockbell.cli.group import LazyGroup
from dockbell.core.publishing.signature import parse_secret
from tests.cli.programs import run

assert isinstance(group, LazyGroup)
main: LazyGroup = group
COMMANDS = tuple(main.list_commands(click.Context(main)))
CONFIGURED = tuple(
    command
    for command in COMMANDS
    if command not in {"demo", "init", "secret", "sandbox", "sources", "schema", "completion"}
)
HEAVY = ("httpx", "pydantic", "rich", "starlette", "uvicorn", "paho", "msgspec", "sqlite3", "apscheduler", "anyio")


def test_help_lists_every_command_on_a_line_in_sections_for_a_newcomer() -> None:
    assert COMMANDS[:3] == ("demo", "init", "check")
    output = CliRunner().invoke(main, ["--help"]).output
    titles = re.findall(r"^(\w[\w ]*):$", output, re.MULTILINE)
    assert titles == ["Options", "Set up", "Run", "Look", "Act"]
    listed = dict(re.findall(r"^  ([a-z-]+) {2,}(\w.*)$", output.partition("Set up:")[2], re.MULTILINE))
    for command in COMMANDS:
        assert listed[command].endswith(".")
        assert not listed[command].endswith("...")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_of_a_command_what_the_command_says_itself(command: str) -> None:
    context = click.Context(main)
    (said,) = [commands[command][1] for commands in main.sections.values() if command in commands]
    itself = main.get_command(context, command)
    assert itself is not None
    assert said == itself.get_short_help_str(200)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_gives_an_example(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"  dockbell {command}" in result.output.partition("Example")[2]


@pytest.mark.parametrize("command", CONFIGURED)
def test_help_says_where_the_configuration_is_looked_for(command: str) -> None:
    output = " ".join(CliRunner().invoke(main, [command, "--help"]).output.split())
    assert "--config PATH Configuration file; default: $DOCKBELL_CONFIG, else ./dockbell.toml." in output


HELP = """
import sys
before = {*sys.modules}  # coverage brings some
from dockbell.cli import main
try:
    main(["--help"])
finally:
    print(*sys.modules.keys() - before, file=sys.stderr)
"""


def test_help_comes_without_any_heavy_import() -> None:
    began = time.perf_counter()
    result = subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True, text=True)
    print(f"dockbell --help: {time.perf_counter() - began:.3f} s")
    assert "Set up:" in result.stdout
    assert not set(HEAVY) & set(result.stderr.split())


def test_no_garbage_is_looked_for_while_a_command_starts_and_sooner_later() -> None:
    code = """
import gc
import dockbell.cli
before = gc.get_stats()[0]["collections"]
import dockbell.admin.as_json, dockbell.app, dockbell.cli.status
assert gc.get_stats()[0]["collections"] == before
kept = [[] for _ in range(300_000)]
assert before < gc.get_stats()[0]["collections"] < before + 20
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"dockbell {__version__}\n"


def test_a_command_that_is_not_known_suggests_one_that_is() -> None:
    result = CliRunner().invoke(main, ["snadbox"])
    assert result.exit_code == 2
    assert "Did you mean 'sandbox'?" in result.output


def test_without_a_configuration_the_error_says_what_to_do(tmp_path: Path) -> None:
    result = run("status", cwd=tmp_path, env={"DOCKBELL_CONFIG": ""})
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ./dockbell.toml: not found; ")


def test_a_configuration_that_cannot_be_read_is_told_like_any_other_problem(tmp_path: Path) -> None:
    (tmp_path / "locked.toml").write_text("")
    (tmp_path / "locked.toml").chmod(0)
    (tmp_path / "folder.toml").mkdir()
    for name in ("folder.toml", "locked.toml")[: 1 if os.geteuid() == 0 else 2]:  # root may read all
        result = run("check", "--config", name, cwd=tmp_path)
        assert result.returncode == 2
        assert result.stderr.startswith(f"error: {name}: cannot be read, ")


def test_the_environment_names_the_configuration_and_the_option_comes_before_it(tmp_path: Path) -> None:
    env = {"DOCKBELL_CONFIG": "there.toml"}
    assert "there.toml: not found" in run("check", cwd=tmp_path, env=env).stderr
    assert "here.toml: not found" in run("check", "--config", "here.toml", cwd=tmp_path, env=env).stderr


def test_every_problem_of_a_configuration_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dockbell.toml").write_text('nam = "acme"\n[sources.main]\nbase_url = 7\napi_key = "k"\n')
    result = run("run", cwd=tmp_path)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: ") for line in lines)


def test_the_schema_of_the_configuration_is_printed() -> None:
    printed = CliRunner().invoke(main, ["schema"]).output
    assert json.loads(printed)["$id"] == "urn:dockbell:schema:config:1"
    assert printed.endswith("}\n")


def test_a_secret_is_minted_alone_and_never_twice() -> None:
    first, second = (CliRunner().invoke(main, ["secret"]).output for _ in range(2))
    assert len(parse_secret(first)) == 32
    assert first.count("\n") == 1
    assert first != second
