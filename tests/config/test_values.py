from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st

from dockbell.app.next_time import next_time
from dockbell.config import format_duration, parse_duration
from dockbell.config.values import check_cron, conceal_url, find_taken, redact_url, show, split_url

DURATIONS = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=36_500))


@given(DURATIONS)
def test_every_duration_is_read_back_from_its_text(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(max_size=12))
def test_a_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        assert parse_duration(text) >= timedelta()
    except ValueError as error:
        assert str(error).startswith("must be a duration")  # noqa: PT017  # either outcome is right


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0s", timedelta()),
        ("250ms", timedelta(milliseconds=250)),
        ("90s", timedelta(seconds=90)),
        ("1.5h", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("36500d", timedelta(days=36_500)),
    ],
)
def test_a_duration_is_read_from_text(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "value", ["", "15", "s", "15 s", "-15s", "1s1", "\u0661s", "15S", 15, 1.5, True, None, ["15s"]]
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r'^must be a duration such as "90s", "5m", "24h" or "7d", got '):
        parse_duration(value)


@pytest.mark.parametrize("value", ["36501d", "9" * 400 + "d", timedelta(days=-1)])
def test_a_duration_that_would_leave_the_calendar_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be a duration of at most 36500d, got "):
        parse_duration(value)


@given(st.text())
def test_a_value_is_quoted_on_one_short_line_of_printable_text(text: str) -> None:
    shown = show(text)
    assert shown.isprintable()
    assert len(shown) <= 61


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Zürich", '"Zürich"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        (7, "7"),
        (0.5, "0.5"),
        (True, "true"),
        (timedelta(seconds=90), "1m30s"),
        ([1], "a list"),
        ({}, "a table"),
        (datetime(2026, 11, 21, tzinfo=UTC), "a date or time"),
        (None, "NoneType"),
    ],
)
def test_a_value_is_shown_or_its_kind_named(value: object, shown: str) -> None:
    assert show(value) == shown


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://user:pass@host:1/path", "https://***@host:1/path"),
        ("https://token@host", "https://***@host"),
        ("https://a:p@ss@host", "https://***@host"),
        ("https://host/x@y?token=1#part", "https://host/x@y?***#part"),
        ("https://host:8443/x@y", "https://host:8443/x@y"),
        ("https://[::1]:80/x", "https://[::1]:80/x"),
        ("https://user:pa/ss@host:1", "https://***@host:1"),
        ("https://user:pa#s?s@host:1/path", "https://***@host:1/path"),
        ("https://user:pass", "https://user:***"),
    ],
)
def test_a_url_is_shown_without_user_password_and_query(url: str, redacted: str) -> None:
    assert redact_url(url) == redacted


@pytest.mark.parametrize(
    ("url", "concealed"),
    [
        ("https://hooks.example.com/services/T0/B0/hush", "https://hooks.example.com/***"),
        ("https://hooks.example.com?hush", "https://hooks.example.com/***"),
        ("https://hooks.example.com#hush", "https://hooks.example.com/***"),
        ("https://hooks.example.com\\hush", "https://hooks.example.com/***"),
        (" https://hooks.example.com:8443/\n", "https://hooks.example.com:8443/"),
        ("http://user:hush@proxy:3128", "http://***@proxy:3128"),
        ("https://user:hu/sh@host:1", "https://***@host:1"),
        ("https:/hooks.example.com/hush", "***"),
        ("hooks.example.com/hush", "***"),
        ("", "***"),
    ],
)
def test_of_a_url_whose_path_may_be_secret_only_the_place_is_shown(url: str, concealed: str) -> None:
    assert conceal_url(url) == concealed


@pytest.mark.parametrize(
    ("drop", "place", "taken"),
    [
        (["/id"], "/id", "/id"),
        (["/x", "/a"], "/a/b/c", "/a"),
        (["/a/b"], "/a", None),
        (["/a/*/b"], "/a/3/b", "/a/*/b"),
        (["/a/*/b"], "/a/x/b", None),
        (["/a/*"], "/a/3/b", "/a/*"),
        (["/a/7"], "/a/3", "/a/7"),
        (["/a/7/b"], "/a/3/b", None),
        (["/a~1b"], "/a~1b", "/a~1b"),
        (["/ab"], "/a", None),
        ([], "/a", None),
    ],
)
def test_a_place_is_taken_by_what_holds_it_or_moves_it_in_its_array(
    drop: list[str], place: str, taken: str | None
) -> None:
    assert find_taken(drop, place) == taken


@pytest.mark.parametrize(
    "url",
    ["", "x", "https://", "ftp://a", "https://a:x/", "https://a b/", "https://[", "https://a..b/"],
)
def test_what_is_no_url_is_told_without_its_secrets(url: str) -> None:
    with pytest.raises(ValueError, match='must be a URL such as "https://x", got "'):
        split_url(url, '"https://x"', schemes=("https",))


@pytest.mark.parametrize("url", ["https://a:0/", "https://a:99999"])
def test_a_port_that_cannot_be_is_told_with_those_that_can(url: str) -> None:
    with pytest.raises(ValueError, match=f'^must have a port from 1 to 65535, got "{url}"$'):
        split_url(url, '"https://x"', schemes=("https",))


def test_a_url_that_is_shown_shows_no_secret() -> None:
    with pytest.raises(ValueError, match="must be") as error:
        split_url("ftp://me:hush@a/?token=hush", '"https://x"', schemes=("https",))
    assert "hush" not in str(error.value)


# Schedules -----------------------------------------------------------------------------------------------------------


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
        with pytest.raises(ValueError, match="none of its months has such a day"):
            check_cron(text)
    else:
        assert check_cron(text) == text
        assert next_time(text, now) > now


@pytest.mark.parametrize("days", ["0 0 30 2 *", "0 0 31 4,jun,9-9 *", "0 0 30-31 feb *", "0 0 30/1 feb mon"])
def test_a_day_that_no_month_has_is_refused(days: str) -> None:
    with pytest.raises(ValueError, match="none of its months has such a day"):
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
