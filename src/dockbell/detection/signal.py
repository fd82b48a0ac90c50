"""Uses one feed's polls as a signal for another feed, where the service was measured to allow it (docs/guarantees.md).

Where a service calls an item modified when its stock moves, ``items?expand=stock&updated_since=…`` shows changed stock
for the price of a poll: it is asked for beside each poll that shows new or modified items. What it shows is one more
reading of the stock feed, judged by the same rules and committed in its turn. It makes changes known sooner, and
nothing else: the polls of items are what they are without it, and passes certify as without it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.embedded import EmbeddedDiff, compare_embedded
from dockbell.core.comparing.page_diff import PageDiff, Snapshots
from dockbell.core.document import decode
from dockbell.core.model import JSON, Change, ChangeKind, Page, RunKind, Via
from dockbell.core.planning.rates import Lead
from dockbell.core.reading.embedding import PAIRS, Pair
from dockbell.core.reading.movements import Judged, Movements
from dockbell.core.reading.signal_state import Phase, SignalState
from dockbell.detection.expansion import Expansion
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.page_fetcher import Turn
from dockbell.detection.run import Run
from dockbell.detection.signal_memory import SignalMemory
from dockbell.errors import StoreError
from dockbell.ports import Bell, FeedState
from dockbell.telemetry import SignalTold

_KEYLESS_MOST: Final = 50
_SAVE_EVERY: Final = timedelta(minutes=1)
_WAITING_MOST: Final = 50
_LATE: Final = timedelta(minutes=5)
"""Embedded records that waited longer for the target's turn are not used."""


class _Reading(NamedTuple):
    """Embedded records on their way."""

    came_at: timedelta  # by the steady clock
    page: Page  # the carrier's page with the embedded records in place of its own


