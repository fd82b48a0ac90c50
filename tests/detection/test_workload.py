"""What a signal means for the planner."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dockbell.config import ResourceSettings
from dockbell.core.model import RunKind
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.detection.workload import Workload
from dockbell.ports import RunRecord, Tally
from tests.fakes import NOON

SECOND = timedelta(seconds=1)


def make(*, polled: bool) -> Workload:
    return Workload(ResourceSettings(every="auto", at_most=timedelta(minutes=1)), polled=polled)


def run(workload: Workload, kind: RunKind, at: int, *, updated: int = 0) -> None:
    workload.begin(kind, at * SECOND, every=10 * SECOND, is_first=False)
    ended = NOON + at * SECOND
    tally = Tally(updated=updated)
    workload.take_page(kind, 200, Tally(), tally, ended)
    workload.end(RunRecord(kind, ended, None, ended, pages=1, records=200, events=updated, tally=tally))


def test_a_poll_that_carries_changes_of_another_feed_is_made_more_often() -> None:
    idle, carrying = make(polled=True), make(polled=True)
    for at in range(0, 300, 10):
        carrying.carry(5)
        for workload in (idle, carrying):
            run(workload, RunKind.POLL, at, updated=1)
    assert carrying.plan.rate.per_second == pytest.approx(6 * idle.plan.rate.per_second, rel=0.1)


def test_what_was_carried_counts_once() -> None:
    workload = make(polled=True)
    run(workload, RunKind.POLL, 0)
    workload.carry(7)
    run(workload, RunKind.POLL, 10)
    known = workload.plan.rate.changes
    run(workload, RunKind.POLL, 20)
    assert workload.plan.rate.changes < known


def test_what_is_not_carried_any_more_is_forgotten() -> None:
    workload = make(polled=True)
    for at in range(0, 300, 10):
        workload.carry(5)
        run(workload, RunKind.POLL, at)
    workload.carry(-1000)
    run(workload, RunKind.POLL, 310)
    assert workload.plan.rate.changes == 0


def test_requests_beside_polls_count_as_part_of_these() -> None:
    workload = make(polled=True)
    run(workload, RunKind.POLL, 0)
    assert workload.plan.cost.mean == 1
    for at in range(10, 1000, 10):
        workload.ask_aside()
        workload.ask_aside()
        run(workload, RunKind.POLL, at)
    assert workload.plan.cost.mean == 3


def test_what_a_run_showed_before_the_signal_is_counted_for_the_signal() -> None:
    met = make(polled=False)
    for at in range(0, 1800, 10):
        run(met, RunKind.PASS, at, updated=4)
    before = met.plan.rate
    met.lead(7, NOON + 1800 * SECOND, is_met=True)
    assert met.plan.rate.changes == pytest.approx(before.changes - 7)
    met.end_lead(NOON + 1800 * SECOND)
    assert met.plan.rate.changes == pytest.approx(before.changes)


def test_what_a_signal_shows_first_comes_back_when_it_has_missed_a_change() -> None:
    found, led = make(polled=False), make(polled=False)
    for at in range(0, 1800, 10):
        run(found, RunKind.PASS, at, updated=4)
        run(led, RunKind.PASS, at)
        led.lead(4, NOON + at * SECOND)
    assert led.plan.rate.per_second < found.plan.rate.per_second / 10
    led.end_lead(NOON + 1800 * SECOND)
    assert led.plan.rate.per_second == pytest.approx(found.plan.rate.per_second, rel=0.1)
    assert led.plan.lead.changes == 0
    again = led.plan.rate
    led.end_lead(NOON + 1800 * SECOND)
    assert led.plan.rate == again


def test_a_restart_knows_what_the_signal_has_shown() -> None:
    workload = make(polled=False)
    workload.lead(4, NOON)
    assert StoredPlan.from_json(workload.plan.to_json()).lead == workload.plan.lead
