from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.telemetry.series import Delays, Ring

STEPS = st.lists(st.integers(0, 19), min_size=1, max_size=60)


@given(STEPS)
def test_a_ring_counts_what_happened_in_each_of_the_last_steps(steps: list[int]) -> None:
    ring, last = Ring(10, 0), -1
    kept = []
    for step in steps:
        last = max(last, step)
        ring.add(step)
        kept.append(step if step > last - 10 else None)
    assert ring.read(last) == tuple(kept.count(step) if step >= 0 else 0 for step in range(last - 9, last + 1))


def test_a_ring_forgets_what_is_older_than_it_is_long() -> None:
    ring = Ring(3)
    for step in range(5):
        ring.put(step, step)
    assert ring.read(4) == (2, 3, 4)
    assert ring.read(6) == (4, None, None)
    assert ring.read(100) == (None, None, None)


def test_the_highest_value_of_a_step_stays() -> None:
    ring = Ring(2)
    for value in (3, 7, 5):
        ring.lift(0, value)
    assert ring.read(0) == (None, 7)


@given(STEPS, st.integers(0, 40))
def test_a_ring_tells_of_no_step_after_the_one_that_it_is_asked_for(steps: list[int], step: int) -> None:
    ring = Ring(10)
    for each in steps:
        ring.put(each, each)
    last = max(*steps, step)
    known = {each for each in steps if last - 10 < each}
    written = [each for each in range(step - 9, step + 1) if each in known]
    assert [value for value in ring.read(step) if value is not None] == written
    assert len(ring.read(step)) == 10


def test_later_steps_leave_blanks_before_those_that_are_asked_for() -> None:
    ring = Ring(5, 0)
    for step in (6, 8, 10):
        ring.add(step)
    assert ring.read(8) == (0, 0, 1, 0, 1)
    assert ring.read(3) == (0, 0, 0, 0, 0)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=300))
def test_delays_are_true_to_a_twentieth(seconds: list[float]) -> None:
    delays = Delays(60)
    for each in seconds:
        delays.add(0, each)
    delay = delays.read(0)
    assert delay is not None
    assert delay.count == len(seconds)
    ordered = sorted(seconds)
    for told, rank in ((delay.p50, 0.5), (delay.p99, 0.99)):
        true = ordered[max(0, -int(-len(ordered) * rank // 1) - 1)]
        assert told.total_seconds() == pytest.approx(true, rel=0.051)


def test_delays_of_steps_that_are_over_do_not_count() -> None:
    delays = Delays(60)
    delays.add(0, 100)
    delays.add(30, 1)
    found = delays.read(59)
    assert found is not None
    assert found.count == 2
    found = delays.read(60)
    assert found is not None
    assert found.count == 1
    assert found.p99.total_seconds() == pytest.approx(1, rel=0.05)
    assert delays.read(90) is None


def test_delays_of_any_length_are_taken() -> None:
    delays = Delays(1)
    for each in (-1, 0, 1e-9, 1e15):
        delays.add(0, each)
    found = delays.read(0)
    assert found is not None
    assert found.count == 4
