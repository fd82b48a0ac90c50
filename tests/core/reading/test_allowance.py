from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.reading.allowance import WindowClock
from dockbell.core.reading.response import Response
from dockbell.core.reading.response_headers import WINDOW

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ZERO = timedelta(0)

skews = st.timedeltas(-timedelta(days=9000), timedelta(days=9000))


def answer(ticks: timedelta, limiter: timedelta, *, date: timedelta | None = None, took: timedelta = ZERO) -> Response:
    """Return an answer of ``ticks``; the limiter's clock and that of ``Date`` are off from ours by so much."""
    counted = NOON + ticks + limiter
    reset = (int(counted.timestamp()) // 60 + 1) * 60
    headers = {"x-ratelimit-limit": "300", "x-ratelimit-remaining": "7", "x-ratelimit-reset": str(reset)}
    if date is not None:
        headers["date"] = format_datetime((NOON + ticks + date).replace(microsecond=0), usegmt=True)
    sent_at = NOON + ticks
    return Response(200, headers, b"", sent_at, sent_at + took, sent_at + took, ticks)


def left(ticks: timedelta, limiter: timedelta) -> timedelta:
    """Return how long the limiter's window really lasts."""
    return timedelta(seconds=60 - (NOON + ticks + limiter).timestamp() % 60)


def read(clock: WindowClock, response: Response) -> timedelta:
    allowance = clock.read(response)
    assert allowance is not None
    return allowance.resets_in


@given(skews, st.lists(st.tuples(st.timedeltas(ZERO, 10 * WINDOW), st.timedeltas(ZERO, 30 * SECOND)), min_size=1))
def test_a_window_is_never_believed_to_end_before_it_does(
    limiter: timedelta, answers: list[tuple[timedelta, timedelta]]
) -> None:
    clock, ticks = WindowClock(), timedelta(hours=7)
    for pause, took in answers:
        ticks += pause
        assert left(ticks, limiter) - took <= read(clock, answer(ticks, limiter, took=took)) <= WINDOW


@given(skews, st.none() | skews)
def test_after_two_minutes_of_answers_the_end_is_known_to_the_second(
    limiter: timedelta, date: timedelta | None
) -> None:
    clock = WindowClock()
    for second in range(120):
        read(clock, answer(second * SECOND, limiter, date=date))

    ticks = 120 * SECOND
    assert abs(read(clock, answer(ticks, limiter, date=date)) - left(ticks, limiter)) <= 4 * SECOND


@given(skews)
def test_a_date_of_the_limiter_s_clock_tells_the_end_at_once(skew: timedelta) -> None:
    ticks = timedelta(hours=7)

    assert abs(read(WindowClock(), answer(ticks, skew, date=skew)) - left(ticks, skew)) <= SECOND


def test_a_limiter_whose_clock_steps_is_learned_anew() -> None:
    clock = WindowClock()
    for second in range(120):
        read(clock, answer(second * SECOND, ZERO))

    for second in range(120, 240):
        resets_in = read(clock, answer(second * SECOND, -40 * SECOND))
        assert resets_in >= left(second * SECOND, -40 * SECOND) or second < 183

    assert abs(resets_in - left(239 * SECOND, -40 * SECOND)) <= 4 * SECOND


def test_a_reset_far_ahead_is_a_window_away_for_ever() -> None:
    clock = WindowClock()
    headers = {"x-ratelimit-limit": "9", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "4102444800"}

    for second in range(0, 600, 61):
        sent_at = NOON + second * SECOND
        response = Response(200, headers, b"", sent_at, sent_at, sent_at, second * SECOND)
        assert ZERO <= read(clock, response) <= WINDOW


def test_without_a_limit_there_is_no_allowance() -> None:
    assert WindowClock().read(Response(200, {}, b"", NOON, NOON, NOON)) is None
