from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from dockbell.demo.account import Balance
from dockbell.demo.figures import Figures
from dockbell.demo.summary import is_clean, write_summary
from tests.demo.events import arrival


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
        "4 refused for their signature",
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
