"""Polls of one feed, over a real store, against a source with offset cursors whose pages drift."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from dockbell.core.model import RunKind, Urgency
from dockbell.core.moment import format_moment
from dockbell.detection.guarded import run_guarded
from dockbell.errors import CursorExpired, RequestRefused, SourceRefused, SourceUnavailable, StoreUnavailable
from dockbell.telemetry import LookbackNarrow
from tests.fakes import NOON
from tests.rig import CountedAlarm, CountedCommits, Rig, TimedAlarm, open_rig, run_until_quiet


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as rig:
        yield rig


async def test_nothing_is_polled_before_the_first_request_was_answered(rig: Rig) -> None:
    assert await rig.poller.run_once() is None
    assert rig.source.asked == []


async def test_reading_the_same_records_again_is_no_change(rig: Rig) -> None:
    await rig.read_whole()
    for _ in range(5):
        await rig.poll()
    assert await rig.events() == []


async def test_polls_that_show_the_same_again_compare_nothing_and_those_that_show_nothing_neither(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.read_whole()
    counted, compared = CountedCommits(rig, monkeypatch), []
    for _ in range(4):
        await rig.poll()
        compared.append(counted.take())
    rig.clock.pass_(100)
    rig.source.put("a", status="packed")
    for _ in range(4):
        await rig.poll()
        compared.append(counted.take())
    rig.source.records = {}
    await rig.poll()
    compared.append(counted.take())
    # After a change the window moves on; then it shows a part of what it showed before.
    assert compared == [2, 0, 0, 0, 2, 0, 0, 0, 0]
    assert await rig.events() == ["a updated 1"]


async def test_polls_that_fail_remember_no_more_pages_than_others(rig: Rig) -> None:
    for number in range(60):
        rig.source.put(f"r{number}")
    await rig.read_whole()

    def fail(request: int) -> None:
        if rig.source.asked[request - 1][0] is not None:
            raise RequestRefused("HTTP 400")

    rig.source.before_page = fail
    known = rig.tracked.store.known_pages
    order = deque(rig.source.records.items())
    for _ in range(20):
        order.rotate(rig.source.page_size)
        rig.source.records = dict(order)  # begins with another page
        with pytest.raises(RequestRefused):
            await rig.poller.run_once()
    assert len(known._pages) == 4  # of three polls, and of the last one


async def test_what_other_runs_have_met_speaks_against_the_next_candidate_where_the_end_of_a_poll_is_not_stored(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.read_whole()
    await rig.poll()
    rig.tracked.sightings.meet_aside(NOON)

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as away:
        away.setattr(rig.tracked.store, "close_run", fail)
        with pytest.raises(StoreUnavailable):
            await rig.poll()
    assert rig.tracked.sightings.oldest_aside == NOON
    await rig.poll()
    assert rig.tracked.sightings.oldest_aside is None


async def test_a_poll_asks_from_the_watermark_less_the_lookback(rig: Rig) -> None:
    await rig.read_whole(after=0)
    rig.clock.pass_(100)
    rig.source.records = {}
    rig.source.put("f")
    rig.clock.pass_(5)
    rig.source.put("g")
    await rig.poll(after=0)
    await rig.poll()
    assert [since for _, since, _ in rig.source.asked][-2:] == [
        NOON - timedelta(seconds=60),
        NOON + timedelta(seconds=45),
    ]


async def test_a_poll_asks_from_the_newest_timestamp_where_that_is_earlier(rig: Rig) -> None:
    rig.source.offset = timedelta(hours=-5)  # local time, written without a zone
    for key in "abcde":
        rig.source.put(key, status="open")
    await rig.read_whole(after=0)
    rig.clock.pass_(100)
    rig.source.put("b", status="packed")
    await rig.poll()
    assert await rig.events() == ["b updated 1"]


async def test_a_run_of_several_pages_is_repeated_before_the_watermark_moves(rig: Rig) -> None:
    await rig.read_whole(after=0)
    for key in "abcd":
        rig.source.put(key, status="packed")
    await rig.poll()
    state = await rig.tracked.state()
    assert (state.progress.watermark, state.progress.candidate) == (NOON, NOON + timedelta(seconds=15))
    await rig.poll()
    assert (await rig.tracked.state()).progress.watermark == NOON + timedelta(seconds=15)


async def test_a_record_that_drifted_past_a_page_edge_is_found_by_the_repeat(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(100)
    for key in "abcdef":
        rig.source.put(key, status="packed")

    def move(request: int) -> None:
        if request == asked + 2:
            rig.clock.pass_(0.1)
            rig.source.put("a", status="shipped")  # d slips to the first page, which was read already

    asked = len(rig.source.asked)
    rig.source.before_page = move
    await rig.poll()
    assert "d updated 1" not in await rig.events()
    rig.source.before_page = lambda _: None
    rig.clock.pass_(3600)  # an outage: were the watermark to move by itself, d would be out of every later window
    await rig.poll()
    assert "d updated 1" in await rig.events()


async def test_a_run_that_is_cut_short_keeps_what_it_saw_and_moves_nothing(rig: Rig) -> None:
    await rig.read_whole()
    before = (await rig.tracked.state()).progress
    rig.clock.pass_(100)
    for key in "abcde":
        rig.source.put(key, status="packed")

    def fail(request: int) -> None:
        if request == asked + 2:
            raise SourceUnavailable("HTTP 503")

    asked = len(rig.source.asked)
    rig.source.before_page = fail
    assert await rig.poll() == "HTTP 503"
    assert await rig.events() == ["a updated 1", "b updated 1", "c updated 1"]
    assert (await rig.tracked.state()).progress == before


async def test_what_a_run_met_before_it_began_again_still_speaks_against_the_candidate(rig: Rig) -> None:
    await rig.read_whole(after=0)
    rig.clock.pass_(100)
    for key in "bcde":
        rig.source.put(key, status="packed")
    missed = rig.source.records.pop("b")
    await rig.poll(after=100)
    candidate = (await rig.tracked.state()).progress.candidate
    rig.source.records = {"b": missed, **rig.source.records}
    asked = len(rig.source.asked)

    def expire(request: int) -> None:
        if request == asked + 2:
            raise CursorExpired("HTTP 410")

    rig.source.before_page = expire
    rig.clock.pass_(100)
    rig.source.put("z")
    await rig.poll(after=0)
    progress = (await rig.tracked.state()).progress
    assert (progress.watermark, progress.candidate) == (NOON, rig.clock())
    assert progress.candidate != candidate


async def test_a_record_without_a_key_is_left_out_and_the_run_proves_nothing(rig: Rig) -> None:
    await rig.read_whole()
    before = (await rig.tracked.state()).progress
    rig.clock.pass_(100)
    rig.source.put("a", status="packed")
    rig.source.records["bad"] = {"status": "lost", "updated_at": rig.source.records["a"]["updated_at"]}
    assert "key /id" in await rig.poll()
    assert await rig.events() == ["a updated 1"]
    assert (await rig.tracked.state()).progress == before


async def test_a_bad_record_that_is_known_does_not_keep_polls_from_proving(rig: Rig) -> None:
    rig.source.page_size = 200
    await rig.read_whole()
    rig.clock.pass_(100)
    rig.source.put("a", status="packed")
    rig.source.records["bad"] = {"status": "lost", "updated_at": rig.source.records["a"]["updated_at"]}
    assert "/id" in await rig.poll()
    assert await rig.poll() == ""
    state = await rig.tracked.state()
    assert (state.progress.watermark, state.quarantined) == (rig.clock(), 1)
    assert state.poll is not None
    assert state.poll.tally.bad == 1


@pytest.mark.parametrize("before", [0, 1])
async def test_a_bad_record_whose_text_is_another_each_time_does_not_keep_polls_from_proving(
    rig: Rig, before: int
) -> None:
    """As many records without a key as were met before are no news, whatever stands in them."""
    rig.source.page_size = 200
    await rig.read_whole()
    rig.clock.pass_(100)
    rig.source.put("a", status="packed")
    date = rig.source.records["a"]["updated_at"]
    for number in range(before):
        rig.source.records[f"old {number}"] = {"nonce": -1, "updated_at": date}
        assert "/id" in await rig.poll()
    rig.source.records["bad"] = {"nonce": 0, "updated_at": date}
    assert "/id" in await rig.poll()
    for nonce in range(1, 4):
        rig.source.records["bad"]["nonce"] = nonce
        assert await rig.poll() == ""
        assert (await rig.tracked.state()).progress.watermark == rig.clock()
    await rig.read_whole()
    assert (await rig.statements("reconciled"))[-1]["verdict"] == "doubtful"


async def test_a_bad_record_with_a_key_is_read_again_once_however_many_are_in_quarantine(rig: Rig) -> None:
    rig.restart(key="/id")
    rig.source.page_size = 200
    await rig.read_whole()
    rig.clock.pass_(100)
    rig.source.put("a", status="packed")
    date = rig.source.records["a"]["updated_at"]
    rig.source.records["bad"] = {"nonce": 0, "updated_at": date}
    assert "/id" in await rig.poll()
    rig.source.records["a again"] = rig.source.records["a"] | {"status": "lost"}
    assert "appears twice" in await rig.poll()
    assert await rig.poll() == ""


async def test_without_a_proven_key_nothing_is_polled(rig: Rig) -> None:
    def fail(request: int) -> None:
        if request == 2:
            raise SourceUnavailable("HTTP 503")

    rig.name_by_code()
    rig.source.before_page = fail
    await rig.read_whole()
    assert await rig.poller.run_once() is None
    assert await rig.poller.trail_once() is None


async def test_what_another_run_found_meanwhile_speaks_against_the_candidate(rig: Rig) -> None:
    await rig.read_whole(after=0)
    rig.clock.pass_(100)
    for key in "bcde":
        rig.source.put(key, status="packed")
    missed = rig.source.records.pop("b")
    rig.clock.pass_(100)
    rig.source.put("f")
    await rig.poll(after=0)
    rig.source.records = {"b": missed, **rig.source.records}
    await rig.read_whole()
    await rig.poll()
    assert (await rig.tracked.state()).progress.watermark == NOON


async def test_after_a_restart_a_candidate_must_be_proven_anew(rig: Rig) -> None:
    await rig.read_whole(after=0)
    for key in "abcd":
        rig.source.put(key, status="packed")
    await rig.poll()
    rig.restart()
    await rig.poll()
    progress = (await rig.tracked.state()).progress
    assert (progress.watermark, progress.candidate) == (NOON, NOON + timedelta(seconds=30))


async def test_a_poll_keeps_where_the_records_clock_stands_as_a_pass_has_told_meanwhile(rig: Rig) -> None:
    rig.source.offset = timedelta(hours=-5)  # local time, written without a zone
    for key in "abcde":
        rig.source.put(key, status="open")
    rig.restart(key="/id")

    def fail(request: int) -> None:
        if request == 2:
            raise SourceUnavailable("HTTP 503")

    rig.source.before_page = fail
    await rig.read_whole()
    rig.meanwhile(RunKind.POLL, rig.read_whole)
    await rig.poll()
    rig.clock.pass_(100)
    rig.source.put("b", status="packed")
    await rig.poll()
    assert await rig.events() == ["b updated 1"]


# Late, missed and silent changes -------------------------------------------------------------------------------------


async def show_late(rig: Rig, key: str, seconds: float) -> None:
    """Create a record that becomes visible so long after its date, while the watermark goes on."""
    dated = rig.clock()
    rig.clock.pass_(seconds - 15)
    rig.source.put("z", at=str(rig.clock()))
    await rig.poll()
    rig.source.records[key] = {"id": key, "updated_at": format_moment(dated)}


async def test_a_record_that_becomes_visible_late_is_reported_as_late_and_twice_raise_the_lookback(rig: Rig) -> None:
    rig.restart(lookback="auto")
    rig.source.page_size = 200
    await rig.read_whole()
    for key in "fgh":
        await show_late(rig, key, 40)
        await rig.poll()
    assert [body["late"] for body in await rig.bodies() if body["key"] in "fgh"] == [True] * 3
    assert rig.tracked.profile.lookback > timedelta(seconds=60)
    rig.restart()
    await rig.tracked.state()
    assert rig.tracked.profile.lookback > timedelta(seconds=60)


async def test_an_outage_is_no_lateness(rig: Rig) -> None:
    rig.restart(lookback="auto")
    rig.source.page_size = 200
    await rig.read_whole()
    await rig.poll()
    for key in "abc":
        rig.source.put(key, status="packed")
        rig.clock.pass_(1200)
    await rig.poll()
    assert [(body["change"], body["late"]) for body in await rig.bodies()] == [("updated", False)] * 3
    assert rig.tracked.profile.lookback == timedelta(seconds=60)


async def test_a_trailing_poll_meets_what_polls_have_missed_and_that_raises_the_lookback(rig: Rig) -> None:
    rig.restart(lookback="auto")
    rig.source.page_size = 200
    await rig.read_whole()
    await show_late(rig, "f", 400)
    assert await rig.poll() == ""
    assert "f created 1" not in await rig.events()
    before = (await rig.tracked.state()).progress
    run = await rig.poller.trail_once()
    assert run is not None
    assert (run.kind, run.tally.missed, run.problem) == (RunKind.TRAILING, 1, "")
    assert before.newest is not None
    assert run.since == before.newest - timedelta(minutes=15)
    assert "f created 1" in await rig.events()
    assert [body["via"] for body in await rig.bodies() if body["key"] == "f"] == ["trailing"]
    assert rig.tracked.profile.lookback == timedelta(seconds=120)
    assert (await rig.tracked.state()).progress == before
    assert rig.source.asked[-1][2] is Urgency.TRAILING


async def test_a_fixed_lookback_stays_and_is_told_to_be_narrow_once(rig: Rig) -> None:
    rig.source.page_size = 200
    await rig.read_whole()
    for key in "fghi":
        await show_late(rig, key, 58)
        await rig.poll()
    assert rig.tracked.profile.lookback == timedelta(seconds=60)
    assert sum(isinstance(fact, LookbackNarrow) for fact in rig.ear.facts) == 1


async def test_a_change_under_an_unmoved_date_is_an_event_and_counts_as_silent(rig: Rig) -> None:
    rig.source.page_size = 200
    await rig.read_whole()
    rig.source.records["a"]["status"] = "packed"
    rig.clock.pass_(15)
    run = await rig.poller.run_once()
    assert run is not None
    assert (run.tally.silent, run.tally.updated, run.tally.missed) == (1, 1, 0)
    assert await rig.events() == ["a updated 1"]
    assert rig.tracked.profile.lookback == timedelta(seconds=60)


async def test_a_tick_of_many_records_is_left_to_the_trailing_poll_once_it_was_read_whole_twice(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.page_size = 200
    rig.clock.pass_(100)
    for number in range(650):
        rig.source.put(f"t{number}")
    costs = []
    for _ in range(6):
        asked = len(rig.source.asked)
        assert await rig.poll() == ""
        costs.append(len(rig.source.asked) - asked)
    assert costs == [4, 4, 1, 1, 1, 1]
    assert len(await rig.events()) == 650
    late = dict(rig.source.records["t1"], id="late")
    rig.source.records["late"] = late
    await rig.poll()
    assert "late created 1" not in await rig.events()
    await rig.poller.trail_once()
    assert "late created 1" in await rig.events()


async def test_the_agents_poll_at_once_and_then_from_start_to_start(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.asked.clear()
    rig.source.page_size = 200
    alarm = TimedAlarm(rig.clock, 2)
    await run_until_quiet(rig.poller.run, alarm)
    assert [urgency for _, _, urgency in rig.source.asked] == [Urgency.POLL] * 3
    assert alarm.delays == [15, 15, 15]


@pytest.mark.parametrize(("away", "waits"), [(4, 11), (100, 0), (-3600, 15)])
async def test_polls_go_on_in_their_rhythm_after_a_restart(rig: Rig, away: float, waits: float) -> None:
    await rig.read_whole()
    rig.source.page_size = 200
    await run_until_quiet(rig.poller.run, CountedAlarm(0))
    if away > 0:
        rig.clock.pass_(away)
    else:
        rig.set_clock(away)  # that of the process before was ahead
    rig.restart()
    await rig.tracked.state()
    rig.source.asked.clear()
    alarm = TimedAlarm(rig.clock, 1 if waits else 0)
    await run_until_quiet(rig.poller.run, alarm)
    assert alarm.delays == [each for each in (waits, 15) if each]
    assert len(rig.source.asked) == 1


class TrailedAlarm(TimedAlarm):
    """Lets no time pass while a trailing poll goes on.

    Attributes:
        begun: After how many seconds each was begun.
    """

    def __init__(self, rig: Rig, rings: int) -> None:
        super().__init__(rig.clock, rings)
        self._rig = rig
        self._passed = 0.0
        self.begun: list[int] = []

    async def wait(self) -> None:
        while self._rig.poller.trailing.is_working:
            await anyio.lowlevel.checkpoint()
        if Urgency.TRAILING in {urgency for _, _, urgency in self._rig.source.asked}:
            self.begun.append(round(self._passed))
        self._rig.source.asked.clear()
        self._passed += self._delay
        await super().wait()


async def trail(rig: Rig, seconds: int) -> list[int]:
    """Let the agent poll for so long, every 15 seconds; return after how many seconds each trailing poll was begun."""
    alarm = TrailedAlarm(rig, seconds // 15)
    async with anyio.create_task_group() as group:
        with rig.poller.trailing.working_in(group):
            await run_until_quiet(rig.poller.run, alarm)
    return alarm.begun


async def test_trailing_polls_go_on_in_their_rhythm_after_a_restart(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.page_size = 200
    assert await trail(rig, 915) == [300, 600, 900]
    rig.clock.pass_(100)
    rig.restart()
    await rig.tracked.state()
    assert await trail(rig, 495) == [195, 495]
    rig.clock.pass_(1000)
    rig.restart()
    await rig.tracked.state()
    assert await trail(rig, 315) == [0, 300]


async def test_a_pass_counts_as_a_trailing_poll_after_a_restart(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(105)
    rig.restart()
    await rig.tracked.state()
    assert await trail(rig, 180) == []
    assert await trail(rig, 30) == [15]


async def test_a_poll_that_takes_longer_than_its_interval_is_followed_by_the_next_at_once(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.asked.clear()
    rig.source.page_size = 200

    async def take_long() -> None:
        rig.clock.pass_(20)

    rig.meanwhile(RunKind.POLL, take_long)
    alarm = TimedAlarm(rig.clock, 0)
    await run_until_quiet(rig.poller.run, alarm)
    assert len(rig.source.asked) == 2
    assert alarm.delays == [15]


async def test_small_delays_of_planned_polls_do_not_add_up(tmp_path: Path) -> None:
    async with open_rig(tmp_path, every="auto", at_most=timedelta(minutes=1)) as rig:
        await rig.read_whole()
        rig.source.page_size = 200
        rig.tracked.schedule.set_interval(timedelta(seconds=15))
        alarm = TimedAlarm(rig.clock, 2, late=2)
        await run_until_quiet(rig.poller.run, alarm)
        assert alarm.delays == [15, 13, 13]


async def test_a_new_interval_counts_from_the_start_of_the_last_poll(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.page_size = 200

    async def divide() -> None:
        rig.clock.pass_(3)
        rig.tracked.schedule.set_interval(timedelta(seconds=5))

    rig.meanwhile(RunKind.POLL, divide)
    alarm = TimedAlarm(rig.clock, 0)
    await run_until_quiet(rig.poller.run, alarm)
    assert alarm.delays == [0, 2]  # it is woken, and waits for what is left


async def test_a_record_that_cannot_be_told_apart_makes_no_poll_rarer(rig: Rig) -> None:
    await rig.read_whole()
    rig.tracked.schedule.set_interval(timedelta(seconds=1))
    rig.source.page_size = 200
    rig.source.put("x", id=None)
    alarm = TimedAlarm(rig.clock, 0)
    await run_until_quiet(rig.poller.run, alarm)
    assert alarm.delays == [1]


@pytest.mark.parametrize(("before", "now", "gaps"), [(60, 1, 0), (1, 60, 0), (1, 1, 1), (3600, 1, 1)])
async def test_a_gap_is_judged_by_the_longer_interval_that_was_promised(
    tmp_path: Path, before: int, now: int, gaps: int
) -> None:
    async with open_rig(tmp_path, every="auto", at_most="1m") as rig:
        rig.tracked.schedule.set_interval(timedelta(seconds=before))
        await rig.read_whole()
        await rig.poll()
        rig.tracked.schedule.set_interval(timedelta(seconds=now))
        await rig.poll(after=100 if before < 3600 else 300)
        assert len(await rig.statements("gap")) == gaps


async def test_by_a_crontab_line_a_feed_is_polled_at_its_times_and_not_at_once(tmp_path: Path) -> None:
    async with open_rig(tmp_path, every=None, cron="30 * * * *") as rig:
        await rig.read_whole()
        rig.source.asked.clear()
        rig.source.page_size = 200
        alarm = TimedAlarm(rig.clock, 30)  # it looks at the clock every minute
        await run_until_quiet(rig.poller.run, alarm)
        assert len(rig.source.asked) == 1
        assert rig.clock() == NOON + timedelta(minutes=30)


@pytest.mark.parametrize(("step", "polls"), [(3 * 3600, 1), (-3600, 0), (-3600 * 24, 0)])
async def test_times_of_a_crontab_line_that_a_step_of_our_clock_skipped_are_one(
    tmp_path: Path, step: float, polls: int
) -> None:
    async with open_rig(tmp_path, every=None, cron="30 * * * *") as rig:
        await rig.read_whole()
        rig.source.asked.clear()
        rig.source.page_size = 200
        alarm = TimedAlarm(rig.clock, 1)

        async def wait() -> None:
            if not rig.source.asked:
                rig.set_clock(step)
            await TimedAlarm.wait(alarm)

        alarm.wait = wait  # type: ignore[method-assign]
        await run_until_quiet(rig.poller.run, alarm)
        assert len(rig.source.asked) == polls


async def test_times_of_a_crontab_line_that_come_again_after_a_step_back_count_again(tmp_path: Path) -> None:
    async with open_rig(tmp_path, every=None, cron="30 * * * *") as rig:
        await rig.read_whole()
        rig.source.asked.clear()
        rig.source.page_size = 200
        rig.set_clock(-3600 * 6)
        await run_until_quiet(rig.poller.run, TimedAlarm(rig.clock, 31))
        assert len(rig.source.asked) == 1


async def test_a_feed_that_is_not_answered_is_polled_every_15_seconds_at_most(rig: Rig) -> None:
    await rig.read_whole()
    rig.tracked.schedule.set_interval(timedelta(seconds=1))

    def fail(_: int) -> None:
        raise SourceUnavailable("503")

    rig.source.before_page = fail
    alarm = TimedAlarm(rig.clock, 0)
    await run_until_quiet(rig.poller.run, alarm)
    assert alarm.delays == [15]


# Gaps ----------------------------------------------------------------------------------------------------------------


async def test_a_poll_that_comes_soon_after_the_last_closes_no_gap(rig: Rig) -> None:
    await rig.read_whole(after=0)
    await rig.poll()
    await rig.poll(after=105)  # three intervals and a minute
    assert await rig.statements("gap") == []


async def test_the_first_poll_after_a_time_without_any_states_the_gap(rig: Rig) -> None:
    await rig.read_whole(after=0)
    await rig.poll()
    rig.restart()
    await rig.poll(after=3600)
    (gap,) = await rig.statements("gap")
    assert (gap["from"], gap["to"], gap["reason"]) == ("2026-11-21T12:00:15.000Z", "2026-11-21T13:00:15.000Z", "down")
    await rig.poll()
    assert len(await rig.statements("gap")) == 1


@pytest.mark.parametrize("first", ["pass", "poll", "pass within a poll", "poll within a pass"])
async def test_a_gap_is_stated_once_whatever_run_ends_it(rig: Rig, first: str) -> None:
    await rig.read_whole()
    await rig.poll()
    for key in "abcde":
        rig.source.put(key, status="packed")
    rig.restart()
    rig.clock.pass_(3600)
    match first:
        case "pass":
            await rig.read_whole()
            await rig.poll()
        case "poll":
            await rig.poll()
            await rig.read_whole()
        case "pass within a poll":
            rig.meanwhile(RunKind.POLL, rig.read_whole)
            await rig.poll()
        case _:
            rig.meanwhile(RunKind.PASS, rig.poll)
            await rig.read_whole()
    (gap,) = await rig.statements("gap")
    assert (gap["from"], gap["reason"]) == ("2026-11-21T12:00:30.000Z", "down")


@pytest.mark.parametrize(
    ("error", "reason"), [(SourceRefused("HTTP 401"), "refused"), (SourceUnavailable("HTTP 503"), "unavailable")]
)
async def test_a_gap_says_why_nothing_was_seen(rig: Rig, error: Exception, reason: str) -> None:
    def fail(_: int) -> None:
        raise error

    async def poll() -> Any:
        return await rig.poll(after=60)

    await rig.read_whole(after=0)
    rig.source.before_page = fail
    for _ in range(5):
        await run_guarded(rig.tracked, poll, pause=False)
    assert await rig.statements("gap") == []
    rig.source.before_page = lambda _: None
    await rig.poll()
    assert [gap["reason"] for gap in await rig.statements("gap")] == [reason]


@pytest.mark.parametrize("step", [-3600, 3600])
@pytest.mark.parametrize("read", ["poll", "pass"])
async def test_setting_our_clock_makes_no_gap_and_hides_none(rig: Rig, step: float, read: str) -> None:
    go = rig.poll if read == "poll" else rig.read_whole
    await rig.read_whole(after=0)
    await rig.poll()
    rig.set_clock(step)
    await go()
    assert await rig.statements("gap") == []
    rig.set_clock(-step)
    await go(after=900)
    (gap,) = await rig.statements("gap")
    assert (gap["from"], gap["to"]) == ("2026-11-21T12:00:30.000Z", "2026-11-21T12:15:30.000Z")


@pytest.mark.parametrize("step", [-3600, 3600])
async def test_a_restart_after_which_our_clock_is_set_makes_no_gap_and_hides_none(rig: Rig, step: float) -> None:
    await rig.read_whole(after=0)
    await rig.poll()
    rig.set_clock(step)
    rig.restart()
    await rig.poll()
    assert await rig.statements("gap") == []
    rig.set_clock(-step)
    rig.restart()
    await rig.poll(after=900)
    assert len(await rig.statements("gap")) == 1


async def test_a_gap_that_a_poll_states_while_a_pass_asks_for_what_it_misses_is_not_stated_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_absent = rig.store.feed(rig.feed).find_absent

    async def poll_and_find(*args: Any) -> Any:
        await rig.poll()
        return await find_absent(*args)

    await rig.read_whole()
    await rig.poll()
    rig.restart()
    monkeypatch.setattr(rig.store.feed(rig.feed), "find_absent", poll_and_find)
    await rig.read_whole(after=3600)
    (gap,) = await rig.statements("gap")
    assert (gap["from"], gap["to"]) == ("2026-11-21T12:00:30.000Z", "2026-11-21T13:00:45.000Z")


async def test_a_time_in_which_an_answer_is_waited_for_is_a_gap_too(rig: Rig) -> None:
    await rig.read_whole(after=0)
    await rig.poll()
    rig.source.before_page = lambda _: rig.clock.pass_(600)
    await rig.poll()
    (gap,) = await rig.statements("gap")
    assert (gap["from"], gap["reason"]) == ("2026-11-21T12:00:15.000Z", "unavailable")


async def test_a_gap_that_could_not_be_stored_is_stated_by_the_next_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full")

    await rig.read_whole(after=0)
    await rig.poll()
    rig.source.before_page = refuse
    await rig.poll(after=600)
    rig.source.before_page = lambda _: None
    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "close_run", fail)
        with pytest.raises(StoreUnavailable):
            await rig.poll()
    assert await rig.statements("gap") == []
    await rig.poll()
    assert [gap["reason"] for gap in await rig.statements("gap")] == ["unavailable"]


# An API that refuses old starts ---------------------------------------------------------------------------------------

WEEK = timedelta(days=7)
DAYS = 86_400.0


async def poll_and_pass(rig: Rig, after: float) -> None:
    """Poll once, some time later, and make a pass where that asks for one; what goes wrong is stored."""
    rig.clock.pass_(after)
    await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    if await rig.reconciler.delay() <= timedelta(0):
        await run_guarded(rig.tracked, rig.reconciler.run_once, pause=False)


async def test_a_quiet_feed_is_polled_on_where_the_api_refuses_old_starts(rig: Rig) -> None:
    rig.source.page_size, rig.source.reach = 200, WEEK
    await rig.read_whole()
    for _ in range(20):
        await poll_and_pass(rig, DAYS)
    assert (await rig.tracked.state()).problem == ""
    asked = len(rig.source.asked)
    rig.source.put("b", status="packed")
    await poll_and_pass(rig, 15)
    assert len(rig.source.asked) == asked + 1  # the bound is known: nothing is refused any more
    assert await rig.events() == ["b updated 1"]
    assert (await rig.tracked.state()).progress.watermark == rig.clock()


async def test_after_a_long_outage_a_pass_covers_what_polls_may_not_ask_for(rig: Rig) -> None:
    rig.source.page_size, rig.source.reach = 200, WEEK
    await rig.read_whole()
    await rig.poll()
    before = (await rig.tracked.state()).progress.watermark
    rig.restart()
    rig.clock.pass_(DAYS)
    rig.source.put("a", status="lost")  # out of reach when dockbell is back
    rig.clock.pass_(10 * DAYS)
    rig.source.put("b", status="packed")
    rig.clock.pass_(60)
    await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    assert await rig.events() == ["b updated 1"]
    assert (await rig.tracked.state()).progress.watermark == before  # nothing is skipped that was not read
    assert await rig.delay() == 0
    await rig.read_whole()
    assert await rig.events() == ["b updated 1", "a updated 1"]
    await rig.poll()
    assert (await rig.tracked.state()).progress.watermark == rig.clock()
    assert await rig.delay() > 0


async def test_one_outage_asks_for_one_pass_by_itself(rig: Rig) -> None:
    rig.source.page_size, rig.source.reach = 200, WEEK
    await rig.read_whole()
    rig.restart()
    rig.clock.pass_(10 * DAYS)
    fail = [True]

    def refuse_passes(_: int) -> None:
        if rig.source.asked[-1][1] is None and fail:
            raise SourceUnavailable("HTTP 503")

    rig.source.before_page = refuse_passes
    await poll_and_pass(rig, 15)
    assert await rig.delay() > 0  # it failed, and will be made again as any pass that failed
    await poll_and_pass(rig, 15)
    assert await rig.delay() > 0
    fail.clear()
    await rig.read_whole()
    await rig.poll()
    assert (await rig.tracked.state()).progress.watermark == rig.clock()


async def test_a_trailing_poll_starts_no_earlier_than_the_api_allows(rig: Rig) -> None:
    rig.source.page_size, rig.source.reach = 200, timedelta(minutes=12)
    await rig.read_whole()
    rig.source.put("a", status="packed")
    await rig.poll()
    run = await rig.poller.trail_once()
    assert run is not None
    assert (run.problem, run.since) == ("", rig.clock() - timedelta(minutes=10) * 0.99)


async def test_a_pass_does_not_clear_a_refusal_that_stops_polls(rig: Rig) -> None:
    await rig.read_whole()

    def refuse_polls(_: int) -> None:
        if rig.source.asked[-1][1] is not None:
            raise RequestRefused("GET /v1/packages: HTTP 422")

    rig.source.before_page = refuse_polls
    await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    await run_guarded(rig.tracked, rig.reconciler.run_once, pause=False)
    assert (await rig.tracked.state()).problem == "GET /v1/packages: HTTP 422"
    rig.source.before_page = lambda _: None
    await run_guarded(rig.tracked, rig.poller.run_once, pause=False)
    assert (await rig.tracked.state()).problem == ""


async def test_a_refusal_that_passes_teaches_no_bound(rig: Rig) -> None:
    rig.source.page_size = 200
    await rig.read_whole()
    await rig.poll(after=20 * DAYS)
    asked = len(rig.source.asked)

    def refuse_once(request: int) -> None:
        if request == asked + 1:
            raise RequestRefused("GET /v1/packages: HTTP 400")

    rig.source.before_page = refuse_once
    with pytest.raises(RequestRefused):
        await rig.poll()
    assert await rig.poll() == ""
    assert rig.source.asked[-1][1] == NOON - timedelta(seconds=60)
