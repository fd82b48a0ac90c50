"""How far back polls may ask, and whether a window that is cut there leaves anything out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dockbell.core.reading.window import ages_to_try, bound_window
from tests.fakes import NOON

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def test_a_window_within_the_reach_or_without_a_known_bound_stays() -> None:
    for reach, age in ((None, 99 * DAY), (7 * DAY, 7 * DAY)):
        window = bound_window(
            NOON - age, reach, now=NOON, read_until=NOON - 99 * DAY, behind=DAY, lookback=timedelta(minutes=1)
        )
        assert window == (NOON - age, True)


@pytest.mark.parametrize(
    ("read", "reach", "behind", "covered"),
    [
        (MINUTE, 7 * DAY, DAY, True),
        (6 * DAY - 2 * MINUTE, 7 * DAY, DAY, True),
        (6 * DAY, 7 * DAY, DAY, False),  # a record dated a day behind may be left out
        (6 * DAY, 7 * DAY, HOUR, True),
        (8 * DAY, 7 * DAY, timedelta(0), False),
        (6 * DAY - 2 * MINUTE, 7 * DAY, 30 * DAY, True),  # no clock is a month behind: nothing has happened for so long
        (MINUTE, HOUR, DAY, True),
        (HOUR, HOUR, timedelta(0), False),
        (MINUTE, 2 * MINUTE, DAY, False),
        (timedelta(0), 2 * MINUTE, DAY, True),
    ],
)
def test_a_cut_window_covers_everything_if_what_it_leaves_out_was_read_before(
    read: timedelta, reach: timedelta, behind: timedelta, *, covered: bool
) -> None:
    window = bound_window(NOON - 99 * DAY, reach, now=NOON, read_until=NOON - read, behind=behind, lookback=MINUTE)
    assert window == (NOON - reach, covered)


def test_ages_are_tried_from_the_longest_to_the_shortest_and_are_all_shorter_than_the_refused_one() -> None:
    ages = ages_to_try(10 * DAY)
    assert list(ages) == sorted(ages, reverse=True)
    assert 6 * DAY < ages[0] < 7 * DAY
    assert ages_to_try(MINUTE) == ()
