"""What the page shows of the last hours, from the facts as they are told."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

from dockbell.core.model import DELIVERED, ChangeKind, Delivery, Event, Feed, Outcome, OutcomeKind, RunKind, Urgency
from dockbell.telemetry import (
    AgentFails,
    ChangesStored,
    DeliverySettled,
    Fact,
    FeedFails,
    PageRead,
    RequestSent,
    RunEnded,
    Started,
    StoreFails,
)
from dockbell.telemetry.recent import Recent
from dockbell.telemetry.series import STEPS
from tests.fakes import NOON, Clock

FEED = Feed("main", "packages")
EVENT = Event(FEED, 1, "a", "evt_1", "dockbell.package.created", "created", 1, b"{}")


class Life:
    """Facts as they are told, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.seconds = 1000.0
        self.recent = Recent(self.clock, lambda: self.seconds)

    def later(self, seconds: float) -> datetime:
        self.clock.pass_(seconds)
        self.seconds += seconds
        return self.clock()

    def set_clock(self, seconds: float) -> None:
        """Set our clock ahead, or back."""
        self.clock.pass_(seconds)

    def end_run(
        self,
        kind: RunKind = RunKind.POLL,
        *,
        asked: float = 0,
        problem: str = "",
        late: bool | None = None,
        ahead: float = 0,
    ) -> None:
        """End a run whose first request came so many seconds ago, at a service whose clock is ahead by so many."""
        sent_at = self.clock() - timedelta(seconds=asked)
        asked_at = sent_at + timedelta(seconds=ahead)
        elapsed = timedelta(seconds=1)
        self.recent.hear(RunEnded(FEED, kind, 1, 100, 0, elapsed, problem, asked_at, late, sent_at=sent_at))

    def read_page(self, pages: int, records: int, kind: RunKind = RunKind.PASS, began_at: datetime = NOON) -> None:
        self.recent.hear(PageRead(FEED, kind, began_at, pages, records, 0))

    def ask(self, urgency: Urgency = Urgency.POLL, **told: Any) -> None:
        self.recent.hear(
            RequestSent(
                "main",
                urgency,
                "/v1/packages",
                200,
                timedelta(),
                told.get("remaining"),
                limit=told.get("limit"),
                resets_in=told.get("resets_in"),
                method=told.get("method", "GET"),
            )
        )

    def answer(self, remaining: int, resets_in: float, urgency: Urgency = Urgency.POLL) -> None:
        """Ask once, and be told how the key's window stands, of 300."""
        self.ask(urgency, remaining=remaining, limit=300, resets_in=timedelta(seconds=resets_in))

    def deliver(self, waited: float | None = 0.5, outcome: Outcome = DELIVERED, **delivery: Any) -> None:
        wait = None if waited is None else timedelta(seconds=waited)
        self.recent.hear(DeliverySettled("erp", Delivery(EVENT, **delivery), outcome, wait))


@pytest.fixture
def life() -> Life:
    return Life()


# Feeds ----------------------------------------------------------------------------------------------------------------


def test_nothing_is_known_of_a_feed_that_nothing_was_told_of(life: Life) -> None:
    lately = life.recent.feed(FEED)
    assert set(lately.freshness) == {None}
    assert len(lately.freshness) == STEPS
    assert (lately.kept, lately.late, lately.delay, lately.progress) == (0, 0, None, None)


def test_the_last_step_is_the_running_minute(life: Life) -> None:
    life.later(25)
    assert life.recent.feed(FEED).end == NOON + timedelta(minutes=1)


def test_what_is_known_of_a_feed_ages_until_it_is_read_again(life: Life) -> None:
    life.end_run(asked=2)  # at 12:00:00
    life.later(50)
    assert life.recent.feed(FEED).freshness[-1] == 52
    life.later(30)  # 12:01:20
    life.end_run(asked=1)
    life.later(5)
    assert life.recent.feed(FEED).freshness[-2:] == (62, 82)


def test_minutes_without_a_run_are_filled_when_somebody_looks(life: Life) -> None:
    life.end_run()
    life.later(210)
    assert life.recent.feed(FEED).freshness[-5:] == (None, 60, 120, 180, 210)


