from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from dockbell.demo import lines
from dockbell.demo.account import Balance
from dockbell.demo.arrival import Figures, Sighting
from dockbell.demo.lines import is_clean, write_summary
from tests.demo.events import arrival, at, statement

BOTH = ("mqtt", "hook")
PAGE = "http://127.0.0.1:8470/"


def sight(*sinks: str, is_late: bool = False, **data: Any) -> Sighting:
    return Sighting(arrival(**data).event, {sink: at(1) for sink in sinks}, is_late=is_late)


def write(sighting: Sighting, width: int, delay: float = 0.62) -> Text:
    return lines.EventLines(BOTH).event(sighting, delay, width)


def test_a_line_tells_where_an_event_arrived_what_it_is_and_how_long_it_took() -> None:
    words = write(sight(*BOTH), 100).plain.split()
    assert words[1:] == ["mqtt", "hook", "shipment.updated", "shp_1", "status:", "packed", "→", "shipped", "0.62s"]


def test_on_a_narrow_terminal_a_sign_stands_for_the_change() -> None:
    assert write(sight(*BOTH), 80).plain.split()[3:5] == ["~shipment", "shp_1"]
    signs = {write(sight(*BOTH, change=change), 80).plain.split()[3] for change in lines.SIGNS}
    assert signs == {"+shipment", "~shipment", "-shipment", "*shipment"}


@pytest.mark.parametrize("width", [60, 80, 99, 100, 120, 200])
@pytest.mark.parametrize(
    "sighting",
    [
        sight(*BOTH),
        sight("mqtt"),
        sight("hook", is_late=True),
        sight(*BOTH, resource="warehouses", change="restored", key="whs_15", patch=None),
        sight(
            *BOTH,
            before={"name": "梱包"},
            after={"name": "出荷" * 40},
            patch=[{"op": "replace", "path": "/name", "value": "出荷" * 40}],
        ),
    ],
    ids=["both", "one", "late", "restored", "wide letters"],
)
def test_every_line_ends_at_the_right_edge(width: int, sighting: Sighting) -> None:
    assert write(sighting, width).cell_len == width
    assert write(sighting, width, delay=21.4).plain.endswith(" 21.4s")


@pytest.mark.parametrize("width", [60, 80, 99, 100, 120, 200])
def test_a_statement_stands_below_the_columns_of_events(width: int) -> None:
    writer = lines.EventLines(BOTH)
    said = writer.statement(statement("held", reason="deletions", count=14, since="2026-11-21T02:30:00.000Z"), width)
    assert said.cell_len <= width
    words = said.plain.split()
    assert words[1:5] == ["mqtt", "feed.held" if width >= 100 else "!feed", "stock", "deletions:"]
    event = writer.event(sight("mqtt"), 1, width).plain
    assert said.plain.index("stock") == event.index("shp_1")


def test_columns_keep_their_place_when_a_receiver_is_missing_and_when_keys_grow() -> None:
    writer = lines.EventLines(BOTH)
    texts = [writer.event(sight(*sinks, key="shp_100200"), 1, 120).plain for sinks in (BOTH, ("mqtt",), ("hook",))]
    assert len({text.index("shp_100200") for text in texts}) == 1
    assert texts[2][9:18] == "     hook"
    place = texts[0].index("status")
    assert writer.event(sight(*BOTH), 1, 120).plain.index("status") == place


def test_the_heading_stands_above_its_columns() -> None:
    writer = lines.EventLines(BOTH)
    for width in (80, 120):
        heading, line = writer.heading(width).plain, writer.event(sight(*BOTH), 1, width).plain
        assert heading.index("record") == line.index("shp_1")
        assert heading.index("what") == line.index("status")
        assert len(heading) == width


def test_the_header_fits_80_columns_after_a_long_time() -> None:
    figures = Figures(BOTH)
    figures.events["shipments", "updated"] = 123_456
    figures.events["shipments", "created"] = 12_345
    figures.events["shipments", "deleted"] = 2_345
    figures.records = {"shipments": 123_456}
    for second in range(300):
        figures.requests.add(second / 10, 200)
        figures.add_delay(second / 10, "shipments", 99.9, deletion=False)
        figures.add_measured(second / 10, 99.9)
    for sink in BOTH:
        figures.inboxes[sink].events = 123_456
    header = lines.header(figures, 30, 36_000, 300, 80, page_url=PAGE)
    assert max(line.cell_len for line in header) == 80
    assert f"600:00 ── {PAGE} ── Ctrl-C ends it ─" in header[0].plain
    assert "300 of 300" in header[1].plain
    assert header[3].plain == " delay    p50 99.9 s  p99 99.9 s  dockbell measures 99.9 s, 99.9 s"


