from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dockbell.config import RETRY_SCHEDULE
from dockbell.core.model import Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.retry import Breaker, Failure, next_attempt, plan_anew

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
FAILED = Outcome(OutcomeKind.FAILED, "HTTP 500")
UNREACHABLE = Outcome(OutcomeKind.UNREACHABLE, "connection refused")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def event(key: str, sequence: int = 1) -> Event:
    return Event(FEED, sequence, key, "evt_1", "dockbell.shipment.updated", "updated", 1, b"{}")


def test_each_failure_waits_longer_until_the_last_pause_of_the_schedule_was_used() -> None:
    pauses = [next_attempt(RETRY_SCHEDULE, attempts, NOW, 0.0) for attempts in range(1, len(RETRY_SCHEDULE))]
    assert pauses == [NOW + pause for pause in RETRY_SCHEDULE[1:]]
    assert next_attempt(RETRY_SCHEDULE, len(RETRY_SCHEDULE), NOW, 0.0) is None


def test_the_usual_schedule_is_dense_at_the_start_and_lasts_about_three_days() -> None:
    assert RETRY_SCHEDULE[:4] == (timedelta(0), timedelta(seconds=5), timedelta(seconds=15), timedelta(seconds=45))
    assert timedelta(days=2.5) < sum(RETRY_SCHEDULE, timedelta()) < timedelta(days=3.5)


def test_retries_are_spread_over_a_tenth_of_the_pause() -> None:
    assert next_attempt(RETRY_SCHEDULE, 1, NOW, 1.0) == after(5.5)


def test_an_event_whose_receiver_asks_to_wait_waits_at_least_so_long_up_to_a_day() -> None:
    assert next_attempt(RETRY_SCHEDULE, 1, NOW, 0.0, timedelta(minutes=7)) == after(420)
    assert next_attempt(RETRY_SCHEDULE, 1, NOW, 0.0, timedelta(0)) == after(5)
    assert next_attempt(RETRY_SCHEDULE, 1, NOW, 0.0, timedelta(days=7)) == NOW + timedelta(days=1)


def test_what_was_planned_is_due_as_planned() -> None:
    assert plan_anew(after(-60), after(5), NOW) == after(5)
    assert plan_anew(after(-60), after(-55), NOW) == after(-55)


def test_what_was_planned_before_the_clock_was_set_back_waits_no_longer_than_it_was_to() -> None:
    assert plan_anew(after(3600), after(3605), NOW) == after(5)
    assert plan_anew(None, after(3600), NOW) == NOW


def test_one_delivery_that_reaches_nobody_opens_the_breaker() -> None:
    breaker = Breaker()
    assert breaker.fail(event("1"), UNREACHABLE, NOW, NOW)
    assert breaker.probe_at == after(1)


def test_one_event_that_fails_again_and_again_does_not_open_the_breaker() -> None:
    breaker = Breaker()
    assert not any(breaker.fail(event("1"), FAILED, NOW, NOW) for _ in range(20))


def test_five_events_of_one_key_that_are_refused_in_a_row_open_the_breaker() -> None:
    breaker = Breaker()
    refused = Outcome(OutcomeKind.REFUSED, "HTTP 400")
    assert [breaker.fail(event("1", each), refused, NOW, NOW) for each in range(5)] == [False] * 4 + [True]


def test_five_failures_in_a_row_of_two_events_open_the_breaker() -> None:
    breaker = Breaker()
    failing = [event("1"), event("2"), event("1"), event("2"), event("1")]
    assert [breaker.fail(each, FAILED, NOW, NOW) for each in failing] == [False] * 4 + [True]


def test_five_keys_that_fail_in_a_row_open_the_breaker() -> None:
    breaker = Breaker()
    assert [breaker.fail(event(str(key)), FAILED, NOW, NOW) for key in range(5)] == [False] * 4 + [True]


def test_a_success_between_begins_the_row_anew() -> None:
    breaker = Breaker()
    for key in range(4):
        breaker.fail(event(str(key)), FAILED, NOW, NOW)
    breaker.succeed(NOW)
    assert not breaker.fail(event("9"), FAILED, NOW, NOW)


def test_probes_that_fail_come_less_often_up_to_half_a_minute() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), UNREACHABLE, NOW, NOW)
    pauses = []
    now = NOW
    for _ in range(7):
        assert breaker.probe_at is not None
        pauses.append((breaker.probe_at - now).total_seconds())
        now = breaker.probe_at
        breaker.fail(event("1"), UNREACHABLE, now, now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_what_was_under_way_when_the_breaker_opened_is_no_probe() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), UNREACHABLE, after(5), NOW)
    breaker.fail(event("2"), UNREACHABLE, after(5.1), NOW)
    assert breaker.probe_at == after(6)


def test_a_receiver_that_wishes_for_no_pause_is_probed_no_sooner_than_any() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(0)), NOW, NOW)
    assert breaker.probe_at == after(1)


def test_the_receivers_wish_to_wait_holds_for_the_whole_sink_up_to_a_day() -> None:
    breaker = Breaker()
    assert breaker.fail(event("1"), Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(minutes=7)), NOW, NOW)
    assert breaker.probe_at == after(420)
    breaker.fail(event("1"), Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(days=7)), NOW, NOW)
    assert breaker.probe_at == NOW + timedelta(days=1)


def test_of_several_wishes_to_wait_that_were_under_way_the_longest_holds() -> None:
    breaker = Breaker()
    for seconds in (60, 600, 1):
        breaker.fail(event("1"), Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(seconds=seconds)), after(1), NOW)
    assert breaker.probe_at == after(601)


def test_a_success_that_was_under_way_before_the_breaker_opened_does_not_close_it() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), UNREACHABLE, after(1), NOW)
    assert not breaker.succeed(NOW)
    assert breaker.is_open
    assert breaker.succeed(after(2))
    assert not breaker.is_open


def test_a_success_ends_the_row_of_the_failures_before_it_alone() -> None:
    breaker = Breaker()
    for key in range(4):
        breaker.fail(event(str(key)), FAILED, after(key), NOW)
    breaker.succeed(after(1))
    assert [breaker.fail(event(str(key)), FAILED, after(key), NOW) for key in range(4, 7)] == [False, False, True]


def test_keys_that_fail_as_probes_are_not_remembered() -> None:
    breaker = Breaker()
    for key in range(100):
        breaker.fail(event(str(key)), UNREACHABLE, after(100 * key), after(100 * key))
    assert breaker.streak == [Failure(FEED, "0", 1, NOW)]


def test_a_pause_that_was_asked_for_goes_on_as_long_by_a_clock_that_was_set_forward() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(minutes=7)), NOW, NOW)
    breaker.shift_pause(timedelta(hours=1))
    assert (breaker.asked_at, breaker.probe_at) == (after(3600), after(3600 + 420))


def test_a_pause_that_nobody_asked_for_ends_by_whatever_clock() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), UNREACHABLE, NOW, NOW)
    breaker.shift_pause(timedelta(hours=1))
    assert breaker.probe_at == after(1)


def test_a_probe_that_is_asked_for_no_pause_ends_the_one_before() -> None:
    breaker = Breaker()
    breaker.fail(event("1"), Outcome(OutcomeKind.FAILED, "HTTP 503", timedelta(minutes=7)), NOW, NOW)
    breaker.fail(event("1"), FAILED, after(421), after(420.5))
    assert breaker.asked_at is None