@pytest.mark.parametrize("problem_or_kind", ["problem", "trailing"])
def test_only_a_complete_poll_or_pass_makes_a_feed_fresh(life: Life, problem_or_kind: str) -> None:
    life.end_run()
    life.later(30)
    if problem_or_kind == "problem":
        life.end_run(problem="no answer")
    else:
        life.end_run(RunKind.TRAILING)
    assert life.recent.feed(FEED).freshness[-1] == 30


def test_a_run_that_ends_after_a_later_one_makes_nothing_older(life: Life) -> None:
    life.end_run(asked=1)
    life.later(1)
    life.end_run(RunKind.PASS, asked=600)
    life.later(8)
    assert life.recent.feed(FEED).freshness[-1] == 10


@pytest.mark.parametrize("ahead", [-3600, -20, 20, 3600])
def test_the_service_s_clock_makes_nothing_fresher_or_older(life: Life, ahead: float) -> None:
    life.end_run(asked=2, ahead=ahead)
    life.later(10)
    assert life.recent.feed(FEED).freshness[-1] == 12


@pytest.mark.parametrize("seconds", [-90_000, -3600, -90, 90, 3600, 90_000])
def test_a_clock_that_is_set_moves_nothing_but_the_times_that_are_told(life: Life, seconds: float) -> None:
    life.end_run(late=False)
    life.recent.hear(ChangesStored(FEED, {ChangeKind.UPDATED: 1}, (timedelta(seconds=1),)))
    life.deliver()
    life.answer(290, 60)
    life.later(60)
    life.set_clock(seconds)
    life.later(60)
    life.end_run(late=False, asked=5)
    life.later(10)
    now = life.clock()
    feed, budget, sink = life.recent.feed(FEED), life.recent.budget("main"), life.recent.sink("erp")
    assert feed.freshness[-4:] == (None, 60, 120, 120)
    assert (feed.kept, feed.delay and feed.delay.count) == (2, 1)
    assert sink.delivered[-4:] == (0, 1, 0, 0)
    assert sink.delay is not None
    assert budget.kinds["poll"][-4:] == (0, 1, 0, 0)
    assert (budget.left[-3:], budget.remaining) == ((290, None, None), None)
    assert feed.end == budget.end == sink.end == now + timedelta(seconds=50)


def test_a_window_of_the_service_ends_when_it_was_said_to_although_our_clock_is_set(life: Life) -> None:
    life.answer(290, 60)
    life.later(10)
    life.set_clock(-3600)
    life.answer(280, 50)
    assert life.recent.budget("main").kinds["others"][-1] == 9
    life.later(51)
    assert life.recent.budget("main").remaining is None
    life.answer(295, 59)  # of a new one
    assert life.recent.budget("main").kinds["others"][-2:] == (9, 4)


def test_stored_runs_of_before_our_clock_was_set_back_are_not_read_from_the_future(life: Life) -> None:
    ahead = timedelta(hours=2)
    life.recent.recall(FEED, [(NOON + ahead, NOON + ahead)])
    life.later(70)
    lately = life.recent.feed(FEED)
    assert lately.freshness[-3:] == (None, 60, 70)


def test_runs_are_counted_that_asked_in_time_and_late(life: Life) -> None:
    for late in (None, False, True, False):
        life.end_run(late=late)
        life.later(15)
    lately = life.recent.feed(FEED)
    assert (lately.kept, lately.late) == (2, 1)
    life.later(3600)
    lately = life.recent.feed(FEED)
    assert (lately.kept, lately.late) == (0, 0)


def test_changes_count_from_their_own_timestamps_until_they_are_stored(life: Life) -> None:
    ages = tuple(timedelta(seconds=age) for age in (1, 2, 3, 10))
    life.recent.hear(ChangesStored(FEED, {ChangeKind.UPDATED: 5}, ages, timedelta(seconds=1)))
    life.later(60)
    lately = life.recent.feed(FEED)
    assert lately.delay is not None
    assert lately.delay.count == 4
    assert lately.delay.p50.total_seconds() == pytest.approx(3, rel=0.05)
    assert lately.delay.p99.total_seconds() == pytest.approx(11, rel=0.05)


def test_a_pass_tells_how_far_it_has_come_and_when_it_will_probably_end(life: Life) -> None:
    life.end_run(RunKind.PASS)  # 100 records
    life.read_page(1, 10)
    life.later(10)
    life.read_page(2, 30)
    life.later(1)
    progress = life.recent.feed(FEED).progress
    assert progress is not None
    assert (progress.kind, progress.pages, progress.records, progress.expected) == (RunKind.PASS, 2, 30, 100)
    assert progress.ends_at == NOON + timedelta(seconds=45)
    life.end_run(RunKind.PASS)
    assert life.recent.feed(FEED).progress is None