def test_the_status_line_says_what_the_header_does() -> None:
    figures = Figures(BOTH)
    figures.requests.add(1, 200)
    figures.events["stock", "created"] = 2
    assert [line.plain for line in lines.status(figures, 2, 12.3, 300)] == [
        "-- 12 s: requests 1 of 300 in the last minute, refused 0; delay p50 -  watching 0 records",
        "-- 12 s: events 2: 2 created  0 updated  0 deleted  0 restored  mqtt 0  hook 0",
    ]


@pytest.mark.parametrize(("delay", "shown"), [(0.004, "0.00 s"), (9.94, "9.94 s"), (12.34, "12.3 s"), (123.4, "123 s")])
def test_delays_have_three_digits(delay: float, shown: str) -> None:
    assert lines.show_delay(delay) == shown


def test_problems_are_coloured_by_how_bad_they_are() -> None:
    levels = (logging.WARNING, logging.ERROR)
    assert [str(lines.note("x", at(0), level).spans[-1].style) for level in levels] == ["yellow", "red"]


def figures(*revisions: int) -> Figures:
    """Return what is counted when the subscriber got these revisions of one record, and the receiver the first."""
    counted = Figures(("mqtt", "hook"))
    for revision in revisions:
        counted.inboxes["mqtt"].take(arrival(revision=revision))
        counted.add_delay(0, "shipments", 0.5, deletion=False)
    counted.events["shipments", "updated"] = len(set(revisions))
    counted.inboxes["hook"].take(arrival("hook", revision=1))
    return counted


def read(counted: Figures, balance: Balance, kept: Path | None = None) -> str:
    console = Console(width=80, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        for part in write_summary(counted, balance, 60, 300, kept):
            console.print(part, soft_wrap=False)
    return capture.get()


def test_it_tells_what_every_receiver_got() -> None:
    text = read(figures(1, 2, 2), Balance(made=2, arrived=2))
    assert "mqtt 2, 1 repeated and known by their revision" in text
    assert "hook 1, every signature genuine, 1 not yet" in text
    assert "2 events arrived, 0 of them invented" in text


def test_it_tells_what_is_wrong() -> None:
    counted = figures(1, 3)
    counted.forged = 4
    counted.requests.add(0, 429)
    text = read(counted, Balance(made=9, arrived=2, lost=3, held=4, invented=5))
    for wanted in (
        "1 gaps",
        "4 refused because of their signature",
        "1 refused (429)",
        "+ 3 lost",
        "+ 4 held",
        "5 of them inv",
    ):
        assert wanted in text


def test_deletions_are_told_apart_and_nothing_is_told_of_nothing() -> None:
    counted = figures(1)
    assert "deletions" not in read(counted, Balance())
    counted.add_delay(0, "stock", 12.0, deletion=True)
    text = read(counted, Balance())
    assert "delay      mean 0.50 s" in text
    assert "deletions  mean 12.0 s" in text
    assert "delay      -" in read(Figures(("hook",)), Balance())


def test_it_names_what_is_kept() -> None:
    assert "dockbell status --config /look/dockbell.toml" in read(figures(1), Balance(), Path("/look"))


def test_no_line_is_longer_than_a_narrow_terminal() -> None:
    balance = Balance(made=123_456, arrived=120_000, overtaken=3_000, underway=400, held=56)
    assert max(map(len, read(figures(1, 2), balance).splitlines())) <= 80
    lines = read(figures(1, 2), balance).splitlines()
    assert sum(line.startswith("         +") for line in lines) == 4, "none is wrapped"


@pytest.mark.parametrize(
    ("balance", "clean"),
    [
        (Balance(made=3, arrived=1, overtaken=1, underway=1), True),
        (Balance(made=1, held=1), True),
        (Balance(made=1, lost=1), False),
        (Balance(invented=1), False),
    ],
)
def test_held_deletions_are_no_fault_and_lost_changes_are(balance: Balance, clean: bool) -> None:
    assert is_clean(figures(1), balance) is clean


def test_gaps_forgery_and_refused_requests_are_faults() -> None:
    assert not is_clean(figures(1, 3), Balance())
    forged = figures(1)
    forged.forged = 1
    assert not is_clean(forged, Balance())
    refused = figures(1)
    refused.requests.add(0, 429)
    assert not is_clean(refused, Balance())
