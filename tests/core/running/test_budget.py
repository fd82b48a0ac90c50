from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import chain, count, repeat
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import Allowance, Urgency
from dockbell.core.running.budget import WINDOW, Budget, Load, Usage

ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = timedelta(hours=5)  # a monotonic clock begins anywhere


def fill(budget: Budget, now: timedelta, requests: int, urgency: Urgency = Urgency.POLL) -> None:
    for _ in range(requests):
        assert budget.admit(now, urgency) == ZERO
        budget.spent(now, urgency)
        budget.answered(now, urgency)


# By example ----------------------------------------------------------------------------------------------------------


def test_polls_may_burst_up_to_the_share_and_then_wait_a_window() -> None:
    budget = Budget(300, share=0.9)

    fill(budget, START, 270)

    assert MINUTE < budget.admit(START) <= MINUTE + SECOND
    assert budget.admit(START + MINUTE) > ZERO
    assert budget.admit(START + MINUTE + SECOND) == ZERO


def test_a_request_under_way_keeps_its_place_until_a_window_after_its_answer() -> None:
    budget = Budget(1)
    budget.spent(START)

    assert budget.admit(START + 10 * MINUTE) > ZERO

    budget.answered(START + 10 * MINUTE)

    assert budget.admit(START + 11 * MINUTE) > ZERO
    assert budget.admit(START + 11 * MINUTE + SECOND) == ZERO


@pytest.mark.parametrize(
    ("limit", "share", "allowed"), [(300, 0.9, 270), (100, 0.29, 29), (10, 0.9, 9), (1, 0.1, 1), (300, 1.0, 300)]
)
def test_the_share_is_counted_in_whole_requests(limit: int, share: float, allowed: int) -> None:
    assert Budget(limit, share).usage(ZERO).allowed == allowed


@pytest.mark.parametrize(("limit", "share"), [(0, 0.9), (-1, 0.9), (300, 0.0), (300, 1.1)])
def test_a_budget_that_allows_nothing_is_refused(limit: int, share: float) -> None:
    with pytest.raises(ValueError, match=f"budget: {limit} requests a minute shared at {share}"):
        Budget(limit, share)


def test_pass_pages_are_spread_over_the_minute() -> None:
    budget = Budget(300, share=0.9)

    fill(budget, START, 1, Urgency.PASS)

    assert budget.admit(START, Urgency.POLL) == ZERO
    assert budget.admit(START, Urgency.TRAILING) == budget.admit(START, Urgency.PASS)
    assert timedelta(seconds=0.2) < budget.admit(START, Urgency.PASS) < timedelta(seconds=0.25)


def test_pass_pages_make_room_for_the_polls_of_the_minute() -> None:
    budget = Budget(300, share=0.9)

    fill(budget, START, 200)
    fill(budget, START, 1, Urgency.PASS)

    assert timedelta(seconds=0.9) < budget.admit(START, Urgency.PASS) < SECOND


def test_a_pass_page_sent_a_little_late_does_not_delay_the_next() -> None:
    budget = Budget(300, share=0.9)
    fill(budget, START, 1, Urgency.PASS)
    due = START + budget.admit(START, Urgency.PASS)

    fill(budget, due + timedelta(milliseconds=50), 1, Urgency.PASS)

    assert due + budget.admit(due, Urgency.PASS) - START == 2 * (due - START)


def test_pass_pages_that_were_not_asked_for_are_not_made_up_for() -> None:
    budget = Budget(300, share=0.9)
    fill(budget, START, 1, Urgency.PASS)

    fill(budget, START + MINUTE, 2, Urgency.PASS)

    assert budget.admit(START + MINUTE, Urgency.PASS) > ZERO


def test_others_keep_what_the_share_leaves_them() -> None:
    budget = Budget(300, share=0.9)

    budget.learned(Allowance(limit=300, remaining=31, resets_in=20 * SECOND), START)
    assert budget.admit(START) == ZERO

    budget.learned(Allowance(limit=300, remaining=29, resets_in=20 * SECOND), START)
    assert budget.admit(START) == 20 * SECOND


