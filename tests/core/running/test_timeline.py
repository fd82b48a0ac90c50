"""Times of a clock that is set, as ages."""

from __future__ import annotations

from datetime import timedelta

from dockbell.core.running.timeline import Timeline
from tests.fakes import NOON


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def test_ages_are_right_whatever_the_clock_is_set_to() -> None:
    for step in (minutes(60), minutes(-60)):
        timeline = Timeline()
        timeline.look(NOON, minutes(5))
        timeline.look(NOON + minutes(1), minutes(6))
        timeline.look(NOON + minutes(2) + step, minutes(7))
        timeline.look(NOON + minutes(4) + step, minutes(9))
        assert timeline.age(NOON) == minutes(4)
        assert timeline.age(NOON + minutes(1.5)) == minutes(2.5)  # between two looks, before the step
        assert timeline.age(NOON + minutes(1.5) + step) == minutes(2.5)  # and after it
        assert timeline.age(NOON + minutes(4) + step) == minutes(0)


def test_of_two_moments_at_which_the_clock_showed_the_same_it_is_the_later() -> None:
    timeline = Timeline()
    timeline.look(NOON, minutes(0))
    timeline.look(NOON + minutes(10), minutes(10))
    timeline.look(NOON, minutes(10))
    timeline.look(NOON + minutes(8), minutes(18))
    assert timeline.age(NOON + minutes(6)) == minutes(2)
    assert timeline.age(NOON + minutes(9)) == minutes(9)


def test_what_was_noted_before_the_process_began_is_as_old_as_the_clock_says_and_not_younger_than_the_process() -> None:
    timeline = Timeline()
    timeline.look(NOON, minutes(100))
    timeline.look(NOON + minutes(3), minutes(103))
    assert timeline.age(NOON - minutes(4)) == minutes(7)
    assert timeline.age(NOON + minutes(60)) == minutes(3)
    assert not timeline.knows(NOON - minutes(4))
    assert timeline.knows(NOON + minutes(2))
