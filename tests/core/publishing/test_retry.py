from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dockbell.core.model import Fate, Feed, Outcome
from dockbell.core.publishing.retry import SCHEDULE, Breaker, next_attempt

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
FAILED = Outcome(Fate.FAILED, "HTTP 500")
UNREACHABLE = Outcome(Fate.UNREACHABLE, "connection refused")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_each_failure_waits_longer_and_the_tenth_was_the_last() -> None:
    pauses = [moment - NOW for attempt in range(1, 10) if (moment := next_attempt(attempt, NOW, 0.0)) is not None]
    assert pauses == list(SCHEDULE)
    assert next_attempt(10, NOW, 0.0) is None


def test_retries_are_spread_over_a_tenth_of_the_pause() -> None:
    assert next_attempt(1, NOW, 1.0) == after(5.5)


def test_one_delivery_that_reaches_nobody_opens_the_breaker() -> None:
    breaker = Breaker()
    assert breaker.fail((FEED, "1"), UNREACHABLE, NOW, NOW)
    assert breaker.probe_at == after(1)


def test_one_key_that_fails_again_and_again_does_not_open_the_breaker() -> None:
    breaker = Breaker()
    assert not any(breaker.fail((FEED, "1"), FAILED, NOW, NOW) for _ in range(20))


def test_five_keys_that_fail_in_a_row_open_the_breaker() -> None:
    breaker = Breaker()
    assert [breaker.fail((FEED, str(key)), FAILED, NOW, NOW) for key in range(5)] == [False] * 4 + [True]


def test_a_success_between_begins_the_row_anew() -> None:
    breaker = Breaker()
    for key in range(4):
        breaker.fail((FEED, str(key)), FAILED, NOW, NOW)
    breaker.succeed(NOW)
    assert not breaker.fail((FEED, "9"), FAILED, NOW, NOW)


def test_probes_that_fail_come_less_often_up_to_half_a_minute() -> None:
    breaker = Breaker()
    breaker.fail((FEED, "1"), UNREACHABLE, NOW, NOW)
    pauses = []
    now = NOW
    for _ in range(7):
        assert breaker.probe_at is not None
        pauses.append((breaker.probe_at - now).total_seconds())
        now = breaker.probe_at
        breaker.fail((FEED, "1"), UNREACHABLE, now, now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_what_was_under_way_when_the_breaker_opened_is_no_probe() -> None:
    breaker = Breaker()
    breaker.fail((FEED, "1"), UNREACHABLE, after(5), NOW)
    breaker.fail((FEED, "2"), UNREACHABLE, after(5.1), NOW)
    assert breaker.probe_at == after(6)


def test_a_receiver_that_wishes_for_no_pause_is_probed_no_sooner_than_any() -> None:
    breaker = Breaker()
    breaker.fail((FEED, "1"), Outcome(Fate.FAILED, "HTTP 429", timedelta(0)), NOW, NOW)
    assert breaker.probe_at == after(1)


def test_the_receivers_wish_to_wait_holds_for_the_whole_sink_up_to_a_day() -> None:
    breaker = Breaker()
    assert breaker.fail((FEED, "1"), Outcome(Fate.FAILED, "HTTP 429", timedelta(minutes=7)), NOW, NOW)
    assert breaker.probe_at == after(420)
    breaker.fail((FEED, "1"), Outcome(Fate.FAILED, "HTTP 429", timedelta(days=7)), NOW, NOW)
    assert breaker.probe_at == NOW + timedelta(days=1)


def test_of_several_wishes_to_wait_that_were_under_way_the_longest_holds() -> None:
    breaker = Breaker()
    for seconds in (60, 600, 1):
        breaker.fail((FEED, "1"), Outcome(Fate.FAILED, "HTTP 429", timedelta(seconds=seconds)), after(1), NOW)
    assert breaker.probe_at == after(601)


def test_a_success_that_was_under_way_before_the_breaker_opened_does_not_close_it() -> None:
    breaker = Breaker()
    breaker.fail((FEED, "1"), UNREACHABLE, after(1), NOW)
    assert not breaker.succeed(NOW)
    assert breaker.is_open
    assert breaker.succeed(after(2))
    assert not breaker.is_open


def test_a_success_ends_the_row_of_the_failures_before_it_alone() -> None:
    breaker = Breaker()
    for key in range(4):
        breaker.fail((FEED, str(key)), FAILED, after(key), NOW)
    breaker.succeed(after(1))
    assert [breaker.fail((FEED, str(key)), FAILED, after(key), NOW) for key in range(4, 7)] == [False, False, True]


def test_keys_that_fail_as_probes_are_not_remembered() -> None:
    breaker = Breaker()
    for key in range(100):
        breaker.fail((FEED, str(key)), UNREACHABLE, after(100 * key), after(100 * key))
    assert list(breaker.streak) == [(FEED, "0")]