def test_a_first_pass_is_measured_by_what_is_stored(life: Life) -> None:
    life.read_page(1, 10)
    assert life.recent.feed(FEED, stored=40).progress is not None
    progress = life.recent.feed(FEED).progress
    assert progress is not None
    assert (progress.expected, progress.ends_at) == (None, None)


def test_a_pass_with_more_records_than_the_last_ends_nobody_knows_when(life: Life) -> None:
    life.end_run(RunKind.PASS)
    life.read_page(1, 50)
    life.later(1)
    life.read_page(3, 150)
    progress = life.recent.feed(FEED).progress
    assert progress is not None
    assert (progress.expected, progress.ends_at) == (100, None)


def test_a_pass_that_goes_on_after_a_crash_is_paced_by_what_it_reads_now(life: Life) -> None:
    life.end_run(RunKind.PASS)
    life.read_page(5, 50, began_at=NOON - timedelta(hours=1))
    life.later(1)
    life.read_page(6, 60, began_at=NOON - timedelta(hours=1))
    progress = life.recent.feed(FEED).progress
    assert progress is not None
    assert progress.ends_at == NOON + timedelta(seconds=5)


def test_a_pass_is_shown_before_the_polls_that_slip_into_it(life: Life) -> None:
    life.read_page(1, 10)
    life.read_page(1, 3, RunKind.POLL)
    progress = life.recent.feed(FEED).progress
    assert progress is not None
    assert progress.kind is RunKind.PASS


@pytest.mark.parametrize(
    "fact",
    [FeedFails(FEED, "HTTP 401"), AgentFails(str(FEED), RuntimeError("oops")), StoreFails("store: has no room")],
    ids=lambda fact: type(fact).__name__,
)
def test_a_run_that_breaks_off_does_not_go_on_for_ever(life: Life, fact: Fact) -> None:
    life.read_page(1, 10)
    life.recent.hear(fact)
    assert life.recent.feed(FEED).progress is None
    life.read_page(2, 20)
    assert life.recent.feed(FEED).progress is not None


def test_a_run_that_was_cut_short_by_a_reload_is_forgotten(life: Life) -> None:
    other = Feed("main", "stock")
    life.read_page(1, 10)
    life.recent.hear(PageRead(other, RunKind.PASS, NOON, 1, 10, 0))
    life.end_run(RunKind.TRAILING, late=False)
    life.recent.forget_progress([FEED])
    lately = life.recent.feed(FEED)
    assert (lately.progress, lately.kept) == (None, 1)
    assert life.recent.feed(other).progress is not None


def test_stored_runs_fill_the_hours_before_the_start(life: Life) -> None:
    runs = [(NOON - timedelta(minutes=minutes), NOON - timedelta(minutes=minutes)) for minutes in (10, 9, 3)]
    life.recent.recall(FEED, runs, records=7)
    lately = life.recent.feed(FEED)
    assert lately.freshness[-12:] == (None, 60, 60, 120, 180, 240, 300, 360, 360, 120, 180, 180)
    life.read_page(1, 1)
    progress = life.recent.feed(FEED).progress
    assert progress is not None
    assert progress.expected == 7


# Budgets --------------------------------------------------------------------------------------------------------------


def test_requests_are_counted_by_urgency_and_minute(life: Life) -> None:
    life.ask()
    life.ask(Urgency.PASS)
    life.later(60)
    life.ask()
    budget = life.recent.budget("main")
    assert budget.kinds["poll"][-3:] == (0, 1, 1)
    assert budget.kinds["pass"][-3:] == (0, 1, 0)
    assert budget.used == 1
    assert (budget.limit, budget.remaining, set(budget.left)) == (None, None, {None})


def test_requests_of_others_are_what_the_window_has_lost_beside_ours(life: Life) -> None:
    life.answer(200, 40)  # 100 were used before we came: nobody knows when
    life.later(10)
    life.answer(192, 30)  # 7 others, and this one
    budget = life.recent.budget("main")
    assert budget.kinds["others"][-1] == 7
    assert (budget.left[-1], budget.limit, budget.remaining) == (192, 300, 192)


