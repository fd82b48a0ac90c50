from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.web.params import Cursor, Position

positions = st.builds(Position, st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.integers(0, 10**18 - 1))


@given(positions)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, st.integers(0, 10**18 - 1))
def test_a_cursor_is_read_as_it_was_written(position: Position, row: int) -> None:
    assert Cursor.parse(str(Cursor(position, row))) == Cursor(position, row)


@pytest.mark.parametrize("text", ["", "7", "e.", ".7", "e.7.8", "e.-7", "e.7 ", "e.\u0667", "é.7", f"e.{10**18}"])
def test_what_is_no_position_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a position, .* got "):
        Position.parse(text)


@pytest.mark.parametrize("text", ["", "7", "e.7", "e.7.", "e.7.x"])
def test_what_is_no_cursor_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match="must be a"):
        Cursor.parse(text)
