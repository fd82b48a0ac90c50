"""The stored records, as a pipe gets them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from click.testing import CliRunner, Result

from dockbell.cli import main
from tests.cli.filled import Filled
from tests.cli.programs import Program, run, started
from tests.cli.terminal import on_terminal
from tests.stores.standings import write

INCOMPLETE: Final = "main/{}: the baseline is not complete yet; records may be missing\n"
_PATIENCE: Final = 30


def read(text: str) -> list[dict[str, Any]]:
    """Return what each line is."""
    return [json.loads(line) for line in text.splitlines()]


def state(filled: Filled, *args: str) -> Result:
    """Run the command in this process."""
    arguments = ["state", *args, "--config", str(filled.folder / "dockbell.toml")]
    return CliRunner(catch_exceptions=False).invoke(main, arguments)


def delete(filled: Filled, key: str) -> None:
    """Let a record have been deleted an hour after the beginning of 2026."""
    write(filled.store, "UPDATE records SET gone_at = 1767229200000000 WHERE key = ?", key)


def list_records(api: str, resource: str) -> Iterator[dict[str, Any]]:
    """Yield all records of a resource, as the API shows them."""
    params: dict[str, Any] = {"limit": 200}
    while params.get("cursor") is not None or len(params) == 1:
        page = httpx.get(f"{api}/v1/{resource}", params=params, headers={"Authorization": "Bearer sandbox"}).json()
        yield from page[resource]
        params["cursor"] = page["next_cursor"]


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Program]]:
    """Return a folder whose daemon has read all shipments of an API in which nothing moves; the API, the daemon."""
    folder = tmp_path_factory.mktemp("at-work")
    args = ("--port", "0", "--records", "2500", "--activity", "0", "--requests-per-minute", "0")
    with started(folder, "sandbox", *args) as sandbox:
        api = sandbox.until("http://[0-9.:]+")[0]
        source = f'[sources.main]\nbase_url = "{api}"\napi_key = "sandbox"\nrequests_per_minute = 6000\n'
        resources = "[resources.shipments]\ndrop = ['/ship_to/name']\n[resources.warehouses]\n"
        (folder / "dockbell.toml").write_text(f'{source}{resources}[sinks.out]\ntype = "stdout"\n')
        with started(folder, "run") as daemon:
            end = time.monotonic() + _PATIENCE
            while run("state", cwd=folder).stderr:
                assert time.monotonic() < end, daemon.err
            yield folder, api, daemon


def test_beside_a_daemon_every_record_is_printed_as_the_api_shows_it(at_work: tuple[Path, str, Program]) -> None:
    folder, api, daemon = at_work
    result = run("state", "shipments", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    printed = {line["key"]: line for line in read(result.stdout)}
    shown = {record["id"]: record for record in list_records(api, "shipments")}
    assert len(shown) == len(result.stdout.splitlines()) > 400
    for record in shown.values():
        del record["ship_to"]["name"]  # dropped
    assert {key: line["record"] for key, line in printed.items()} == shown
    members = ["feed", "key", "revision", "modified", "fingerprint", "gone_at", "record"]
    assert all(list(line) == members and line["feed"] == "main/shipments" for line in printed.values())
    assert {line["feed"] for line in read(run("state", cwd=folder).stdout)} == {"main/shipments", "main/warehouses"}
    assert "ERROR" not in daemon.err


def test_one_record_is_told_as_why_tells_it(at_work: tuple[Path, str, Program]) -> None:
    folder, _, _ = at_work
    first = run("state", "shipments", cwd=folder).stdout.splitlines()[0]
    key = json.loads(first)["key"]
    assert run("state", "main/shipments", key, cwd=folder).stdout == f"{first}\n"
    history = json.loads(run("why", "shipments", key, "--json", cwd=folder).stdout)
    told = {name: json.loads(first)[name] for name in ("revision", "modified", "fingerprint", "gone_at")}
    assert {name: history["record"][name] for name in told} == told


def test_a_closed_pipe_ends_it_without_a_word(at_work: tuple[Path, str, Program]) -> None:
    command = f"{sys.executable} -m dockbell state | head -n 1"
    result = subprocess.run(["bash", "-c", command], cwd=at_work[0], capture_output=True, text=True, check=True)
    assert (len(read(result.stdout)), result.stderr) == (1, "")


def test_what_is_there_is_printed_and_what_was_deleted_only_when_it_is_asked_for(filled: Filled) -> None:
    delete(filled, "a")
    result = state(filled, "shipments")
    assert (result.exit_code, result.stderr) == (0, INCOMPLETE.format("shipments"))
    assert [line["key"] for line in read(result.stdout)] == ["b", "c", "x%2F1"]
    first, *others = read(state(filled, "shipments", "--deleted").stdout)
    assert len(others) == 3
    assert (first["key"], first["gone_at"]) == ("a", "2026-01-01T01:00:00.000Z")
    assert first["record"] == {"id": "a", "number": 3, "weight": 1}


def test_records_are_found_by_a_text_of_them(filled: Filled) -> None:
    (line,) = read(state(filled, "shipments", "--find", "X%2f").stdout)
    assert line["key"] == "x%2F1"
    by_value = read(state(filled, "shipments", "--find", "3").stdout)
    assert "a" in [each["key"] for each in by_value]
    assert read(state(filled, "shipments", "--find", "number").stdout) == []


def test_all_feeds_are_printed_also_those_that_have_left_the_configuration(filled: Filled) -> None:
    config = filled.folder / "dockbell.toml"
    config.write_text(config.read_text().replace("shipments = {}\n", "items = {}\n"))
    result = state(filled)
    assert (result.exit_code, len(read(result.stdout))) == (0, 4)
    assert sorted(result.stderr.splitlines(keepends=True)) == [
        INCOMPLETE.format(resource) for resource in ("items", "shipments", "stock")
    ]


@pytest.mark.parametrize(("given", "key"), [("x/1", "x%2F1"), ("x%2F1", "x%2F1"), ("c", "c")])
def test_a_key_is_written_as_in_events_or_as_the_api_writes_it(filled: Filled, given: str, key: str) -> None:
    (line,) = read(filled.run("state", "shipments", given))
    assert (line["key"], line["revision"]) == (key, 1)


def test_a_key_of_which_there_is_nothing_is_a_problem(filled: Filled) -> None:
    told = state(filled, "shipments", "zebra")
    words = 'not in the store; "dockbell why main/shipments zebra" may explain why'
    assert (told.exit_code, told.stdout, told.stderr) == (1, "", f"main/shipments zebra: {words}\n")
    write(filled.store, "DELETE FROM feeds WHERE resource = 'stock'")
    assert state(filled, "stock", "a").exit_code == 1


def test_a_record_that_is_deleted_is_a_problem_unless_it_is_asked_for(filled: Filled) -> None:
    delete(filled, "a")
    told = state(filled, "shipments", "a")
    words = "deleted at 2026-01-01 01:00:00Z; --deleted prints what is left"
    assert (told.exit_code, told.stdout, told.stderr) == (1, "", f"main/shipments a: {words}\n")
    assert read(filled.run("state", "shipments", "a", "--deleted"))[0]["record"]["number"] == 3


def test_nothing_is_left_of_a_record_that_was_purged(filled: Filled) -> None:
    filled.run("purge", "shipments", "a", "--anyway", "--yes")
    (line,) = read(filled.run("state", "shipments", "a", "--deleted"))
    assert (line["record"], line["fingerprint"], line["revision"]) == (None, None, 3)
    assert line["gone_at"] is not None


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("shipments", "a", "--find", "x"), "KEY selects one record; remove --find"),
        (("notices", "a"), "dockbell/notices has no records"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(filled: Filled, args: tuple[str, ...], told: str) -> None:
    write(filled.store, "INSERT INTO feeds (source, resource) VALUES ('dockbell', 'notices')")
    assert filled.misuse("state", *args) == f"Error: {told}"


def test_a_resource_of_several_sources_is_named_with_its_source(filled: Filled) -> None:
    write(filled.store, "INSERT INTO feeds (source, resource) VALUES ('old', 'shipments')")
    told = '"shipments" is read from several sources; name one of main/shipments, old/shipments'
    assert filled.misuse("state", "shipments", "a") == f"Error: {told}"
    assert len(read(state(filled, "main/shipments").stdout)) == 4


def test_without_a_store_the_error_says_so(configure: Callable[..., Path]) -> None:
    told = run("state", cwd=configure("http://127.0.0.1:9"))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("error: ")


def test_a_record_that_was_written_on_several_lines_is_printed_on_one_with_each_digit(filled: Filled) -> None:
    text = b'{\r\n  "id": "a",\n  "n": 1.500e2,\n  "big": 123456789012345678901234567890, "s": "a\\n b"\n}'
    write(filled.store, "UPDATE bodies SET body = ? WHERE row = 1 AND feed = 1", text)
    printed = filled.run("state", "shipments", "a")
    assert printed.endswith('"record":{"id":"a","n":1.500e2,"big":123456789012345678901234567890,"s":"a\\n b"}}\n')


def test_a_terminal_gets_nothing_that_it_would_obey(filled: Filled) -> None:
    write(filled.store, "UPDATE bodies SET body = ? WHERE row = 1", '{"id": "a", "s": "\x9b2J"}'.encode())
    with on_terminal(filled.folder, "state", "shipments", "a") as terminal:
        terminal.until(r'"s":"\\u009b2J"')
        assert terminal.finish() == 0
