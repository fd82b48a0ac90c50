"""The ledger against a small outbox, a sink with a will of its own, and crashes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dockbell.core.model import DELIVERED, Event, Fate, Feed, Outcome
from dockbell.core.publishing.ledger import Blocked, DeadLetter, Ledger, Settlement

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
FAILED = Outcome(Fate.FAILED, "HTTP 500")
REFUSED = Outcome(Fate.REFUSED, "HTTP 422")
UNREACHABLE = Outcome(Fate.UNREACHABLE, "connection refused")


def make_event(sequence: int, key: str, feed: Feed = FEED) -> Event:
    return Event(feed, sequence, key, f"evt_{sequence}", "dockbell.shipment.updated", "updated", sequence, b"{}")


def make_ledger(*keys: str, window: int = 4) -> tuple[Ledger, list[Event]]:
    events = [make_event(number, key) for number, key in enumerate(keys, start=1)]
    ledger = Ledger(window)
    ledger.restore({FEED: 0}, ())
    ledger.admit(FEED, events, len(events))
    return ledger, events


def sequences(taken: list[tuple[Event, int]]) -> list[int]:
    return [event.sequence for event, _ in taken]


def test_events_of_one_key_go_one_after_the_other_and_other_keys_go_on() -> None:
    ledger, events = make_ledger("a", "a", "b")
    assert sequences(ledger.take(NOON)) == [1, 3]
    ledger.settle(events[0], DELIVERED, NOON, 0)
    assert sequences(ledger.take(NOON)) == [2]


def test_no_more_than_the_window_is_in_flight() -> None:
    ledger, _ = make_ledger("a", "b", "c", window=2)
    assert sequences(ledger.take(NOON)) == [1, 2]
    assert ledger.take(NOON) == []


def test_the_position_passes_what_is_settled_and_waits_for_the_rest() -> None:
    ledger, events = make_ledger("a", "b", "c")
    ledger.take(NOON)
    ledger.settle(events[1], DELIVERED, NOON, 0)
    assert ledger.checkpoint(NOON).positions == {}
    ledger.settle(events[0], DELIVERED, NOON, 0)
    assert ledger.checkpoint(NOON).positions == {FEED: 2}


def test_a_failed_delivery_blocks_its_key_and_lets_the_position_pass() -> None:
    ledger, events = make_ledger("a", "b", "a")
    ledger.take(NOON)
    ledger.settle(events[0], FAILED, NOON, 0)
    ledger.settle(events[1], DELIVERED, NOON, 0)
    settlement = ledger.checkpoint(NOON)
    assert settlement.positions == {FEED: 3}
    entry = Blocked(FEED, "a", 1, 1, NOON + timedelta(seconds=5), "HTTP 500")
    assert settlement.blocked == {(FEED, "a"): entry}


def test_a_blocked_key_is_read_again_when_it_is_due_and_its_tail_follows_in_order() -> None:
    ledger, events = make_ledger("a", "a")
    ledger.take(NOON)
    ledger.settle(events[0], FAILED, NOON, 0)
    assert ledger.due(NOON, 10) == []
    later = NOON + timedelta(seconds=5)
    (entry,) = ledger.due(later, 10)
    ledger.resume(entry, events[0], 2, later)
    assert ledger.take(later) == [(events[0], 2)]
    ledger.settle(events[0], DELIVERED, later, 0)
    (entry,) = ledger.due(later, 10)
    assert (entry.sequence, entry.attempts) == (2, 0)
    ledger.resume(entry, events[1], 2, later)
    assert ledger.take(later) == [(events[1], 1)]
    ledger.settle(events[1], DELIVERED, later, 0)
    (entry,) = ledger.due(later, 10)
    ledger.resume(entry, None, 2, later)
    assert ledger.owed == {}
    assert ledger.checkpoint(later).freed == {(FEED, "a")}


def test_the_tail_of_a_blocked_key_reaches_to_the_frontier_of_the_moment() -> None:
    ledger, events = make_ledger("a")
    ledger.take(NOON)
    ledger.settle(events[0], FAILED, NOON, 0)
    later = NOON + timedelta(seconds=5)
    (entry,) = ledger.due(later, 10)
    ledger.admit(FEED, [make_event(2, "a")], 2)  # read ahead while the tail is looked up to the old frontier
    ledger.resume(entry, None, 1, later)
    assert list(ledger.owed) == [(FEED, "a")]


def test_the_tenth_failure_is_a_dead_letter_and_the_key_goes_on() -> None:
    ledger, events = make_ledger("a", "a")
    ledger.restore({}, ())
    ledger.take(NOON)
    now = NOON
    ledger.settle(events[0], FAILED, now, 0)
    for _ in range(9):
        now += timedelta(days=2)
        (entry,) = ledger.due(now, 10)
        ledger.resume(entry, events[0], 2, now)
        ((event, attempt),) = ledger.take(now)
        ledger.settle(event, FAILED, now, 0)
    assert attempt == 10
    assert ledger.checkpoint(now).dead == [DeadLetter(FEED, "a", 1, 10, now, "HTTP 500")]
    (entry,) = ledger.due(now, 10)
    assert entry.sequence == 2


def test_a_refused_event_is_a_dead_letter_at_once() -> None:
    ledger, events = make_ledger("a", "a")
    ledger.take(NOON)
    ledger.settle(events[0], REFUSED, NOON, 0)
    assert [letter.sequence for letter in ledger.checkpoint(NOON).dead] == [1]
    assert sequences(ledger.take(NOON)) == [2]


def test_a_key_goes_on_only_when_its_dead_letter_is_saved() -> None:
    ledger, events = make_ledger("a", "a")
    ledger.take(NOON)
    ledger.settle(events[0], REFUSED, NOON, 0)
    assert ledger.must_save
    assert ledger.take(NOON) == []


def test_while_nobody_is_there_only_one_probe_goes_and_no_attempt_is_used_up() -> None:
    ledger, events = make_ledger("a", "b", "c", "d", "e", window=2)
    ledger.take(NOON)
    ledger.settle(events[0], UNREACHABLE, NOON, 0)
    ledger.settle(events[1], UNREACHABLE, NOON, 0)
    assert ledger.take(NOON) == []
    probe_at = NOON + timedelta(seconds=1)
    assert ledger.wake_at(NOON) == probe_at
    ((probe, attempt),) = ledger.take(probe_at)
    assert (probe.sequence, attempt) == (3, 1)
    ledger.settle(probe, UNREACHABLE, probe_at, 0)
    assert {entry.attempts for entry in ledger.owed.values()} == {0}


def test_when_the_sink_is_back_what_waited_goes_at_once() -> None:
    ledger, events = make_ledger("a", "b", "c")
    ledger.take(NOON)
    for event in events:
        ledger.settle(event, UNREACHABLE, NOON, 0)
    later = NOON + timedelta(seconds=1)
    (entry,) = ledger.due(later, 10)
    ledger.resume(entry, events[entry.sequence - 1], 3, later)
    ((probe, _),) = ledger.take(later)
    ledger.settle(probe, DELIVERED, later, 0)
    assert len(ledger.due(later, 10)) == 3


def test_failures_of_many_keys_are_the_sinks_and_are_given_back() -> None:
    ledger, events = make_ledger("a", "b", "c", "d", "e", window=5)
    ledger.take(NOON)
    for event in events:
        ledger.settle(event, FAILED, NOON, 0)
    assert {(entry.attempts, entry.due) for entry in ledger.owed.values()} == {(0, NOON)}


def test_a_delivery_that_outlasts_a_checkpoint_does_not_hold_the_position_back() -> None:
    ledger, events = make_ledger("a", "b", "a")
    ledger.take(NOON)
    ledger.settle(events[1], DELIVERED, NOON, 0)
    assert ledger.checkpoint(NOON + timedelta(seconds=1)).positions == {}
    later = NOON + timedelta(seconds=2)
    settlement = ledger.checkpoint(later)
    assert settlement.positions == {FEED: 3}
    assert settlement.blocked[FEED, "a"].sequence == 1
    assert ledger.due(later, 10) == []  # it is still in flight
    ledger.settle(events[0], DELIVERED, later, 0)
    (entry,) = ledger.due(later, 10)
    assert entry.sequence == 2


@dataclass
class Saved:
    """What a crash leaves."""

    position: int = 0
    blocked: dict[str, Blocked] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)

    def apply(self, settlement: Settlement) -> None:
        self.position = settlement.positions.get(FEED, self.position)
        for _, key in settlement.freed:
            self.blocked.pop(key, None)
        for (_, key), entry in settlement.blocked.items():
            self.blocked[key] = entry
        self.dead |= {letter.sequence for letter in settlement.dead}


class LedgerMachine(RuleBasedStateMachine):
    """Appends, deliveries, failures, checkpoints and crashes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox: list[Event] = []
        self.saved = Saved()
        self.now = NOON
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.settled_since: set[int] = set()
        self.begin()

    def begin(self) -> None:
        self.ledger = Ledger(window=3, read_ahead=8)
        self.ledger.restore({FEED: self.saved.position}, self.saved.blocked.values())
        self.flying: list[Event] = []
        self.settled_since.clear()

    @rule(key=st.sampled_from("abcd"))
    def something_changes(self, key: str) -> None:
        self.outbox.append(make_event(len(self.outbox) + 1, key))

    @rule(seconds=st.sampled_from([0.1, 1, 6, 400, 100_000]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def turn(self) -> None:
        frontier = self.ledger.frontier(FEED)
        more = self.outbox[frontier : frontier + max(0, self.ledger.room)]
        if more:
            self.ledger.admit(FEED, more, more[-1].sequence)
        for entry in self.ledger.due(self.now, 3):
            until = self.ledger.frontier(FEED)
            tail = (event for event in self.outbox[entry.sequence - 1 : until] if event.key == entry.key)
            self.ledger.resume(entry, next(tail, None), until, self.now)
        if self.ledger.must_save:
            self.checkpoint()
        self.flying += [event for event, _ in self.ledger.take(self.now)]

    @precondition(lambda self: self.flying)
    @rule(choice=st.integers(0, 10), outcome=st.sampled_from([DELIVERED, DELIVERED, FAILED, UNREACHABLE, REFUSED]))
    def something_is_settled(self, choice: int, outcome: Outcome) -> None:
        event = self.flying.pop(choice % len(self.flying))
        if outcome.fate is Fate.DELIVERED:
            known = self.delivered[event.key]
            assert not known or known[-1] <= event.sequence or event.sequence in known, "out of order"
            if event.sequence not in known:
                known.append(event.sequence)
        self.settled_since.add(event.sequence)
        self.ledger.settle(event, outcome, self.now, 0.5)

    @rule()
    def checkpoint(self) -> None:
        self.saved.apply(self.ledger.checkpoint(self.now))
        self.settled_since.clear()

    @rule()
    def crash(self) -> None:
        self.begin()

    @invariant()
    def one_delivery_in_flight_per_key(self) -> None:
        keys = [event.key for event in self.flying]
        assert len(keys) == len(set(keys))
        assert len(keys) <= 3

    @invariant()
    def what_is_owed_and_not_in_flight_has_a_time(self) -> None:
        if not self.flying and (self.ledger.owed or not self.ledger.idle):
            assert self.ledger.wake_at(self.now) is not None

    @invariant()
    def each_key_is_delivered_in_order(self) -> None:
        for known in self.delivered.values():
            assert known == sorted(known)

    def teardown(self) -> None:
        """Let the sink recover: everything is delivered in the end, or dead."""
        for _ in range(500):
            self.turn()
            for event in list(self.flying):
                self.flying.remove(event)
                self.delivered[event.key].append(event.sequence)
                self.ledger.settle(event, DELIVERED, self.now, 0.5)
            self.saved.apply(self.ledger.checkpoint(self.now))
            self.now += timedelta(seconds=40)
            if self.saved.position == len(self.outbox) and not self.saved.blocked:
                break
            self.now = max([self.now, *(entry.due for entry in self.saved.blocked.values())])
        done = {sequence for known in self.delivered.values() for sequence in known} | self.saved.dead
        assert done >= {event.sequence for event in self.outbox}, "lost"
        assert self.saved.position == len(self.outbox)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_without_failures_everything_is_delivered_once_in_order(keys: list[str]) -> None:
    ledger, events = make_ledger(*keys, window=2)
    order = []
    while taken := ledger.take(NOON):
        for event, attempt in taken:
            assert attempt == 1
            order.append(event)
            ledger.settle(event, DELIVERED, NOON, 0)
    assert sorted(event.sequence for event in order) == [event.sequence for event in events]
    assert ledger.checkpoint(NOON).positions == ({FEED: len(events)} if events else {})


@pytest.mark.parametrize("outcome", [FAILED, UNREACHABLE])
def test_an_idle_ledger_with_blocked_keys_wakes_when_the_first_is_due(outcome: Outcome) -> None:
    ledger, events = make_ledger("a")
    ledger.take(NOON)
    ledger.settle(events[0], outcome, NOON, 0)
    assert ledger.wake_at(NOON) == NOON + timedelta(seconds=5 if outcome is FAILED else 1)


def test_resumed_events_are_probed_although_the_sink_went_down_before_their_turn() -> None:
    ledger = Ledger(window=2)
    ledger.restore({FEED: 2}, [Blocked(FEED, "a", 1, 1, NOON), Blocked(FEED, "b", 2, 1, NOON)])
    ledger.admit(FEED, [make_event(3, "c"), make_event(4, "d")], 4)
    taken = ledger.take(NOON)
    for entry in ledger.due(NOON, most=2):
        ledger.resume(entry, make_event(entry.sequence, entry.key), 4, NOON)
    for event, _ in taken:
        ledger.settle(event, UNREACHABLE, NOON, 0)
    assert ledger.wake_at(NOON) == NOON + timedelta(seconds=1)