class Signal:
    """One feed's polls as a signal for another feed; :meth:`attach` lets it listen to both.

    Attributes:
        pair: What the two feeds are to each other.
        state: What is known, and whether it is used.
    """

    def __init__(self, pair: Pair, carrier: TrackedFeed, target: TrackedFeed) -> None:
        self.pair = pair
        self.state = SignalState()
        self._carrier = carrier
        self._target = target
        self._is_configured = target.settings.signal == pair.carrier
        self._movements = Movements(pair)
        self._memory = SignalMemory()
        self._queue: deque[_Reading] = deque(maxlen=_WAITING_MOST)
        self._came = Bell()
        self._is_loaded = False
        self._expansion = Expansion(pair, carrier, target)
        self._keyless = 0
        self._records = 0  # of the target's last pass
        self._carried = Lead()  # what the planner counts for the carrier's polls, since this process began
        self._saved = ""
        self._saved_at: timedelta | None = None

    def attach(self) -> None:
        for feed in (self._carrier, self._target):
            feed.listeners.append(self._hear)

    def detach(self) -> None:
        for feed in (self._carrier, self._target):
            feed.listeners.remove(self._hear)

    async def run(self) -> None:
        """Ask for embedded records and commit them as they come, until cancelled."""
        while True:
            rings = self._came.rings
            await self.run_once()
            with anyio.move_on_after(_SAVE_EVERY.total_seconds() / 2):
                await self._came.wait(rings)

    async def run_once(self) -> None:
        """Ask for embedded records and commit what comes; an error costs them, and their own list shows them."""
        try:
            await self._load()
            if self._expansion.is_due:
                await self._ask()
            while self._queue:
                await self._commit(self._queue.popleft())
            await self._save()
        except Exception as error:  # noqa: BLE001  # whatever it is, the feeds are read as without a signal
            self._target.telemetry.emit_failure(f"signal {self._target.feed}", error)

    # State ------------------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        if not self._is_loaded:
            await self._target.state()
            self.state = SignalState.from_json((await self._target.reload()).signal)
            self._saved, self._is_loaded = self.state.to_json(), True
        self._become(self.state.wake(self._target.clocks.now(), is_configured=self._is_configured))

    def _become(self, state: SignalState) -> None:
        """Take in what is known now; tell of it where the phase is another one."""
        before, self.state = self.state, state
        if state.phase is before.phase:
            return
        self._saved_at = None
        if not (state.asks and before.asks):
            self._memory = SignalMemory()
            self._expansion = Expansion(self.pair, self._carrier, self._target)
            self._keyless = 0
        if before.phase is Phase.USED:
            self._end_lead()
        if Phase.DROPPED in (before.phase, state.phase) or state.phase is Phase.USED:
            self._movements = Movements(self.pair)  # what was met before says nothing of the signal as it is now
        self._target.telemetry.emit(SignalTold(self._target.feed, state.describe(self.pair)))

    def _drop(self, reason: str) -> None:
        if self.state.phase is not Phase.DROPPED:
            self._become(self.state.drop(reason, self._target.clocks.now()))
            self._came.ring()  # it is stored at once: a crash must not forget it

    async def _save(self) -> None:
        now = self._target.clocks.steady()
        is_due = self._saved_at is None or now - self._saved_at >= _SAVE_EVERY
        if is_due and (text := self.state.to_json()) != self._saved:
            with suppress(StoreError):  # the agents of the feed report it
                await self._target.store.save_signal(text)
                self._saved, self._saved_at = text, now

    # What the lists show ----------------------------------------------------------------------------------------------

    def _hear(self, feed: TrackedFeed, run: Run, page: Page, page_diff: PageDiff) -> None:
        """Take in what a page of either feed came to; whatever goes wrong here is no matter of its run."""
        if self.state.phase is Phase.DROPPED:
            return
        try:
            if feed is self._carrier:
                self._hear_carrier(run, page, page_diff)
            else:
                self._hear_target(run, page, page_diff)
        except Exception as error:  # noqa: BLE001  # whatever it is, the feeds are read as without a signal
            self._target.telemetry.emit_failure(f"signal {self._target.feed}", error)

    def _hear_carrier(self, run: Run, page: Page, page_diff: PageDiff) -> None:
        """Take in which carriers a page showed as modified, and what is certain once a poll has ended."""
        modified = [write.body for write in page_diff.writes if write.row is not None and write.body is not None]
        modified += [each.raw for each in page_diff.pending if each.row is not None]
        modified += [each.raw for each in page_diff.amended]
        for raw in modified:
            with suppress(ValueError):
                self._movements.move(decode(raw), page.answered_at)
        if run.kind is not RunKind.POLL or run.since is None:
            return
        if page.next_cursor is None:
            self._take_judged(self._movements.read(run.summary.asked_at or page.asked_at, run.since))
        if self.state.asks and self._expansion.is_configured:
            self._queue_embedded(self._expansion.embed(page))
        elif self.state.asks:
            self._expansion.take_page(run, page, page_diff)
            if self._expansion.is_due:
                self._came.ring()

    def _take_judged(self, records: Sequence[Judged]) -> None:
        if self.state.phase is Phase.MEASURING:
            if records:
                self._become(self.state.measure(records))
            return
        for judged in records:
            if judged.is_changed:
                self._count_change(judged)

    def _count_change(self, judged: Judged) -> None:
        """Count a change that the target's own list showed: the signal, which is tried or used, did not show it."""
        now, is_moved = self._target.clocks.now(), any(judged.moved.values())
        if self.state.phase is Phase.TRYING and not self._is_configured:
            reason = f"{self.pair.carrier} embed {self.pair.target} no sooner than their own list shows them"
            self._become(self.state.take_late(reason, now))
        elif self.state.phase is Phase.USED:
            if not is_moved:
                self._target.workload.end_lead(now)
            elif not judged.is_ahead:  # with more polls the signal would have shown it first
                self._lead(1, is_met=True)
            late = judged.is_ahead
            self._become(self.state.count(missed=not is_moved, late=late, is_configured=self._is_configured))

    def _hear_target(self, run: Run, page: Page, page_diff: PageDiff) -> None:
        """Take in what the target's own list shows: its changes, and whether it says the same as the signal."""
        if self.state.asks:
            confirmed, reason = self._check(run, page, page_diff)
            if reason:
                self._drop(reason)
                return
            if confirmed and self.state.phase is Phase.TRYING:
                self._take_equal(0, confirmed=confirmed)
        if page_diff.changes:
            self._expect(page, page_diff)

    def _check(self, run: Run, page: Page, page_diff: PageDiff) -> tuple[int, str]:
        """Compare a page of the target's list with what the signal said; see :meth:`SignalMemory.check`."""
        memory, is_pass = self._memory, run.kind is RunKind.PASS
        if is_pass and run.cursor is None:
            memory.begin_pass()
        if page.age:  # a cache has answered: the page may be older than what the signal said
            memory.begin_pass(is_telling=False)
            return 0, ""
        confirmed, reason = memory.check(page_diff)
        if is_pass and page.next_cursor is None:
            reason = reason or memory.end_pass(page.answered_at)
        return confirmed, reason

    def _expect(self, page: Page, page_diff: PageDiff) -> None:
        """Wait for what the carrier does with each change of a page, and with some records that did not change."""
        found = [(each, each.changed_between[0]) for each in page_diff.changes if each.kind is ChangeKind.UPDATED]
        spans = [(change, since) for change, since in found if since is not None]
        for change, since in spans:
            assert change.after is not None
            self._movements.expect(decode(change.after), since, change.changed_between[1], is_changed=True)
        if self.state.phase is Phase.MEASURING and not self._movements.has_enough_idle:
            for record, (_, since) in zip(self._choose_idle(page, page_diff, len(spans)), spans, strict=False):
                self._movements.expect(record, since, page.answered_at, is_changed=False)

    def _choose_idle(self, page: Page, page_diff: PageDiff, count: int) -> Iterator[JSON]:
        loud = {note.key for note in page_diff.notes} | {write.key for write in page_diff.writes}
        for raw in random.sample(page.records, min(2 * count, len(page.records))):
            with suppress(ValueError):
                if self._target.detector.identify(raw).text not in loud:
                    yield decode(raw)

    # What the carrier embeds ------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Ask for what the last polls call for; it is committed later."""
        if not await self._may_ask():
            self._expansion.forget()
            return
        expansion = self._expansion
        async for embedded in expansion.read():
            self._queue_embedded(embedded)
        if expansion.problem and expansion is self._expansion:
            self._drop(expansion.problem)

    def _queue_embedded(self, embedded: Page | None) -> None:
        if embedded is not None and not embedded.age:  # a cache's answer may be older than what the list has shown
            self._queue.append(_Reading(self._target.clocks.steady(), embedded))
            self._came.ring()

    async def _may_ask(self) -> bool:
        if not self.state.asks:
            return False
        state, settings = await self._target.state(), self._target.settings
        if state.shape is not None and not (settings.updated_at or state.shape.updated_at):
            self._drop(f"{self.pair.target} have no timestamps, which alone tell which state is newer")
            return False
        return self._is_usable(state)

    def _is_usable(self, state: FeedState) -> bool:
        """Return whether the target's own list has said enough of its records, and nothing about it is in doubt."""
        is_known = state.shape is not None and state.passes > 0 and not self._target.is_provisional
        is_undecided = state.drift is not None and state.drift.decision is Decision.HOLD
        return is_known and not (state.rebaselining or self._target.is_withholding or is_undecided)

    # What they come to ------------------------------------------------------------------------------------------------

    async def _commit(self, reading: _Reading) -> None:
        target, page = self._target, reading.page
        async with Turn(target.turns):
            state = await target.state()
            is_late = target.clocks.steady() - reading.came_at > _LATE
            if is_late or not self.state.asks or not self._is_usable(state):
                return
            if target.erasure is not None:
                page = replace(page, records=target.erasure.page(page.records))
            context = replace(target.make_context(RunKind.PASS, state), via=Via.SIGNAL)
            found, phase = EmbeddedDiff(), self.state.phase

            def detect(snapshots: Snapshots) -> PageDiff:
                nonlocal found, phase
                found, phase = compare_embedded(target.detector, page, context, snapshots), self.state.phase
                return found.page_diff if phase is Phase.USED else PageDiff()

            await target.store_page(page, context, detect)
            self._records = 0 if state.full is None else state.full.records
            if self.state.phase is phase:  # else what it came to says nothing of the signal as it is now
                self._take(found)

    def _take(self, found: EmbeddedDiff) -> None:
        """Take in what a reading came to."""
        self._keyless += found.keyless
        if found.has_other_form:
            self._drop(f"{self.pair.target} that {self.pair.carrier} embed have another form than in their own list")
        elif self._keyless > _KEYLESS_MOST and self.state.phase is Phase.TRYING and not self.state.equal:
            self._drop(f"{self.pair.target} that {self.pair.carrier} embed cannot be told apart")
        elif self.state.phase is Phase.TRYING:
            self._memory.take_tried(found)
            if fresh := self._memory.count_fresh(found.equal):
                self._take_equal(fresh)
        elif found.page_diff.changes:
            self._take_changes(found, found.page_diff.changes)
        else:
            self._memory.take_said(found)

    def _take_equal(self, count: int, *, confirmed: int = 0) -> None:
        self._become(self.state.take_equal(count, self._records, confirmed=confirmed))

    def _take_changes(self, found: EmbeddedDiff, changes: Sequence[Change]) -> None:
        self._memory.take_said(found)
        if found.page_diff.oldest_unseen is not None:
            self._target.sightings.meet_aside(found.page_diff.oldest_unseen)
        self._lead(len(changes))
        self._become(self.state.count(found=len(changes), is_configured=self._is_configured))

    def _lead(self, changes: int, *, is_met: bool = False) -> None:
        """Let the planner count changes for the carrier's polls, which show them, and not for the target's runs."""
        target, carrier = self._target, self._carrier
        now, carried = target.clocks.now(), changes * target.settings.weight / carrier.settings.weight
        target.workload.lead(changes, now, is_met=is_met)
        carrier.workload.carry(carried)
        self._carried = self._carried.add(carried, now)

    def _end_lead(self) -> None:
        """Let the planner count all changes for the target's runs."""
        now = self._target.clocks.now()
        self._target.workload.end_lead(now)
        self._carrier.workload.carry(-self._carried.add(0, now).changes)
        self._carried = Lead()


def find_signals(feeds: Mapping[str, TrackedFeed]) -> Iterator[Signal]:
    """Yield the signals that the feeds of one source, by resource, may be for each other."""
    for pair in PAIRS:
        carrier, target = feeds.get(pair.carrier), feeds.get(pair.target)
        if carrier is None or target is None or target.settings.signal == "off":
            continue
        if not target.settings.query:  # else embedded records need not be those that the list is asked for
            yield Signal(pair, carrier, target)