def test_requests_under_way_are_taken_off_what_remains() -> None:
    budget = Budget(300, share=0.9)
    budget.learned(Allowance(limit=300, remaining=32, resets_in=20 * SECOND), START)
    for _ in range(3):
        assert budget.admit(START) == ZERO
        budget.spent(START)

    assert budget.admit(START) == 20 * SECOND


def test_nothing_is_sent_when_nothing_remains_though_the_whole_is_ours() -> None:
    budget = Budget(300)

    budget.learned(Allowance(limit=300, remaining=0, resets_in=20 * SECOND), START)

    assert budget.admit(START) == 20 * SECOND


def test_what_was_told_lapses_when_the_window_is_over() -> None:
    budget = Budget(300, share=0.9)
    budget.learned(Allowance(limit=300, remaining=0, resets_in=20 * SECOND), START)

    assert budget.admit(START + 20 * SECOND) == ZERO
    assert budget.usage(START + 20 * SECOND) == Usage(used=0, allowed=270, limit=300, remaining=None, resets_in=None)


def test_a_reset_far_away_stops_nobody_for_longer_than_a_window() -> None:
    budget = Budget(300)

    budget.learned(Allowance(limit=300, remaining=0, resets_in=timedelta(days=9)), START)

    assert budget.admit(START) == WINDOW


def test_pass_pages_are_spread_over_what_remains_of_a_window_that_others_use_up() -> None:
    budget = Budget(300, share=0.9)
    for second in range(0, 11, 2):
        allowance = Allowance(limit=300, remaining=90, resets_in=(30 - second) * SECOND)
        budget.learned(allowance, START + second * SECOND)
    now = START + 10 * SECOND
    fill(budget, now, 1, Urgency.PASS)

    assert budget.admit(now, Urgency.POLL) == ZERO
    assert timedelta(seconds=0.3) < budget.admit(now, Urgency.PASS) < timedelta(seconds=0.4)


def test_a_window_that_moves_along_is_not_spread_over() -> None:
    budget = Budget(300, share=0.9)
    for second in range(0, 11, 2):
        budget.learned(Allowance(limit=300, remaining=35, resets_in=MINUTE), START + second * SECOND)
    now = START + 10 * SECOND
    fill(budget, now, 1, Urgency.PASS)

    assert budget.admit(now, Urgency.PASS) < timedelta(seconds=0.25)


@pytest.mark.parametrize("urgency", Urgency)
def test_a_pause_holds_for_everybody_and_is_never_shortened(urgency: Urgency) -> None:
    budget = Budget(300)

    budget.pause(MINUTE, START)
    budget.pause(SECOND, START)

    assert budget.admit(START, urgency) == MINUTE
    assert budget.admit(START + MINUTE, urgency) == ZERO


def test_usage_tells_how_the_budget_stands() -> None:
    budget = Budget(300, share=0.9)
    fill(budget, START, 5)
    fill(budget, START, 1, Urgency.PASS)
    budget.spent(START)
    budget.learned(Allowance(limit=300, remaining=200, resets_in=40 * SECOND), START)

    now = START + 10 * SECOND
    assert budget.usage(now) == Usage(used=7, allowed=270, limit=300, remaining=200, resets_in=30 * SECOND)


def test_an_unlimited_budget_remembers_seconds_not_requests() -> None:
    budget = Budget(60_000_000)

    for millisecond in range(5000):
        now = START + timedelta(milliseconds=millisecond)
        for urgency in (Urgency.POLL, Urgency.PASS):
            assert budget.admit(now, urgency) == ZERO
            budget.spent(now, urgency)
            budget.answered(now, urgency)

    assert budget.usage(START + 5 * SECOND).used == 10_000
    assert len(budget._urgent._grains) == 10


# By simulation -------------------------------------------------------------------------------------------------------


