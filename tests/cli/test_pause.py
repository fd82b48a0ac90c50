"""Sinks that an operator pauses and resumes, while no daemon runs."""

from __future__ import annotations

import re

import pytest

from tests.cli.filled import Filled
from tests.stores.standings import block, stand


def test_a_sink_is_paused_until_it_is_resumed_and_status_says_why(filled: Filled) -> None:
    stand(filled.store, "erp", 4)
    assert filled.run("pause", "erp", "--reason", "moving house") == (
        'sink erp is paused; its events wait for "dockbell resume erp"\n'
    )
    status = filled.ask("status", code=1)
    (reason,) = [reason for reason in status["reasons"] if reason.startswith("sink")]
    assert re.fullmatch(
        r'sink erp: paused [0-3]s ago, 2 events owed: moving house; "dockbell resume erp" lets it go on', reason
    )
    assert status["sinks"][0]["paused"] == "moving house"
    again = filled.run("pause", "erp")
    assert re.fullmatch(r"sink erp is paused already, since \S+ \S+Z: moving house\n", again)
    assert filled.run("resume", "erp").splitlines() == [
        "sink erp goes on; 2 events are owed",
        'no daemon runs: they will be sent when one does, "dockbell run"',
    ]
    told = 'sink erp is not paused; "dockbell retry erp" sends at once what waits for its next attempt\n'
    assert filled.run("resume", "erp") == told
    assert filled.ask("status", code=1)["sinks"][0]["paused"] is None


def test_json_tells_whether_anything_changed(filled: Filled) -> None:
    paused = filled.ask("pause", "floor")  # which has not begun yet
    assert (paused["sink"], paused["paused"], paused["changed"]) == ("floor", "by an operator", True)
    assert filled.ask("pause", "floor", "--reason", "other") == paused | {"changed": False}
    assert filled.ask("resume", "floor") == {"sink": "floor", "changed": True, "owed": 0, "daemon": None}
    assert filled.ask("resume", "floor")["changed"] is False


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("pause", "epr"), 'no sink "epr"; did you mean "erp"?'),
        (("resume", "zebra"), 'no sink "zebra"; known are erp, floor'),
        (("pause", "erp", "--reason", " "), "--reason: must not be empty"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(filled: Filled, args: tuple[str, ...], told: str) -> None:
    assert filled.misuse(*args) == f"Error: {told}"


def test_what_waits_for_its_next_attempt_is_sent_at_once_by_retry(filled: Filled) -> None:
    block(filled.store, "erp", "b", 5)
    lines = filled.run("retry", "erp").splitlines()
    assert lines == [
        "sink erp: 1 records and 0 replays that waited are due now",
        'no daemon runs: they will be sent when one does, "dockbell run"',
    ]
    assert filled.ask("retry", "erp") == {"sink": "erp", "keys": 1, "replays": 0, "paused": None, "daemon": None}
