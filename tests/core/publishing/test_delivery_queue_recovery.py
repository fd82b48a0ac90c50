"""How a delivery queue finds out that a receiver is ill, however few its keys, and what it does when it is well."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from msgspec.structs import replace

from dockbell.core.model import DELIVERED, Event, Outcome, OutcomeKind
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.settlement import Blocked, Pause, Replay
from tests.core.publishing.test_delivery_queue import (
    BUSY,
    FAILED,
    FEED,
    NOON,
    REFUSED,
    at,
    deliver,
    make_event,
    make_queue,
    resume_all,
    sequences,
)


class Receiver:
    """Is sent whatever a queue has to send, second by second, and takes it or not."""

    def __init__(self, queue: DeliveryQueue, events: list[Event]) -> None:
        self.queue = queue
        self.events = events
        self.taken: list[int] = []
        self.dead: list[int] = []
        self.attempts = 0

    def work(self, begin: float, end: float, outcome: Outcome = DELIVERED) -> None:
        """Give what comes from one second until another an outcome."""
        for tenth in range(int(begin * 10), int(end * 10)):
            now = at(tenth / 10)
            while True:
                resume_all(self.queue, self.events, now)
                taken = self.queue.take(now)
                for event, _ in taken:
                    self.queue.settle(event, outcome, now, 0)
                    self.attempts += 1
                    self.taken += [event.sequence] if outcome is DELIVERED else []
                settlement = self.queue.checkpoint(now)
                self.dead += [letter.sequence for letter in settlement.dead]
                self.dead = [each for each in self.dead if each not in {gone.sequence for gone in settlement.revived}]
                if not taken:
                    break


def test_a_bad_deploy_of_five_seconds_makes_no_dead_letters_of_three_records() -> None:
    receiver = Receiver(*make_queue(*"abc" * 13))
    receiver.work(0, 5, REFUSED)
    receiver.work(5, 12)
    assert receiver.dead == []
    assert sorted(receiver.taken) == list(range(1, 40))
    assert [each for each in receiver.taken if each % 3 == 1] == list(range(1, 40, 3))


def test_a_bad_deploy_makes_no_dead_letters_of_a_single_record() -> None:
    receiver = Receiver(*make_queue(*"a" * 13))
    receiver.work(0, 5, REFUSED)
    receiver.work(5, 12)
    assert (receiver.dead, receiver.taken) == ([], list(range(1, 14)))


def test_four_records_go_on_within_seconds_after_a_short_outage() -> None:
    receiver = Receiver(*make_queue(*"abcd"))
    receiver.work(0, 8, Outcome(OutcomeKind.FAILED, "HTTP 502"))
    receiver.work(8, 14)
    assert sorted(receiver.taken) == [1, 2, 3, 4]
    assert not receiver.queue.owed


def test_what_failed_since_the_last_success_is_due_when_the_receiver_takes_another() -> None:
    queue, events = make_queue(*"abc", window=2)
    queue.take(NOON)
    for event in events[:2]:
        queue.settle(event, FAILED, NOON, 0)
    queue.take(at(1))
    queue.settle(events[2], DELIVERED, at(1.2), 0)
    assert {(entry.key, entry.due) for entry in queue.owed.values()} == {("a", at(1.2)), ("b", at(1.2))}


def test_what_fails_again_after_that_waits_for_its_own_turn() -> None:
    queue, events = make_queue(*"abc", window=8)
    queue.take(NOON)
    for event in events[:2]:
        queue.settle(event, FAILED, NOON, 0)
    queue.settle(events[2], FAILED, NOON, 0)
    now = at(5)
    resume_all(queue, events, now)
    for event, _ in queue.take(now):
        queue.settle(event, DELIVERED if event.key == "c" else FAILED, now, 0)
    for step in range(3):
        resume_all(queue, events, now)
        for event, _ in queue.take(now):
            queue.settle(event, FAILED, now, 0)
        assert not queue.breaker.is_open, step
    assert all(entry.due > now for entry in queue.owed.values())


def test_an_event_that_fails_alone_among_others_keeps_to_its_schedule() -> None:
    queue, events = make_queue(*"abc", window=1)
    queue.take(NOON)
    queue.settle(events[0], FAILED, NOON, 0)
    queue.take(at(1))
    queue.settle(events[1], DELIVERED, at(1), 0)
    assert queue.owed[FEED, "a"].due == at(5)


def test_several_events_refused_in_a_row_are_tried_once_more_when_the_receiver_takes_another() -> None:
    queue, events = make_queue(*"abc", window=1)
    assert deliver(queue, REFUSED, NOON, most=2) == [1, 2]
    queue.take(at(1))
    queue.settle(events[2], DELIVERED, at(1), 0)
    assert [letter.sequence for letter in queue.checkpoint(at(1)).revived] == [1, 2]
    tried: list[int] = []
    while queue.owed:
        resume_all(queue, events, at(1))
        tried += deliver(queue, REFUSED, at(1))
    assert sorted(tried) == [1, 2]


def test_a_key_goes_on_behind_its_dead_letter_although_the_row_was_the_receivers() -> None:
    """Else an older event would follow a newer one."""
    queue, events = make_queue("a", "b", "a", window=1)
    deliver(queue, REFUSED, NOON, most=2)
    queue.take(at(1))
    queue.settle(events[2], DELIVERED, at(1), 0)
    settlement = queue.checkpoint(at(1))
    assert [letter.key for letter in settlement.revived] == ["b"]
    assert {entry.key for entry in queue.owed.values()} == {"b"}


# What the receiver asks for ------------------------------------------------------------------------------------------


def test_the_first_wish_to_wait_is_obeyed_by_the_whole_sink_and_saved_at_once() -> None:
    queue, events = make_queue(*"ab", window=1)
    queue.take(NOON)
    queue.settle(events[0], BUSY, NOON, 0)
    assert queue.must_save
    assert queue.checkpoint(NOON).pause == Pause(NOON, at(600))
    assert queue.take(at(599)) == []
    assert len(queue.take(at(600))) == 1


def test_an_event_that_is_asked_to_wait_again_while_others_are_taken_waits_alone_and_counts() -> None:
    queue, events = make_queue(*"abcde", window=1)
    queue.take(NOON)
    queue.settle(events[0], BUSY, NOON, 0)
    queue.checkpoint(NOON)
    (probe, _), *_ = queue.take(at(600))
    assert probe.key != "a"
    queue.settle(probe, DELIVERED, at(600), 0)
    resume_all(queue, events, at(600))
    answered = 0
    while taken := queue.take(at(600)):
        for event, _ in taken:
            queue.settle(event, BUSY if event.key == "a" else DELIVERED, at(600), 0)
            answered += event.key == "a"
    assert answered == 1
    assert not queue.breaker.is_open
    entry = queue.owed[FEED, "a"]
    assert (entry.attempts, entry.due, entry.planned_at) == (1, at(1200), at(600))
    assert not set("bcde") & {each.key for each in queue.owed.values()}


def test_an_event_that_always_asks_to_wait_is_a_dead_letter_in_the_end() -> None:
    queue, events = make_queue(*"ab", window=2)
    queue.schedule = (timedelta(0), timedelta(seconds=1), timedelta(seconds=1))
    queue.take(NOON)
    queue.settle(events[0], BUSY, NOON, 0)
    queue.settle(events[1], FAILED, NOON, 0)
    now, dead = at(600), []
    for _ in range(6):
        queue.checkpoint(now)
        resume_all(queue, events, now)
        for event, _ in queue.take(now):
            queue.settle(event, BUSY if event.key == "a" else DELIVERED, now, 0)
        dead += queue.checkpoint(now).dead
        now += timedelta(seconds=601)
    assert [letter.sequence for letter in dead] == [1]


def test_a_replay_that_is_asked_to_wait_again_does_not_hold_up_the_sink_again() -> None:
    queue, event = DeliveryQueue(window=1), make_event(3, "a")
    replay = Replay(7, FEED, 3, "a", 0, NOON)
    queue.admit_replay(replay, event, NOON)
    queue.settle(event, BUSY, NOON, 0)
    assert queue.checkpoint(NOON).postponed == [replace(replay, error="HTTP 429")]
    other = make_event(4, "b")
    queue.admit_replay(Replay(8, FEED, 4, "b", 0, NOON), other, at(600))
    queue.settle(other, DELIVERED, at(600), 0)
    queue.admit_replay(replay, event, at(600))
    queue.settle(event, BUSY, at(600), 0)
    assert not queue.breaker.is_open
    (again,) = queue.checkpoint(at(600)).postponed
    assert (again.attempts, again.due) == (1, at(1200))


def test_a_pause_that_was_asked_for_goes_on_after_a_restart() -> None:
    queue, events = make_queue("a")
    queue.restore({FEED: 0}, (), now=NOON, pause=Pause(at(-60), at(540)))
    queue.admit(FEED, events[1:], 1)
    queue.checkpoint(NOON)
    assert queue.take(at(539)) == []
    assert sequences(queue.take(at(540))) == [1]


def test_a_pause_lasts_no_longer_than_it_was_asked_for_by_a_clock_that_was_set_back() -> None:
    queue, _ = make_queue("a")
    queue.restore({FEED: 0}, (), now=NOON, pause=Pause(at(86_400), at(86_400 + 600)))
    assert queue.checkpoint(NOON).pause == Pause(NOON, at(600))


def test_a_pause_that_is_over_is_forgotten() -> None:
    queue, _ = make_queue("a")
    queue.restore({FEED: 0}, (), now=NOON, pause=Pause(at(-700), at(-100)))
    assert not queue.breaker.is_open
    assert sequences(queue.take(NOON)) == [1]


# What an operator asks for -------------------------------------------------------------------------------------------


def test_what_waits_is_due_at_once_when_an_operator_says_so() -> None:
    queue, events = make_queue(*"ab")
    queue.take(NOON)
    queue.settle(events[0], FAILED, NOON, 0)
    queue.settle(events[1], BUSY, NOON, 0)
    queue.checkpoint(NOON)
    queue.retry_now(at(1))
    resume_all(queue, events, at(1))
    assert sorted(sequences(queue.take(at(1)))) == [1, 2]


def test_a_key_that_is_held_waits_on_whatever_is_hurried() -> None:
    queue, _ = make_queue("a")
    queue.holds = True
    deliver(queue, REFUSED, NOON)
    queue.retry_now(at(1))
    assert queue.due(at(1), 99) == []


# How old an event may be, and how often one may go -------------------------------------------------------------------


def test_an_event_that_is_owed_for_too_long_is_not_attempted_again() -> None:
    queue = DeliveryQueue(window=1, max_owed=timedelta(days=30))
    queue.restore({FEED: 0}, ())
    event = dataclasses.replace(make_event(1, "a"), recorded_at=NOON - timedelta(days=31))
    queue.admit(FEED, [event], 1)
    queue.take(NOON)
    queue.settle(event, FAILED, NOON, 0)
    (letter,) = queue.checkpoint(NOON).dead
    assert (letter.sequence, letter.error) == (1, "HTTP 500")


def test_deliveries_are_spaced_and_a_pause_is_not_made_up_for_by_a_burst() -> None:
    queue, events = make_queue(*"abcd", spacing=timedelta(seconds=10))
    assert sequences(queue.take(NOON)) == [1]
    assert queue.take(at(9)) == []
    assert queue.wake_at(at(9)) == at(10)
    assert sequences(queue.take(at(35))) == [2]
    assert queue.take(at(35)) == []
    queue.settle(events[0], DELIVERED, at(36), 0)
    assert queue.replays_at(at(36)) is None
    assert sequences(queue.take(at(45))) == [3]


def test_what_is_blocked_keeps_its_plan_over_a_restart() -> None:
    queue = DeliveryQueue(window=1)
    entry = Blocked(FEED, "a", 1, 2, at(3600), "HTTP 503", planned_at=at(-10))
    queue.restore({FEED: 1}, [entry], now=NOON)
    assert queue.owed[FEED, "a"] == entry


def test_a_replay_that_is_taken_takes_back_no_dead_letters() -> None:
    queue, events = make_queue(*"ab", window=1)
    deliver(queue, REFUSED, NOON)
    assert queue.admit_replay(Replay(7, FEED, 1, "a", 0, NOON), events[0], at(1))
    queue.settle(events[0], DELIVERED, at(1), 0)
    assert not queue.checkpoint(at(1)).revived
    assert not queue.owed


def test_what_an_operator_has_decided_of_dead_letters_is_not_decided_again() -> None:
    queue, events = make_queue(*"abc", window=1)
    deliver(queue, REFUSED, NOON, most=2)
    queue.forget_refusals()
    queue.take(at(1))
    queue.settle(events[2], DELIVERED, at(1), 0)
    assert not queue.checkpoint(at(1)).revived
