from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from dockbell.cli.group import LazyGroup
from dockbell.errors import ConfigError, DockbellError, StoreInUse

ERRORS = {
    "config": ConfigError("[store] url: wrong", "[sinks.x] type: missing"),
    "store": StoreInUse("store a.db: held by process 7"),
    "nested": ExceptionGroup("", [ExceptionGroup("", [StoreInUse("store a.db: held")])]),
    "both": ExceptionGroup("", [DockbellError("one"), ConfigError("two")]),
    "interrupted": KeyboardInterrupt(),
    "bug": ZeroDivisionError(),
}


@click.command()
@click.argument("error")
@click.option("--json", "as_json", is_flag=True)
def fail(error: str, as_json: bool) -> None:
    """End so."""
    raise ERRORS[error]


@click.group(cls=LazyGroup, sections={"All": {"fail": (__name__, "End so.")}})
def group() -> None:
    """Hold one command."""


@pytest.mark.parametrize(
    ("error", "exit_code", "told"),
    [
        ("config", 2, "error: [store] url: wrong\nerror: [sinks.x] type: missing\n"),
        ("store", 1, "error: store a.db: held by process 7\n"),
        ("nested", 1, "error: store a.db: held\n"),
        ("both", 2, "error: one\nerror: two\n"),
        ("interrupted", 130, ""),
    ],
)
def test_an_error_is_told_without_a_traceback(error: str, exit_code: int, told: str) -> None:
    result = CliRunner().invoke(group, ["fail", error])
    assert (result.exit_code, result.stdout, result.stderr) == (exit_code, "", told)


def test_an_error_that_nobody_foresaw_keeps_its_traceback() -> None:
    result = CliRunner().invoke(group, ["fail", "bug"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_with_json_an_error_is_an_object_on_standard_output() -> None:
    result = CliRunner().invoke(group, ["fail", "both", "--json"])
    assert (result.exit_code, result.stderr) == (2, "")
    assert json.loads(result.stdout) == {"error": "one\ntwo", "exit_code": 2}


def test_with_json_wrong_usage_is_one_too() -> None:
    result = CliRunner().invoke(group, ["fail", "--json"])
    assert (result.exit_code, result.stderr) == (2, "")
    assert json.loads(result.stdout) == {"error": "Missing argument 'ERROR'.", "exit_code": 2}
