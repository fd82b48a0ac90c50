from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import ClockSource
from dockbell.core.reading.window import Advance, Progress, Proof, advance, choose_lookback, open_window

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LOOKBACK = timedelta(seconds=60)

moments = st.integers(-100_000, 100_000).map(lambda millis: NOON + timedelta(milliseconds=millis))
progresses = st.builds(Progress, st.none() | moments, st.none() | moments)
proofs = st.builds(Proof, moments, st.integers(0, 50), st.booleans(), st.none() | moments)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_run_of_one_page_proves_everything_before_its_request() -> None:
    progress, why = advance(Progress(at(0)), Proof(at(15), pages=1, complete=True), LOOKBACK)
    assert (progress, why) == (Progress(at(15)), Advance.ONE_PAGE)


def test_a_run_of_several_pages_is_only_a_candidate() -> None:
    progress, why = advance(Progress(at(0)), Proof(at(15), pages=2, complete=True), LOOKBACK)
    assert (progress, why) == (Progress(at(0), at(15)), Advance.CANDIDATE)


def test_the_repeat_of_a_run_of_several_pages_asks_for_the_same_window() -> None:
    before = open_window(NOON, LOOKBACK)
    progress, _ = advance(Progress(NOON), Proof(at(15), pages=2, complete=True), LOOKBACK)
    assert progress.watermark is not None
    assert open_window(progress.watermark, LOOKBACK) == before


def test_a_clean_repeat_confirms_the_candidate_and_is_the_next_one() -> None:
    progress, why = advance(Progress(at(0), at(15)), Proof(at(30), pages=2, complete=True), LOOKBACK)
    assert (progress, why) == (Progress(at(15), at(30)), Advance.CONFIRMED)


def test_a_repeat_that_met_an_old_record_for_the_first_time_contradicts_the_candidate() -> None:
    proof = Proof(at(130), pages=2, complete=True, oldest_unseen=at(39))
    progress, why = advance(Progress(at(0), at(100)), proof, LOOKBACK)
    assert (progress, why) == (Progress(at(0), at(130)), Advance.CONTRADICTED)


def test_commits_that_become_visible_within_the_lookback_do_not_hold_the_watermark_back() -> None:
    proof = Proof(at(130), pages=2, complete=True, oldest_unseen=at(41))
    assert advance(Progress(at(0), at(100)), proof, LOOKBACK)[0].watermark == at(100)


def test_a_repeat_of_one_page_needs_no_further_repeat() -> None:
    assert advance(Progress(at(0), at(15)), Proof(at(30), pages=1, complete=True), LOOKBACK)[0] == Progress(at(30))


@given(progresses, proofs)
def test_the_watermark_never_goes_back(progress: Progress, proof: Proof) -> None:
    after = advance(progress, proof, LOOKBACK)[0].watermark
    assert progress.watermark is None or (after is not None and after >= progress.watermark)


@given(progresses, proofs)
def test_nothing_moves_on_a_run_that_ended_incomplete(progress: Progress, proof: Proof) -> None:
    if not proof.complete:
        after, why = advance(progress, proof, LOOKBACK)
        assert (after.watermark, why) == (progress.watermark, Advance.INCOMPLETE)
        assert after.candidate in {None, progress.candidate}


def test_an_incomplete_run_that_met_an_old_record_for_the_first_time_takes_the_candidate_with_it() -> None:
    incomplete = Proof(at(130), pages=1, complete=False, oldest_unseen=at(39))
    assert advance(Progress(at(0), at(100)), incomplete, LOOKBACK)[0] == Progress(at(0))
    harmless = Proof(at(130), pages=1, complete=False, oldest_unseen=at(41))
    assert advance(Progress(at(0), at(100)), harmless, LOOKBACK)[0] == Progress(at(0), at(100))


@given(progresses, proofs)
def test_the_watermark_is_always_a_time_at_which_a_run_was_asked_for(progress: Progress, proof: Proof) -> None:
    after = advance(progress, proof, LOOKBACK)[0].watermark
    assert after in {progress.watermark, progress.candidate, proof.asked_at}


@given(moments)
def test_a_window_starts_on_a_whole_second_at_least_the_lookback_before_the_watermark(watermark: datetime) -> None:
    since = open_window(watermark, LOOKBACK)
    assert since.microsecond == 0
    assert LOOKBACK <= watermark - since < LOOKBACK + timedelta(seconds=1)


def test_without_the_clock_of_the_service_a_poll_looks_back_at_least_two_minutes() -> None:
    assert choose_lookback(timedelta(seconds=5), ClockSource.LOCAL) == timedelta(minutes=2)
    assert choose_lookback(timedelta(seconds=5), ClockSource.DATE) == timedelta(seconds=5)
    assert choose_lookback("auto", ClockSource.LOCAL) == timedelta(minutes=2)
    assert choose_lookback("auto", None) == timedelta(minutes=2)
