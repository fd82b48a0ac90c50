from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.subscriber import Seen, SeenIds


@given(st.lists(st.integers(0, 20).map(str)), st.integers(1, 10))
def test_exactly_the_latest_ids_are_remembered(ids: list[str], limit: int) -> None:
    seen: SeenIds = Seen(limit)
    for each in ids:
        if each not in seen:
            seen.add(each)
    latest = [each for each in map(str, range(21)) if each in seen]
    assert len(latest) == min(limit, len(set(ids)))
    assert not ids or ids[-1] in seen


def test_memory_is_bounded_and_the_first_is_forgotten_first() -> None:
    seen = Seen(limit=3)
    for number in range(5):
        seen.add(f"evt_{number}")
    assert len(seen) == 3
    assert [number for number in range(5) if f"evt_{number}" in seen] == [2, 3, 4]


def test_an_id_that_is_added_twice_counts_once() -> None:
    seen = Seen(limit=2)
    for event_id in ("a", "b", "b", "b"):
        seen.add(event_id)
    assert "a" in seen


def test_a_limit_must_leave_room() -> None:
    with pytest.raises(ValueError, match="got 0"):
        Seen(0)
