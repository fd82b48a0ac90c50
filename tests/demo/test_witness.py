from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from dockbell.core.model import DELIVERED, Delivery, Event, Feed, Outcome, OutcomeKind, RunKind, Urgency
from dockbell.core.publishing.statement import HoldReason, held
from dockbell.demo.account import Balance
from dockbell.demo.lines import Screen
from dockbell.demo.witness import Witness
from dockbell.sandbox import LoggedChange
from dockbell.telemetry import DeliverySettled, FeedFails, RequestSent, RunEnded, Started, Stated
from tests.demo.events import arrival, at, statement

STOCK = Feed("main", "stock")


class World:
    """A log of changes, and a clock."""

    def __init__(self) -> None:
        self.log: list[LoggedChange] = []
        self.now = 0.0

    def changes(self, after: int) -> Sequence[LoggedChange]:
        return self.log[after:]

    def clock(self) -> float:
        return self.now

    def change(self, seconds: float, before: bytes | None, after: bytes | None) -> None:
        kind: Any = "deleted" if after is None else "updated"
        self.log.append(LoggedChange(len(self.log) + 1, at(seconds), "shipments", "shp_1", kind, before, after))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def witness(world: World, monkeypatch: pytest.MonkeyPatch) -> Witness:
    monkeypatch.setenv("COLUMNS", "120")
    return Witness(("mqtt", "hook"), world.changes, timedelta(seconds=5), Screen(lambda: None), world.clock)


def test_an_event_is_counted_once_and_its_arrivals_each(witness: Witness, capsys: pytest.CaptureFixture[str]) -> None:
    for sink in ("mqtt", "hook"):
        witness.take(arrival(sink, seconds=2))
    assert witness.figures.count() == 1
    assert witness.figures.delays().count == 2
    assert [inbox.events for inbox in witness.figures.inboxes.values()] == [1, 1]
    (line,) = capsys.readouterr().out.splitlines()
    assert "mqtt hook shipment.updated" in line
    assert line.endswith("2.00s")


def test_a_repetition_is_counted_and_not_shown(witness: Witness, capsys: pytest.CaptureFixture[str]) -> None:
    for sink in ("mqtt", "hook", "hook"):
        witness.take(arrival(sink, seconds=2))
    assert witness.figures.inboxes["hook"].repeated == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_statement_is_shown_once_and_counts_as_no_event(witness: Witness, capsys: pytest.CaptureFixture[str]) -> None:
    for sink in ("mqtt", "hook"):
        witness.take(statement("rebaselined", sink, parts=["query"]))
        witness.take(statement("reconciled", sink))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[1:] == ["mqtt", "feed.rebaselined", "stock", "read", "settings", "changed:", "query"]
    assert witness.figures.count() == 0
    assert [inbox.events for inbox in witness.figures.inboxes.values()] == [0, 0]
    assert witness.balance(at(20)) == Balance()
    assert witness.is_calm(0)


def test_a_deletion_is_dated_by_the_log_of_the_sandbox(witness: Witness, world: World) -> None:
    world.change(1, b'{"id": "shp_1"}', None)
    witness.take(
        arrival(seconds=10, change="deleted", after=None, patch=None, modified_at=None, detected_at=str(at(9)))
    )
    assert witness.figures.delays(deletions=True).mean == 9
    assert witness.figures.delays().count == 0
    assert witness.balance(at(20)) == Balance(made=1, arrived=1)


def test_what_only_one_receiver_got_is_shown_after_a_moment(
    witness: Witness, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    witness.take(arrival("hook", seconds=2))
    assert capsys.readouterr().out == ""
    witness.tick()  # the event is dated long ago
    assert "     hook shipment.updated" in capsys.readouterr().out
    world.now = 10
    assert not witness.is_calm(1)
    witness.take(arrival("mqtt", seconds=9))
    assert "mqtt      shipment.updated   shp_1   the same event, later" in capsys.readouterr().out
    assert not witness.is_calm(1)
    world.now = 11
    assert witness.is_calm(1)


def test_it_knows_from_the_facts_when_everything_is_being_read(witness: Witness) -> None:
    for resource in ("shipments", "packages", "items", "stock", "warehouses"):
        assert not witness.has_begun.is_set()
        witness.hear(RequestSent("main", Urgency.PASS, f"/v1/{resource}", 200, timedelta(0), 299))
    assert witness.has_begun.is_set()
    witness.hear(RequestSent("main", Urgency.PASS, "/v1/items", 429, timedelta(0), 0))
    assert (witness.figures.requests.total, witness.figures.requests.refused) == (6, 1)


def test_what_the_daemon_measures_is_kept_beside_what_the_receivers_do(witness: Witness, world: World) -> None:
    event = Event(STOCK, 1, "a", "evt_1", "dockbell.stock.updated", "updated", 1, b"{}")
    for outcome, age in ((DELIVERED, 3.0), (DELIVERED, None), (Outcome(OutcomeKind.FAILED, "HTTP 500"), 9.0)):
        witness.hear(
            DeliverySettled("hook", Delivery(event), outcome, None, None if age is None else timedelta(seconds=age))
        )
    assert (witness.figures.recent_measured(1).count, witness.figures.recent_measured(1).median) == (1, 3)
    assert witness.figures.recent_measured(61).count == 0


def test_it_knows_when_the_daemon_has_started(witness: Witness) -> None:
    assert not witness.has_started.is_set()
    witness.hear(Started("demo", 5, ("hook",)))
    assert witness.has_started.is_set()


def test_only_complete_runs_count_and_passes_tell_the_number_of_records(witness: Witness) -> None:
    witness.hear(RunEnded(STOCK, RunKind.PASS, 3, 525, 0, timedelta(seconds=1)))
    witness.hear(RunEnded(STOCK, RunKind.PASS, 1, 200, 0, timedelta(seconds=1), problem="cut short"))
    assert witness.figures.records == {"stock": 525}


def test_a_problem_is_shown_once_a_minute(witness: Witness, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        witness.hear(FeedFails(STOCK, "cannot be read"))
        witness.hear(FeedFails(Feed("main", "items"), "cannot be read either"))
    witness.warn("other", "other problem", logging.WARNING)
    shown = [line[9:] for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "main/stock: cannot be read",
        "main/items: cannot be read either",
        "other problem",
    ]


def test_what_is_stated_is_left_to_the_event_of_it_but_deletions_that_are_held_are_not_lost(
    witness: Witness, capsys: pytest.CaptureFixture[str]
) -> None:
    witness.hear(Stated(held(STOCK, at(1), reason=HoldReason.DRIFT, count=7, since=at(1), paths=["/a"])))
    assert witness._held == set()
    witness.hear(Stated(held(STOCK, at(1), reason=HoldReason.DELETIONS, count=7, since=at(1))))
    assert witness._held == {"stock"}
    assert capsys.readouterr().out == ""


def test_a_forged_webhook_is_counted_and_shown(witness: Witness, capsys: pytest.CaptureFixture[str]) -> None:
    witness.refuse("no signature matches")
    assert witness.figures.forged == 1
    assert "refused a webhook, no signature matches" in capsys.readouterr().out
