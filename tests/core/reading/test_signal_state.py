from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.reading.embedding import PAIRS
from dockbell.core.reading.movements import Judged
from dockbell.core.reading.signal_state import DROPPED_FOR, Evidence, Phase, SignalState, lower_bound

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ITEMS = PAIRS[0]
LINK = "/sku /sku"
counts = st.integers(0, 3000)


def measure(state: SignalState, moved: int, of: int, *, is_changed: bool = True) -> SignalState:
    return state.measure(Judged(is_changed, {LINK: number < moved}) for number in range(of))


@given(hits=counts, others=counts)
def test_the_bound_is_below_the_share_and_comes_closer_the_more_is_known(hits: int, others: int) -> None:
    of = hits + others
    bound = lower_bound(hits, of)
    assert bound + 1e-9 >= 0
    assert bound <= (hits / of if of else 0) + 1e-9
    assert lower_bound(10 * hits, 10 * of) >= bound - 1e-9
    assert lower_bound(hits + 1, of + 1) >= bound - 1e-9


@given(moved=counts, more=counts, moved_idle=counts, idle=counts)
def test_what_is_offered_was_met_often_and_not_by_chance(moved: int, more: int, moved_idle: int, idle: int) -> None:
    evidence = Evidence(moved, moved + more, min(moved_idle, idle), idle)
    if evidence.holds:
        assert evidence.changes >= 50
        assert moved / evidence.changes > 0.95
        assert evidence.moved_idle <= 0.2 * idle
    if more == 0 and moved >= 60 and moved_idle == 0 and idle >= 10:
        assert evidence.holds


@pytest.mark.parametrize(
    ("moved", "changes", "moved_idle", "idle", "holds"),
    [
        (61, 61, 2, 61, True),
        (52, 52, 0, 52, True),
        (49, 49, 0, 49, False),
        (50, 50, 0, 50, False),
        (61, 62, 0, 61, False),
        (150, 152, 0, 150, True),
        (30, 61, 0, 61, False),
        (0, 61, 0, 61, False),
        (61, 61, 30, 61, False),
        (61, 61, 0, 9, False),
    ],
)
def test_the_rule(moved: int, changes: int, moved_idle: int, idle: int, *, holds: bool) -> None:
    assert Evidence(moved, changes, moved_idle, idle).holds is holds


def test_a_service_that_bumps_is_tried_and_then_used() -> None:
    state = measure(SignalState(), 0, 61, is_changed=False)
    state = measure(state, 61, 61)
    assert state.phase is Phase.TRYING
    state = state.take_equal(479, 50_000, confirmed=20)
    assert state.phase is Phase.TRYING
    assert state.take_equal(1, 50_000).phase is Phase.USED


def test_of_a_few_records_half_must_be_equal() -> None:
    assert SignalState(Phase.TRYING).take_equal(30, 100, confirmed=20).phase is Phase.USED
    assert SignalState(Phase.TRYING).take_equal(29, 100, confirmed=20).phase is Phase.TRYING
    assert SignalState(Phase.TRYING).take_equal(0, 3, confirmed=19).phase is Phase.TRYING


def test_twenty_changes_must_have_been_embedded_before_their_list_showed_them() -> None:
    state = SignalState(Phase.TRYING).take_equal(10_000, 100, confirmed=19)
    assert state.phase is Phase.TRYING
    assert state.take_equal(0, 100, confirmed=1).phase is Phase.USED


@given(share=st.floats(0, 0.9), number=st.integers(50, 400))
def test_a_service_that_bumps_a_part_is_not_tried(share: float, number: int) -> None:
    state = measure(SignalState(), 0, number, is_changed=False)
    assert measure(state, round(share * number), number).phase is Phase.MEASURING


def test_a_contradiction_drops_it_for_a_day_and_then_it_is_measured_anew() -> None:
    used = SignalState(Phase.USED, {LINK: Evidence(61, 61, 0, 61)}, found=7)
    dropped = used.drop("a pass reverted it", NOON)
    assert dropped.phase is Phase.DROPPED
    assert not dropped.asks
    assert dropped.wake(NOON + DROPPED_FOR - SECOND, is_configured=False) == dropped
    assert dropped.wake(NOON + DROPPED_FOR, is_configured=False) == SignalState()
    assert dropped.wake(NOON + DROPPED_FOR, is_configured=True).phase is Phase.TRYING
    assert dropped.wake(NOON - SECOND, is_configured=False) == SignalState()  # our clock was set back


def test_what_is_configured_is_tried_without_measuring() -> None:
    assert SignalState().wake(NOON, is_configured=True).phase is Phase.TRYING
    assert SignalState().wake(NOON, is_configured=False).phase is Phase.MEASURING


def test_a_signal_that_misses_most_changes_is_measured_anew() -> None:
    used = SignalState(Phase.USED)
    assert used.count(found=26, missed=25).phase is Phase.USED
    assert used.count(found=20, missed=40) == SignalState()
    assert used.count(found=20, missed=40, is_configured=True).phase is Phase.USED
    assert used.count(missed=49).phase is Phase.USED
    assert used.count(found=20, missed=20, late=20) == SignalState()


def test_a_signal_that_is_tried_in_vain_is_dropped() -> None:
    def wait_for(changes: int, state: SignalState) -> SignalState:
        for _ in range(changes):
            state = state.take_late("no sooner", NOON)
        return state

    trying = SignalState(Phase.TRYING)
    assert wait_for(199, trying).phase is Phase.TRYING
    dropped = wait_for(200, trying)
    assert (dropped.phase, dropped.reason) == (Phase.DROPPED, "no sooner")
    confirmed = trying.take_equal(0, 1000, confirmed=20)
    assert wait_for(200, confirmed).phase is Phase.TRYING


@given(
    st.builds(
        SignalState,
        phase=st.sampled_from(Phase),
        evidence=st.dictionaries(st.text(), st.builds(Evidence, counts, counts, counts, counts)),
        equal=counts,
        found=counts,
        missed=counts,
        late=counts,
        until=st.none() | st.just(NOON),
        reason=st.text(),
    )
)
def test_a_restart_goes_on_with_what_is_stored(state: SignalState) -> None:
    assert SignalState.from_json(state.to_json()) == state


def test_what_the_first_version_stored_is_known() -> None:
    stored = json.loads(SignalState(Phase.USED, found=3).to_json())
    del stored["late"]
    assert SignalState.from_json(json.dumps(stored)) == SignalState(Phase.USED, found=3)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"phase": "other"}'])
def test_what_another_version_stored_is_forgotten(text: str) -> None:
    assert SignalState.from_json(text) == SignalState()


def test_a_sentence_says_what_was_found() -> None:
    state = SignalState(Phase.USED, {LINK: Evidence(61, 61, 0, 61)}, found=12)
    assert state.describe(ITEMS) == (
        "items' updated_at moved with 61 of 61 changes of stock, and with 0 of 61 records that had not changed:"
        " used as a signal, which recently showed 12 changes first, 0 too late and 0 not at all"
    )
    assert SignalState().describe(ITEMS) == (
        "whether items' updated_at moves with stock is not known yet: no signal: 50 changes are needed to tell"
    )
    assert measure(SignalState(), 3, 61).describe(ITEMS).endswith("3 of 61 changes of stock: no signal")
    dropped = SignalState().drop("a pass reverted it", NOON)
    assert dropped.describe(ITEMS).endswith("no signal until 2026-11-22T12:00:00.000Z: a pass reverted it")
