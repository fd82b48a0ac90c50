from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.holding import Hold, is_believed, keep, supersede, was_superseded
from dockbell.core.moment import to_micros

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=60)
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_nothing_is_remembered_without_a_window() -> None:
    none = timedelta(0)
    assert supersede(b"", OLD, at(0), none) is None
    assert not was_superseded(supersede(None, OLD, at(0), WINDOW), OLD, at(1), none)


def test_replaced_content_counts_for_the_window() -> None:
    superseded = supersede(None, OLD, at(0), WINDOW)
    assert was_superseded(superseded, OLD, at(59), WINDOW)
    assert not was_superseded(superseded, OLD, at(60), WINDOW)
    assert not was_superseded(superseded, NEW, at(59), WINDOW)


def test_what_was_replaced_longer_ago_than_the_window_is_forgotten() -> None:
    superseded = supersede(supersede(None, OLD, at(0), WINDOW), OTHER, at(60), WINDOW)
    assert superseded is not None
    assert (OLD in superseded, OTHER in superseded) == (False, True)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=30))
def test_at_most_eight_of_the_latest_are_remembered(replaced: list[bytes]) -> None:
    superseded = None
    for fingerprint in replaced:
        superseded = supersede(superseded, fingerprint, NOON, WINDOW)
    assert len(superseded or b"") == 24 * min(8, len(replaced))
    for fingerprint in replaced[-8:]:
        assert was_superseded(superseded, fingerprint, NOON, WINDOW)


@pytest.mark.parametrize(
    ("hold", "believed"),
    [
        (None, False),
        (Hold(OLD, to_micros(at(0))), True),
        (Hold(OLD, to_micros(at(0.001))), False),
        (Hold(NEW, to_micros(at(0))), False),
    ],
)
def test_a_reading_is_believed_when_the_same_was_held_for_the_window(hold: Hold | None, *, believed: bool) -> None:
    assert is_believed(hold, OLD, at(60), WINDOW) is believed


def test_a_hold_keeps_its_beginning_while_the_reading_stays_the_same() -> None:
    hold = keep(None, OLD, at(0))
    assert keep(hold, OLD, at(30)) is hold
    assert keep(hold, NEW, at(30)) == Hold(NEW, to_micros(at(30)))
