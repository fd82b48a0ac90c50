from __future__ import annotations

import signal
import socket
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner

from dockbell.cli import main
from dockbell.cli.sandbox import sandbox_options
from dockbell.sandbox import SandboxOptions
from tests.cli.programs import run, started


def options_of(*args: str) -> SandboxOptions:
    """Return the options that a command line comes to."""
    taken: dict[str, Any] = {}

    @click.command()
    @sandbox_options
    def take(**chosen: Any) -> None:
        taken.update(chosen)

    result = CliRunner().invoke(take, args, standalone_mode=False)
    assert result.exception is None
    return SandboxOptions(**taken)


def test_every_option_has_the_default_and_the_words_of_its_field() -> None:
    assert options_of() == SandboxOptions()
    output = "".join(CliRunner().invoke(main, ["sandbox", "--help"]).output.split())
    for field in fields(SandboxOptions):
        assert "".join(field.metadata["help"].split()) in output


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("--records", "70", "--stock", "5"), SandboxOptions(records=70, stock=5)),
        (("--activity", "2.5", "--end-of-list", "absent"), SandboxOptions(activity=2.5, end_of_list="absent")),
        (("--api-key", "a", "--api-key", "b"), SandboxOptions(api_keys=("a", "b"))),
        (
            ("--timestamp-field", "changed", "--envelope", "data"),
            SandboxOptions(timestamp_field="changed", envelope="data"),
        ),
        (("--gzip", "--fault-most", "3"), SandboxOptions(gzip=True, fault_most=3)),
        (("--refuse-with", "401", "--date-skew", "-2.5"), SandboxOptions(refuse_with=401, date_skew=-2.5)),
    ],
)
def test_an_option_reaches_its_field(args: tuple[str, ...], options: SandboxOptions) -> None:
    assert options_of(*args) == options


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--cursors", "random"), "'random' is not one of 'keyset', 'offset', 'page'"),
        (("--records", "many"), "'many' is not a valid integer"),
        (("--port", "70000"), "70000 is not in the range"),
        (("--error-rate", "2"), "error: sandbox: error_rate must be between 0 and 1, got 2.0"),
    ],
)
def test_a_value_that_cannot_be_used_is_wrong_usage(args: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(main, ["sandbox", *args])
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "sandbox", "--port", "0", "--records", "60", "--api-key", "a-key") as program:
        curl = program.until('curl -H "(.*): (.*)" "(.*)"\n')
        answer = httpx.get(curl[3], headers={curl[1]: curl[2]}, trust_env=False)
        assert len(answer.json()["shipments"]) == 2
        assert "60 records, 0 changes a second\nAPI key: a-key\n" in program.out
        assert program.end(number) == 0
        assert program.err == ""


def test_a_port_in_use_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = run("sandbox", "--port", str(port))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: sandbox: cannot listen on 127.0.0.1:{port}, address already in use; choose another --port\n"
    )


def test_a_long_beginning_is_announced(tmp_path: Path) -> None:
    with started(tmp_path, "sandbox", "--port", "0", "--records", "50000") as program:
        program.until("creating 50000 records ...\n")


def test_a_port_in_use_is_said_before_records_are_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        args = ("--port", str(server.getsockname()[1]), "--records", "50000")
        assert "making" not in run("sandbox", *args).stderr
