"""A record whose content an operator has erased, and what ``dockbell why`` says of what seldom happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from dockbell.admin.why import RecordHistory, SinkTrace, Stage
from dockbell.cli import main
from dockbell.cli.deliveries import tell_delivery
from dockbell.cli.records import _run_rows, _tell_record
from dockbell.core.model import Feed, RunKind
from dockbell.ports import Quarantined, RunRecord, StoredRecord
from tests.cli.filled import Filled
from tests.stores.standings import read, write

CANARY = b'"number": 3, "weight": 1'  # of the last event of a


def is_found(filled: Filled) -> bool:
    return any(CANARY in path.read_bytes() for path in filled.folder.glob("dockbell.db*"))


def test_a_record_that_is_still_there_is_left_alone_unless_that_does_not_matter(filled: Filled) -> None:
    assert is_found(filled)
    refused = filled.ask("purge", "shipments", "a", code=1)
    assert refused["outcome"] == "failed"
    assert refused["detail"].startswith("the record still exists, so the next pass would store it again")
    assert is_found(filled)
    assert filled.run("purge", "shipments", "a", "--anyway", "--yes") == (
        "main/shipments a: erased, 2 kept events emptied, subscribers get a last event\n"
    )
    assert not is_found(filled)
    told = filled.ask("why", "shipments", "a")
    assert (told["presence"], told["record"]["purged"], told["record"]["revision"]) == ("gone", True, 3)
    assert told["why"].startswith("an operator purged its content at ")
    assert filled.ask("purge", "main/shipments", "a", "--yes") == {
        "feed": "main/shipments",
        "key": "a",
        "outcome": "complete",
        "emptied": 0,
        "published": 0,
        "detail": "",
    }


def test_a_key_is_understood_as_the_api_writes_it(filled: Filled) -> None:
    assert filled.ask("purge", "shipments", "x/1", "--anyway", "--yes")["key"] == "x%2F1"


def test_a_feed_may_have_left_the_configuration(filled: Filled) -> None:
    config = filled.folder / "dockbell.toml"
    config.write_text(config.read_text().replace("shipments = {}\n", ""))
    assert filled.ask("purge", "shipments", "a", "--anyway", "--yes")["emptied"] == 2


def test_what_is_only_left_in_events_or_quarantine_is_erased_too(filled: Filled) -> None:
    write(filled.store, "DELETE FROM bodies WHERE (feed, row) IN (SELECT feed, row FROM records WHERE key = 'a')")
    write(filled.store, "DELETE FROM records WHERE key = 'a'")
    assert filled.ask("purge", "shipments", "a", "--yes") == {
        "feed": "main/shipments",
        "key": "a",
        "outcome": "complete",
        "emptied": 2,
        "published": 0,
        "detail": "",
    }
    write(
        filled.store,
        "INSERT INTO quarantine (feed, digest, key, problem, body, first_at, last_at)"
        " VALUES (1, x'00', 'q', '', ?, 1, 1)",
        CANARY,
    )
    assert filled.ask("purge", "shipments", "q", "--yes")["outcome"] == "complete"
    assert read(filled.store, "SELECT * FROM quarantine") == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_on_a_terminal_it_asks(filled: Filled, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr("dockbell.cli.records._is_asked", lambda: True)
    args = ["purge", "shipments", "a", "--anyway", "--config", str(filled.folder / "dockbell.toml")]
    result = CliRunner().invoke(main, args, input=answer)
    assert result.exit_code == code
    assert "permanently erase all content of main/shipments a? [y/N]" in result.stderr
    assert is_found(filled) is (code == 1)
    assert CliRunner().invoke(main, [*args, "--yes"]).exit_code == 0
    assert not is_found(filled)


def test_where_nobody_can_be_asked_it_erases_only_what_it_is_told_to(filled: Filled) -> None:
    told = "Error: purge erases permanently and cannot ask for confirmation without a terminal; add --yes"
    assert filled.misuse("purge", "shipments", "a", "--anyway") == told
    assert is_found(filled)
    filled.run("purge", "shipments", "a", "--anyway", "--yes")
    assert not is_found(filled)


def test_what_was_never_stored_cannot_be_erased(filled: Filled) -> None:
    assert filled.ask("purge", "shipments", "zebra", code=1)["detail"] == "not in the store"
    args = ["purge", "shipments", "zebra", "--config", str(filled.folder / "dockbell.toml")]
    assert CliRunner().invoke(main, args).stderr == "main/shipments zebra: not in the store\n"


@pytest.mark.parametrize("command", ["purge", "why", "state"])
def test_a_feed_that_does_not_exist_is_a_problem_and_a_key_that_cannot_be_is_wrong_usage(
    filled: Filled, command: str
) -> None:
    told = 'error: feed "shipmets" is not configured; did you mean "shipments"?'
    assert filled.misuse(command, "shipmets", "a", code=1) == told
    assert filled.misuse(command, "shipments", "") == "Error: a key must not be empty"


def test_a_record_that_dockbell_knows_nothing_of_is_explained_and_is_a_problem(filled: Filled) -> None:
    lines = filled.run("why", "shipments", "zebra", code=1).splitlines()
    assert lines[0] == "main/shipments zebra: unknown"
    assert lines[-1].startswith("why: no run has seen it")
    assert filled.ask("why", "shipments", "zebra", code=1)["record"] is None
    assert filled.run("why", "shipments", "a")


def test_traces_that_may_be_left_are_a_problem(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> str:
        return "the disk is full"

    monkeypatch.setattr("dockbell.stores.handles.upkeep.SqlPrivacy.wipe", fail)
    told = filled.ask("purge", "shipments", "a", "--anyway", "--yes", code=1)
    assert (told["outcome"], told["detail"]) == (
        "incomplete",
        "2 emptied, 1 published, but the disk is full; purge it again",
    )


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SOON = NOON + timedelta(seconds=1)
ACCOUNT = RecordHistory(NOON, Feed("main", "stock"), "a", None)
RECORD = StoredRecord("a", None, bytes(range(16)), 2)


@pytest.mark.parametrize(
    ("account", "told"),
    [
        (ACCOUNT, "unknown"),
        (
            replace(ACCOUNT, record=replace(RECORD, held_at=NOON)),
            (
                "present, revision 2, modified at an unknown time, fingerprint 00010203,"
                " a reading held since 2026-11-21 12:00:00Z"
            ),
        ),
        (
            replace(ACCOUNT, record=replace(RECORD, gone_at=NOON, modified=NOON)),
            "gone, since 2026-11-21 12:00:00Z, revision 2, modified 2026-11-21 12:00:00Z, fingerprint 00010203",
        ),
        (
            replace(ACCOUNT, record=replace(RECORD, gone_at=NOON, modified=NOON, fingerprint=bytes(16))),
            "gone, since 2026-11-21 12:00:00Z, revision 2, modified 2026-11-21 12:00:00Z, purged",
        ),
        (
            replace(ACCOUNT, quarantined=(Quarantined("a", "key a: stands twice", NOON, NOON),)),
            "unknown, in quarantine",
        ),
    ],
)
def test_a_record_is_told_on_one_line(account: RecordHistory, told: str) -> None:
    assert _tell_record(account) == told


@pytest.mark.parametrize(
    ("transit", "told"),
    [
        (SinkTrace("erp", Stage.OWED), "owed"),
        (
            SinkTrace("erp", Stage.BLOCKED, 3, "HTTP 503", NOON),
            "blocked after 3 attempts: HTTP 503, next attempt is due",
        ),
        (SinkTrace("erp", Stage.BLOCKED, 1, "", SOON), "blocked after 1 attempt, next at 2026-11-21 12:00:01Z"),
        (SinkTrace("erp", Stage.DEAD, 9, "HTTP 400", NOON), "dead after 9 attempts: HTTP 400"),
    ],
)
def test_the_way_of_an_event_to_a_sink_is_told_in_words(transit: SinkTrace, told: str) -> None:
    assert tell_delivery(transit, NOON) == told


def test_runs_that_ended_alike_share_a_line() -> None:
    run = RunRecord(RunKind.PASS, NOON, None, NOON, pages=2, records=7, events=1)
    poll = replace(run, kind=RunKind.POLL, since=NOON, problem="HTTP 500")
    assert _run_rows([run, poll, poll, replace(poll, problem="HTTP 404"), poll]) == [
        ("2026-11-21 12:00:00Z", "pass", "complete, 2 pages, 7 records, 1 event"),
        ("2026-11-21 12:00:00Z to 2026-11-21 12:00:00Z", "2 polls", "incomplete, HTTP 500"),
        ("2026-11-21 12:00:00Z", "poll", "incomplete, HTTP 404"),
        ("2026-11-21 12:00:00Z", "poll", "incomplete, HTTP 500"),
    ]
    assert _run_rows([]) == []
