"""Whom a delivery queue believes a refusal to speak against: the event, or the receiver."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.settlement import Blocked, Replay, Settlement
from tests.core.publishing.test_delivery_queue import (
    BUSY,
    CLOSED,
    FAILED,
    FEED,
    NOON,
    REFUSED,
    UNFIT,
    UNREACHABLE,
    at,
    deliver,
    make_event,
    make_queue,
    resume_all,
)


def test_refusals_of_five_keys_in_a_row_are_the_receivers_and_are_taken_back() -> None:
    queue, events = make_queue(*"abcdeabcde", window=1)
    saved: list[Settlement] = []
    for event in events[:5]:
        queue.take(NOON)
        queue.settle(event, REFUSED, NOON, 0)
        saved.append(queue.checkpoint(NOON))
    assert [letter.sequence for each in saved for letter in each.dead] == [1, 2, 3, 4]
    assert [letter.sequence for letter in saved[-1].revived] == [1, 2, 3, 4]
    assert {(entry.key, entry.sequence, entry.attempts) for entry in saved[-1].blocked.values()} == {
        (key, sequence, 0) for sequence, key in enumerate("abcde", start=1)
    }
    assert queue.take(NOON) == []
    order = []
    resume_all(queue, events, at(1))
    while taken := queue.take(at(1)):
        queue.settle(taken[0][0], DELIVERED, at(1), 0)
        order.append(taken[0][0].sequence)
        resume_all(queue, events, at(1))
    assert sorted(order) == list(range(1, 11))
    assert [sequence for sequence in order if sequence > 5] == sorted(order)[5:]


def test_what_was_to_follow_a_dead_letter_waits_behind_it_again_when_it_is_taken_back() -> None:
    queue, _ = make_queue(*"abcdea", window=5)
    taken = queue.take(NOON)
    for event, _ in taken:
        queue.settle(event, REFUSED, NOON, 0)
    assert queue.take(at(1)) == []
    assert queue.owed[FEED, "a"].sequence == 1
    assert not queue.checkpoint(NOON).dead


def test_what_a_receiver_refuses_again_after_it_has_taken_others_is_dead_at_once_and_alone() -> None:
    queue, events = make_queue(*"abcdef", window=5)
    deliver(queue, REFUSED, NOON, most=5)
    assert len(queue.owed) == 5
    queue.take(at(1))
    queue.settle(events[5], DELIVERED, at(1), 0)
    queue.checkpoint(at(1))
    dead: list[int] = []
    for _ in range(3):  # what has failed before takes half of the window
        resume_all(queue, events, at(1))
        for event, _ in queue.take(at(1)):
            queue.settle(event, REFUSED if event.key == "c" else DELIVERED, at(1), 0)
        dead += [letter.sequence for letter in queue.checkpoint(at(1)).dead]
    assert dead == [3]
    resume_all(queue, events, at(2))
    assert not queue.owed


def test_while_everything_is_refused_other_keys_have_their_turn_as_probes_and_nothing_dies() -> None:
    queue, events = make_queue(*"abcdefgh", window=5)
    deliver(queue, REFUSED, NOON, most=5)
    queue.checkpoint(NOON)
    probed: list[int] = []
    now = NOON
    while len(probed) < 6:
        now += timedelta(seconds=31)
        resume_all(queue, events, now)
        probed += deliver(queue, REFUSED, now, most=1)
    assert sorted(probed[:3]) == [6, 7, 8]
    assert not queue.checkpoint(now).dead
    assert len(queue.breaker.streak) == 5


def test_a_success_that_was_under_way_before_the_refusals_does_not_confirm_them() -> None:
    """An old instance still answers while the new one refuses all."""
    queue, events = make_queue(*"abcdef", window=6)
    queue.take(NOON)
    for number, event in enumerate(events[:4], start=1):
        queue.settle(event, REFUSED, at(number), 0)
    queue.settle(events[4], DELIVERED, at(5), 0)
    queue.settle(events[5], REFUSED, at(6), 0)
    settlement = queue.checkpoint(at(6))
    assert not settlement.dead
    assert {entry.sequence for entry in settlement.blocked.values()} == {1, 2, 3, 4, 6}


def test_a_success_that_was_under_way_does_not_close_the_breaker() -> None:
    queue, events = make_queue("a", "b", "c")
    queue.take(NOON)
    queue.settle(events[0], BUSY, at(1), 0)
    queue.settle(events[1], DELIVERED, at(2), 0)
    queue.settle(events[2], Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(seconds=1)), at(3), 0)
    assert queue.breaker.probe_at == at(601)


def test_a_refusal_that_others_do_not_share_is_final_once_an_event_is_taken() -> None:
    queue, events = make_queue(*"abcdefghi", window=1)
    for event in events:
        queue.take(NOON)
        queue.settle(event, REFUSED if event.key in "bdh" else DELIVERED, NOON, 0)
        queue.checkpoint(NOON)
    assert not queue.owed
    assert not queue.breaker.is_open


def test_what_cannot_be_sent_is_dead_at_once_and_says_nothing_of_the_receiver() -> None:
    queue, _ = make_queue(*"abcdefgh", window=1)
    assert deliver(queue, UNFIT, NOON) == list(range(1, 9))
    assert not queue.owed
    assert not queue.breaker.is_open


def test_a_closed_receiver_is_noted_and_its_events_stay_owed_without_an_attempt() -> None:
    queue, events = make_queue("a", "a")
    queue.take(NOON)
    queue.settle(events[0], CLOSED, NOON, 0)
    assert queue.closed == "HTTP 410"
    assert queue.checkpoint(NOON).blocked == {(FEED, "a"): Blocked(FEED, "a", 1, 0, NOON, "HTTP 410")}
    resume_all(queue, events, NOON)
    assert queue.take(NOON) == [(events[0], 1)]


@pytest.mark.slow
def test_entries_that_are_set_anew_again_and_again_do_not_pile_up() -> None:
    queue = DeliveryQueue(window=1)
    queue.restore({FEED: 1}, [Blocked(FEED, "a", 1, 8, NOON)])
    event, now = make_event(1, "a"), NOON
    for _ in range(3000):
        now += timedelta(days=2)
        resume_all(queue, [event], now)
        queue.take(now)
        queue.settle(event, FAILED, now, 0)
        queue._block(Blocked(FEED, "a", 1, 8, now))
    assert len(queue._blocked._due) <= 1100


@pytest.mark.parametrize("outcome", [FAILED, REFUSED])
@pytest.mark.parametrize("order", ["mixed", "bad first"])
def test_a_kind_of_record_that_is_never_taken_does_not_stop_the_others(outcome: Outcome, order: str) -> None:
    kinds = ["bad", "good"] * 60 if order == "mixed" else ["bad"] * 60 + ["good"] * 60
    queue, events = make_queue(*(f"{kind}{number}" for number, kind in enumerate(kinds)), window=4)
    taken_by: dict[str, float] = {}
    dead: set[str] = set()
    for tenths in range(1200):
        resume_all(queue, events, at(tenths / 10))
        for event, _ in queue.take(at(tenths / 10)):
            is_good = event.key.startswith("good")
            queue.settle(event, DELIVERED if is_good else outcome, at(tenths / 10), 0)
            if is_good:
                taken_by[event.key] = tenths / 10
        settlement = queue.checkpoint(at(tenths / 10))
        dead = dead - {letter.key for letter in settlement.revived} | {letter.key for letter in settlement.dead}
    assert len(taken_by) == 60
    assert max(taken_by.values()) < (10 if order == "mixed" else 90)
    assert all(key.startswith("bad") for key in dead)
    waiting = {entry.key: entry.attempts for entry in queue.owed.values()}
    if outcome is REFUSED:
        assert len(dead) == 60
    else:
        assert len(waiting) == 60
        assert min(waiting.values()) >= 1  # in the end it is their own fault, and they will die of it


def test_a_refusal_after_silence_is_judged_anew() -> None:
    """Somebody is there again, who judges events: one that is refused alone is to blame itself."""
    queue, events = make_queue("a", window=1)
    queue.take(NOON)
    queue.settle(events[0], UNREACHABLE, NOON, 0)
    resume_all(queue, events, at(1))
    assert queue.take(at(1)) == [(events[0], 1)]
    queue.settle(events[0], REFUSED, at(1), 0)
    assert [letter.sequence for letter in queue.checkpoint(at(1)).dead] == [1]
    assert not queue.breaker.is_open


def test_replays_that_are_all_refused_wait_like_live_events() -> None:
    queue, events = make_queue(*"abcdefgh", window=8)
    for event, _ in queue.take(NOON):
        queue.settle(event, DELIVERED, NOON, 0)
    queue.checkpoint(NOON)
    dead, postponed = 0, 0
    for event in events:
        replay = Replay(event.sequence, FEED, event.sequence, event.key, 0, NOON)
        if queue.replays_at(NOON) != NOON:
            break
        assert queue.admit_replay(replay, event, NOON)
        queue.settle(event, REFUSED, NOON, 0)
        settlement = queue.checkpoint(NOON)
        dead, postponed = dead + len(settlement.dead), postponed + len(settlement.postponed)
    assert queue.breaker.is_open
    assert (dead, postponed) == (4, 1)


def test_what_waits_for_its_next_attempt_does_not_wait_for_a_clock_that_was_set_back() -> None:
    queue, hour = DeliveryQueue(window=1), 3600
    entries = [
        Blocked(FEED, "a", 1, 1, at(3 * hour + 5), planned_at=at(3 * hour)),
        Blocked(FEED, "b", 2, 3, at(60), planned_at=at(-hour)),
        Blocked(FEED, "c", 3, 0, at(3 * hour)),
    ]
    queue.restore({FEED: 3}, entries, now=NOON)
    assert {entry.key: entry.due for entry in queue.owed.values()} == {"a": at(5), "b": at(60), "c": NOON}


def test_a_key_with_more_events_than_can_be_read_ahead_does_not_keep_others_from_being_read() -> None:
    queue, events = make_queue(*["hot"] * 1000, window=2)
    assert [event.sequence for event, _ in queue.take(NOON)] == [1]
    assert queue.capacity == 0
    queue.settle(events[0], DELIVERED, NOON, 0)
    queue.take(NOON)
    settlement = queue.checkpoint(NOON)
    assert queue.capacity == 1000
    assert settlement.positions == {FEED: 1000}
    assert {(entry.key, entry.sequence, entry.attempts) for entry in settlement.blocked.values()} == {("hot", 2, 0)}
