from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import JSON
from dockbell.core.moment import EPOCH, format_moment, from_micros, parse_moment, to_micros

MOMENT = datetime(2026, 11, 21, 2, 30, 0, 123456, tzinfo=UTC)
SECOND = MOMENT.replace(microsecond=0)
MOMENTS = st.datetimes(timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-11-21T02:30:00Z", SECOND),
        ("2026-11-21T02:30:00z", SECOND),
        ("2026-11-21t02:30:00+00:00", SECOND),
        ("2026-11-21T03:30:00+01:00", SECOND),
        ("2026-11-21T08:00:00+0530", SECOND),
        ("2026-11-20T21:30:00-05", SECOND),
        ("2026-11-21T02:30:00", SECOND),
        ("2026-11-21 02:30:00", SECOND),
        ("2026-11-21 02:30:00 +00:00", SECOND),
        ("2026-11-21T02:30Z", SECOND),
        ("2026-11-21T02:30:00.1Z", SECOND + timedelta(milliseconds=100)),
        ("2026-11-21T02:30:00,123Z", SECOND + timedelta(milliseconds=123)),
        ("2026-11-21T02:30:00.123456Z", MOMENT),
        ("2026-11-21T02:30:00.123456999Z", MOMENT),
        (1795228200, SECOND),
        (1795228200123, SECOND + timedelta(milliseconds=123)),
        (1795228200123456, SECOND + timedelta(microseconds=123456)),
        (1, EPOCH + timedelta(seconds=1)),
    ],
)
def test_every_way_to_write_a_time_is_read(value: JSON, moment: datetime) -> None:
    assert parse_moment(value) == moment
    assert parse_moment(value).utcoffset() == timedelta(0)  # type: ignore[union-attr]  # not None, by the line above


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        10**17,
        Decimal("1795228200.5"),
        "",
        "2026-11-21",
        "1795228200",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-21T25:00:00Z",
        "2026-11-21T02:30:00+25:00",
        "2026-11-21T02:30:00Z ",
        "2026-11-21T02:30:00Z\n",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59-05:00",
        [],
        {},
    ],
)
def test_what_states_no_time_is_none(value: JSON) -> None:
    assert parse_moment(value) is None


@given(MOMENTS)
def test_a_written_time_reads_back_cut_to_the_millisecond(moment: datetime) -> None:
    text = format_moment(moment)
    assert len(text) == len("2026-11-21T02:30:00.123Z")
    assert timedelta(0) <= moment - (parse_moment(text) or EPOCH) < timedelta(milliseconds=1)


def test_a_time_is_written_in_utc() -> None:
    assert format_moment(MOMENT.astimezone(timezone(timedelta(hours=9)))) == "2026-11-21T02:30:00.123Z"


@given(MOMENTS)
def test_a_stored_time_is_exact(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


@given(st.text() | st.from_regex(r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,12})?)?([Zz]|[+-]\d\d:?\d\d)?\Z"))
def test_no_text_makes_reading_a_time_fail(text: str) -> None:
    moment = parse_moment(text)
    assert moment is None or moment.tzinfo is UTC
