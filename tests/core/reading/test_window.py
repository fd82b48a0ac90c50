from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.core.model import ClockSource
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.window import (
    Advance,
    Progress,
    Proof,
    advance,
    ages_to_try,
    anchor,
    bound_window,
    choose_lookback,
    covered_until,
    is_narrow,
    open_trailing_window,
    open_window,
    trailing_every,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LOOKBACK = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

moments = st.integers(-100_000, 100_000).map(lambda millis: NOON + timedelta(milliseconds=millis))
progresses = st.builds(
    Progress, moments, st.none() | moments, st.none() | moments, st.none() | moments, st.integers(0, 2)
)
proofs = st.builds(
    Proof,
    moments,
    st.integers(0, 50),
    st.booleans(),
    st.none() | moments,
    st.none() | moments,
    st.none() | moments,
    st.none() | moments,
)
precisions = st.sampled_from([timedelta(microseconds=1), timedelta(milliseconds=1), SECOND, MINUTE, DAY])


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_run_of_one_page_proves_everything_before_its_request() -> None:
    progress, why = advance(Progress(at(0)), Proof(at(15), pages=1, complete=True), LOOKBACK)
    assert (progress, why) == (Progress(at(15)), Advance.ONE_PAGE)


def test_a_run_of_several_pages_is_only_a_candidate() -> None:
    progress, why = advance(Progress(at(0)), Proof(at(15), pages=2, complete=True), LOOKBACK)
    assert (progress, why) == (Progress(at(0), at(15)), Advance.CANDIDATE)


def test_the_repeat_of_a_run_of_several_pages_asks_for_the_same_window() -> None:
    before = Progress(NOON, newest=at(-20))
    proof = Proof(at(15), pages=2, complete=True, oldest_unseen=at(-15), newest=at(14))
    after, _ = advance(before, proof, LOOKBACK)
    assert open_window(after, LOOKBACK) == open_window(before, LOOKBACK)


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


# Windows -------------------------------------------------------------------------------------------------------------


@given(progresses, precisions)
def test_a_window_starts_at_least_the_lookback_before_the_watermark(progress: Progress, precision: timedelta) -> None:
    assert progress.watermark is not None
    since = open_window(replace(progress, tick=None), LOOKBACK, precision)
    assert since <= progress.watermark - LOOKBACK
    assert progress.newest is None or since <= progress.newest - LOOKBACK
    assert since > min(progress.watermark, progress.newest or progress.watermark) - LOOKBACK - max(precision, SECOND)


@given(progresses, progresses)
def test_a_record_can_only_make_a_window_larger(progress: Progress, other: Progress) -> None:
    plain = Progress(progress.watermark)
    assert open_window(replace(plain, newest=other.newest), LOOKBACK) <= open_window(plain, LOOKBACK)


def test_a_window_starts_on_a_whole_unit_of_the_timestamps() -> None:
    progress = Progress(at(90.5))
    assert open_window(progress, LOOKBACK, timedelta(microseconds=1)) == at(30)
    assert open_window(progress, LOOKBACK, MINUTE) == at(0)
    assert open_window(progress, LOOKBACK, DAY) == NOON.replace(hour=0)


def test_a_trailing_window_starts_fifteen_lookbacks_before_the_watermark_and_at_least_a_quarter_of_an_hour() -> None:
    assert open_trailing_window(Progress(NOON), timedelta(minutes=2)) == NOON - timedelta(minutes=30)
    assert open_trailing_window(Progress(NOON), timedelta(seconds=5)) == NOON - timedelta(minutes=15)


def test_without_the_clock_of_the_service_a_poll_looks_back_at_least_two_minutes() -> None:
    assert choose_lookback(timedelta(seconds=5), ClockSource.LOCAL) == timedelta(minutes=2)
    assert choose_lookback(timedelta(seconds=5), ClockSource.DATE) == timedelta(seconds=5)
    assert choose_lookback("auto", ClockSource.LOCAL, LOOKBACK) == timedelta(minutes=2)
    assert choose_lookback("auto", None, timedelta(minutes=5)) == timedelta(minutes=5)


def test_only_an_automatic_lookback_takes_what_was_learned() -> None:
    assert choose_lookback("auto", ClockSource.DATE, timedelta(minutes=5)) == timedelta(minutes=5)
    assert choose_lookback(LOOKBACK, ClockSource.DATE, timedelta(minutes=5)) == LOOKBACK


def test_a_lookback_is_narrow_before_it_is_too_small() -> None:
    assert is_narrow(LOOKBACK, timedelta(seconds=43))
    assert not is_narrow(LOOKBACK, timedelta(seconds=42))


def test_what_is_covered_ends_where_the_clocks_of_both_the_service_and_the_records_stood() -> None:
    assert covered_until(Progress(at(100), newest=at(90))) == at(90)
    assert covered_until(Progress(at(100), newest=at(200))) == at(100)
    assert covered_until(Progress(at(100))) == at(100)


# Ticks ---------------------------------------------------------------------------------------------------------------


def read_tick(progress: Progress, *, seconds: float, tick: datetime = NOON, **facts: datetime) -> Progress:
    return advance(progress, Proof(at(seconds), pages=9, complete=True, tick=tick, **facts), LOOKBACK)[0]


def test_a_bulk_tick_is_left_out_once_two_clean_runs_have_read_it_whole() -> None:
    progress = read_tick(Progress(at(0)), seconds=15, oldest_unseen=NOON, newest=NOON)
    assert open_window(progress, LOOKBACK) <= NOON
    progress = read_tick(progress, seconds=30, newest=NOON)
    assert (progress.tick, progress.tick_reads) == (NOON, 2)
    assert open_window(progress, LOOKBACK, SECOND) == at(0.001)
    assert open_window(progress, LOOKBACK, timedelta(microseconds=1)) == at(0.001)
    assert open_trailing_window(progress, LOOKBACK) == NOON - timedelta(minutes=15)


def test_a_run_that_met_more_of_a_tick_is_the_first_to_have_read_it() -> None:
    progress = read_tick(Progress(at(0)), seconds=15, oldest_unseen=NOON)
    progress = read_tick(progress, seconds=30, oldest_unseen=NOON)
    assert progress.tick_reads == 1


def test_a_run_that_met_later_news_has_read_the_tick_again() -> None:
    progress = read_tick(Progress(at(0)), seconds=15, oldest_unseen=NOON)
    assert read_tick(progress, seconds=30, oldest_unseen=at(20)).tick_reads == 2


def test_a_tick_that_is_gone_or_not_read_whole_is_watched_no_longer() -> None:
    progress = read_tick(Progress(at(0)), seconds=15)
    for proof in (Proof(at(30), 9, complete=False, tick=NOON), Proof(at(30), 9, complete=True)):
        after, _ = advance(progress, proof, LOOKBACK)
        assert (after.tick, after.tick_reads) == (None, 0)


def test_polls_that_leave_a_tick_out_keep_it_in_memory() -> None:
    progress = Progress(at(10), tick=NOON, tick_reads=2)
    for proof in (Proof(at(30), 1, complete=True), Proof(at(30), 1, complete=False)):
        after, _ = advance(progress, proof, LOOKBACK)
        assert (after.tick, after.tick_reads) == (NOON, 2)


def test_another_tick_is_watched_from_its_beginning() -> None:
    progress = read_tick(Progress(at(10), tick=NOON, tick_reads=2), seconds=30, tick=at(20))
    assert (progress.tick, progress.tick_reads) == (at(20), 1)


def test_a_tick_beyond_the_watermark_is_not_left_out() -> None:
    progress = Progress(at(10), tick=at(20), tick_reads=2)
    assert open_window(progress, LOOKBACK) == at(-50)


def test_a_tick_before_the_window_makes_no_difference() -> None:
    progress = Progress(at(100), tick=NOON, tick_reads=2)
    assert open_window(progress, LOOKBACK) == at(40)


def test_a_quiet_feed_stops_reading_a_bulk_that_was_spread_over_many_timestamps() -> None:
    progress = Progress(at(200), newest=at(0))
    for seconds in (215, 230):
        progress, _ = advance(progress, Proof(at(seconds), pages=9, complete=True, newest=at(0)), LOOKBACK)
    assert open_window(progress, LOOKBACK) == at(0.001)


@pytest.mark.parametrize(("newest", "pages", "start"), [(0, 3, -60), (150, 9, 90)])
def test_a_quiet_feed_keeps_its_whole_window_where_that_is_cheap_or_the_quiet_is_short(
    newest: float, pages: int, start: float
) -> None:
    progress = Progress(at(200), newest=at(newest))
    for seconds in (205, 209):
        progress, _ = advance(progress, Proof(at(seconds), pages, complete=True, newest=at(newest)), LOOKBACK)
    assert open_window(progress, LOOKBACK) == at(start)


# The records' clock --------------------------------------------------------------------------------------------------


def test_the_first_pass_tells_where_the_clock_of_the_records_stands() -> None:
    progress = anchor(Progress(at(300)), at(-18_000), timedelta(seconds=200))
    assert open_window(progress, LOOKBACK) == at(-18_260)


def test_a_later_pass_does_not() -> None:
    progress = Progress(at(300), newest=at(290))
    assert anchor(progress, at(0), MINUTE) == progress
    assert anchor(Progress(at(300)), None, MINUTE) == Progress(at(300))


def test_what_is_dated_while_a_run_goes_on_is_read_again() -> None:
    proof = Proof(at(60), 2, complete=True, oldest_unseen=at(20), newest=at(55), answered_at=at(70))
    progress, _ = advance(Progress(at(0), at(30), newest=at(0)), proof, LOOKBACK)
    assert progress.newest == at(15)


def test_a_service_clock_that_went_back_does_not_bring_the_newest_record_forward() -> None:
    proof = Proof(at(10), 1, complete=True, oldest_unseen=at(5), newest=at(5))
    progress, _ = advance(Progress(at(100), newest=at(0)), proof, LOOKBACK)
    assert (progress.watermark, progress.newest) == (at(100), at(5))


def test_a_run_that_met_nothing_new_moves_up_to_the_newest_record() -> None:
    proof = Proof(at(60), 2, complete=True, newest=at(55), answered_at=at(70))
    progress, _ = advance(Progress(at(0), at(30), newest=at(0)), proof, LOOKBACK)
    assert progress.newest == at(55)


def test_records_that_are_all_dated_hours_back_do_not_hold_the_watermark_back() -> None:
    progress = Progress(at(0), at(15), newest=at(-18_005))
    proof = Proof(at(30), 2, complete=True, oldest_unseen=at(-17_990), newest=at(-17_972), answered_at=at(31))
    assert advance(progress, proof, LOOKBACK)[1] is Advance.CONFIRMED


def test_timestamps_that_are_whole_days_do_not_hold_the_watermark_back() -> None:
    today = NOON.replace(hour=0)
    proof = Proof(at(30), 2, complete=True, oldest_unseen=today, newest=today)
    assert advance(Progress(at(0), at(15), newest=today), proof, LOOKBACK, DAY)[1] is Advance.CONFIRMED


@given(progresses, proofs)
def test_newest_moves_only_with_the_watermark_and_never_back(progress: Progress, proof: Proof) -> None:
    after, why = advance(progress, proof, LOOKBACK)
    if why in {Advance.ONE_PAGE, Advance.CONFIRMED}:
        assert progress.newest is None or (after.newest is not None and after.newest >= progress.newest)
    else:
        assert after.newest == progress.newest


# A simulated service -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    """A version of a record: written at ``at`` (seconds), visible ``delay`` later."""

    at: float
    key: int
    delay: float = 0

    @property
    def visible_at(self) -> float:
        return self.at + self.delay


@dataclass
class Simulation:
    """Polls of a service that lists by ``updated_at`` and shows pages by offset or by key; a request takes 0.2 s."""

    writes: Sequence[Write]
    skew: float = 0  # of the records' clock against the service's
    by_offset: bool = False
    page_size: int = 5
    progress: Progress = field(default_factory=lambda: Progress(at(0)))
    lateness: Lateness = field(default_factory=Lateness)
    now: float = 0
    seen: dict[int, Write] = field(default_factory=dict)
    missed: list[float] = field(default_factory=list)
    requests: int = 0

    def stamp(self, write: Write) -> datetime:
        return at(write.at + self.skew)

    def rows(self) -> dict[int, Write]:
        """Return each record's version that is visible now."""
        shown = sorted((write for write in self.writes if write.visible_at <= self.now), key=lambda w: w.visible_at)
        return {write.key: write for write in shown}

    def pages(self, since: datetime) -> Iterator[list[Write]]:
        offset, last = 0, (datetime.min.replace(tzinfo=UTC), -1)
        more = True
        while more:
            rows = [write for write in self.rows().values() if self.stamp(write) >= since]
            rows.sort(key=lambda write: (self.stamp(write), write.key))
            if not self.by_offset:
                rows = [write for write in rows if (self.stamp(write), write.key) > last]
            page = rows[offset : offset + self.page_size]
            more = len(rows) > offset + self.page_size
            offset += self.page_size if self.by_offset else 0
            self.now += 0.2
            self.requests += 1
            yield page
            last = (self.stamp(page[-1]), page[-1].key) if page else last

    def run(self, *, trailing: bool = False) -> None:
        asked_at, before = at(self.now), self.progress
        lookback = self.lateness.lookback(asked_at)
        hot = open_window(before, lookback)
        unseen: list[datetime] = []
        stamps: list[datetime] = []
        count = 0
        for page in self.pages(open_trailing_window(before, lookback) if trailing else hot):
            count += 1
            for write in page:
                stamps.append(self.stamp(write))
                if self.seen.get(write.key) != write:
                    self.seen[write.key] = write
                    unseen.append(self.stamp(write))
        samples = [covered_until(before) - stamp for stamp in unseen if stamp < covered_until(before)]
        self.lateness = self.lateness.observe(samples, len(unseen) - len(samples), asked_at)
        if trailing:
            if any(late > lookback for late in samples):
                self.missed.append(self.now)
                self.lateness = self.lateness.miss(lookback, asked_at)
            return
        proof = Proof(
            asked_at,
            pages=count,
            complete=True,
            oldest_unseen=min(unseen, default=None),
            newest=max((stamp for stamp in stamps if stamp <= at(self.now)), default=None),
            answered_at=at(self.now),
        )
        self.progress, _ = advance(before, proof, lookback)
        assert self.progress.watermark is not None
        assert before.watermark is not None
        assert before.watermark <= self.progress.watermark <= asked_at

    def poll(self, *, until: float, every: float = 15, outage: tuple[float, float] = (0, 0), trail: float = 0) -> None:
        trailed = 0.0
        while self.now < until:
            if not outage[0] <= self.now < outage[1]:
                self.run()
                if trail and self.now >= trailed + trail:
                    trailed = self.now
                    self.run(trailing=True)
            self.now += every

    def lost(self) -> list[Write]:
        """Return the visible versions that no run has met."""
        return [write for write in self.rows().values() if self.seen.get(write.key) != write]


def walk(seed: int, *, until: float, per_second: float, keys: int, delay: float = 0) -> list[Write]:
    chance = random.Random(seed)
    writes, now = [], 1.0
    while now < until:
        writes.append(Write(round(now, 3), chance.randrange(keys), round(chance.uniform(0, delay), 3)))
        now += chance.expovariate(per_second)
    return writes


histories = st.lists(
    st.tuples(st.integers(0, 40_000), st.integers(0, 12), st.integers(0, 30_000)),
    min_size=1,
    max_size=40,
)


@given(histories, st.integers(1, 40), st.sampled_from([0.0, -3.0, -18_000.0, 5.0]), st.integers(0, 900))
def test_no_version_is_lost_that_becomes_visible_within_half_the_lookback(
    history: list[tuple[int, int, int]], every: int, skew: float, outage: int
) -> None:
    now, writes = 0.0, []
    for gap, key, delay in history:
        now += gap / 1000
        writes.append(Write(now, key, delay / 1000))
    service = Simulation(writes, skew, progress=anchor(Progress(at(0)), at(skew), timedelta(0)))
    service.poll(until=now + 100 + outage + 4 * every, every=every, outage=(now / 2, now / 2 + outage))
    assert service.lost() == []


@pytest.mark.slow
@pytest.mark.parametrize("skew", [0, -18_000, 7])
@pytest.mark.parametrize("seed", range(6))
def test_an_outage_loses_nothing_where_pages_shift_and_leaves_the_lookback_unmoved(seed: int, skew: float) -> None:
    service = Simulation(
        walk(seed, until=1500, per_second=1, keys=400), skew, by_offset=True, page_size=40,
        progress=anchor(Progress(at(0)), at(skew), timedelta(0)),
    )  # fmt: skip
    service.poll(until=1800, outage=(300, 1200))
    assert service.lost() == []
    assert service.lateness.lookback(at(service.now)) == LOOKBACK


def test_the_clock_of_the_records_costs_next_to_nothing() -> None:
    requests = []
    for skew in (0, -18_000):
        service = Simulation(
            walk(1, until=900, per_second=2, keys=400), skew, by_offset=True, page_size=40,
            progress=anchor(Progress(at(0)), at(skew), timedelta(0)),
        )  # fmt: skip
        service.poll(until=900)
        requests.append(service.requests)
    assert requests[1] < requests[0] * 1.3


@pytest.mark.slow
def test_records_that_become_visible_later_than_the_lookback_are_met_by_polls_after_the_first_few() -> None:
    writes = [Write(at, key, 150 if key % 10 == 0 else 0) for key, at in enumerate(range(1, 7200, 6))]
    service = Simulation(writes, page_size=200)
    service.poll(until=7400, trail=120)
    assert service.lost() == []
    assert 0 < len(service.missed) <= 3
    assert max(service.missed) < 1200
    assert service.lateness.lookback(at(service.now)) >= timedelta(seconds=300)


# The reach of a service: how far back polls may ask, and whether a cut window leaves anything out --------------------


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


@pytest.mark.parametrize(("every", "seconds"), [(15 * SECOND, 300), (MINUTE, 1200), (None, 300)])
def test_trailing_polls_are_made_every_twenty_polls_and_not_sooner_than_five_minutes(
    every: timedelta | None, seconds: int
) -> None:
    assert trailing_every(every) == timedelta(seconds=seconds)
