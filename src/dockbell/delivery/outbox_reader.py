"""Reads what a relay delivers: new events, stored records for the backfill, events of blocked keys, replays.

The sink's filters are evaluated here, when an event is read.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

import anyio.lowlevel

from dockbell.config import Answer
from dockbell.core.model import NOTICES, Event, Feed
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.event import BackfillComposer
from dockbell.core.publishing.filters import Filter
from dockbell.core.publishing.settlement import Blocked, Replay, StartOffset
from dockbell.host.evaluator import Evaluator
from dockbell.ports import Store
from dockbell.telemetry import EventsSifted, FilterUnanswered, Telemetry

_TAIL_AT_ONCE: Final = 10
_BACKFILL_AT_ONCE: Final = 500
_REPLAYS_AT_ONCE: Final = 500
_EVALUATE_AT_ONCE: Final = timedelta(milliseconds=20)
"""How long filters are evaluated before other tasks have their turn."""
_EVALUATE_MOST: Final = timedelta(seconds=1)
"""How long they are evaluated before the events that passed are delivered."""


class OutboxReader:
    """Fills the delivery queue of one sink for one session.

    With ``keeps_state`` the sink gets the state of records whose events its filters hold back. With ``coalesce`` it
    does not get a change if a later change of the record is stored that the filters let through.

    Attributes:
        replays: Replays that are read and not sent yet.
        replay_at: When the next replay that is not read is due; None where none waits.
    """

    def __init__(
        self,
        sink: str,
        queue: DeliveryQueue,
        starts: Mapping[Feed, StartOffset],
        filter_: Filter,
        *,
        evaluator: Evaluator,
        keeps_state: bool,
        coalesce: bool,
        store: Store,
        telemetry: Telemetry,
        now: Callable[[], datetime],
        name: str,
    ) -> None:
        self.replays: deque[tuple[Replay, Event]] = deque()
        self.replay_at: datetime | None = None
        self._sink = sink
        self._queue = queue
        self._starts = starts
        self._filter = filter_
        self._evaluator = evaluator
        self._keeps_state = keeps_state
        self._coalesce = coalesce
        self._store = store
        self._sink_store = store.sink(sink)
        self._telemetry = telemetry
        self._now = now
        self._name = name
        self._outbox = store.outbox
        self._rings_read = 0
        self._unread: Collection[Feed] = ()
        self._is_new = True
        self._unanswered: Counter[Answer] = Counter()
        self._reported: set[Answer] = set()
        self._filtered: Counter[bool] = Counter()

    def add_feeds(self, starts: Mapping[Feed, StartOffset]) -> None:
        """Begin with the feeds among these that are not known yet."""
        self._starts = {**starts, **self._starts}
        self._is_new = True

    # New events -----------------------------------------------------------------------------------------------------

    async def read_ahead(self) -> bool:
        """Read new events from the outbox; return whether to read more at once."""
        queue = self._queue
        if queue.capacity < queue.read_ahead // 2:
            return False
        is_more = False
        self._unread = behind = self._find_behind()
        for number, feed in enumerate(behind):
            # Each gets its share of the capacity, and what others have left: no backlog delays another feed.
            most = max(1, queue.capacity // (len(behind) - number))
            if (row := queue.backfill_from(feed)) is not None:
                is_more |= await self._read_backfill(feed, row, min(most, _BACKFILL_AT_ONCE))
                continue
            frontier, end = queue.frontier(feed), self._outbox.ends[feed]
            events = await self._store.read_events(feed, frontier, most, until=end)
            answers = await self._evaluate_some(events)
            evaluated = events[: len(answers)]
            is_all = len(events) < most and len(evaluated) == len(events)
            through = end if is_all else evaluated[-1].sequence  # if all, the rest was pruned before it was owed
            pairs = zip(evaluated, answers, strict=True)
            passing = [(event, answer) for event, answer in pairs if self._count_passing(event, answer)]
            wanted = [event for event, _ in passing]
            if self._coalesce:
                wanted = await self._leave_out_replaced(passing, through)
            queue.admit(feed, wanted, through)
            self._report_filtered(feed)
            # Where hardly any passed, no settled delivery may cause the next read.
            is_more |= through < end and queue.capacity >= queue.read_ahead // 2
        for answer, count in self._unanswered.items():
            self._telemetry.emit(FilterUnanswered(self._sink, answer, count, is_first=answer not in self._reported))
            self._reported.add(answer)
        self._unanswered.clear()
        return is_more

    def _find_behind(self) -> Sequence[Feed]:
        """Return the feeds that have something to read; only those that were behind or have moved are looked at."""
        moved = self._outbox.find_moved(self._rings_read)
        candidates = self._queue.feeds if self._is_new else {**dict.fromkeys(self._unread), **dict.fromkeys(moved)}
        self._is_new, self._rings_read = False, self._outbox.rings
        return [feed for feed in candidates if feed in self._queue.feeds and self._is_behind(feed)]

    def _is_behind(self, feed: Feed) -> bool:
        """Return whether a feed has something to read; a feed that the sink does not want is skipped to its end."""
        queue, end = self._queue, self._outbox.ends.get(feed, 0)
        if not self._filter.wants(feed):
            if queue.backfill_from(feed) is not None:
                queue.admit_backfill(feed, (), 0, is_read=True)
            queue.admit(feed, (), end)
            return False
        return queue.backfill_from(feed) is not None or queue.frontier(feed) < end

    async def _read_backfill(self, feed: Feed, after: int, most: int) -> bool:
        """Read the next stored records of a feed; the events after the origin wait until all are read."""
        start = self._starts[feed]
        found = await self._sink_store.read_backfill(feed, start, after, most)
        if found is None:
            return False
        records, end, is_all = found
        composer = BackfillComposer(feed, start, name=self._name, epoch=self._store.epoch)
        events = [
            (each.row, composer.compose_record(each.key, each.revision, each.body, each.modified)) for each in records
        ]
        if not after and start.lost_since is not None and feed != NOTICES:
            events.insert(0, (0, composer.compose_gap()))
        answers = await self._evaluate_some([event for _, event in events], is_told=True)
        if len(answers) < len(events):
            events = events[: len(answers)]
            end, is_all = events[-1][0], False
        passing = [each for each, answer in zip(events, answers, strict=True) if self._count_passing(each[1], answer)]
        self._report_filtered(feed)
        self._queue.admit_backfill(feed, passing, end, is_read=is_all)
        return True

    async def _evaluate_some(self, events: Iterable[Event], *, is_told: bool = False) -> Sequence[Answer]:
        """Evaluate the filters for some events, but for a second at most; return the answers for the first of them."""
        answers: list[Answer] = []
        began_at = rested_at = time.monotonic()
        for event in events:
            answers.append(await self._evaluate(event, is_told=is_told))
            now = time.monotonic()
            if now - began_at > _EVALUATE_MOST.total_seconds():
                break
            if now - rested_at > _EVALUATE_AT_ONCE.total_seconds():
                await anyio.lowlevel.checkpoint()
                rested_at = time.monotonic()
        return answers

    def _count_passing(self, event: Event, answer: Answer) -> bool:
        """Return whether the sink gets an event; make a dead letter where a filter cannot be evaluated."""
        if event.is_of_record:
            self._filtered[answer.is_held_back] += 1
        if not answer.is_plain:
            self._unanswered[answer] += 1
        if answer is Answer.BROKEN:
            self._queue.dead_letter(event, self._now(), f"where {answer}")
        return self._passes(event, answer)

    def _passes(self, event: Event, answer: Answer) -> bool:
        return answer.lets_through or (self._keeps_state and event.is_of_record and self._filter.wants(event.feed))

    def _report_filtered(self, feed: Feed) -> None:
        """Report how many events of a feed passed the filters."""
        if self._filtered:
            self._telemetry.emit(EventsSifted(self._sink, feed, self._filtered[False], self._filtered[True]))
            self._filtered.clear()

    # Events that were read before -----------------------------------------------------------------------------------

    async def find_owed(self, entry: Blocked, frontier: int) -> Event | None:
        """Return the first event up to a frontier that the sink owes of a blocked key."""
        after = entry.sequence - 1
        start = self._starts.get(entry.feed)
        if start is not None and entry.sequence == start.origin:
            after = entry.sequence
            backfilled = await self._find_backfilled(entry.feed, entry.key, start)
            if backfilled is not None and self._passes(backfilled, await self._evaluate(backfilled, is_told=True)):
                return backfilled
        async with aclosing(self._read_key(entry.feed, entry.key, after, frontier)) as owed:
            async for event, answer in owed:
                if not self._passes(event, answer):
                    continue
                if not (self._coalesce and await self._is_replaced(event, event.sequence)):
                    return event
        return None

    async def _read_key(
        self, feed: Feed, key: str, after: int, until: int
    ) -> AsyncGenerator[tuple[Event, Answer], None]:
        """Yield the events of a key, each with what the filters answer."""
        while True:
            events = await self._store.read_events(feed, after, _TAIL_AT_ONCE, key=key, until=until)
            for event in events:
                yield event, await self._evaluate(event)
            if len(events) < _TAIL_AT_ONCE:
                return
            after = events[-1].sequence

    async def _leave_out_replaced(self, passing: Sequence[tuple[Event, Answer]], through: int) -> list[Event]:
        """Return those of the events of a feed, read up to a sequence, that no later one replaces."""
        last = {event.key: event.sequence for event, answer in passing if event.is_change and answer.lets_through}
        left = [event for event, _ in passing if not (event.is_change and event.sequence < last.get(event.key, 0))]
        return [event for event in left if not await self._is_replaced(event, through)]

    async def _is_replaced(self, event: Event, after: int) -> bool:
        """Return whether a change of the same record is stored after a sequence that the filters let through."""
        end = self._outbox.ends.get(event.feed, 0)
        if not event.is_change or after >= end:
            return False
        async with aclosing(self._read_key(event.feed, event.key, after, end)) as later:
            async for other, answer in later:
                if other.is_change and answer.lets_through:
                    return True
        return False

    async def _find_backfilled(self, feed: Feed, key: str, start: StartOffset) -> Event | None:
        composer = BackfillComposer(feed, start, name=self._name, epoch=self._store.epoch)
        if not key:
            return composer.compose_gap() if start.lost_since is not None else None
        record = await self._sink_store.find_backfilled(feed, start, key)
        if record is None:
            return None
        return composer.compose_record(record.key, record.revision, record.body, record.modified)

    async def is_state_only(self, event: Event) -> bool:
        """Return whether the sink gets an event only for the state of its record."""
        if not self._keeps_state:
            return False
        start = self._starts.get(event.feed)
        is_told = start is not None and event.sequence == start.origin  # the sink gets no other event of this number
        return not (await self._evaluate(event, is_told=is_told)).lets_through

    async def _evaluate(self, event: Event, *, is_told: bool = False) -> Answer:
        return await self._evaluator.evaluate_event(self._filter, event, is_told=is_told)

    # Replays --------------------------------------------------------------------------------------------------------

    @property
    def can_replay(self) -> bool:
        """Whether a replay may be sent now."""
        now = self._now()
        replays_at = self._queue.replays_at(now)
        return replays_at is not None and replays_at <= now

    async def read_replays(self) -> None:
        """Read the next replays that are due; the outcomes of those before must be saved.

        An event that is not to be sent any more becomes a dead letter, as it may have been before.
        """
        replays = await self._sink_store.load_replays(self._now(), _REPLAYS_AT_ONCE)
        began_at = time.monotonic()
        for replay in replays:
            if time.monotonic() - began_at > _EVALUATE_MOST.total_seconds():
                break  # the rest is read again
            event, answer = await self._find_replayed(replay)
            if event is None:
                self._queue.dead_letter_replay(replay, self._now(), "no longer kept")
            elif answer.lets_through:
                self.replays.append((replay, event))
            else:
                error = "held back by the sink's filters" if answer.is_held_back else f"where {answer}"
                self._queue.dead_letter_replay(replay, self._now(), error)
        if not replays:
            self.replay_at = (await self._sink_store.load_controls()).replay_at

    async def _find_replayed(self, replay: Replay) -> tuple[Event | None, Answer]:
        start = self._starts.get(replay.feed)
        events = await self._store.read_events(
            replay.feed, replay.sequence - 1, 1, key=replay.key, until=replay.sequence
        )
        if events:
            return events[0], await self._evaluate(events[0])
        if start is None or replay.sequence != start.origin:
            return None, Answer.NO
        backfilled = await self._find_backfilled(replay.feed, replay.key, start)
        return backfilled, Answer.NO if backfilled is None else await self._evaluate(backfilled, is_told=True)

    def wake_at(self) -> datetime | None:
        """Return when to look again if no delivery is settled before; None: only then."""
        now = self._now()
        wake_at, replays_at = self._queue.wake_at(now), self._queue.replays_at(now)
        replay_at = None
        if replays_at is not None and self.replays:
            replay_at = replays_at if replays_at > now else None
        elif replays_at is not None and self.replay_at is not None and not self._queue.is_replaying:
            replay_at = max(replays_at, self.replay_at)
        return min((moment for moment in (wake_at, replay_at) if moment is not None), default=None)

    def is_empty(self) -> bool:
        """Return whether all deliveries that may be attempted now were attempted."""
        ends, queue, now = self._outbox.ends, self._queue, self._now()
        wake_at = queue.wake_at(now)
        is_read = all(
            queue.frontier(feed) >= ends.get(feed, 0) and queue.backfill_from(feed) is None for feed in queue.feeds
        )
        is_replayed = not self.replays and (self.replay_at is None or self.replay_at > now)
        return queue.idle and is_read and is_replayed and (wake_at is None or wake_at > now)