def test_what_others_used_of_a_new_window_counts_from_its_begin(life: Life) -> None:
    life.answer(200, 10)
    life.later(12)
    life.answer(280, 58)
    assert life.recent.budget("main").kinds["others"][-1] == 19


def test_answers_that_overtake_each_other_do_not_invent_others(life: Life) -> None:
    life.answer(300 - 1, 40)
    for remaining in (296, 297, 298, 295):
        life.answer(remaining, 40)
    assert life.recent.budget("main").kinds["others"][-1] == 0


def test_a_window_that_slides_counts_others_step_by_step(life: Life) -> None:
    life.answer(250, 60)
    life.later(10)
    life.answer(240, 60)
    life.later(10)
    life.answer(245, 60)
    life.later(10)
    life.answer(243, 60)
    assert life.recent.budget("main").kinds["others"][-1] == 9 + 1


def test_a_window_that_is_over_leaves_nothing_to_tell(life: Life) -> None:
    life.answer(250, 10)
    life.later(11)
    assert life.recent.budget("main").remaining is None


def test_orders_count_but_do_not_speak_of_the_key(life: Life) -> None:
    life.answer(250, 30)
    life.ask(Urgency.OPERATOR, method="POST", remaining=9, limit=10, resets_in=timedelta(seconds=30))
    life.answer(248, 30)
    budget = life.recent.budget("main")
    assert budget.kinds["operator"][-1] == 1
    assert (budget.kinds["others"][-1], budget.remaining) == (0, 248)


# Sinks ----------------------------------------------------------------------------------------------------------------


def test_deliveries_are_counted_by_minute_with_how_long_they_took(life: Life) -> None:
    for waited in (0.1, 0.2, 4, None):
        life.deliver(waited)
    life.later(60)
    life.deliver()
    sink = life.recent.sink("erp")
    assert sink.delivered[-3:] == (0, 4, 1)
    assert sink.delay is not None
    assert sink.delay.count == 4
    assert sink.delay.p99.total_seconds() == pytest.approx(4, rel=0.05)


def test_only_events_that_the_receiver_took_are_delivered(life: Life) -> None:
    for kind in OutcomeKind:
        if kind is not OutcomeKind.DELIVERED:
            life.deliver(outcome=Outcome(kind))
    life.deliver(state_only=True)
    sink = life.recent.sink("erp")
    assert (sink.delivered[-1], sink.delay) == (0, None)


# All of them ----------------------------------------------------------------------------------------------------------


def test_what_has_left_the_configuration_is_forgotten(life: Life) -> None:
    life.end_run()
    life.deliver()
    life.ask()
    life.recent.keep([], [])
    assert set(life.recent.feed(FEED).freshness) == {None}
    assert sum(life.recent.sink("erp").delivered) == 0
    assert life.recent.budget("main").used == 0


def test_other_facts_say_nothing(life: Life) -> None:
    life.recent.hear(Started("acme", 1, ()))
    assert set(life.recent.feed(FEED).freshness) == {None}


def test_a_feed_and_a_sink_take_little_memory_however_long_they_live(life: Life) -> None:
    took = tuple(timedelta(seconds=0.001 * 1.3**number) for number in range(0, 60, 3))
    weights = []
    for minute in range(600):
        life.later(60)
        life.end_run(late=False)
        life.recent.hear(ChangesStored(FEED, {ChangeKind.UPDATED: 20}, took))
        life.deliver(0.001 * 1.3 ** (minute % 60))
        if minute >= 300 and not minute % 100:
            weights.append(_weigh(life.recent, set()))
    assert max(weights) < 200_000  # 20 MB for a hundred of them
    assert max(weights) < 1.1 * min(weights)


def _weigh(each: object, seen: set[int]) -> int:
    """Return about how many bytes an object takes, with all that hangs on it."""
    if id(each) in seen or callable(each):
        return 0
    seen.add(id(each))
    size = sys.getsizeof(each)
    if isinstance(each, dict):
        size += sum(_weigh(part, seen) for pair in each.items() for part in pair)
    elif isinstance(each, list | tuple | set):
        size += sum(_weigh(part, seen) for part in each)
    elif hasattr(each, "__dict__"):
        size += _weigh(vars(each), seen)
    return size
