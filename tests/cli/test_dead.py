"""What becomes of dead letters, while no daemon runs."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dockbell.cli import dead, main
from tests.cli.filled import NO_DAEMON, Filled
from tests.stores.pages import OTHER
from tests.stores.standings import ATTEMPTS, block, kill, note_attempts, read, stand, write


def letters(filled: Filled) -> list[tuple[object, ...]]:
    return read(filled.store, "SELECT sink, sequence FROM dead_letters ORDER BY sink, feed, sequence")


@pytest.fixture
def letter(filled: Filled) -> Filled:
    """Return a store with dead letters, one of which holds its key back."""
    kill(filled.store, "erp", "b", 2)
    kill(filled.store, "erp", "a", 4)
    block(filled.store, "erp", "a", 4, held=True)
    kill(filled.store, "old", "c", 3, error="HTTP 500")
    return filled


def test_dead_letters_are_listed_also_of_sinks_that_have_left(letter: Filled) -> None:
    lines = letter.run("dead").splitlines()
    assert [line.split() for line in lines] == [
        ["sink", "feed", "key", "sequence", "type", "attempts", "died", "on", "hold", "error", "answer"],
        [*("erp", "main/shipments", "b", "2", "dockbell.shipment.created", "1"), *DIED, "-", "HTTP", "422", "-"],
        [*("erp", "main/shipments", "a", "4", "dockbell.shipment.updated", "1"), *DIED, "yes", "HTTP", "422", "-"],
        [*("old", "main/shipments", "c", "3", "dockbell.shipment.created", "1"), *DIED, "-", "HTTP", "500", "-"],
    ]
    assert letter.run("dead", "old").splitlines()[1:] == lines[3:]
    assert letter.run("dead", "list", "erp", "--key", "a").splitlines()[1] == lines[2]
    assert letter.run("dead", "--feed", "stock") == "no dead letters\n"
    reasons = letter.ask("status", code=1)["reasons"]
    assert 'sink erp: 2 dead letters, 1 of them holds back its key; "dockbell dead erp" lists them' in reasons


DIED = ("2026-11-21", "12:00:00Z")


def test_dead_letters_in_json_come_with_their_counts(letter: Filled) -> None:
    found = letter.ask("dead", "erp")
    assert (found["total"], len(found["letters"])) == (2, 2)
    assert found["groups"] == [
        {
            "sink": "erp",
            "feed": "main/shipments",
            "error": "HTTP 422",
            "letters": 2,
            "keys": 2,
            "first_at": "2026-11-21T12:00:00.000Z",
            "last_at": "2026-11-21T12:00:00.000Z",
        }
    ]
    assert found["letters"][1] == {
        "sink": "erp",
        "feed": "main/shipments",
        "key": "a",
        "sequence": 4,
        "type": "dockbell.shipment.updated",
        "attempts": 1,
        "died_at": "2026-11-21T12:00:00.000Z",
        "on_hold": True,
        "error": "HTTP 422",
        "answer": "",
    }


def test_many_dead_letters_are_counted_by_their_errors(filled: Filled) -> None:
    for number in range(dead._LISTED + 1):
        kill(filled.store, "erp", f"k{number % 5}", number, feed=OTHER, error="HTTP 422" if number else "too large")
    lines = filled.run("dead").splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["erp", "main/stock", str(dead._LISTED), "5", *DIED, *DIED, "HTTP", "422"],
        ["erp", "main/stock", "1", "1", *DIED, *DIED, "too", "large"],
    ]
    assert lines[3:] == [
        "",
        f"{dead._LISTED + 1} dead letters in total; narrow down with SINK, --feed, --key or --sequence to list them",
    ]


def test_a_dead_letter_is_shown_with_its_event_as_it_is_stored(letter: Filled) -> None:
    told = letter.run("dead", "show", "erp", "shipments", "4")
    head, _, body = told.partition("\n\n")
    assert "error     HTTP 422" in head.splitlines()
    ((stored,),) = read(letter.store, "SELECT body FROM events WHERE sequence = 4")
    assert json.loads(body) == json.loads(str(stored, "utf-8"))  # type: ignore[call-overload]
    shown = letter.ask("dead", "show", "erp", "main/shipments", "4")
    assert (shown["event"], shown["error"], shown["on_hold"]) == (json.loads(body), "HTTP 422", True)


def test_a_dead_letter_tells_what_the_receiver_has_answered_to_each_attempt(letter: Filled) -> None:
    write(letter.store, "UPDATE dead_letters SET answer = 'no such order'")
    note_attempts(letter.store, 4)
    lines = letter.run("dead", "show", "erp", "shipments", "4").splitlines()
    assert "answer    no such order" in lines
    table = lines[lines.index("attempts") + 1 :]
    assert tuple(table[:3]) == ATTEMPTS
    assert [each["number"] for each in letter.ask("dead", "show", "erp", "shipments", "4")["attempt_log"]] == [1, 2]
    assert letter.run("dead", "erp", "--key", "a").splitlines()[1].endswith("HTTP 422  no such order")


def test_a_dead_letter_that_would_be_held_back_now_says_by_what(letter: Filled) -> None:
    config = letter.folder / "dockbell.toml"
    where = 'where = "after.weight == 1 && after.number > 90"\n'
    config.write_text(
        config.read_text().replace('[sinks.erp]\ntype = "stdout"\n', f'[sinks.erp]\ntype = "stdout"\n{where}')
    )
    assert letter.ask("dead", "show", "erp", "shipments", "4")["filtered"] == "where: after.number > 90 does not hold"
    assert "filtered  where: after.number > 90 does not hold" in letter.run("dead", "show", "erp", "shipments", "4")


def test_a_dead_letter_without_its_event_is_shown_as_such(filled: Filled) -> None:
    kill(filled.store, "erp", "z", 9)
    assert filled.run("dead", "show", "erp", "shipments", "9").endswith("\ndockbell no longer keeps its event\n")
    assert filled.ask("dead", "show", "erp", "shipments", "9")["event"] is None
    stand(filled.store, "erp", 9, origin=9)
    told = filled.run("dead", "show", "erp", "shipments", "9")
    assert "type      dockbell.shipment.snapshot" in told.splitlines()
    assert told.endswith("\nno recorded event: dockbell sends the record as it is stored\n")


def test_dead_letters_are_sent_again_and_records_on_hold_go_on(letter: Filled) -> None:
    assert letter.run("dead", "retry", "erp", "--all").splitlines() == [
        "1 record on hold will continue, starting with the dead letter",
        "queued 1 dead letter for replay; 1 replay waiting",
        NO_DAEMON,
    ]
    assert letter.waiting() == [2]
    assert letters(letter) == [("old", 3)]
    assert read(letter.store, "SELECT sequence, attempts, held FROM blocked") == [(4, 0, 0)]
    assert letter.ask("dead", "retry", "erp", "--key", "b") == {
        "sink": "erp",
        "entered": 0,
        "released": 0,
        "missing": 0,
        "filtered": 0,
        "replays": 1,
        "problems": [],
    }


def test_one_dead_letter_is_sent_again(letter: Filled) -> None:
    assert letter.ask("dead", "retry", "erp", "--feed", "shipments", "--sequence", "2")["entered"] == 1
    assert letters(letter) == [("erp", 4), ("old", 3)]


def test_what_cannot_be_sent_again_is_a_problem(filled: Filled) -> None:
    kill(filled.store, "erp", "z", 9)
    lines = filled.run("dead", "retry", "erp", "--all", code=1).splitlines()
    assert lines[-1] == "! 1 dead letter not sent: no longer kept; discard them"
    assert filled.ask("dead", "retry", "erp", "--all", code=1)["missing"] == 1


def test_dead_letters_are_discarded_and_records_on_hold_go_on_behind_them(letter: Filled) -> None:
    assert letter.run("dead", "discard", "erp", "--all").splitlines() == [
        "discarded 2 dead letters",
        "1 record on hold will continue with the next event",
    ]
    assert read(letter.store, "SELECT sequence, attempts, held FROM blocked") == [(5, 0, 0)]
    assert letter.ask("dead", "discard", "old", "--key", "c") == {"sink": "old", "discarded": 1, "released": 0}
    assert letter.run("dead") == "no dead letters\n"
    assert letter.waiting() == []


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("retry", "erp"), "select dead letters with --feed, --key or --sequence, or pass only --all"),
        (("discard", "erp", "--all", "--key", "a"), "select dead letters with --feed, --key or --sequence, or"),
        (("retry", "old", "--all"), "sink old is no longer configured; you can only discard its dead letters"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(letter: Filled, args: tuple[str, ...], told: str) -> None:
    assert letter.misuse("dead", *args).startswith(f"Error: {told}")
    assert len(letters(letter)) == 3


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("epr",), 'no sink "epr"; did you mean "erp"?'),
        (("discard", "zebra", "--all"), 'no sink "zebra"; available: erp, floor, old'),
        (("show", "erp", "shipments", "3"), 'sink erp has no dead letter main/shipments #3; "dockbell dead erp" lists'),
        (("show", "erp", "stok", "3"), 'feed "stok" is not configured; did you mean "stock"?'),
    ],
)
def test_what_does_not_exist_is_a_problem(letter: Filled, args: tuple[str, ...], told: str) -> None:
    assert letter.misuse("dead", *args, code=1).startswith(f"error: {told}")
    assert len(letters(letter)) == 3


def test_the_help_names_the_commands_and_the_options_of_the_list() -> None:
    told = CliRunner().invoke(main, ["dead", "--help"]).output
    assert "retry    Send dead letters to their sink again." in told
    assert "--feed FEED" in told
    assert "dockbell dead retry erp --all" in CliRunner().invoke(main, ["dead", "retry", "--help"]).output
