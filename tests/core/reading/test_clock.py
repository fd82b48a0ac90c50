from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import ClockSource
from dockbell.core.reading.clock import ABSURD, KEPT, TOLERANCE, UNCONTRADICTED, ServiceClock, WindowClock
from dockbell.core.reading.response import WINDOW, Response, ServiceTime, service_time

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
ZERO = timedelta(0)


def http(moment: datetime) -> str:
    return format_datetime(moment.replace(microsecond=0), usegmt=True)


@dataclass
class World:
    """A service whose clock may be off from ours, and ours, which may step."""

    skew: timedelta = ZERO  # the service's clock less the true time
    step: timedelta = ZERO  # our wall clock less the true time
    ticks: timedelta = timedelta(hours=7)
    clock: ServiceClock = field(default_factory=ServiceClock)

    @property
    def service(self) -> datetime:
        """The service's time."""
        return NOON + self.ticks + self.skew

    def pass_(self, time: timedelta) -> None:
        self.ticks += time

    def sleep(self, time: timedelta) -> None:
        """Let time pass that our monotonic clock does not see."""
        self.skew += time
        self.step += time

    def answer(self, date: str | None = "", *, took: timedelta = SECOND / 5, reset: str | None = None) -> Response:
        """Return an answer of now, dated truly unless told otherwise."""
        headers = {"date": http(self.service) if date == "" else date, "x-ratelimit-reset": reset}
        sent_at = NOON + self.ticks + self.step
        return Response(
            200,
            {name: text for name, text in headers.items() if text is not None},
            b"",
            sent_at,
            sent_at + took,
            sent_at + took,
            self.ticks,
        )

    def time_of(self, date: str | None = "", *, took: timedelta = SECOND / 5, reset: str | None = None) -> ServiceTime:
        return self.clock.time_of(self.answer(date, took=took, reset=reset))

    def off(self, time: ServiceTime) -> timedelta:
        """Return how far a time lies ahead of the service's."""
        return time.asked_at - self.service


durations = st.timedeltas(ZERO, 2 * KEPT)
skews = st.timedeltas(-ABSURD + 60 * SECOND, ABSURD - 60 * SECOND)
absurd = st.timedeltas(-20000 * DAY, -2 * DAY) | st.timedeltas(2 * DAY, 30000 * DAY)


@given(skews, st.lists(st.tuples(durations, st.timedeltas(ZERO, 30 * SECOND)), max_size=10))
def test_a_clock_that_goes_right_is_taken_at_its_word(
    skew: timedelta, answers: list[tuple[timedelta, timedelta]]
) -> None:
    world = World(skew=skew)
    for pause, took in answers:
        world.pass_(pause)
        response = world.answer(took=took)
        assert world.clock.time_of(response) == service_time(response)


@given(skews, st.lists(st.timedeltas(ZERO, 90 * SECOND), min_size=1, max_size=10), st.timedeltas(ZERO, SECOND))
def test_the_service_s_time_is_estimated_within_half_a_second(
    skew: timedelta, pauses: list[timedelta], took: timedelta
) -> None:
    world = World(skew=skew)
    for pause in pauses:
        world.pass_(pause)
        response = world.answer(took=took)
        time = world.clock.time_of(response)
        estimate = world.clock.estimate(response, time)
        assert time.asked_at <= estimate <= time.answered_at
        # The service writes ``Date`` at some moment between the request and the answer.
        assert abs(estimate - world.service) <= SECOND / 2 + took


@pytest.mark.parametrize("skew", [ZERO, 3 * SECOND, -37.3 * SECOND])
def test_answers_at_other_fractions_of_a_second_tell_its_time_nearly(skew: timedelta) -> None:
    world, took = World(skew=skew), SECOND / 50
    for _ in range(60):
        world.pass_(1.07 * SECOND)
        response = world.answer(took=took)
        time = world.clock.time_of(response)
    assert abs(world.clock.estimate(response, time) - (world.service + took / 2)) < SECOND / 20


def test_without_date_our_clock_is_the_service_s() -> None:
    world = World()
    response = world.answer(None)
    assert world.clock.estimate(response, world.clock.time_of(response)) == response.answered_at


@given(skews, absurd | st.timedeltas(10 * SECOND, DAY), durations, durations)
def test_one_wrong_date_never_puts_the_time_ahead(
    skew: timedelta, error: timedelta, before: timedelta, after: timedelta
) -> None:
    world = World(skew=skew)
    for pause in (ZERO, before):
        world.pass_(pause)
        world.time_of()

    wrong = world.time_of(http(world.service + error))
    # Only our own clock, if it says the same, is another witness.
    if abs(skew + error) > TOLERANCE + 2 * SECOND:
        assert world.off(wrong) <= TOLERANCE

    world.pass_(after)
    right = world.time_of()
    assert -2 * SECOND < world.off(right) <= ZERO


