"""What one sink still owes, and in which order it may be delivered.

The outbox is the only queue. For each feed the sink has a *position*: everything up to it is settled, except the
*blocked keys*. A blocked key has one entry: the sequence from which on its events are owed, how many attempts the first
of them has had, and when the next is due. Its events are read again from the outbox, one at a time, up to the
*frontier*, the last sequence that was read ahead. So an event that fails, hangs or waits is never copied, and the
position passes it.

Three rules keep the order within a key and keep keys independent of each other:

- A key has at most one delivery in flight. Later events of the key wait behind it: in memory while the key is fresh, in
  the outbox once it is blocked. Waiting costs no attempt.
- Deliveries that have failed before take half of the window at most, so that the others go on where each failure takes
  long.
- A key becomes blocked when its delivery fails, and also when its delivery merely outlasts a checkpoint: then the
  position, which is saved at checkpoints, passes it. So a crash repeats no more than what was settled since the
  checkpoint before.

A sink that begins with the stored records gets these first, as a *backfill*: one event a record, numbered by the sink's
origin in the feed, in the order of the store's rows. They take the same way as all events, ahead of those that follow
the origin.

A failure speaks against its event or against the receiver (:mod:`~dockbell.core.publishing.retry`). While the receiver
takes other events, an event that it refuses is a dead letter at once. Where it turns out that the receiver is to blame,
the dead letters since the last success are *taken back*, the attempts are not counted, and all of it is due when the
receiver takes events again.

The queue does nothing by itself: the relay reads events, hands deliveries to the sink, and saves what
:meth:`DeliveryQueue.checkpoint` returns, in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dockbell.config import RETRY_SCHEDULE
from dockbell.core.model import Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.blocked_keys import BlockedKeys
from dockbell.core.publishing.read_ahead import FeedCursor, Flight, Flights, ReadAhead
from dockbell.core.publishing.retry import Blame, Breaker, next_attempt, plan_anew, plan_entry_anew
from dockbell.core.publishing.settlement import (
    Blocked,
    DeadLetter,
    Pause,
    RecordId,
    Replay,
    Settlement,
    StartOffset,
    Verdict,
)

_FRESH_MOST: Final = 50


@dataclass(slots=True)
class DeliveryQueue:
    """The deliveries of one sink; see the module's text."""

    window: int  # the most deliveries in flight
    holds: bool = False  # whether a key waits for an operator behind its dead letter; otherwise it goes on
    read_ahead: int = 1000  # the most events that are held in memory
    schedule: Sequence[timedelta] = (
        RETRY_SCHEDULE  # the pause before each attempt; there are no more attempts than pauses
    )
    max_owed: timedelta | None = None  # how old an event may be that is attempted again; None: as old as it comes
    spacing: timedelta = timedelta(0)  # the least time from one delivery to the next
    keep_attempts: int = 0  # how many attempts a checkpoint has at the most: the last
    closed: str = ""  # why the receiver wants no more events; empty while it takes them
    _events: ReadAhead = field(default_factory=ReadAhead)
    _flights: Flights = field(init=False)
    _blame: Blame = field(default_factory=Blame)
    _blocked: BlockedKeys = field(init=False)
    _pending: Settlement = field(default_factory=Settlement)
    _checked_at: datetime | None = None

    def __post_init__(self) -> None:
        self._flights = Flights(self.window, self.spacing)
        self._blocked = BlockedKeys(self._flights, self._blame)

    def restore(
        self,
        positions: Mapping[Feed, int],
        blocked: Iterable[Blocked],
        starts: Mapping[Feed, StartOffset] | None = None,
        now: datetime | None = None,
        pause: Pause | None = None,
    ) -> None:
        """Begin from what was saved, but for known feeds; with ``now``, waits do not grow if the clock was set back."""
        self.add_feeds(positions, blocked, starts or {}, now)
        self._blocked.take_changes()
        self._pending = Settlement()
        if pause is not None and now is not None:
            asked_at, until = min(pause.asked_at, now), plan_anew(pause.asked_at, pause.until, now)
            if until > now:
                self.breaker.wait(asked_at, until)
                self._pending.pause = Pause(asked_at, until)

    def add_feeds(
        self,
        positions: Mapping[Feed, int],
        blocked: Iterable[Blocked],
        starts: Mapping[Feed, StartOffset],
        now: datetime | None,
    ) -> None:
        """Begin with the feeds among these that are new, from what was saved; ``now`` is that of :meth:`restore`."""
        added = positions.keys() - self.feeds
        self._events.add_feeds(positions, starts)
        for entry in blocked:
            if entry.feed in added:
                self._block(entry if now is None else plan_entry_anew(entry, now))

    def inherit_blame(self, before: DeliveryQueue) -> None:
        self._blame = self._blocked.blame = before._blame.inherit()

    def space(self, spacing: timedelta) -> None:
        """Take another least time from one delivery to the next, from the next one on."""
        self._flights.spacing = spacing

    def inherit_spacing(self, before: DeliveryQueue, now: datetime) -> None:
        self._flights.inherit_spacing(before._flights, now)

    @property
    def breaker(self) -> Breaker:
        return self._blame.breaker

    @property
    def feeds(self) -> AbstractSet[Feed]:
        """The feeds that the sink has a position in."""
        return self._events.cursors.keys()

    def frontier(self, feed: Feed) -> int:
        return self._events.cursors[feed].frontier

    def backfill_from(self, feed: Feed) -> int | None:
        """Return the row after which stored records are to be read for the backfill of a feed; None: no more are."""
        backfill = self._events.cursors[feed].backfill
        return None if backfill is None or backfill.is_read else backfill.frontier

    @property
    def capacity(self) -> int:
        return self.read_ahead - self._events.count

    def admit_backfill(self, feed: Feed, events: Iterable[tuple[int, Event]], frontier: int, *, is_read: bool) -> None:
        """Add events of a backfill, each with its row, that were read up to a row; ``is_read``: these were the last."""
        fresh = ((row, event) for row, event in events if (feed, event.key) not in self._blocked.entries)
        self._events.admit_backfill(feed, fresh, frontier, is_read=is_read)

    def admit(self, feed: Feed, events: Iterable[Event], frontier: int) -> None:
        """Add the events after the frontier that the sink's filters let through, and move the frontier."""
        # An event of a blocked key is owed already, and is read again when the key is due.
        fresh = (event for event in events if (feed, event.key) not in self._blocked.entries)
        self._events.admit(feed, fresh, frontier)

    def dead_letter(self, event: Event, now: datetime, error: str) -> None:
        """Make a dead letter of an event that a filter cannot evaluate; its key goes on."""
        self._pending.dead.append(DeadLetter(event.feed, event.key, event.sequence, 0, now, error))

    @property
    def idle(self) -> bool:
        return not (self._flights or self._events.line or self._blocked.resumed)

    @property
    def must_save(self) -> bool:
        """Whether a checkpoint must come before more is taken.

        A key goes on only when its dead letter is saved: otherwise a crash would repeat the dead event after its
        successors. And a pause that the receiver has asked for must outlive a crash.
        """
        return bool(self._pending.dead or self._pending.pause)

    def take(self, now: datetime) -> list[tuple[Event, int]]:
        """Return the events to deliver now, each with the number of its attempt; they count as in flight."""
        if self.must_save:
            return []
        most = self._flights.free(now, self.breaker.probe_at)
        if most and self.breaker.is_open and self.breaker.is_answered:
            # Neighbours tend to be of one kind, and the receiver may refuse just this kind.
            self._events.line.rotate(-(len(self._events.line) * 5 // 8))
        taken = self._events.take(now, most, self._flights.by_key)
        if taken:
            self._flights.space(now)
        return taken

    def replays_at(self, now: datetime) -> datetime | None:
        """Return when a replay may be sent, if nothing else is to be sent before; None: not as things are."""
        if self.must_save or self._events.line:
            return None
        return self._flights.next_at(now, self.breaker.probe_at)  # a replay is as good a probe as any

    @property
    def is_replaying(self) -> bool:
        return any(flight.replay is not None for flight in self._flights.by_key.values())

    def admit_replay(self, replay: Replay, event: Event, now: datetime) -> bool:
        """Count a replay as in flight, unless its key has a delivery in flight; return whether it is."""
        if (event.feed, event.key) in self._flights.by_key:
            return False
        self._flights.by_key[event.feed, event.key] = Flight(event, replay.attempts + 1, now, replay)
        self._flights.space(now)
        return True

    def dead_letter_replay(self, replay: Replay, now: datetime, error: str) -> None:
        self._pending.dead.append(DeadLetter(replay.feed, replay.key, replay.sequence, replay.attempts, now, error))
        self._pending.replayed.append(replay.id)

    def settle(self, event: Event, outcome: Outcome, now: datetime, jitter: float, *, state_only: bool = False) -> None:
        """Note the outcome of a delivery; ``jitter`` is from 0 to 1 and spreads the next attempt.

        ``state_only``: the event itself was held back, so that this was no attempt to deliver it.
        """
        flight = self._flights.by_key.pop((event.feed, event.key))
        if outcome.kind is OutcomeKind.CLOSED:
            self.closed = outcome.reason
        asked_at = self.breaker.asked_at
        verdict, streak = self._blame.judge(flight, outcome, now)
        if self.breaker.asked_at != asked_at:
            self._pending.pause = self.breaker.pause or self._pending.pause
        if streak:
            self._take_streak_back(streak, now, settled=None if flight.replay is not None else flight.record_id)
        if verdict is Verdict.SETTLED:
            self._blame.confirm_refusals(flight.since, self._flights.has_live)
        due: datetime | None = now
        if verdict is Verdict.RETRY:
            recorded_at = flight.event.recorded_at or now
            is_old = self.max_owed is not None and recorded_at < now - self.max_owed
            due = None if is_old else next_attempt(self.schedule, flight.attempt, now, jitter, outcome.retry_after)
        if due is None:
            verdict, due = Verdict.DEAD, now
        if self.keep_attempts and not state_only:
            next_at = due if verdict is Verdict.RETRY else None
            self._pending.attempts.append(flight.to_attempt(now, outcome, verdict, next_at))
        settle = self._settle_live if flight.replay is None else self._settle_replay
        settle(flight, outcome, verdict, due, now)

    def _settle_live(self, flight: Flight, outcome: Outcome, verdict: Verdict, due: datetime, now: datetime) -> None:
        match verdict:
            case Verdict.SETTLED:
                self._advance(flight.event, now)
            case Verdict.RETRY:
                self._block(flight.block(due, outcome.reason, planned_at=now))
            case Verdict.WAIT:
                # The receiver takes nothing now: the attempt does not count.
                first = self._take_back(flight.record_id) or flight.to_dead_letter(now, outcome)
                self._block(Blocked(*flight.record_id, first.sequence, first.attempts - 1, now, outcome.reason))
            case Verdict.REFUSED | Verdict.DEAD:
                letter = flight.to_dead_letter(now, outcome)
                self._pending.dead.append(letter)
                if verdict is Verdict.REFUSED:
                    self._blame.refused.setdefault(flight.record_id, []).append(letter)
                if self.holds:
                    self._block(flight.block(now, outcome.reason, held=True))
                else:
                    self._advance(flight.event, now)

    def _settle_replay(self, flight: Flight, outcome: Outcome, verdict: Verdict, due: datetime, now: datetime) -> None:
        replay = flight.replay
        assert replay is not None
        if verdict in (Verdict.RETRY, Verdict.WAIT):
            attempts = flight.attempt - (verdict is Verdict.WAIT)
            self._pending.postponed.append(replace(replay, attempts=attempts, due=due, error=outcome.reason))
            return
        self._pending.replayed.append(replay.id)
        self._blame.suspect_replays.discard(replay.id)
        if verdict is not Verdict.SETTLED:
            self._pending.dead.append(flight.to_dead_letter(now, outcome))

    def _take_streak_back(self, failed: Iterable[RecordId], now: datetime, settled: RecordId | None = None) -> None:
        """Make all refusals and some failures due again without their attempts: the receiver was to blame.

        The keys in flight, and the one that was just settled, are left to their own outcomes.
        """
        taken_back: set[RecordId] = set()
        for record_id in dict.fromkeys((*failed, *self._blame.refused)):
            if record_id == settled or self._flights.has_live(record_id):
                continue
            letter = self._take_back(record_id)
            entry = self._blocked.entries.get(record_id)
            if letter is not None:
                taken_back.add(record_id)
                self._blame.suspects[record_id] = letter.sequence
                self._block(Blocked(*record_id, letter.sequence, letter.attempts - 1, now, letter.error))
            elif entry is not None and not entry.held and record_id not in self._blocked.resumed:
                self._blame.suspects[record_id] = entry.sequence
                self._block(replace(entry, attempts=max(0, entry.attempts - 1), due=now))
        self._events.drop_from_line(taken_back)  # what was to follow the dead letters waits behind them again

    def _take_back(self, record_id: RecordId) -> DeadLetter | None:
        """Take the dead letters of a key back that are not final; return the first."""
        letters = self._blame.refused.pop(record_id, [])
        for letter in letters:
            if letter in self._pending.dead:
                self._pending.dead.remove(letter)
            else:
                self._pending.revived.append(letter)
        return letters[0] if letters else None

    def _advance(self, event: Event, now: datetime) -> None:
        record_id = (event.feed, event.key)
        self._blame.clear(record_id)
        if record_id in self._blocked.entries:
            cursor = self._events.cursors[event.feed]
            cursor.furthest = max(cursor.furthest, event.sequence)
            self._block(Blocked(*record_id, event.sequence + 1, 0, now))
        else:
            self._events.advance(event)

    @property
    def owed(self) -> Mapping[RecordId, Blocked]:
        return self._blocked.entries

    @property
    def held(self) -> Collection[RecordId]:
        return self._blocked.held

    def _block(self, entry: Blocked) -> None:
        """Set a key's entry, and forget its events: they are read again when the key is due."""
        self._blocked.put(entry)
        self._events.drop((entry.feed, entry.key))

    def release(self, entry: Blocked) -> None:
        """Let a held key go on from where an operator has decided."""
        current = self._blocked.entries.get((entry.feed, entry.key))
        if current is not None and current.held:
            self._block(entry)

    def forget_refusals(self) -> None:
        """Take no dead letter back that there is by now: an operator has decided about them."""
        self._blame.refused.clear()

    def shift_pause(self, step: timedelta) -> None:
        """Move the pause that the receiver has asked for: the clock was set forward by ``step`` meanwhile."""
        self.breaker.shift_pause(step)
        self._pending.pause = self.breaker.pause or self._pending.pause

    def retry_now(self, now: datetime) -> None:
        self._blame.reset()
        self._blocked.advance_all(now)

    def due(self, now: datetime, most: int) -> list[Blocked]:
        """Return blocked keys whose next event is to be read from the outbox now; answer each by :meth:`resume`."""
        if self.breaker.probe_at is None:
            return self._blocked.take_due(now, most)
        self._blocked.return_retries()
        if now < self.breaker.probe_at or self._flights or self._blocked.resumed:
            return []
        # An event that had no answer is as good a probe as a fresh one, which would need an entry of its own. Where the
        # receiver has answered and taken none, the ready ones must have their turn.
        if not self.breaker.is_answered:
            return self._blocked.take_due(now, 1)
        return [] if self._events.line else self._blocked.take_probe(now)

    def resume(self, entry: Blocked, event: Event | None, frontier: int, now: datetime) -> None:
        """Answer :meth:`due`: the key's first owed event up to ``frontier``, or None when there is no more."""
        record_id = (entry.feed, entry.key)
        if record_id not in self._blocked.resumed:
            return  # its entry was set anew meanwhile
        if event is not None:
            if event.sequence != entry.sequence:
                entry = self._blocked.move_on(entry, event.sequence)
            add = self._events.line.appendleft if self.breaker.is_open else self._events.line.append
            add((event, entry.attempts + 1))
        elif frontier < self.frontier(entry.feed):
            self._block(replace(entry, due=now))  # more was read meanwhile: look again
        else:
            self._blocked.remove(record_id)

    def wake_at(self, now: datetime) -> datetime | None:
        """Return when to look again if nothing is settled or admitted before, or None."""
        due = now if self._events.can_take(self._flights.by_key) else self._blocked.next_due(now)
        return None if due is None else self._flights.next_at(due, self.breaker.probe_at)

    def checkpoint(self, now: datetime) -> Settlement:
        """Return the changes since the last checkpoint; block keys in flight since before it, for the position."""
        for record_id, flight in list(self._flights.by_key.items()):
            is_slow = self._checked_at is not None and flight.since < self._checked_at
            if is_slow and flight.replay is None and record_id not in self._blocked.entries:
                self._block(replace(flight.block(now), attempts=flight.attempt - 1))
        self._checked_at = now
        for feed, cursor in self._events.cursors.items():
            self._block_overtaken(cursor, now)
            cursor.note_positions(feed, self._pending)
        settlement, self._pending = self._pending, Settlement()
        del settlement.attempts[: -self.keep_attempts or None]
        settlement.blocked, settlement.freed = self._blocked.take_changes()
        settlement.origins = self._events.origins
        return settlement

    def _block_overtaken(self, cursor: FeedCursor, now: datetime) -> None:
        """Block the keys that hold the position back from what was settled at the previous checkpoint already.

        Such are keys with many events, which wait for each other: none of their deliveries need last long.
        """
        overtaken = dict.fromkeys(cursor.take_overtaken())
        if self.capacity < self.read_ahead // 2 and not (self._events.line or self._flights.is_full):
            # A few keys fill the memory, and others could be delivered.
            long = [record_id for record_id, events in self._events.fresh.items() if len(events) > _FRESH_MOST]
            overtaken = dict.fromkeys(long) | overtaken
        for record_id in overtaken:
            head, flight = self._events.fresh[record_id][0], self._flights.by_key.get(record_id)
            attempts = flight.attempt - 1 if flight is not None and flight.event is head else 0
            self._block(Blocked(*record_id, head.sequence, attempts, now))
        self._events.drop_from_line(overtaken)
