"""Polls one feed: asks what was modified since the watermark, and moves it when runs have proven that it may."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dockbell.core.model import RunKind
from dockbell.core.planning.spreading import count_from
from dockbell.core.reading.ahead import AheadRun, ShortPolls
from dockbell.core.reading.window import (
    BEHIND_MOST,
    BoundWindow,
    Progress,
    Proof,
    advance,
    ages_to_try,
    bound_window,
    open_trailing_window,
    open_window,
    trailing_every,
)
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.guarded import run_guarded
from dockbell.detection.on_demand import OnDemand
from dockbell.detection.page_fetcher import Turn
from dockbell.detection.reading import begin_run, read_run
from dockbell.detection.run import Run
from dockbell.errors import RequestRefused
from dockbell.ports import Alarm, RunRecord

_TRAILING_PACE: Final = timedelta(seconds=2)
"""A trailing poll rests so long for each of its pages: those of a feed get at most a tenth of the budget."""

_UNANSWERED_EVERY: Final = timedelta(seconds=15)
"""So often at most a feed is polled whose last poll the API did not answer to its end."""
_LOOK_AGAIN: Final = timedelta(minutes=1)


class Poller:
    """Polls one feed from its watermark, and now and then from long before it.

    Attributes:
        trailing: Makes the trailing polls, beside the others.
    """

    def __init__(self, feed: TrackedFeed) -> None:
        self.trailing = OnDemand(self._trail)
        self._feed = feed
        self._is_new = True
        self._trails_at: timedelta | None = None  # when a trailing poll is due, by the steady clock; None: one goes on
        self._trailing_pages = 0
        self._short = ShortPolls()
        self._anchor: tuple[str, datetime] | None = None  # the record that the last poll showed as newest, and its date
        self._counts_from: timedelta | None = None  # the interval after the last poll, by the steady clock
        self._began_at: datetime | None = None  # the same by our clock; before the first, when the agent began
        self._is_answered = True  # the last poll was, to its end
        self._is_cut_off = False  # the API refuses to show what was not read yet; a pass was asked for

    async def run(self, alarm: Alarm) -> None:
        """Poll from start to start; by a crontab line, when that says.

        A process goes on in the rhythm of the one before it: one that takes over a thousand sources asks first for
        those that are due, and not for all at once.
        """
        schedule, clocks = self._feed.schedule, self._feed.clocks
        schedule.wake_poller = lambda: alarm.ring_in(timedelta(0))
        self._began_at = clocks.now()
        self._counts_from = self._find_last_start()
        self._trails_at = self._find_trailing_start()
        try:
            while True:
                self._begin_trailing()
                while (delay := self._find_delay()) > timedelta(0):
                    alarm.ring_in(min(delay, _LOOK_AGAIN))  # our clock may be set meanwhile, and crontab lines mean it
                    await alarm.wait()
                    self._begin_trailing()
                now, self._began_at = clocks.steady(), clocks.now()
                planned = schedule.interval if self._feed.settings.is_auto else None  # a configured one: not sooner
                self._counts_from = now if planned is None else count_from(now + delay, now, planned)
                await run_guarded(self._feed, self._poll)
        finally:
            schedule.wake_poller = None

    def _find_last_start(self) -> timedelta | None:
        """Return when the last poll began, by the steady clock; None where none was answered to its end."""
        last, clocks = self._feed.last_poll, self._feed.clocks
        return None if last is None else clocks.steady() - max(clocks.now() - last.known_at, timedelta(0))

    def _find_delay(self) -> timedelta:
        """Return how long it is until the next poll is due; not positive when it is."""
        schedule, clocks = self._feed.schedule, self._feed.clocks
        if schedule.interval is None:
            now = clocks.now()
            assert self._began_at is not None
            return min(schedule.next_run(self._began_at), schedule.next_run(now)) - now
        if self._counts_from is None:
            return timedelta(0)
        every = schedule.interval if self._is_answered else max(schedule.interval, _UNANSWERED_EVERY)
        return self._counts_from + every - clocks.steady()

    async def _poll(self) -> RunRecord | None:
        self._is_answered = False
        record = await self.run_once()
        self._is_answered = self._is_answered or record is None
        return record

    def _find_trailing_start(self) -> timedelta:
        """Return when the first trailing poll is due: a process goes on in the rhythm of the one before it.

        A pass shows all that such a poll would.
        """
        last, clocks = self._feed.last_long_reading, self._feed.clocks
        if last is None:
            return clocks.steady()
        age = max(clocks.now() - last.ended_at, timedelta(0))
        return clocks.steady() + trailing_every(self._feed.schedule.interval) - age

    def _begin_trailing(self) -> None:
        """Begin a trailing poll if one is due; between two polls the agent looks once a minute at the least."""
        if self._trails_at is not None and self._trails_at <= self._feed.clocks.steady():
            self._trails_at = None
            self.trailing.ask()

    async def _trail(self) -> None:
        began = self._feed.clocks.steady()
        await run_guarded(self._feed, self.trail_once)
        pace = self._trailing_pages * _TRAILING_PACE
        self._trails_at = began + max(trailing_every(self._feed.schedule.interval), pace)

    async def run_once(self) -> RunRecord | None:
        """Poll once; None while there is nothing to begin at, or nothing may be published under the learned key."""
        feed = self._feed
        progress = (await feed.state()).progress
        if self._is_new:  # a restart forgets what other runs met: the candidate must be proven anew
            progress = replace(progress, candidate=None)
        if progress.watermark is None or feed.is_withholding:
            return None
        profile = feed.profile
        lookback, precision = profile.lookback, profile.listing.precision
        short = self._short.start(lookback + precision, feed.clocks.steady())
        if short is not None and not self._short.is_contradicted(feed.sightings.oldest_aside, lookback + precision):
            return await self._poll_shortly(short)
        # A watermark of a clock that was wrong, and is corrected since, must not blind the polls until it is reached.
        base = replace(progress, watermark=min(progress.watermark, profile.asked_at or progress.watermark))
        anchor, self._anchor = self._anchor, None
        since = open_window(base, lookback, precision)
        run, record, window = await self._read(RunKind.POLL, since, "" if anchor is None else anchor[0])
        # A pass that ended meanwhile may have told where the records' clock stands; all else only polls move.
        progress = replace(progress, newest=progress.newest or (await feed.state()).progress.newest)
        if (proof := self._prove(run, window, progress, anchor)) is not None:
            progress, _ = advance(progress, proof, lookback, precision)
        try:
            await self._close(run, record, progress)
        except BaseException:
            if proof is not None and proof.oldest_unseen is not None:
                feed.sightings.meet_aside(proof.oldest_unseen)  # it speaks against the next candidate as well
            raise
        self._is_new = False
        if not window.is_covered and not self._is_cut_off:
            feed.schedule.request_pass()
        self._is_cut_off = not window.is_covered
        return record

    def _prove(
        self, run: Run, window: BoundWindow, progress: Progress, anchor: tuple[str, datetime] | None
    ) -> Proof | None:
        """Return what a poll proves about the watermark, and decide whether the next polls may be short."""
        proof = run.proof
        if proof is None:
            return None
        # This run would have met what another one has stored meanwhile.
        met = (proof.oldest_unseen, self._feed.sightings.take_oldest_aside())
        unseen = min((moment for moment in met if moment is not None), default=None)
        self._plan_short(run, unseen)
        pages = max(proof.pages, 2) if self._is_doubtful(run, anchor, progress) else proof.pages
        return replace(proof, oldest_unseen=unseen, complete=proof.complete and window.is_covered, pages=pages)

    async def trail_once(self) -> RunRecord | None:
        """Poll once from long before the watermark, for what became visible late; it proves nothing."""
        feed, profile = self._feed, self._feed.profile
        state = await feed.state()
        if state.progress.watermark is None or feed.is_withholding:
            return None
        since = open_trailing_window(state.progress, profile.lookback, profile.listing.precision)
        run, record, _ = await self._read(RunKind.TRAILING, since)
        self._trailing_pages = record.pages
        await feed.store.close_run(record, lateness=profile.learn_lateness(run))
        await feed.reload()
        return record

    async def _poll_shortly(self, since: datetime) -> RunRecord:
        """Poll for what is dated ahead of the service's clock; it proves nothing."""
        run, record, _ = await self._read(RunKind.POLL, since)
        if not record.problem:
            self._short = self._short.after_short(_sum_up(run, run.summary.oldest_unseen))
        await self._close(run, record)
        return record

    async def _close(self, run: Run, record: RunRecord, progress: Progress | None = None) -> None:
        """Store the end of a poll and where it has moved the watermark, and state the gap that it ends."""
        feed = self._feed
        async with feed.ending(run) as end:
            end.state = await feed.store.close_run(
                record, progress, lateness=feed.profile.learn_lateness(run), statements=end.gaps, compose=feed.compose
            )
            feed.report(*end.gaps)

    def _is_doubtful(self, run: Run, anchor: tuple[str, datetime] | None, progress: Progress) -> bool:
        """Return whether a poll did not show the record that was dated newest, though its window covers that date.

        The answer may have been empty, or cut; or the record is gone. Another poll has to confirm what this one proves.
        """
        found, since = run.summary, run.since
        assert since is not None
        is_missing = anchor is not None and anchor[1] >= since and not found.has_anchor
        if is_missing or not found.records:
            is_missing = is_missing or (progress.newest is not None and progress.newest >= since)
        elif not run.problem and found.newest is not None:
            self._anchor = (found.newest_key, found.newest)
        return is_missing

    def _plan_short(self, run: Run, oldest_unseen: datetime | None) -> None:
        """Decide after a whole poll whether the next ones may be short."""
        feed, found = self._feed, run.summary
        every = feed.schedule.interval
        if run.problem or every is None:
            self._short = ShortPolls(allowed_at=self._short.allowed_at)
            return
        self._short = self._short.after_whole(
            _sum_up(run, oldest_unseen),
            others=found.records - found.ahead,
            lookback=feed.profile.lookback + feed.profile.listing.precision,
            every=every,
            now=feed.clocks.steady(),
        )

    # Windows ----------------------------------------------------------------------------------------------------------

    async def _read(self, kind: RunKind, since: datetime, anchor: str = "") -> tuple[Run, RunRecord, BoundWindow]:
        """Read a run that would start at ``since``; where the API calls that too old, as far back as it allows."""
        if kind is RunKind.POLL:
            self._feed.store.known_pages.begin_poll()
        window, is_refused = await self._bound(since), False
        while True:
            run = await begin_run(self._feed, kind, window.since, anchor)
            try:
                record = await read_run(self._feed, run)
            except RequestRefused:
                if is_refused or not await self._learn_reach(window.since):
                    raise
            else:
                self._is_answered = run.cause is None
                return run, record, window
            window, is_refused = await self._bound(since), True

    async def _bound(self, since: datetime) -> BoundWindow:
        """Return from when a poll asks that would start at ``since``, as far back as the API allows."""
        state, profile = await self._feed.state(), self._feed.profile
        reach, behind, now = profile.listing.reach, profile.listing.behind, profile.service_now
        read = [now if state.progress.watermark is None else min(state.progress.watermark, now)]
        if state.full is not None and not state.held:  # a pass that showed too little has not read everything
            read.append(state.full.asked_at)
        return bound_window(
            since,
            None if reach is None else timedelta(seconds=reach),
            now=now,
            read_until=max(read),
            behind=BEHIND_MOST if behind is None else behind,
            lookback=profile.lookback + profile.listing.precision,
        )

    async def _learn_reach(self, refused: datetime) -> bool:
        """Find out whether the API refused a poll because of how old its start was; return whether it did.

        The youngest start is tried first: where that is refused too, the refusal has another reason. Then the refused
        one is tried again, because a refusal may pass; then ever younger ones, until one is accepted.
        """
        profile = self._feed.profile
        now = profile.service_now
        ages = ages_to_try(now - refused)
        if not ages or not await self._is_accepted(now - ages[-1]) or await self._is_accepted(refused):
            return False
        for age in ages:
            if age == ages[-1] or await self._is_accepted(now - age):
                await profile.adopt(*profile.listing.learn_reach(age))
                break
        return True

    async def _is_accepted(self, since: datetime) -> bool:
        async with Turn(self._feed.turns):
            try:
                await self._feed.fetcher.fetch(RunKind.POLL, since, None, 1)
            except RequestRefused:
                return False
            return True


def _sum_up(run: Run, oldest_unseen: datetime | None) -> AheadRun:
    found = run.summary
    assert found.asked_at is not None, "a complete run has asked"
    assert found.answered_at is not None, "a complete run was answered"
    return AheadRun(found.pages, found.latest_ahead, found.answered_at - found.asked_at, oldest_unseen)