@dataclass
class Service:
    """What counts requests on the other side, as services do it: fixed windows, or sliding ones."""

    limit: int = 300
    sliding: bool = False
    reset_moves: bool = False  # sliding: the reset told is a window away, or where the oldest request leaves
    began: timedelta = START
    counted: deque[timedelta] = field(default_factory=deque)
    refused: int = 0

    def count(self, now: timedelta) -> Allowance:
        """Count a request, ours or another's, and tell what is left."""
        begin = now - WINDOW if self.sliding else now - (now - self.began) % WINDOW
        while self.counted and self.counted[0] <= begin - (not self.sliding) * timedelta.resolution:
            self.counted.popleft()
        if len(self.counted) < self.limit:
            self.counted.append(now)
        else:
            self.refused += 1
        if not self.sliding:
            reset = begin + WINDOW
        elif self.reset_moves:
            reset = now + WINDOW
        else:
            reset = self.counted[0] + WINDOW
        # Both the reset and Date are whole seconds.
        whole = timedelta(seconds=reset // SECOND - now // SECOND)
        return Allowance(self.limit, self.limit - len(self.counted), whole)


Trip: TypeAlias = tuple[timedelta, timedelta]


class Simulation:
    """Requests that are wanted, sent as soon as the budget admits them, counted by a service, and answered."""

    def __init__(
        self, budget: Budget, trips: Callable[[], Trip], tell: Callable[[timedelta], Allowance | None]
    ) -> None:
        self.arrived: list[timedelta] = []
        self.waits: dict[Urgency, list[timedelta]] = {urgency: [] for urgency in Urgency}
        self._budget = budget
        self._trips = trips
        self._tell = tell
        self._waiting: dict[Urgency, deque[timedelta]] = {urgency: deque() for urgency in Urgency}
        self._agenda: list[tuple[timedelta, int, Callable[[timedelta], object]]] = []
        self._number = count()

    def run(
        self,
        demand: Iterable[tuple[timedelta, Urgency]],
        *,
        others: Iterable[timedelta] = (),
        until: timedelta = START + timedelta(days=9),
    ) -> None:
        for at, urgency in demand:
            self._plan(at, self._waiting[urgency].append)
        for at in others:
            self._plan(at, self._tell)
        look_at: timedelta | None = None
        while self._agenda or look_at:
            if look_at and (not self._agenda or look_at < self._agenda[0][0]):
                now = look_at
            else:
                now, _, act = heapq.heappop(self._agenda)
                act(now)
            if now >= until:
                break
            waits = [self._send(urgency, now) for urgency in Urgency]
            look_at = min((now + wait for wait in waits if wait is not None), default=None)

    def most_in_a_window(self) -> int:
        """Return the most requests that any window of the service held."""
        at = sorted(self.arrived)
        return max((bisect_left(at, begin + WINDOW) - index for index, begin in enumerate(at)), default=0)

    def _plan(self, at: timedelta, act: Callable[[timedelta], object]) -> None:
        heapq.heappush(self._agenda, (at, next(self._number), act))

    def _send(self, urgency: Urgency, now: timedelta) -> timedelta | None:
        """Send what may be sent of one urgency; return when to look again, None when nothing waits."""
        line = self._waiting[urgency]
        while line:
            if wait := self._budget.admit(now, urgency):
                return wait
            self.waits[urgency].append(now - line.popleft())
            self._budget.spent(now, urgency)
            there, back = self._trips()
            self._plan(now + there, partial(self._arrive, urgency, back))
        return None

    def _arrive(self, urgency: Urgency, back: timedelta, now: timedelta) -> None:
        self.arrived.append(now)
        self._plan(now + back, partial(self._answer, urgency, self._tell(now)))

    def _answer(self, urgency: Urgency, allowance: Allowance | None, now: timedelta) -> None:
        if allowance is not None:
            self._budget.learned(allowance, now)
        self._budget.answered(now, urgency)


@pytest.mark.parametrize(("sliding", "reset_moves"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("others", [0, 2])
def test_what_others_use_shows_in_the_figures_of_the_api(others: int, *, sliding: bool, reset_moves: bool) -> None:
    budget, service = Budget(300), Service(sliding=sliding, reset_moves=reset_moves)
    foreign = [START + number * SECOND / others for number in range(others * 300)] if others else []
    simulation = Simulation(budget, lambda: (SECOND / 20, SECOND / 20), service.count)
    polls = [(START + number * SECOND / 2, Urgency.POLL) for number in range(600)]
    simulation.run(polls, others=foreign)
    assert budget.load(START + 5 * MINUTE).foreign == pytest.approx(others, abs=0.2)
    assert service.refused == 0


@pytest.mark.parametrize("sliding", [False, True])
def test_what_others_used_once_is_forgotten_by_those_who_ask_too_seldom_to_find_it_out_anew(*, sliding: bool) -> None:
    budget, service = Budget(20), Service(limit=20, sliding=sliding, reset_moves=sliding)
    simulation = Simulation(budget, lambda: (SECOND / 20, SECOND / 20), service.count)
    seldom = [(START + number * 61 * SECOND, Urgency.POLL) for number in range(30)]
    simulation.run([(START + number * SECOND, Urgency.POLL) for number in range(15)], others=[START + 20 * SECOND] * 5)
    simulation.run(seldom, others=[])
    assert budget.load(START + 30 * MINUTE).foreign < 0.01


def test_what_another_process_of_ours_has_asked_is_not_taken_for_others() -> None:
    budget, service = Budget(300), Service(sliding=True, reset_moves=True)
    for number in range(250):
        service.count(START + number * SECOND / 5)
    simulation = Simulation(budget, lambda: (SECOND / 20, SECOND / 20), service.count)
    simulation.run([(START + (50 + number * 2) * SECOND, Urgency.POLL) for number in range(28)])
    assert budget.load(START + 106 * SECOND).foreign == 0


def test_a_planner_learns_what_is_asked_beside_its_runs_and_how_often_the_api_asked_for_a_pause() -> None:
    budget = Budget(300, share=0.9)
    for urgency in Urgency:
        budget.spent(START, urgency)
    budget.pause(SECOND, START)
    assert budget.load(START) == Load(limit=300, allowed=270, foreign=0.0, beside=3, pauses=1)
    budget.learned(Allowance(limit=100, remaining=90, resets_in=SECOND), START)
    assert budget.load(START).allowed == 90


def every(gap: timedelta, urgency: Urgency, start: timedelta = START) -> Iterator[tuple[timedelta, Urgency]]:
    at = start
    while at < START + 10 * MINUTE:
        yield at, urgency
        at += gap


seconds = st.floats(0, 5).map(lambda value: timedelta(seconds=value))
gaps = st.one_of(st.just(ZERO), seconds, st.floats(0, 90).map(lambda value: timedelta(seconds=value)))
allowances = st.none() | st.builds(
    Allowance, st.integers(1, 400), st.integers(-5, 400), st.floats(-100, 1000).map(lambda value: value * SECOND)
)


@given(
    limit=st.integers(1, 12),
    share=st.sampled_from([0.5, 0.9, 1.0]),
    demand=st.lists(st.tuples(gaps, st.sampled_from(Urgency)), max_size=60),
    trips=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=7),
    told=st.lists(allowances, min_size=1, max_size=7),
)
def test_no_window_ever_holds_more_than_the_budget_and_everybody_is_served(
    limit: int,
    share: float,
    demand: list[tuple[timedelta, Urgency]],
    trips: list[Trip],
    told: list[Allowance | None],
) -> None:
    budget, now, wanted = Budget(limit, share), START, []
    for gap, urgency in demand:
        now += gap
        wanted.append((now, urgency))
    there_and_back, tell = chain.from_iterable(repeat(trips)), chain.from_iterable(repeat(told))

    simulation = Simulation(budget, lambda: next(there_and_back), lambda _: next(tell))
    simulation.run(wanted)

    assert simulation.most_in_a_window() <= budget.allowed
    assert len(simulation.arrived) == len(demand)


SERVICES = pytest.mark.parametrize(
    "service",
    [
        pytest.param(Service, id="fixed"),
        pytest.param(lambda: Service(began=START - 47 * SECOND), id="fixed, begun before"),
        pytest.param(lambda: Service(sliding=True), id="sliding"),
        pytest.param(lambda: Service(sliding=True, reset_moves=True), id="sliding, reset a window away"),
    ],
)


def trips(random: Random) -> Callable[[], Trip]:
    return lambda: (timedelta(seconds=random.uniform(0.01, 0.1)), timedelta(seconds=random.uniform(0.01, 0.3)))


@pytest.mark.slow
@SERVICES
@pytest.mark.parametrize(
    "urgencies", [(Urgency.PASS,), (Urgency.POLL,), (Urgency.POLL, Urgency.PASS), (Urgency.DETAIL, Urgency.TRAILING)]
)
def test_under_steady_demand_the_share_is_used(service: Callable[[], Service], urgencies: tuple[Urgency, ...]) -> None:
    api, budget = service(), Budget(300, share=0.9)
    demand = chain.from_iterable(every(0.12 * SECOND, urgency) for urgency in urgencies)

    simulation = Simulation(budget, trips(Random(1)), api.count)
    simulation.run(demand, until=START + 10 * MINUTE)

    assert simulation.most_in_a_window() <= 270
    assert len(simulation.arrived) >= 0.95 * 270 * 10
    assert api.refused == 0


@pytest.mark.slow
@SERVICES
def test_while_a_pass_uses_all_that_is_left_polls_find_room(service: Callable[[], Service]) -> None:
    api, budget = service(), Budget(300, share=0.9)
    polls = (
        (START + round_ * 15 * SECOND + place * timedelta(milliseconds=5), Urgency.POLL)
        for round_ in range(40)
        for place in range(6)
    )
    demand = chain(polls, every(0.12 * SECOND, Urgency.PASS))

    simulation = Simulation(budget, trips(Random(2)), api.count)
    simulation.run(demand, until=START + 10 * MINUTE)

    waits = sorted(simulation.waits[Urgency.POLL])
    assert len(waits) == 240
    assert waits[int(0.9 * len(waits))] < 0.1 * SECOND
    assert waits[-1] < 1.5 * SECOND
    assert len(simulation.arrived) >= 0.95 * 270 * 10
    assert api.refused == 0


@pytest.mark.parametrize("began", [START, START - 47 * SECOND])
@pytest.mark.parametrize("rate", [1, 3, 4])
def test_the_use_of_others_in_a_window_is_yielded_to(rate: int, began: timedelta) -> None:
    api, budget = Service(began=began), Budget(300, share=0.9)
    demand = chain(every(15 * SECOND, Urgency.POLL), every(0.2 * SECOND, Urgency.PASS))
    others = (START + each * SECOND / rate for each in range(600 * rate))

    simulation = Simulation(budget, trips(Random(3)), api.count)
    simulation.run(demand, others=others, until=START + 10 * MINUTE)

    assert api.refused == 0
    assert len(simulation.waits[Urgency.POLL]) == 40
    assert max(simulation.waits[Urgency.POLL]) < 20 * SECOND
    assert len(simulation.arrived) + 600 * rate >= 0.9 * 270 * 10


@SERVICES
def test_others_who_use_up_everything_do_not_starve_polls(service: Callable[[], Service]) -> None:
    api, budget = service(), Budget(300, share=0.9)
    demand = chain(every(15 * SECOND, Urgency.POLL), every(0.2 * SECOND, Urgency.PASS))
    others = (START + each * SECOND / 8 for each in range(600 * 8))

    simulation = Simulation(budget, trips(Random(4)), api.count)
    simulation.run(demand, others=others, until=START + 10 * MINUTE)

    assert len(simulation.waits[Urgency.POLL]) >= 36
    assert max(simulation.waits[Urgency.POLL]) <= 61 * SECOND


def test_polls_without_end_do_not_starve_a_pass_for_ever() -> None:
    budget, now, passed = Budget(60), START, 0
    budget.spent(now, Urgency.PASS)
    budget.answered(now, Urgency.PASS)

    for _ in range(6000):
        now += 0.1 * SECOND
        if budget.admit(now, Urgency.PASS) == ZERO:
            budget.spent(now, Urgency.PASS)
            budget.answered(now, Urgency.PASS)
            passed += 1
        while budget.admit(now, Urgency.POLL) == ZERO:
            budget.spent(now)
            budget.answered(now)

    assert passed >= 9


def test_a_budget_that_replaces_another_counts_what_was_spent_of_the_key() -> None:
    before, after = Budget(100, 0.9), Budget(100, 0.5)
    fill(before, START, 60)
    after.inherit(before)
    assert after.usage(START).used == 60
    assert after.admit(START) > timedelta(0)
    assert after.admit(START + timedelta(seconds=62)) == timedelta(0)


# Several processes ---------------------------------------------------------------------------------------------------


def test_what_is_declared_may_be_spent_and_no_more() -> None:
    budget = Budget(300, share=0.9)
    fill(budget, START, 100)

    declared = budget.declare(START + SECOND)
    budget.confirm()

    assert declared == (40, 104, 0, 0, 0, 0, 0)
    fill(budget, START + 2 * SECOND, 270 // 8)
    assert budget.admit(START + 2 * SECOND) > ZERO
    budget.declare(START + 3 * SECOND)
    assert budget.admit(START + 3 * SECOND) > ZERO  # it is not stored yet
    budget.confirm()
    assert budget.admit(START + 3 * SECOND) == ZERO


def test_who_spends_no_more_leaves_the_rest_to_its_successor() -> None:
    budget = Budget(100)
    fill(budget, START, 30)
    budget.declare(START + SECOND)

    declared = budget.declare_last(START + 12 * SECOND)

    assert declared == (0, 0, 30, 0, 0, 0, 0)
    after = Budget(100)
    after.assume(declared, ZERO, START + 12 * SECOND)
    assert after.usage(START + 12 * SECOND).used == 30


def test_what_a_quiet_key_has_declared_stands_until_it_is_used() -> None:
    budget, stood = Budget(300), list[bool]()

    def declare(second: float) -> None:
        budget.declare(START + second * SECOND)
        budget.confirm()
        stood.append(budget.stands)

    budget.declare(START)
    stood.append(budget.stands)  # not before it is stored
    declare(0)
    budget.spent(START)
    stood.append(budget.stands)
    declare(0)  # a request is under way
    budget.answered(START + SECOND)
    stood.append(budget.stands)  # not before its answer is declared: the service may have counted it as late as that
    declare(1)
    budget.spend_nothing()
    stood.append(budget.stands)
    assert stood == [False, True, False, False, False, True, False]


def test_what_is_used_before_it_is_stored_does_not_stand() -> None:
    budget = Budget(300)
    budget.declare(START)
    budget.spent(START)
    budget.confirm()
    assert not budget.stands


def test_who_asks_seldom_declares_the_same_again_and_again() -> None:
    budget = Budget(300)
    declared = set()
    for second in range(300):
        if second % 10 == 0:
            fill(budget, START + second * SECOND, 2)
        declared.add(budget.declare(START + second * SECOND))
    assert len(declared) <= 8


def test_what_was_spent_a_minute_ago_is_free_again() -> None:
    budget = Budget(100)
    budget.assume((24, 0, 0, 40, 0, 0, 16), timedelta(seconds=7), START)

    assert budget.usage(START).used == 24 + 40 + 16
    assert budget.usage(START + 6 * SECOND).used == 24 + 40
    assert budget.usage(START + 36 * SECOND).used == 24
    assert budget.usage(START + 62 * SECOND).used == 0


@given(
    st.lists(st.tuples(st.floats(0, 40), st.integers(0, 60)), max_size=30),
    st.floats(0, 40),
    st.lists(st.tuples(st.floats(0, 40), st.integers(0, 60)), max_size=30),
    st.integers(30, 300),
)
def test_two_processes_together_stay_within_the_budget(
    first: list[tuple[float, int]], silence: float, second: list[tuple[float, int]], limit: int
) -> None:
    now, sent = START, list[timedelta]()

    def work(budget: Budget, steps: list[tuple[float, int]]) -> tuple[tuple[int, ...], timedelta]:
        nonlocal now
        budget.spend_nothing()
        declared, declared_at = budget.declare(now), now
        budget.confirm()
        for pause, wanted in steps:
            if pause > 1 and not budget.stands:  # else it is killed, or busy, before it can declare anew
                told, is_stored = budget.declare(now), pause < 15  # else the database is away
                if is_stored:
                    budget.confirm()
                    declared, declared_at = told, now
            now += timedelta(seconds=pause)
            for _ in range(wanted):
                if budget.admit(now) > ZERO:
                    break
                budget.spent(now)
                budget.answered(now)
                sent.append(now)
        return declared, declared_at

    declared, declared_at = work(Budget(limit), first)
    now += timedelta(seconds=silence)
    successor = Budget(limit)
    successor.assume(declared, now - declared_at, now)
    work(successor, second)

    counts = [bisect_left(sent, at + WINDOW) - place for place, at in enumerate(sent)]
    assert max(counts, default=0) <= limit
