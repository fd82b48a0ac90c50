from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from itertools import pairwise

import click
import pytest
from rich.cells import cell_len

from dockbell.cli.printing import format_event, print_json, print_lines, print_raw, print_reasons, print_table
from dockbell.core.diff import diff
from dockbell.core.model import Event, Feed

HEADINGS = ("what", "count", "detail")
ROWS = (
    ("[sinks.erp]", 3, "connection to a very long host name refused; " * 3),
    ("main/stock", 12, "ok"),
    ("main/items", None, ""),
)


def test_a_table_in_a_pipe_is_plain_with_one_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADINGS, ROWS)
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == list(HEADINGS)
    assert [line.split(maxsplit=2) for line in lines] == [
        ["[sinks.erp]", "3", ROWS[0][2].strip()],
        ["main/stock", "12", "ok"],
        ["main/items", "-", "-"],
    ]
    assert not any("\x1b" in line or line != line.rstrip() for line in (heading, *lines))


def test_numbers_stand_below_each_other_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADINGS, ROWS)
    ends = [
        line.index(number) + len(number)
        for line, number in zip(capsys.readouterr().out.splitlines()[1:3], ("3", "12"), strict=True)
    ]
    assert all(one == other for one, other in pairwise(ends))


def test_a_table_on_a_terminal_wraps_and_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    print_table(HEADINGS, ROWS, err=True)
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("connection") == 3
    assert "…" not in "".join(lines)


def test_a_table_without_rows_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADINGS, ())
    assert capsys.readouterr().out.split() == list(HEADINGS)


def test_times_in_json_are_written_as_in_events(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": datetime(2026, 11, 21, 12, tzinfo=UTC), "feed": Feed("main", "items"), "to": "Köln"})
    assert json.loads(capsys.readouterr().out) == {"at": "2026-11-21T12:00:00.000Z", "feed": "main/items", "to": "Köln"}


def event(before: dict[str, object], after: dict[str, object]) -> Event:
    data = {"id": "shp_1", "change": "updated", "before": before, "after": after, "patch": diff(before, after)}
    body = json.dumps({"time": "2026-11-21T12:00:00.000Z", "data": data}).encode()
    return Event(Feed("main", "shipments"), 1, "shp_1", "evt_1", "dockbell.shipment.updated", "updated", 1, body)


def test_an_event_is_one_line_of_time_type_key_and_change() -> None:
    line = click.unstyle(
        format_event(event({"status": "packed"}, {"status": "shipped"}), width=None, with_source=False)
    )
    time = datetime(2026, 11, 21, 12, tzinfo=UTC).astimezone()
    assert line == f"{time:%m-%d %H:%M:%S} shipment.updated shp_1    status: packed → shipped"


def test_an_event_tells_its_source_where_there_are_several() -> None:
    line = format_event(event({"n": 1}, {"n": 2}), width=None, with_source=True)
    assert line.endswith(" main/shp_1 n: 1 → 2")


@pytest.mark.parametrize(("with_source", "where"), [(False, "shipments"), (True, "main/shipments")])
def test_a_statement_tells_its_resource_where_others_tell_their_key(*, with_source: bool, where: str) -> None:
    data = {"statement": "rebaselined", "parts": ["query"]}
    body = json.dumps({"time": "2026-11-21T12:00:00.000Z", "data": data}).encode()
    statement = Event(Feed("main", "shipments"), 1, "", "evt_1", "dockbell.feed.rebaselined", "rebaselined", 0, body)
    line = click.unstyle(format_event(statement, width=None, with_source=with_source))
    assert line[15:] == f"feed.rebaselined {where} read settings changed: query"


def test_an_event_fits_a_terminal() -> None:
    many = event({f"f{i}": i for i in range(40)}, {f"f{i}": i + 1 for i in range(40)})
    assert len(click.unstyle(format_event(many, width=80, with_source=False))) <= 80


HOSTILE = "a\x1b]0;title\x07b\x9b2Jc\u202ed\re\u2028f"
"""A new title for the terminal, an empty screen, a text that is shown backwards, two lines that look like others."""


def test_a_terminal_obeys_nothing_that_others_have_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(("key", "error"), [(HOSTILE, HOSTILE)])
    print_reasons([HOSTILE])
    print_lines(f"{HOSTILE}\nsecond")
    print_json({HOSTILE: HOSTILE})
    print_raw(json.dumps(HOSTILE, ensure_ascii=False).encode())
    hostile = dataclasses.replace(event({}, {"n": HOSTILE}), key="shp\u202e")
    click.echo(format_event(hostile, width=80, with_source=True))
    shown = click.unstyle(capsys.readouterr().out)
    assert shown.replace("\n", "").isprintable()
    assert len(shown.splitlines()) == 3 + 1 + 2 + 3 + 1 + 1


def test_a_pipe_gets_stored_json_to_the_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stored = json.dumps(HOSTILE, ensure_ascii=False).encode()
    print_raw(stored)
    assert capfdbinary.readouterr().out == stored + b"\n"
