from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st

from dockbell.app.scheduler import next_time
from dockbell.config.values import check_cron

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@st.composite
def _numbers(draw: st.DrawFn, low: int, high: int) -> str:
    first = draw(st.integers(low, high))
    last = draw(st.none() | st.integers(first, high))
    width = (high if last is None else last) - first
    step = draw(st.none() | st.integers(1, width)) if width else None
    return f"{first}{'' if last is None else f'-{last}'}{'' if step is None else f'/{step}'}"


def _lists(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(items | st.just("*"), min_size=1, max_size=3).map(",".join)


CRONS = st.tuples(
    _lists(_numbers(0, 59) | st.just("*/5")),
    _lists(_numbers(0, 23)),
    _lists(_numbers(1, 31)),
    _lists(_numbers(1, 12) | st.sampled_from(["jan", "mar-dec"])),
    _lists(st.sampled_from([*DAYS, "mon-fri", "sat-sun"])),
).map(" ".join)


@given(CRONS)
def test_a_schedule_is_accepted_as_it_is_when_the_scheduler_finds_a_day_for_it(text: str) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    if CronTrigger.from_crontab(text, UTC).get_next_fire_time(None, now) is None:
        with pytest.raises(ValueError, match="no such month has such a day"):
            check_cron(text)
    else:
        assert check_cron(text) == text
        assert next_time(text, now) > now


@pytest.mark.parametrize("days", ["0 0 30 2 *", "0 0 31 4,jun,9-9 *", "0 0 30-31 feb *", "0 0 30/1 feb mon"])
def test_a_day_that_no_month_has_is_refused(days: str) -> None:
    with pytest.raises(ValueError, match="no such month has such a day"):
        check_cron(days)


@pytest.mark.parametrize("days", ["0 0 29 2 *", "0 0 31 4,5 *", "0 0 */30 * *", "0 0 1,31 feb *"])
def test_a_day_that_some_month_has_is_accepted(days: str) -> None:
    assert check_cron(days) == days


@given(st.text(alphabet="0123456789*/-, adefijlmnorstu", max_size=20).map(lambda text: text + " * * *"))
def test_the_scheduler_takes_whatever_is_accepted(text: str) -> None:
    try:
        schedule = check_cron(text)
    except ValueError:
        return
    CronTrigger.from_crontab(schedule)


def test_letters_and_spaces_are_normalised() -> None:
    assert check_cron("  30 6\t* JAN-Mar Mon-FRI ") == "30 6 * jan-mar mon-fri"


@pytest.mark.parametrize("text", ["", "@daily", "* * * *", "0 30 6 * * mon"])
def test_other_than_five_fields_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must have five fields \(minute, hour, day, month, day of the week\)"):
        check_cron(text)


@pytest.mark.parametrize("day", ["0", "1-5", "*/2", "mon-5", "mon,2"])
def test_days_of_the_week_by_number_are_refused_with_the_reason(day: str) -> None:
    with pytest.raises(ValueError, match="libraries disagree whether 0 is Sunday or Monday; use mon, tue, wed"):
        check_cron(f"0 6 * * {day}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("60 * * * *", 'minute must be *, 0 to 59, a range or a list of them, got "60"'),
        ("9-1 * * * *", 'minute must be *, 0 to 59, a range or a list of them, got "9-1"'),
        ("*/0 * * * *", 'minute must be *, 0 to 59, a range or a list of them, got "*/0"'),
        ("*-5 * * * *", 'minute must be *, 0 to 59, a range or a list of them, got "*-5"'),
        ("1,, * * * *", 'minute must be *, 0 to 59, a range or a list of them, got ""'),
        ("* noon * * *", 'hour must be *, 0 to 23, a range or a list of them, got "noon"'),
        ("* * 0 * *", 'day of the month must be *, 1 to 31, a range or a list of them, got "0"'),
        ("* * * mai *", 'month must be *, 1 to 12 or jan to dec, a range or a list of them, got "mai"'),
        ("* * * 1-mar *", 'month must be *, 1 to 12 or jan to dec, a range or a list of them, got "1-mar"'),
        ("* * * jan-3 *", 'month must be *, 1 to 12 or jan to dec, a range or a list of them, got "jan-3"'),
        ("* * * * fri-mon", 'day of the week must be *, mon to sun, a range or a list of them, got "fri-mon"'),
        ("* * * * mo", 'day of the week must be *, mon to sun, a range or a list of them, got "mo"'),
    ],
)
def test_an_impossible_field_is_named_with_what_it_may_hold(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        check_cron(text)
