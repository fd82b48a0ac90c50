"""What a delivery queue makes of single outcomes; ``test_delivery_queue_model`` has what always holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.config import RETRY_SCHEDULE
from dockbell.core.model import DELIVERED, Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.settlement import Attempt, Blocked, DeadLetter, Replay, StartOffset, Verdict

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
OTHER = Feed("other", "shipments")
FAILED = Outcome(OutcomeKind.FAILED, "HTTP 500")
REFUSED = Outcome(OutcomeKind.REFUSED, "HTTP 422")
UNREACHABLE = Outcome(OutcomeKind.UNREACHABLE, "connection refused")
UNFIT = Outcome(OutcomeKind.UNFIT, "too large")
CLOSED = Outcome(OutcomeKind.CLOSED, "HTTP 410")
BUSY = Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(minutes=10))


def make_event(sequence: int, key: str, feed: Feed = FEED) -> Event:
    return Event(feed, sequence, key, f"evt_{sequence}", "dockbell.shipment.updated", "updated", sequence, b"{}")


def make_queue(*keys: str, window: int = 4, spacing: timedelta = timedelta(0)) -> tuple[DeliveryQueue, list[Event]]:
    events = [make_event(number, key) for number, key in enumerate(keys, start=1)]
    queue = DeliveryQueue(window, spacing=spacing)
    queue.restore({FEED: 0}, ())
    queue.admit(FEED, events, len(events))
    return queue, events


def sequences(taken: list[tuple[Event, int]]) -> list[int]:
    return [event.sequence for event, _ in taken]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def deliver(queue: DeliveryQueue, outcome: Outcome, now: datetime, most: int = 99) -> list[int]:
    """Let a sink give an outcome to what can be taken, one turn after the other, ``most`` times; return what it was."""
    got: list[int] = []
    while len(got) < most and (taken := queue.take(now)):
        for event, _ in taken:
            queue.settle(event, outcome, now, 0)
            got.append(event.sequence)
        if queue.must_save:
            queue.checkpoint(now)
    return got


def resume_all(queue: DeliveryQueue, events: list[Event], now: datetime) -> None:
    """Read again whatever is due."""
    while entries := queue.due(now, 99):
        for entry in entries:
            tail = (each for each in events if each.key == entry.key and each.sequence >= entry.sequence)
            queue.resume(entry, next(tail, None), queue.frontier(FEED), now)


def test_events_of_one_key_go_one_after_the_other_and_other_keys_go_on() -> None:
    queue, events = make_queue("a", "a", "b")
    assert sequences(queue.take(NOON)) == [1, 3]
    queue.settle(events[0], DELIVERED, NOON, 0)
    assert sequences(queue.take(NOON)) == [2]


def test_no_more_than_the_window_is_in_flight() -> None:
    queue, _ = make_queue("a", "b", "c", window=2)
    assert sequences(queue.take(NOON)) == [1, 2]
    assert queue.take(NOON) == []


def test_the_position_passes_what_is_settled_and_waits_for_the_rest() -> None:
    queue, events = make_queue("a", "b", "c")
    queue.take(NOON)
    queue.settle(events[1], DELIVERED, NOON, 0)
    assert queue.checkpoint(NOON).positions == {}
    queue.settle(events[0], DELIVERED, NOON, 0)
    assert queue.checkpoint(NOON).positions == {FEED: 2}


def test_a_failed_delivery_blocks_its_key_and_lets_the_position_pass() -> None:
    queue, events = make_queue("a", "b", "a")
    queue.take(NOON)
    queue.settle(events[0], FAILED, NOON, 0)
    queue.settle(events[1], DELIVERED, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert settlement.positions == {FEED: 3}
    entry = Blocked(FEED, "a", 1, 1, NOON + timedelta(seconds=5), "HTTP 500", planned_at=NOON)
    assert settlement.blocked == {(FEED, "a"): entry}


def test_a_blocked_key_is_read_again_when_it_is_due_and_its_tail_follows_in_order() -> None:
    queue, events = make_queue("a", "a")
    queue.take(NOON)
    queue.settle(events[0], FAILED, NOON, 0)
    assert queue.due(NOON, 10) == []
    later = NOON + timedelta(seconds=5)
    (entry,) = queue.due(later, 10)
    queue.resume(entry, events[0], 2, later)
    assert queue.take(later) == [(events[0], 2)]
    queue.settle(events[0], DELIVERED, later, 0)
    (entry,) = queue.due(later, 10)
    assert (entry.sequence, entry.attempts) == (2, 0)
    queue.resume(entry, events[1], 2, later)
    assert queue.take(later) == [(events[1], 1)]
    queue.settle(events[1], DELIVERED, later, 0)
    (entry,) = queue.due(later, 10)
    queue.resume(entry, None, 2, later)
    assert queue.owed == {}
    assert queue.checkpoint(later).freed == {(FEED, "a")}


def test_the_tail_of_a_blocked_key_reaches_to_the_frontier_of_the_moment() -> None:
    queue, events = make_queue("a")
    queue.take(NOON)
    queue.settle(events[0], FAILED, NOON, 0)
    later = NOON + timedelta(seconds=5)
    (entry,) = queue.due(later, 10)
    queue.admit(FEED, [make_event(2, "a")], 2)  # read ahead while the tail is looked up to the old frontier
    queue.resume(entry, None, 1, later)
    assert list(queue.owed) == [(FEED, "a")]


def test_the_last_failure_of_the_schedule_is_a_dead_letter_and_the_key_goes_on() -> None:
    queue, events = make_queue("a", "a")
    queue.restore({}, ())
    queue.take(NOON)
    now = NOON
    queue.settle(events[0], FAILED, now, 0)
    for _ in range(len(RETRY_SCHEDULE) - 1):
        now += timedelta(days=2)
        (entry,) = queue.due(now, 10)
        queue.resume(entry, events[0], 2, now)
        ((event, attempt),) = queue.take(now)
        queue.settle(event, FAILED, now, 0)
    assert attempt == len(RETRY_SCHEDULE)
    assert queue.checkpoint(now).dead == [DeadLetter(FEED, "a", 1, attempt, now, "HTTP 500")]
    (entry,) = queue.due(now, 10)
    assert entry.sequence == 2


def test_a_refused_event_is_a_dead_letter_at_once() -> None:
    queue, events = make_queue("a", "a")
    queue.take(NOON)
    queue.settle(events[0], REFUSED, NOON, 0)
    assert [letter.sequence for letter in queue.checkpoint(NOON).dead] == [1]
    assert sequences(queue.take(NOON)) == [2]


def test_a_key_goes_on_only_when_its_dead_letter_is_saved() -> None:
    queue, events = make_queue("a", "a")
    queue.take(NOON)
    queue.settle(events[0], REFUSED, NOON, 0)
    assert queue.must_save
    assert queue.take(NOON) == []


def test_while_nobody_is_there_only_one_probe_goes_and_no_attempt_is_used_up() -> None:
    queue, events = make_queue("a", "b", "c", "d", "e", window=2)
    queue.take(NOON)
    queue.settle(events[0], UNREACHABLE, NOON, 0)
    queue.settle(events[1], UNREACHABLE, NOON, 0)
    assert queue.take(NOON) == []
    probe_at = NOON + timedelta(seconds=1)
    assert queue.wake_at(NOON) == probe_at
    ((probe, attempt),) = queue.take(probe_at)
    assert (probe.sequence, attempt) == (3, 1)
    queue.settle(probe, UNREACHABLE, probe_at, 0)
    assert {entry.attempts for entry in queue.owed.values()} == {0}


def test_when_the_sink_is_back_what_waited_goes_at_once() -> None:
    queue, events = make_queue("a", "b", "c")
    queue.take(NOON)
    for event in events:
        queue.settle(event, UNREACHABLE, NOON, 0)
    later = NOON + timedelta(seconds=1)
    (entry,) = queue.due(later, 10)
    queue.resume(entry, events[entry.sequence - 1], 3, later)
    ((probe, _),) = queue.take(later)
    queue.settle(probe, DELIVERED, later, 0)
    assert len(queue.due(later, 10)) == 3


def test_failures_of_many_keys_are_the_sinks_and_are_given_back() -> None:
    queue, events = make_queue("a", "b", "c", "d", "e", window=5)
    queue.take(NOON)
    for event in events:
        queue.settle(event, FAILED, NOON, 0)
    assert {(entry.attempts, entry.due) for entry in queue.owed.values()} == {(0, NOON)}


def test_a_delivery_that_outlasts_a_checkpoint_does_not_hold_the_position_back() -> None:
    queue, events = make_queue("a", "b", "a")
    queue.take(NOON)
    queue.settle(events[1], DELIVERED, NOON, 0)
    assert queue.checkpoint(NOON + timedelta(seconds=1)).positions == {}
    later = NOON + timedelta(seconds=2)
    settlement = queue.checkpoint(later)
    assert settlement.positions == {FEED: 3}
    assert settlement.blocked[FEED, "a"].sequence == 1
    assert queue.due(later, 10) == []  # it is still in flight
    queue.settle(events[0], DELIVERED, later, 0)
    (entry,) = queue.due(later, 10)
    assert entry.sequence == 2


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_without_failures_everything_is_delivered_once_in_order(keys: list[str]) -> None:
    queue, events = make_queue(*keys, window=2)
    order = []
    while taken := queue.take(NOON):
        for event, attempt in taken:
            assert attempt == 1
            order.append(event)
            queue.settle(event, DELIVERED, NOON, 0)
    assert sorted(event.sequence for event in order) == [event.sequence for event in events]
    assert queue.checkpoint(NOON).positions == ({FEED: len(events)} if events else {})


@pytest.mark.parametrize("outcome", [FAILED, UNREACHABLE])
def test_an_idle_queue_with_blocked_keys_wakes_when_the_first_is_due(outcome: Outcome) -> None:
    queue, events = make_queue("a")
    queue.take(NOON)
    queue.settle(events[0], outcome, NOON, 0)
    assert queue.wake_at(NOON) == NOON + timedelta(seconds=5 if outcome is FAILED else 1)


def test_resumed_events_are_probed_although_the_sink_went_down_before_their_turn() -> None:
    queue = DeliveryQueue(window=2)
    queue.restore({FEED: 2}, [Blocked(FEED, "a", 1, 1, NOON), Blocked(FEED, "b", 2, 1, NOON)])
    queue.admit(FEED, [make_event(3, "c"), make_event(4, "d")], 4)
    taken = queue.take(NOON)
    for entry in queue.due(NOON, most=2):
        queue.resume(entry, make_event(entry.sequence, entry.key), 4, NOON)
    for event, _ in taken:
        queue.settle(event, UNREACHABLE, NOON, 0)
    assert queue.wake_at(NOON) == NOON + timedelta(seconds=1)


# Keys on hold --------------------------------------------------------------------------------------------------------


def test_what_is_owed_of_a_feed_that_comes_from_another_process_is_due_as_that_has_saved_it() -> None:
    queue = DeliveryQueue(2)
    queue.restore({OTHER: 7}, ())
    queue.add_feeds({OTHER: 9, FEED: 2}, [Blocked(OTHER, "x", 1, 1, NOON), Blocked(FEED, "a", 1, 1, NOON)], {}, NOON)
    assert [(entry.feed, entry.key, entry.sequence) for entry in queue.due(NOON, 9)] == [(FEED, "a", 1)]
    assert queue.frontier(OTHER) == 7


def test_a_key_on_hold_waits_behind_its_dead_letter_until_it_is_released() -> None:
    queue, events = make_queue("a", "b", "a")
    queue.holds = True
    queue.take(NOON)
    queue.settle(events[0], REFUSED, NOON, 0)
    queue.settle(events[1], DELIVERED, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert settlement.positions == {FEED: 3}
    assert settlement.blocked[FEED, "a"].held
    assert queue.due(at(1e6), 10) == []
    assert queue.wake_at(NOON) is None
    queue.release(Blocked(FEED, "a", 2, 0, at(9)))
    resume_all(queue, events, at(9))
    assert deliver(queue, DELIVERED, at(9)) == [3]


def test_a_key_that_is_not_on_hold_is_not_released() -> None:
    queue = DeliveryQueue(window=1)
    queue.restore({FEED: 5}, [Blocked(FEED, "a", 5, 3, at(9))])
    queue.release(Blocked(FEED, "a", 1, 0, NOON))
    assert queue.owed[FEED, "a"] == Blocked(FEED, "a", 5, 3, at(9))


# What a sink is told as it begins ------------------------------------------------------------------------------------


def make_backfill(*keys: str) -> DeliveryQueue:
    """Return the queue of a sink that began after event 5 with records of these keys, in rows from 1 on."""
    queue = DeliveryQueue(window=3)
    queue.restore({FEED: 5}, (), {FEED: StartOffset(5, NOON)})
    queue.admit_backfill(
        FEED, [(row, make_event(5, key)) for row, key in enumerate(keys, start=1)], len(keys), is_read=True
    )
    return queue


def test_what_follows_the_beginning_waits_for_the_record_of_its_own_key_alone() -> None:
    queue = make_backfill("a", "b")
    queue.admit(FEED, [make_event(6, "a"), make_event(7, "c")], 7)
    assert [(event.sequence, event.key) for event, _ in queue.take(NOON)] == [(5, "a"), (5, "b"), (7, "c")]
    queue.settle(make_event(5, "a"), DELIVERED, NOON, 0)
    assert sequences(queue.take(NOON)) == [6]


def test_no_position_is_saved_before_all_records_are_told_and_then_both_are() -> None:
    """Else a crash would tell a record again, and not what followed it."""
    queue = make_backfill("a", "b")
    queue.admit(FEED, [make_event(6, "b")], 6)
    queue.take(NOON)
    queue.settle(make_event(5, "b"), DELIVERED, NOON, 0)
    queue.take(NOON)
    queue.settle(make_event(6, "b"), DELIVERED, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert (settlement.positions, settlement.backfilled_to) == ({}, {})
    queue.settle(make_event(5, "a"), DELIVERED, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert (settlement.positions, settlement.backfilled_to, settlement.origins) == ({FEED: 6}, {FEED: None}, {FEED: 5})


def test_a_record_that_is_not_taken_blocks_its_key_and_lets_the_backfill_end() -> None:
    queue = make_backfill("a", "b")
    for event, _ in queue.take(NOON):
        queue.settle(event, FAILED if event.key == "a" else DELIVERED, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert settlement.backfilled_to == {FEED: None}
    assert settlement.blocked[FEED, "a"].sequence == 5


# Replays -------------------------------------------------------------------------------------------------------------


def make_replay(event: Event, attempts: int = 0) -> Replay:
    return Replay(7, event.feed, event.sequence, event.key, attempts, NOON)


def test_a_replay_goes_when_nothing_else_does_and_its_key_waits_for_it() -> None:
    queue, events = make_queue("a", window=2)
    assert queue.replays_at(NOON) is None
    queue.take(NOON)
    assert queue.replays_at(NOON) == NOON
    old = make_event(0, "b")
    assert not queue.admit_replay(make_replay(make_event(0, "a")), make_event(0, "a"), NOON)
    assert queue.admit_replay(make_replay(old), old, NOON)
    queue.admit(FEED, [make_event(2, "b")], 2)
    assert queue.replays_at(NOON) is None
    queue.settle(events[0], DELIVERED, NOON, 0)
    assert queue.take(NOON) == []
    assert queue.wake_at(NOON) is None
    queue.settle(old, DELIVERED, NOON, 0)
    assert sequences(queue.take(NOON)) == [2]


@pytest.mark.parametrize(
    ("outcome", "attempts", "due"),
    [(FAILED, 1, 5), (UNREACHABLE, 0, 0), (BUSY, 0, 0), (CLOSED, 0, 0)],
)
def test_a_replay_that_does_not_arrive_waits_for_another_attempt(outcome: Outcome, attempts: int, due: float) -> None:
    queue, event = DeliveryQueue(window=1), make_event(3, "a")
    queue.admit_replay(make_replay(event), event, NOON)
    queue.settle(event, outcome, NOON, 0)
    assert queue.checkpoint(NOON).postponed == [Replay(7, FEED, 3, "a", attempts, at(due), outcome.reason)]


@pytest.mark.parametrize(("outcome", "attempts"), [(REFUSED, 1), (UNFIT, 1), (FAILED, len(RETRY_SCHEDULE))])
def test_a_replay_that_cannot_arrive_is_a_dead_letter_again(outcome: Outcome, attempts: int) -> None:
    queue, event = DeliveryQueue(window=1), make_event(3, "a")
    queue.admit_replay(make_replay(event, attempts - 1), event, NOON)
    queue.settle(event, outcome, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert settlement.dead == [DeadLetter(FEED, "a", 3, attempts, NOON, outcome.reason)]
    assert (settlement.replayed, settlement.postponed, queue.owed) == ([7], [], {})


def test_a_replay_is_a_probe_where_nothing_else_is_to_be_delivered() -> None:
    queue, event = DeliveryQueue(window=1), make_event(3, "a")
    queue.admit_replay(make_replay(event), event, NOON)
    queue.settle(event, BUSY, NOON, 0)
    queue.checkpoint(NOON)
    assert queue.replays_at(NOON) == at(600)
    queue.admit_replay(make_replay(event), event, at(600))
    queue.settle(event, FAILED, at(600), 0)
    assert queue.replays_at(at(600)) == at(602)
    queue.admit_replay(make_replay(event), event, at(602))
    queue.settle(event, DELIVERED, at(602), 0)
    assert not queue.breaker.is_open


def test_a_replay_that_finds_nobody_takes_back_what_was_refused_in_a_row_before() -> None:
    queue, events = make_queue("a", window=2)
    queue.take(NOON)
    queue.settle(events[0], REFUSED, NOON, 0)
    queue.checkpoint(NOON)
    old = make_event(0, "b")
    queue.admit_replay(make_replay(old), old, NOON)
    queue.settle(old, UNREACHABLE, NOON, 0)
    settlement = queue.checkpoint(NOON)
    assert [letter.sequence for letter in settlement.revived] == [1]
    assert settlement.blocked[FEED, "a"].sequence == 1


def test_what_has_failed_before_takes_half_of_the_window_and_the_rest_goes_on() -> None:
    queue, events = make_queue(*"abcdefgh", window=4)
    own = replace(FAILED, is_own=True)
    assert deliver(queue, own, NOON) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not queue.breaker.is_open
    later = at(3600)
    queue.admit(FEED, [make_event(9, "x"), make_event(10, "y"), make_event(11, "z")], 11)
    resume_all(queue, events, later)
    assert sequences(queue.take(later)) == [9, 10, 11, 1]
    for sequence, key in ((9, "x"), (10, "y"), (11, "z")):
        queue.settle(make_event(sequence, key), DELIVERED, later, 0)
    resume_all(queue, events, later)
    assert sequences(queue.take(later)) == [2]
    assert len(queue._flights) == 2
    assert queue.wake_at(later) is None  # the other six wait for one of these, although they are due
    queue.settle(events[0], own, later, 0)
    assert queue.wake_at(later) == later
    resume_all(queue, events, later)
    assert sequences(queue.take(later)) == [3]


def test_retries_that_found_no_room_are_probes_when_the_breaker_opens() -> None:
    queue, events = make_queue(*"abcd", window=2)
    deliver(queue, replace(FAILED, is_own=True), NOON)
    later = at(3600)
    resume_all(queue, events, later)
    ((event, _),) = queue.take(later)
    queue.settle(event, UNREACHABLE, later, 0)
    assert queue.breaker.is_open
    assert queue.wake_at(later) == later + timedelta(seconds=1)
    resume_all(queue, events, at(3601))
    assert len(queue.take(at(3601))) == 1


def test_a_failure_of_an_event_that_others_have_overtaken_does_not_speak_against_the_receiver() -> None:
    queue, _ = make_queue(*"abcdefgh", window=8)
    deliver(queue, replace(FAILED, is_own=True), NOON)
    assert not queue.breaker.is_open
    assert {entry.attempts for entry in queue.owed.values()} == {1}
    queue, _ = make_queue(*"abcdefgh", window=8)
    deliver(queue, FAILED, NOON)
    assert queue.breaker.is_open
    assert {entry.attempts for entry in queue.owed.values()} == {0}


def test_each_attempt_is_noted_with_what_came_of_it() -> None:
    queue, events = make_queue("a", "b", "c")
    queue.keep_attempts = 10
    queue.take(NOON)
    queue.settle(events[0], replace(FAILED, status=500, answer="oh"), at(2), 0)
    queue.settle(events[1], replace(DELIVERED, status=200), at(1), 0)
    queue.settle(events[2], REFUSED, at(3), 0)
    planned = at(2) + RETRY_SCHEDULE[1]
    attempts = queue.checkpoint(at(4)).attempts
    assert attempts == [
        Attempt(FEED, "a", 1, 1, NOON, timedelta(seconds=2), Verdict.RETRY, "HTTP 500", 500, "oh", planned),
        Attempt(FEED, "b", 2, 1, NOON, timedelta(seconds=1), Verdict.SETTLED, status=200),
        Attempt(FEED, "c", 3, 1, NOON, timedelta(seconds=3), Verdict.REFUSED, "HTTP 422"),
    ]
    assert queue.checkpoint(at(5)).attempts == []


def test_a_receiver_that_is_away_costs_no_attempt_and_each_is_noted() -> None:
    queue, events = make_queue("a")
    queue.keep_attempts = 10
    for second in (0, 100):
        resume_all(queue, events, at(second))
        assert deliver(queue, UNREACHABLE, at(second), 1) == [1]
    attempts = queue.checkpoint(at(101)).attempts
    assert [(each.number, each.verdict, each.next_at) for each in attempts] == [(1, Verdict.WAIT, None)] * 2


def test_no_more_attempts_are_noted_than_are_kept_and_none_of_an_event_that_was_held_back() -> None:
    queue, events = make_queue(*"abcd")
    queue.keep_attempts = 2
    for event, _ in queue.take(NOON):
        queue.settle(event, DELIVERED, NOON, 0, state_only=event is events[3])
    assert [each.key for each in queue.checkpoint(NOON).attempts] == ["b", "c"]
