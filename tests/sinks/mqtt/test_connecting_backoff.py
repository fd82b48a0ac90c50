from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dockbell.sinks.mqtt.connecting import End, ReconnectBackoff
from dockbell.sinks.mqtt.connection import Ending

ABSENT = End("connection refused")
DELIVERED = End("connection lost", Ending.DROPPED, timedelta(minutes=5), delivered=True)
BRIEF = End("connection lost", Ending.DROPPED, timedelta(seconds=4), delivered=True)
TAKEN_OVER = End("taken over", Ending.TAKEN_OVER, timedelta(seconds=1), delivered=True)


def waits(backoff: ReconnectBackoff, end: End, count: int) -> list[float]:
    """Return the longest waits after so many ends like this, in seconds."""
    return [backoff.pause(end, 1.0).total_seconds() for _ in range(count)]


def test_the_waits_grow_up_to_a_limit() -> None:
    assert waits(ReconnectBackoff(), ABSENT, 6) == [2, 4, 8, 15, 15, 15]


def test_only_a_delivery_lets_them_begin_anew() -> None:
    backoff = ReconnectBackoff()
    assert waits(backoff, ABSENT, 3) == [2, 4, 8]
    assert waits(backoff, replace(DELIVERED, delivered=False), 1) == [15]
    assert waits(backoff, DELIVERED, 2) == [2, 2]


def test_whoever_is_thrown_out_waits_from_a_minute_to_an_hour() -> None:
    backoff = ReconnectBackoff()
    assert [wait / 60 for wait in waits(backoff, TAKEN_OVER, 8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.is_contested
    assert waits(backoff, ABSENT, 1) == [4]
    assert not backoff.is_contested


def test_the_other_client_is_forgotten_after_a_connection_that_lasted_and_delivered() -> None:
    backoff = ReconnectBackoff()
    long = timedelta(minutes=10)
    assert waits(backoff, TAKEN_OVER, 2) == [60, 120]
    assert waits(backoff, replace(TAKEN_OVER, lasted=long, delivered=False), 1) == [240]
    assert waits(backoff, TAKEN_OVER, 1) == [480]
    assert waits(backoff, replace(TAKEN_OVER, lasted=long), 1) == [60]


def test_connections_that_are_closed_soon_for_no_reason_one_after_the_other_show_another_client() -> None:
    backoff = ReconnectBackoff()
    assert waits(backoff, BRIEF, 3) == [2, 2, 60]
    assert backoff.is_contested
    assert waits(backoff, BRIEF, 3) == [2, 2, 120]


@pytest.mark.parametrize(
    "end", [ABSENT, DELIVERED, replace(BRIEF, lasted=timedelta(seconds=5)), replace(BRIEF, ending=Ending.OURS)]
)
def test_what_shows_another_cause_lets_the_count_begin_anew(end: End) -> None:
    backoff = ReconnectBackoff()
    for _ in range(5):
        assert max(waits(backoff, BRIEF, 2)) < 60
        assert max(waits(backoff, end, 1)) < 60


def test_a_connection_that_is_closed_on_something_we_sent_shows_no_other_client() -> None:
    assert max(waits(ReconnectBackoff(), replace(BRIEF, blameless=False), 10)) < 60
