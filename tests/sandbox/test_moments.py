from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.sandbox import SandboxOptions
from dockbell.sandbox.moments import TICKS, format_micros, from_micros, to_micros, write_stamp

MOMENT = to_micros(datetime(2026, 11, 21, 22, 45, 30, 123456, tzinfo=UTC))
moments = st.integers(0, to_micros(datetime(2200, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "2026-11-21T22:45:30.123456Z"),
        ({"timestamp_precision": "ms"}, "2026-11-21T22:45:30.123Z"),
        ({"timestamp_precision": "s"}, "2026-11-21T22:45:30Z"),
        ({"timestamp_precision": "min"}, "2026-11-21T22:45:00Z"),
        ({"timestamp_offset": "+00:00"}, "2026-11-21T22:45:30.123456+00:00"),
        ({"timestamp_offset": "+02:00"}, "2026-11-22T00:45:30.123456+02:00"),
        ({"timestamp_offset": "-09:30", "timestamp_precision": "s"}, "2026-11-21T13:15:30-09:30"),
        ({"timestamp_offset": "none", "timestamp_precision": "ms"}, "2026-11-21T22:45:30.123"),
        ({"timestamp_form": "date"}, "2026-11-21"),
        ({"timestamp_form": "date", "timestamp_offset": "+02:00"}, "2026-11-22"),
        ({"timestamp_form": "ctime"}, "Sat Nov 21 22:45:30 2026"),
        ({"timestamp_form": "null"}, None),
        ({"timestamp_form": "epoch"}, MOMENT),
        ({"timestamp_form": "epoch", "timestamp_precision": "ms"}, MOMENT // 1000),
        ({"timestamp_form": "epoch", "timestamp_precision": "s"}, MOMENT // 1_000_000),
        ({"timestamp_form": "epoch", "timestamp_precision": "min"}, MOMENT // 60_000_000 * 60),
    ],
)
def test_a_timestamp_is_written_in_the_chosen_form(options: dict[str, Any], text: str | int | None) -> None:
    chosen = SandboxOptions(**options)
    assert write_stamp(MOMENT - MOMENT % TICKS[chosen.timestamp_precision], chosen) == text


@given(moments, st.sampled_from(["Z", "+00:00", "+02:00", "-09:30"]))
def test_every_offset_means_the_same_time(micros: int, offset: Any) -> None:
    text = write_stamp(micros, SandboxOptions(timestamp_offset=offset))
    assert isinstance(text, str)
    assert datetime.fromisoformat(text) == from_micros(micros)


@given(moments)
def test_the_default_form_is_the_one_of_all_other_times(micros: int) -> None:
    assert write_stamp(micros, SandboxOptions()) == format_micros(micros)
    assert to_micros(from_micros(micros)) == micros
    assert from_micros(micros + 1) - from_micros(micros) == timedelta(microseconds=1)