@given(absurd, st.lists(st.booleans(), max_size=20), st.timedeltas(ZERO, UNCONTRADICTED * 3))
def test_absurd_dates_among_right_ones_are_never_believed(
    error: timedelta, pattern: list[bool], pause: timedelta
) -> None:
    world = World()
    world.time_of()
    for wrong in pattern:
        world.pass_(pause)
        time = world.time_of(http(world.service + (error if wrong else ZERO)))
        assert world.off(time) <= TOLERANCE


def test_an_absurd_clock_ahead_is_not_believed_however_long_it_says_so() -> None:
    world = World()
    world.time_of()
    for _ in range(100):
        world.pass_(60 * SECOND)
        time = world.time_of("Thu, 01 Jan 2099 00:00:00 GMT")
        assert -2 * SECOND < world.off(time) <= ZERO
        assert time.clock is ClockSource.DATE
        assert time.answered_at >= world.service


def test_an_absurd_clock_behind_is_believed_after_a_minute_and_never_puts_the_time_ahead() -> None:
    world = World()
    world.time_of()
    world.skew = -30 * DAY
    assert world.time_of().asked_at <= world.service
    assert not world.clock.doubtful
    world.pass_(UNCONTRADICTED)
    assert world.time_of().asked_at <= world.service
    assert -2 * SECOND < world.off(world.time_of(None)) <= ZERO


def test_one_absurd_date_behind_is_forgotten_at_once() -> None:
    world = World()
    world.time_of()
    assert world.time_of("Thu, 01 Jan 2015 00:00:00 GMT").asked_at.year == 2014
    assert -2 * SECOND < world.off(world.time_of()) <= ZERO


@given(st.timedeltas(10 * SECOND, ABSURD - 120 * SECOND))
def test_a_step_ahead_of_the_service_is_believed_once_nothing_contradicted_it_for_a_minute(step: timedelta) -> None:
    world = World(skew=-step)
    world.time_of()
    world.skew = 30 * SECOND  # not what our own clock says
    for _ in range(6):
        assert world.off(world.time_of()) < -8 * SECOND
        world.pass_(UNCONTRADICTED / 6)

    assert -2 * SECOND < world.off(world.time_of()) <= ZERO


def test_an_answer_in_between_that_says_what_was_known_begins_the_minute_anew() -> None:
    world = World()
    for number in range(20):
        world.pass_(UNCONTRADICTED / 3)
        ahead = number % 3
        time = world.time_of(http(world.service + (timedelta(minutes=10) if ahead else ZERO)))
        assert world.off(time) <= ZERO


def test_a_clock_that_runs_slow_is_followed() -> None:
    world = World()
    for _ in range(1000):
        world.pass_(60 * SECOND)
        world.skew -= SECOND / 20
        assert -2 * SECOND < world.off(world.time_of()) <= ZERO
        assert -3 * SECOND < world.off(world.time_of(None)) <= SECOND


def test_a_clock_that_runs_fast_is_followed() -> None:
    world = World(skew=timedelta(hours=1))
    for _ in range(1000):
        world.pass_(60 * SECOND)
        world.skew += SECOND / 20
        assert -2 * SECOND < world.off(world.time_of()) <= ZERO
        assert -3 * SECOND < world.off(world.time_of(None)) <= ZERO


def test_a_step_back_of_the_service_is_followed_at_once() -> None:
    world = World()
    world.time_of()
    world.skew = -timedelta(hours=1)
    for _ in range(3):
        world.pass_(SECOND)
        assert -2 * SECOND < world.off(world.time_of()) <= ZERO


@given(st.timedeltas(ZERO, 30 * DAY))
def test_after_our_machine_slept_our_own_clock_confirms_the_first_answer(time: timedelta) -> None:
    world = World()
    world.time_of()
    world.sleep(time)

    assert -2 * SECOND < world.off(world.time_of()) <= ZERO


@given(st.timedeltas(-10000 * DAY, 10000 * DAY), skews)
def test_no_step_of_our_wall_clock_moves_a_time_that_the_service_tells(step: timedelta, skew: timedelta) -> None:
    world = World(skew=skew)
    world.time_of()
    world.step = step

    assert -2 * SECOND < world.off(world.time_of()) <= ZERO
    assert -2 * SECOND < world.off(world.time_of(None)) <= ZERO


