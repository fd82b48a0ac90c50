from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.holding import Hold, is_believed, keep, looks_stale, supersede
from dockbell.core.moment import to_micros

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=60)
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("modified", "stored", "stale"),
    [
        (5, 10, True),
        (10, 5, False),
        (5, 20, True),
        (5, 80, True),  # the replica's answer may be as old as the window
        (5, 80.001, False),  # what is stored lies in the future of every answer, and says nothing of age
        (-(10**6), 10, True),
    ],
)
def test_a_dated_reading_is_stale_when_its_date_is_before_the_stored_one(
    modified: float, stored: float, *, stale: bool
) -> None:
    found = looks_stale(
        at(modified), to_micros(at(stored)), None, NEW, asked_at=at(15), answered_at=at(20), window=WINDOW
    )
    assert found is stale


@pytest.mark.parametrize(
    ("modified", "stored"),
    [(None, None), (None, 5), (5, None), (5, 5)],
)
def test_where_dates_do_not_tell_a_return_to_what_was_replaced_lately_is_stale(
    modified: float | None, stored: float | None
) -> None:
    superseded = supersede(None, OLD, at(0), WINDOW)

    def is_stale(fingerprint: bytes, asked_at: float) -> bool:
        return looks_stale(
            None if modified is None else at(modified),
            None if stored is None else to_micros(at(stored)),
            superseded,
            fingerprint,
            asked_at=at(asked_at),
            answered_at=at(asked_at),
            window=WINDOW,
        )

    assert is_stale(OLD, 59)
    assert not is_stale(OLD, 60)
    assert not is_stale(NEW, 59)


def test_nothing_is_stale_or_remembered_without_a_window() -> None:
    none = timedelta(0)
    assert not looks_stale(at(5), to_micros(at(10)), None, NEW, asked_at=at(20), answered_at=at(20), window=none)
    assert supersede(b"", OLD, at(0), none) is None


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
        assert looks_stale(None, None, superseded, fingerprint, asked_at=NOON, answered_at=NOON, window=WINDOW)


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
