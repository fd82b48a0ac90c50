from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.reading.ahead import CONTRADICTED_FOR, AheadRun, ShortPolls

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LOOKBACK = timedelta(seconds=60)
EVERY = timedelta(seconds=15)
BEGIN = timedelta(hours=1)
TOOK = timedelta(seconds=2)


def run(at: float, *, pages: int = 3, unseen: float | None = None) -> AheadRun:
    """Return a run whose newest date is so many seconds after noon, and the oldest that was not seen before."""
    return AheadRun(pages, date(at), TOOK, None if unseen is None else date(unseen))


def date(at: float) -> datetime:
    return NOON + timedelta(seconds=at)


def after_whole(polls: ShortPolls, found: AheadRun, *, others: int = 0, now: timedelta = BEGIN) -> ShortPolls:
    return polls.after_whole(found, others=others, lookback=LOOKBACK, every=EVERY, now=now)


def after_two(first: AheadRun, second: AheadRun) -> ShortPolls:
    return after_whole(after_whole(ShortPolls(), first), second)


def test_one_whole_poll_of_several_pages_is_repeated_before_polls_are_short() -> None:
    once = after_whole(ShortPolls(), run(0))
    assert once.start(LOOKBACK, BEGIN) is None
    twice = after_whole(once, run(0))
    assert twice.start(LOOKBACK, BEGIN) == date(0) - TOOK - LOOKBACK


def test_a_short_poll_of_several_pages_is_repeated_from_the_same_start() -> None:
    polls = after_two(run(0), run(0)).after_short(run(200, unseen=100))
    assert polls.start(LOOKBACK, BEGIN) == date(0) - TOOK - LOOKBACK
    assert polls.after_short(run(210, unseen=205)).start(LOOKBACK, BEGIN) == date(200) - TOOK - LOOKBACK


def test_a_short_poll_of_one_page_has_missed_nothing() -> None:
    polls = after_two(run(0), run(0)).after_short(run(200, pages=1, unseen=100))
    assert polls.start(LOOKBACK, BEGIN) == date(200) - LOOKBACK


def test_an_empty_answer_moves_nothing() -> None:
    polls = after_two(run(0), run(0))
    assert polls.after_short(AheadRun(1, None, TOOK)) == polls


def test_dates_that_two_short_polls_read_without_news_are_left_out_until_there_are_newer_ones() -> None:
    once = after_two(run(0), run(0)).after_short(run(0))
    assert once.start(LOOKBACK, BEGIN) == date(0) - TOOK - LOOKBACK
    twice = once.after_short(run(0))
    assert twice.start(LOOKBACK, BEGIN) == date(0) + timedelta(milliseconds=1)
    assert after_whole(twice, run(0)).start(LOOKBACK, BEGIN) == date(0) + timedelta(milliseconds=1)
    newer = twice.after_short(run(30, pages=1, unseen=30))
    assert newer.start(LOOKBACK, BEGIN) == date(30) - LOOKBACK


def test_the_next_poll_is_whole_in_time() -> None:
    polls = after_two(run(0), run(0))
    assert polls.start(LOOKBACK, BEGIN + EVERY * 3 * 4) is None


def test_no_poll_is_short_for_a_day_after_a_change_that_none_would_have_shown() -> None:
    polls = after_whole(after_two(run(0), run(0)), run(10, unseen=-90))
    later = BEGIN + CONTRADICTED_FOR - EVERY
    polls = after_whole(after_whole(polls, run(20), now=later), run(20), now=later)
    assert polls.start(LOOKBACK, later) is None
    later = BEGIN + CONTRADICTED_FOR
    polls = after_whole(after_whole(polls, run(20), now=later), run(20), now=later)
    assert polls.start(LOOKBACK, later) is not None


def test_polls_are_whole_where_one_is_a_page_or_many_records_are_not_dated_ahead() -> None:
    polls = after_two(run(0), run(0))
    assert after_whole(polls, run(0, pages=1)).start(LOOKBACK, BEGIN) is None
    assert after_whole(polls, run(0), others=101).start(LOOKBACK, BEGIN) is None


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(1, 4)), min_size=3))
def test_a_short_poll_asks_for_all_that_was_changed_since_the_run_before_the_last_one_began(
    runs: list[tuple[int, int]],
) -> None:
    """However far apart the runs are: what slipped past one of several pages is asked for again by the next."""
    polls, begun, now = after_two(run(0), run(0)), [-TOOK, -TOOK], timedelta(0)
    for pause, pages in runs:
        start = polls.start(timedelta(0), BEGIN)
        assert start is not None
        assert start <= NOON + begun[-2]
        now += timedelta(seconds=pause)
        polls = polls.after_short(AheadRun(pages, NOON + now, TOOK, NOON + now))
        begun = [now, now] if pages == 1 else [begun[-1], now - TOOK]
