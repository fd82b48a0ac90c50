"""What a shell offers, by real bash where it is about the shell."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from dockbell.cli import main
from dockbell.cli.completion import complete_feeds, complete_sinks, complete_sources

HOOK: Final = """
[sinks.erp]
type = "stdout"
[sinks.floor]
type = "stdout"
"""
# As bash does it: the words up to the cursor, and which of them is completed.
BASH: Final = """
source <(dockbell completion bash) || exit 1
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"; [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _dockbell_completion dockbell 2>/dev/null
    echo "${COMPREPLY[@]}"
done
"""


def complete(folder: Path, *typed: str) -> list[list[str]]:
    """Return what bash offers after each line that is typed."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    result = subprocess.run(
        ["bash", "-c", BASH, "bash", *typed],
        cwd=folder,
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stderr == ""
    return [line.split() for line in result.stdout.splitlines()]


def test_bash_completes_commands_and_the_names_of_the_configuration(configure: Callable[..., Path]) -> None:
    folder = configure("http://127.0.0.1:9", HOOK)
    (folder / "other.toml").write_text("[sinks.elsewhere]\n")
    assert complete(
        folder,
        "dockbell re",
        "dockbell pause ",
        "dockbell replay f",
        "dockbell dead ",
        "dockbell dead retry e",
        "dockbell dead show erp ",
        "dockbell reconcile main/",
        "dockbell why s",
        "dockbell state main/s",
        "dockbell plan --changes main/",
        "dockbell plan --what-if stock.",
        "dockbell plan --what-if s",
        "dockbell events --source ",
        "dockbell test --config other.toml ",
        "dockbell completion ",
    ) == [
        ["reload", "reconcile", "replay", "resume", "retry"],
        ["erp", "floor"],
        ["floor"],
        ["discard", "list", "retry", "show", "erp", "floor"],
        ["erp"],
        ["shipments", "stock", "main/shipments", "main/stock"],
        ["main/shipments", "main/stock"],
        ["shipments", "stock"],
        ["main/shipments", "main/stock"],
        ["main/shipments=", "main/stock="],
        ["stock.every=", "stock.at_most=", "stock.weight="],
        [f"{feed}.{key}=" for feed in ("shipments", "stock") for key in ("every", "at_most", "weight")] + ["share="],
        ["main"],
        ["elsewhere"],
        ["bash", "zsh", "fish"],
    ]


def test_names_are_offered_at_once(configure: Callable[..., Path]) -> None:
    folder = configure("http://127.0.0.1:9", HOOK)
    command = [str(Path(sys.executable).with_name("dockbell"))]
    env = {"_DOCKBELL_COMPLETE": "bash_complete", "COMP_WORDS": "dockbell pause ", "COMP_CWORD": "2"}
    took = []
    for _ in range(5):
        began = time.perf_counter()
        result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
        took.append(time.perf_counter() - began)
    assert result.stdout.splitlines() == ["plain,erp", "plain,floor"]
    print(f"completion: {min(took):.3f} s")
    loaded = "import sys, dockbell.cli.sinks, tomllib; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "anyio", "httpx", "rich", "sqlite3", "dockbell.config"} & set(modules)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "sinks = 7\nsources = 7",
        "[[sinks]]\n",
        "sources.main = 7",
        "sources.main.resources = 7",
        "resources = 7\nsources.main = {}",
        "no toml",
    ],
)
def test_where_nothing_can_be_read_nothing_is_offered(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "dockbell.toml"
    if text is not None:
        path.write_text(text)
    context = click.Context(main)
    context.params["config_path"] = str(path)
    for offer in (complete_sinks, complete_sources, complete_feeds):
        assert [name for name in offer(context, click.Argument(["a"]), "") if "main" not in name] == []


def test_without_resources_all_feeds_are_offered(tmp_path: Path) -> None:
    (tmp_path / "dockbell.toml").write_text('[sources.a]\n[sources."b c"]\n')
    context = click.Context(main)
    context.params["config_path"] = str(tmp_path / "dockbell.toml")
    assert complete_feeds(context, click.Argument(["feed"]), "st") == ["stock"]
    assert len(complete_feeds(context, click.Argument(["feed"]), "")) == 15


@pytest.mark.parametrize(
    ("shell", "mark"), [("zsh", "#compdef dockbell"), ("fish", "complete --no-files --command dockbell")]
)
def test_other_shells_get_a_script_of_theirs(shell: str, mark: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert mark in result.output
    assert "_DOCKBELL_COMPLETE" in result.output
