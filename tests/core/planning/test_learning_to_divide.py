"""Rates and division together, in virtual time: changes come at random, runs find them, and the plan follows."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Final

import pytest

from dockbell.config.resources import BUILT_IN
from dockbell.core.model import Feed, RunKind
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import Division, divide, settle
from dockbell.core.planning.rates import Rate, estimate_changes, teaches
from dockbell.core.planning.spreading import page_pace
from dockbell.core.planning.supply import Supply

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
SPAN: Final = 300  # seconds over which delays are averaged
PAGES: Final = {"shipments": 1, "packages": 1, "items": 1, "stock": 250, "warehouses": 1}
GROUPS: Final = 10  # pages of stock are read in so many groups

WORLD_A: Final = {"shipments": 1.5, "packages": 1.5, "items": 1.0, "stock": 0.9, "warehouses": 0.1}
MORNING: Final = {**WORLD_A, "shipments": 3.0, "stock": 0.4}
NOON: Final = {**WORLD_A, "shipments": 0.5, "stock": 4.0}


@dataclass
class Lane:
    """One feed: when each group of its pages was read last, and what was learned."""

    name: str
    last: list[float]
    learned: Rate = field(default_factory=Rate)


class Account:
    """One key and its feeds, whose rates may change at ``step_at``."""

    def __init__(self, rates: dict[str, float], after: dict[str, float] | None = None, *, seed: int = 1) -> None:
        self.random = Random(seed)
        self.rates, self.after, self.step_at = rates, after or rates, 40 * 60.0
        self.budget = Supply(limit=300, allowed=300).available
        self.lanes = {name: Lane(name, [0.0] * min(pages, GROUPS)) for name, pages in PAGES.items()}
        self.division: Division | None = None
        self.waited: defaultdict[float, float] = defaultdict(float)
        self.changes: defaultdict[float, float] = defaultdict(float)
        self.moves: defaultdict[str, list[float]] = defaultdict(list)

    def demand(self, name: str, rate: float) -> Demand:
        kind = RunKind.PASS if name in ("stock", "warehouses") else RunKind.POLL
        most = BUILT_IN[name].at_most
        return Demand(feed=Feed("main", name), kind=kind, rate=rate, cost=PAGES[name], most=most)

    def run(self, minutes: int) -> Account:
        due = [(0.0, number, name, 0) for number, name in enumerate(["", *PAGES])]
        while due[0][0] < minutes * 60:
            now, number, name, group = heapq.heappop(due)
            if name == "":
                self.plan(now)
                heapq.heappush(due, (now + 10.0, number, name, 0))
                continue
            lane = self.lanes[name]
            self.read(lane, group, now)
            pace = page_pace(len(lane.last), self.interval(name)).total_seconds()
            heapq.heappush(due, (now + pace, number, name, (group + 1) % len(lane.last)))
        return self

    def interval(self, name: str) -> timedelta:
        assert self.division is not None
        return self.division.intervals[Feed("main", name)]

    def read(self, lane: Lane, group: int, now: float) -> None:
        """Count the changes since the last reading and how long they waited for this one; learn of them."""
        found, last, groups = 0, lane.last[group], len(lane.last)
        for rates, since, until in ((self.rates, 0.0, self.step_at), (self.after, self.step_at, 1e9)):
            begin, end = max(since, last), min(until, now)
            if begin < end:
                rate = rates[lane.name] / groups
                self.changes[now // SPAN] += rate * (end - begin)
                self.waited[now // SPAN] += rate * (end - begin) * (now - (begin + end) / 2)
                begin += self.random.expovariate(rate)
                while begin < end:
                    found += 1
                    begin += self.random.expovariate(rate)
        lane.last[group] = now
        span = timedelta(seconds=now - last)
        if teaches(span, self.interval(lane.name), is_baseline=last == 0.0):
            changes = estimate_changes(found, PAGES[lane.name] * 200 // groups)
            lane.learned = lane.learned.add(changes, span / groups, NOW + timedelta(seconds=now))

    def plan(self, now: float) -> None:
        demands = [self.demand(lane.name, lane.learned.per_second) for lane in self.lanes.values()]
        current = self.division.intervals if self.division else {}
        self.division = settle(divide(self.budget, demands), current)
        assert self.division.used <= self.budget * (1 + 1e-9)
        for feed, interval in self.division.intervals.items():
            if current.get(feed) != interval:
                self.moves[feed.resource].append(now)

    def loss(self, begin: int, end: int) -> float:
        """Return the delay between two minutes, as a multiple of the least that is possible with this budget."""
        spans = range(begin * 60 // SPAN, end * 60 // SPAN)
        rates = self.after if begin * 60 >= self.step_at else self.rates
        best = divide(self.budget, [self.demand(name, rate) for name, rate in rates.items()])
        mean = sum(self.waited[span] for span in spans) / sum(self.changes[span] for span in spans)
        return mean / (best.delay / sum(rates.values()))


SEEDS: Final = (1, 2, 3)


@cache
def step(seed: int) -> Account:
    return Account(MORNING, NOON, seed=seed).run(80)


@pytest.mark.parametrize("seed", SEEDS)
def test_from_the_tenth_minute_changes_wait_hardly_longer_than_they_must(seed: int) -> None:
    account = Account(WORLD_A, seed=seed).run(40)

    assert account.loss(10, 40) <= 1.02
    assert all(account.loss(begin, begin + 5) <= 1.05 for begin in range(10, 40, 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_load_is_followed_within_ten_minutes(seed: int) -> None:
    account = step(seed)

    assert account.loss(40, 50) <= 1.15
    assert account.loss(50, 80) <= 1.05


@pytest.mark.parametrize("seed", SEEDS)
def test_the_intervals_rest_while_the_load_does(seed: int) -> None:
    """They could move every ten seconds."""
    for moves in step(seed).moves.values():
        assert sum(10 * 60 <= at < 40 * 60 for at in moves) <= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sleeping_account_wakes_within_minutes(seed: int) -> None:
    asleep = dict.fromkeys(WORLD_A, 1e-4)

    account = Account(asleep, WORLD_A, seed=seed).run(60)

    assert account.loss(45, 60) <= 1.05