@pytest.mark.parametrize("step", [timedelta(hours=1), -timedelta(hours=1), 3000 * DAY, -3000 * DAY])
def test_where_the_service_tells_no_time_a_step_of_ours_ahead_must_last_a_minute(step: timedelta) -> None:
    world = World()
    before = world.time_of(None)
    assert (before.asked_at, before.clock) == (world.service, ClockSource.LOCAL)

    world.step = step
    at_once = world.time_of(None)
    assert world.off(at_once) == min(step, ZERO)
    world.pass_(UNCONTRADICTED)
    assert world.off(world.time_of(None)) == step


@given(absurd)
def test_a_first_date_that_is_absurd_is_doubtful_until_a_second_answer_says_the_same(skew: timedelta) -> None:
    world = World(skew=skew)

    first = world.time_of()
    assert first.clock is ClockSource.LOCAL
    assert world.clock.doubtful

    world.pass_(SECOND / 2)
    second = world.time_of()
    assert second.clock is ClockSource.DATE
    assert -2 * SECOND < world.off(second) <= ZERO
    assert not world.clock.doubtful


def test_a_first_date_that_is_absurd_is_forgotten_for_a_right_one() -> None:
    world = World()
    world.time_of("Thu, 01 Jan 2099 00:00:00 GMT")

    assert world.time_of().clock is ClockSource.DATE
    assert not world.clock.doubtful


@pytest.mark.parametrize("date", [None, "junk", "Sat, 21 Nov 1926 02:31:00 GMT"])
def test_without_a_date_the_window_tells_the_time(date: str | None) -> None:
    world = World()

    def told() -> str:
        return str(int(world.service.timestamp()) + 30)

    time = world.time_of(date, reset=told())
    assert (time.clock, world.off(time)) == (ClockSource.RESET, -30 * SECOND)

    world.pass_(10 * SECOND)
    absurd_date = world.time_of("Thu, 01 Jan 2099 00:00:00 GMT", reset=told())
    assert absurd_date.clock is ClockSource.RESET
    assert -61 * SECOND <= world.off(absurd_date) <= ZERO


def test_what_dates_told_outlives_them_for_an_hour() -> None:
    world = World(skew=timedelta(hours=-3))
    world.time_of()

    world.pass_(KEPT)
    time = world.time_of(None)
    assert time.clock is ClockSource.DATE
    assert -2 * SECOND < world.off(time) <= ZERO
    assert time.answered_at >= world.service

    world.pass_(SECOND * 2)
    assert world.time_of(None).clock is ClockSource.LOCAL


def test_a_date_that_stands_still_never_puts_the_time_ahead() -> None:
    world = World()
    date = http(world.service)
    for _ in range(50):
        assert world.off(world.time_of(date)) <= ZERO
        world.pass_(7 * SECOND)


@given(
    st.lists(
        st.tuples(
            durations, skews | absurd, st.timedeltas(-10000 * DAY, 10000 * DAY), st.sampled_from(["", None, "junk"])
        ),
        max_size=12,
    )
)
def test_whatever_happens_a_time_is_told_and_its_bounds_are_in_order(
    happenings: list[tuple[timedelta, timedelta, timedelta, str | None]],
) -> None:
    world = World()
    for pause, skew, step, date in happenings:
        world.pass_(pause)
        world.skew, world.step = skew, step
        time = world.time_of(date)
        assert time.asked_at <= time.answered_at


limiter_skews = st.timedeltas(-timedelta(days=9000), timedelta(days=9000))


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


@given(
    limiter_skews,
    st.lists(st.tuples(st.timedeltas(ZERO, 10 * WINDOW), st.timedeltas(ZERO, 30 * SECOND)), min_size=1),
)
def test_a_window_is_never_believed_to_end_before_it_does(
    limiter: timedelta, answers: list[tuple[timedelta, timedelta]]
) -> None:
    clock, ticks = WindowClock(), timedelta(hours=7)
    for pause, took in answers:
        ticks += pause
        assert left(ticks, limiter) - took <= read(clock, answer(ticks, limiter, took=took)) <= WINDOW


@given(limiter_skews, st.none() | limiter_skews)
def test_after_two_minutes_of_answers_the_end_is_known_to_the_second(
    limiter: timedelta, date: timedelta | None
) -> None:
    clock = WindowClock()
    for second in range(120):
        read(clock, answer(second * SECOND, limiter, date=date))

    ticks = 120 * SECOND
    assert abs(read(clock, answer(ticks, limiter, date=date)) - left(ticks, limiter)) <= 4 * SECOND


@given(limiter_skews)
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
