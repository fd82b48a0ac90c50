"""Kept events that an operator has sent again, while no daemon runs."""

from __future__ import annotations

import re

import pytest

from tests.cli.filled import NO_DAEMON, Filled
from tests.cli.terminal import on_terminal
from tests.stores.standings import kill, read, stand


def test_events_that_are_chosen_wait_to_be_sent_again(filled: Filled) -> None:
    assert filled.run("replay", "erp", "--key", "a").splitlines() == [
        "feed            chosen  waiting  owed  filtered",
        "main/shipments       2        0     0         0",
        "",
        "2 events are to be sent again; 2 wait to be sent to erp",
        "they go below live traffic, marked dockbell-replay: true, in no promised order",
        NO_DAEMON,
    ]
    assert filled.waiting() == [1, 4]
    found = filled.ask("replay", "erp", "--all")
    assert (found["chosen"], found["replays"], found["paused"], found["daemon"]) == (4, 6, None, None)
    assert found["feeds"] == [
        {"feed": "main/shipments", "chosen": 4, "waiting": 2, "owed": 0, "filtered": 0},
        {"feed": "main/stock", "chosen": 0, "waiting": 0, "owed": 0, "filtered": 0},
    ]
    sinks = filled.ask("status", code=1)["sinks"]
    assert [(sink["sink"], sink["replays"]) for sink in sinks] == [("erp", 6), ("floor", 0)]


def test_a_dry_run_counts_shows_the_first_and_writes_nothing(filled: Filled) -> None:
    lines = filled.run("replay", "erp", "--feed", "shipments", "--dry-run").splitlines()
    assert lines[1].split() == ["main/shipments", "6", "0", "0", "0"]
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d shipment.created +a +.*", lines[3])
    assert lines[8:] == ["and 1 more", "6 events would be sent again; nothing was written"]
    found = filled.ask("replay", "erp", "--feed", "shipments", "--sequence", "2-3", "--dry-run")
    assert (found["chosen"], found["dry_run"]) == (2, True)
    assert [(each["sequence"], each["key"]) for each in found["sample"]] == [(2, "b"), (3, "c")]
    assert filled.waiting() == []


def test_every_way_to_choose_events(filled: Filled) -> None:
    kill(filled.store, "erp", "b", 5)
    stand(filled.store, "erp", 6, origin=2)
    ids = read(filled.store, "SELECT id FROM events ORDER BY sequence")
    chosen = {
        ("--event", str(ids[2][0]), "--event", str(ids[0][0])): 2,
        ("--sequence", "5-", "--feed", "shipments"): 2,
        ("--key", "x/1"): 1,  # as the API writes it
        ("--since", "2026-11-21T12:00", "--until", "2026-11-21T12:00:01Z"): 6,
        ("--until", "2026-11-21T12:00"): 0,
        ("--since", "36500d"): 6,
        ("--failed",): 1,
        ("--never-sent",): 2,
        ("--failed", "--never-sent", "--key", "b"): 2,
    }
    assert {args: filled.ask("replay", "erp", "--dry-run", *args)["chosen"] for args in chosen} == chosen


def test_nothing_that_is_chosen_is_fine_but_what_is_not_there_is_a_problem(filled: Filled) -> None:
    assert filled.run("replay", "erp", "--failed") == "no kept event is chosen\n"
    lines = filled.run("replay", "erp", "--event", "evt_none", code=1).splitlines()
    assert lines[1:] == ["! event evt_none: is not among the kept events of these feeds"]
    found = filled.ask("replay", "erp", "--feed", "shipments", "--sequence", "6-9", code=1)
    assert (found["chosen"], found["problems"]) == (1, ["feed main/shipments: its last event is 6"])


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("epr", "--all"), 'no sink "epr"; did you mean "erp"?'),
        (("erp",), "choose events by at least one option, or all of them by --all alone"),
        (("erp", "--all", "--failed"), "choose events by at least one option, or all of them by --all alone"),
        (("erp", "--feed", "stok"), 'feed "stok" is not configured; did you mean "stock"?'),
        (("floor", "--feed", "shipments"), "sink floor takes nothing of main/shipments; see its sources and resources"),
        (("erp", "--sequence", "5"), "--sequence counts in one feed; name it by --feed"),
        (("erp", "--sequence", "x"), '--sequence: must be a sequence or a range such as "5-10", got "x"'),
        (("erp", "--key", ""), "--key: a key is never empty"),
        (("erp", "--since", "noon"), '--since: must be a time such as "2026-11-21T02:30" or "2h" for two hours ago,'),
        (("erp", "--cancel", "--failed"), "--cancel forgets all replays of the sink that wait; give nothing else"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(filled: Filled, args: tuple[str, ...], told: str) -> None:
    assert filled.misuse("replay", *args).startswith(f"Error: {told}")
    assert filled.waiting() == []


def test_what_keeps_the_events_from_being_sent_is_told(filled: Filled) -> None:
    filled.run("pause", "erp", "--reason", "moving house")
    assert filled.run("replay", "erp", "--key", "c").splitlines()[-2:] == [
        'sink erp is paused (moving house): they are sent after "dockbell resume erp"',
        NO_DAEMON,
    ]
    assert filled.ask("replay", "erp", "--key", "c")["paused"] == "moving house"


def test_replays_that_wait_can_be_forgotten(filled: Filled) -> None:
    filled.run("replay", "erp", "--all")
    assert filled.run("replay", "erp", "--cancel") == "6 replays are forgotten\n"
    assert filled.waiting() == []
    assert filled.ask("replay", "erp", "--cancel") == {"sink": "erp", "forgotten": 0}


def test_a_terminal_shows_how_far_it_is(filled: Filled) -> None:
    with on_terminal(filled.folder, "replay", "erp", "--all") as terminal:
        terminal.until("sink erp ━+ 6 of 6 events looked at, 6 chosen")
        terminal.until("6 events are to be sent again")
        assert terminal.finish() == 0
