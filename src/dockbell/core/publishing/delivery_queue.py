"""What one sink still owes, and in which order it may be delivered.

The outbox is the only queue. For each feed the sink has a *position*: behind it everything is settled, but for the
*blocked keys*. A blocked key has one entry: from which sequence on its events are owed, how many attempts the head of
them has had, and when the next is due. Its events are read again from the outbox, one at a time, up to the *frontier*,
the last sequence that was read ahead. So nothing that fails, hangs or waits is ever copied, and the position passes it.

Three rules give order per key and independence of keys:

- A key has at most one delivery in flight. Later events of the key wait behind it: in memory while it is fresh, in the
  outbox once the key is blocked. Waiting costs no attempt.
- What has failed before takes half of the window at most, so that the rest goes on where each failure takes long.
- A key becomes blocked when its delivery fails, and also when its delivery merely outlasts a checkpoint: then the
  position, which is saved at checkpoints, passes it, and a crash repeats no more than what was settled since the last.

A sink that begins with the stored records is sent these first, as a *backfill*: one event a record, numbered by the
sink's origin in the feed, in the order of the store's rows. They go the same way as all events, ahead of those that
follow the origin.

Whom does a failure speak against, the event or the receiver? The event, while others are taken: what was refused is a
dead letter at once. Where several attempts in a row fail or are refused, of more than one event, it is the receiver:
the breaker opens, or the receiver recovers before that; either way the dead letters of that row are *taken back*, its
attempts are not counted, and all of it is due when the receiver takes events again. What fails again after that is to
blame itself, and does not speak against the receiver any more. In the same way the whole sink waits when an event is
answered with a wish to wait for the first time; when others were taken since and it is answered so again, it waits
alone.

The queue is told and asked, and does nothing by itself: the relay reads events, hands deliveries to the sink, and
saves what :meth:`DeliveryQueue.checkpoint` returns, in one transaction.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from dockbell.config import SCHEDULE
from dockbell.core.model import Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.feed_cursor import Backfill, FeedCursor
from dockbell.core.publishing.retry import Breaker, next_attempt, plan_anew
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Pause, Place, Replay, Settlement, StartOffset

_QUEUE_MOST: Final = 50
_STALE_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class _Flight:
    event: Event
    attempt: int
    since: datetime
    replay: Replay | None = None


@dataclass(slots=True)
class DeliveryQueue:
    """The deliveries of one sink; see the module's text.

    Args:
        window: The most deliveries in flight.
        holds: Whether a key waits for an operator behind its dead letter; otherwise it goes on.
        read_ahead: The most events that are held in memory.
        schedule: The pause before each attempt; there are no more attempts than pauses.
        max_owed: How old an event may be that is attempted again; None: as old as it comes.
        spacing: From one delivery to the next, at least.

    Attributes:
        closed: Why the receiver wants no more events; empty while it takes them.
    """

    window: int
    holds: bool = False
    read_ahead: int = 1000
    schedule: Sequence[timedelta] = SCHEDULE
    max_owed: timedelta | None = None
    spacing: timedelta = timedelta(0)
    breaker: Breaker = field(default_factory=Breaker)
    closed: str = ""
    _cursors: dict[Feed, FeedCursor] = field(default_factory=dict)
    _ready: deque[tuple[Event, int]] = field(default_factory=deque)
    _fresh: dict[Place, deque[Event]] = field(default_factory=dict)
    """Events of keys that are not blocked; the first of each key is ready or in flight."""
    _flights: dict[Place, _Flight] = field(default_factory=dict)
    _blocked: dict[Place, Blocked] = field(default_factory=dict)
    _resuming: set[Place] = field(default_factory=set)
    _due: list[tuple[datetime, Feed, str]] = field(default_factory=list)
    _retries: deque[tuple[datetime, Feed, str]] = field(default_factory=deque)
    """Those among them that are due, have failed before, and find no room."""
    _refused: dict[Place, list[DeadLetter]] = field(default_factory=dict)
    """The dead letters since the receiver last took an event: it may be to blame."""
    _suspects: dict[Place, int] = field(default_factory=dict)
    """What failed while the receiver was to blame; failing once more, it is to blame itself."""
    _askers: dict[Place, int] = field(default_factory=dict)
    """What the receiver answered with a wish to wait that was obeyed; answered so once more, it waits alone."""
    _suspect_replays: set[int] = field(default_factory=set)
    """The numbers of replays that failed while the receiver was to blame, or were answered with a wish to wait."""
    _taken_at: datetime | None = None
    """When the receiver last took an event."""
    _next_at: datetime | None = None
    """When the next delivery may be taken, where they are spaced."""
    _held: set[Place] = field(default_factory=set)
    _drawn: int = 0
    _pending: Settlement = field(default_factory=Settlement)
    _checked_at: datetime | None = None

    def restore(
        self,
        positions: Mapping[Feed, int],
        blocked: Iterable[Blocked],
        starts: Mapping[Feed, StartOffset] | None = None,
        now: datetime | None = None,
        pause: Pause | None = None,
    ) -> None:
        """Begin from what was saved; feeds that are known already are left alone.

        With a time, nothing waits longer from now on than it was to: the clock may have been set back meanwhile.
        """
        self.take_in(positions, starts or {})
        for entry in blocked:
            self._block(entry if now is None else _plan_anew(entry, now))
        self._pending = Settlement()
        if pause is not None and now is not None:
            asked_at, until = min(pause.asked_at, now), plan_anew(pause.asked_at, pause.until, now)
            if until > now:
                self.breaker.wait(asked_at, until)
                self._pending.pause = Pause(asked_at, until)

    def take_in(self, positions: Mapping[Feed, int], starts: Mapping[Feed, StartOffset]) -> None:
        """Take in the feeds among these that are not known yet."""
        for feed, position in positions.items():
            if feed not in self._cursors:
                cursor = self._cursors[feed] = FeedCursor(position, position)
                start = starts.get(feed)
                if start is not None:
                    cursor.origin = start.origin
                    if start.backfilled_to is not None:
                        cursor.backfill = Backfill(start.origin, start.backfilled_to, start.backfilled_to)

    def follow(self, before: DeliveryQueue) -> None:
        """Know what a queue that this one replaces knew of the receiver: whether it is down, and who is to blame."""
        self.breaker, self._refused = before.breaker, before._refused
        self._suspects, self._askers, self._suspect_replays = before._suspects, before._askers, before._suspect_replays

    def keep_pace(self, before: DeliveryQueue, now: datetime) -> None:
        """Space the first delivery from the last one of a queue that this one replaces."""
        if self.spacing and before._next_at is not None:
            self._next_at = min(before._next_at, now + self.spacing)

    # What is read ---------------------------------------------------------------------------------------------------

    @property
    def feeds(self) -> Sequence[Feed]:
        """The feeds that the sink has a position in."""
        return tuple(self._cursors)

    def frontier(self, feed: Feed) -> int:
        """Return the last sequence of a feed that was read ahead."""
        return self._cursors[feed].frontier

    def backfill_from(self, feed: Feed) -> int | None:
        """Return the row after which the sink is to be told of a feed's records; None where it knows of all."""
        cursor = self._cursors[feed]
        return None if cursor.backfill is None or cursor.backfill.is_read else cursor.backfill.frontier

    @property
    def room(self) -> int:
        """How many more events may be read ahead."""
        return self.read_ahead - sum(
            len(cursor.unsettled) + (len(cursor.backfill.unsettled) if cursor.backfill else 0)
            for cursor in self._cursors.values()
        )

    def admit_backfill(self, feed: Feed, events: Iterable[tuple[int, Event]], frontier: int, *, is_read: bool) -> None:
        """Take what the sink is told of stored records, each with its row, up to a row; ``is_read``: these were all."""
        cursor = self._cursors[feed]
        backfill = cursor.backfill
        assert backfill is not None
        for row, event in events:
            place = (feed, event.key)
            if place not in self._blocked:
                backfill.unsettled[row] = event.key
                backfill.rows[event.key] = row
                self._enqueue(place, event)
        backfill.frontier = max(backfill.frontier, frontier)
        backfill.is_read = is_read

    def admit(self, feed: Feed, events: Iterable[Event], frontier: int) -> None:
        """Take the events after the frontier that the sink's filters let through, and move the frontier."""
        cursor = self._cursors[feed]
        for event in events:
            place = (feed, event.key)
            if place not in self._blocked:  # else it is owed already: it is read again when the key's turn comes
                cursor.unsettled[event.sequence] = event
                self._enqueue(place, event)
        cursor.frontier = max(cursor.frontier, frontier)

    def _enqueue(self, place: Place, event: Event) -> None:
        if place in self._fresh:
            self._fresh[place].append(event)
        else:
            self._fresh[place] = deque((event,))
            self._ready.append((event, 1))

    def dead_letter(self, event: Event, now: datetime, error: str) -> None:
        """Make a dead letter of an event that cannot be judged; its key goes on."""
        self._pending.dead.append(DeadLetter(event.feed, event.key, event.sequence, 0, now, error))

    # What is delivered ----------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many deliveries the sink has now."""
        return len(self._flights)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight, nothing read waits for its first attempt, and nothing is being read again."""
        return not (self._flights or self._ready or self._resuming)

    @property
    def must_save(self) -> bool:
        """Whether a checkpoint must come before more is taken: a key goes on only when its dead letter is saved.

        Otherwise a crash would offer the dead event again, after its successors. And a receiver that has asked for a
        pause must get it, whatever happens next.
        """
        return bool(self._pending.dead or self._pending.pause)

    @property
    def owed(self) -> Mapping[Place, Blocked]:
        """The blocked keys."""
        return self._blocked

    def take(self, now: datetime) -> list[tuple[Event, int]]:
        """Return the events to deliver now, each with the number of its attempt; they count as in flight."""
        taken: list[tuple[Event, int]] = []
        if self.must_save:
            return taken
        free = self._free(now)
        if free and self.breaker.is_open and self.breaker.is_answered:
            # Who answers may refuse but one kind of event, and those that lie together tend to be of one kind.
            self._ready.rotate(-(len(self._ready) * 5 // 8))
        for _ in range(len(self._ready)):
            if len(taken) >= free:
                break
            event, attempt = self._ready.popleft()
            place = (event.feed, event.key)
            if place in self._flights:  # an earlier event of the key is being replayed
                self._ready.append((event, attempt))
                continue
            self._flights[place] = _Flight(event, attempt, now)
            self._space(now)
            taken.append((event, attempt))
        return taken

    def _free(self, now: datetime) -> int:
        if self._next_at is not None and now < self._next_at:
            return 0
        if self.breaker.probe_at is None:
            free = self.window - len(self._flights)
            return min(free, 1) if self.spacing else free
        return 1 if now >= self.breaker.probe_at and not self._flights else 0

    def _space(self, now: datetime) -> None:
        """From the moment that one was taken: a pause before it must not be made up for by a burst."""
        if self.spacing:
            self._next_at = now + self.spacing

    def replays_at(self, now: datetime) -> datetime | None:
        """Return from when on a replay may be lent: nothing is to be delivered before it; None: not as things are."""
        if self.must_save or self._ready or len(self._flights) >= self.window:
            return None
        free_at = now if self._next_at is None else max(now, self._next_at)
        if self.breaker.probe_at is None:
            return free_at
        return None if self._flights else max(free_at, self.breaker.probe_at)  # as good a probe as any

    @property
    def is_replaying(self) -> bool:
        """Whether replays are in flight."""
        return any(flight.replay is not None for flight in self._flights.values())

    def admit_replay(self, replay: Replay, event: Event, now: datetime) -> bool:
        """Count a replay as in flight, unless its key has a delivery in flight; return whether it is."""
        place = (event.feed, event.key)
        if place in self._flights:
            return False
        self._flights[place] = _Flight(event, replay.attempts + 1, now, replay)
        self._space(now)
        return True

    def dead_letter_replay(self, replay: Replay, now: datetime, error: str) -> None:
        """Make a dead letter of an event that is not to be replayed after all."""
        letter = DeadLetter(replay.feed, replay.key, replay.sequence, replay.attempts, now, error)
        self._pending.dead.append(letter)
        self._pending.replayed.append(replay.id)

    def settle(self, event: Event, outcome: Outcome, now: datetime, jitter: float) -> None:
        """Note what came of a delivery that was taken or lent."""
        flight = self._flights.pop((event.feed, event.key))
        if outcome.kind is OutcomeKind.DELIVERED:
            self._trust(flight, now)
        elif outcome.kind is OutcomeKind.CLOSED:
            self.closed = outcome.reason
        if flight.replay is not None:
            self._settle_replay(flight, flight.replay, outcome, now, jitter)
            return
        match outcome.kind:
            case OutcomeKind.DELIVERED:
                self._go_on(event, now)
            case OutcomeKind.UNFIT:
                self._dead_letter(event, flight.attempt, outcome, now)
            case OutcomeKind.CLOSED:
                self._keep(flight, outcome, now)
            case OutcomeKind.REFUSED:
                self._refuse(flight, outcome, now)
            case OutcomeKind.FAILED | OutcomeKind.UNREACHABLE:
                self._fail(flight, outcome, now, jitter)
            case _:
                assert_never(outcome.kind)

    def _trust(self, flight: _Flight, now: datetime) -> None:
        """The receiver takes events.

        Where it took none of several events before this one went, it was ill, and recovers. Else what it had refused by
        then is refused for good.
        """
        since, taken_at = flight.since, self._taken_at
        self._taken_at = now
        failed = [each for each in self.breaker.streak if each.at <= since and (taken_at is None or each.at > taken_at)]
        # A replay is an operator's, who looks after the dead letters.
        is_live = flight.replay is None
        recovers = is_live and not self.breaker.is_open and len({(each.place, each.sequence) for each in failed}) > 1
        if not self.breaker.succeed(since):
            return
        if recovers:
            settled = (flight.event.feed, flight.event.key)
            self._give_back(now, (each.place for each in failed), settled=settled)
        for place, letters in list(self._refused.items()):
            if not self._is_flying(place):  # else what comes of the next event of the key tells more
                self._refused[place] = [letter for letter in letters if letter.died_at > since]
                if not self._refused[place]:
                    del self._refused[place]

    def _refuse(self, flight: _Flight, outcome: Outcome, now: datetime) -> None:
        event = flight.event
        place = (event.feed, event.key)
        if not self.breaker.is_open and self._suspects.pop(place, None) == event.sequence:
            self._dead_letter(event, flight.attempt, outcome, now)
            return
        opened = self.breaker.fail(event, outcome, now, flight.since)
        if self.breaker.is_open:
            self._keep(flight, outcome, now)
        else:
            self._refused.setdefault(place, []).append(self._dead_letter(event, flight.attempt, outcome, now))
        if opened:
            self._give_back(now, self._streak, settled=place)

    def _fail(self, flight: _Flight, outcome: Outcome, now: datetime, jitter: float) -> None:
        event, attempt = flight.event, flight.attempt
        place = (event.feed, event.key)
        blamed = self._suspects if outcome.retry_after is None else self._askers
        is_own = outcome.is_own or blamed.get(place) == event.sequence
        is_own = is_own and outcome.kind is OutcomeKind.FAILED and not self.breaker.is_open
        opened = not is_own and self._speak_against_receiver(flight, outcome, now)
        if self.breaker.is_open:
            self._keep(flight, outcome, now)
            if outcome.retry_after is not None:
                self._askers[place] = event.sequence
        elif (due := self._next_attempt(flight, outcome, now, jitter)) is not None:
            self._block(Blocked(*place, event.sequence, attempt, due, outcome.reason, planned_at=now))
        else:
            self._dead_letter(event, attempt, outcome, now)
        if opened:
            self._give_back(now, self._streak, settled=place)

    def _speak_against_receiver(self, flight: _Flight, outcome: Outcome, now: datetime) -> bool:
        """Note a failure that is not the event's own; return whether it opened the breaker."""
        breaker, asked_at = self.breaker, self.breaker.asked_at
        opened = breaker.fail(flight.event, outcome, now, flight.since)
        if breaker.asked_at is not None and breaker.asked_at != asked_at and breaker.probe_at is not None:
            self._pending.pause = Pause(breaker.asked_at, breaker.probe_at)
        return opened

    def _next_attempt(self, flight: _Flight, outcome: Outcome, now: datetime, jitter: float) -> datetime | None:
        recorded_at = flight.event.recorded_at
        if self.max_owed is not None and recorded_at is not None and recorded_at < now - self.max_owed:
            return None
        return next_attempt(self.schedule, flight.attempt, now, jitter, outcome.retry_after)

    @property
    def _streak(self) -> Iterable[Place]:
        return (failure.place for failure in self.breaker.streak)

    def _keep(self, flight: _Flight, outcome: Outcome, now: datetime) -> None:
        """What fails while the sink takes nothing says nothing about the event: no attempt is used up."""
        event = flight.event
        place = (event.feed, event.key)
        head, attempts = event.sequence, flight.attempt - 1
        if (letter := self._take_back(place)) is not None:
            head, attempts = letter.sequence, letter.attempts - 1
        if outcome.kind in (OutcomeKind.REFUSED, OutcomeKind.FAILED):
            self._suspects[place] = head
        self._block(Blocked(event.feed, event.key, head, attempts, now, outcome.reason))

    def _give_back(self, now: datetime, failed: Iterable[Place], settled: Place | None = None) -> None:
        """Return the attempts of the failures of a row, and the events that were refused in it: none is to blame."""
        given: set[Place] = set()
        for place in dict.fromkeys((*failed, *self._refused)):
            if place == settled or self._is_flying(place):
                continue  # its own outcome sees to it
            letter = self._take_back(place)
            entry = self._blocked.get(place)
            if letter is not None:
                self._suspects[place] = letter.sequence
                given.add(place)
                self._block(Blocked(*place, letter.sequence, letter.attempts - 1, now, letter.error))
            elif entry is not None and not entry.held and place not in self._resuming:
                self._suspects[place] = entry.sequence
                self._block(replace(entry, attempts=max(0, entry.attempts - 1), due=now))
        if given:  # what was to follow the dead letters waits behind them again
            self._ready = deque(each for each in self._ready if (each[0].feed, each[0].key) not in given)

    def _take_back(self, place: Place) -> DeadLetter | None:
        """Return the first dead letter that a key has had since the receiver last took an event; none is one now."""
        letters = self._refused.pop(place, [])
        for letter in letters:
            if letter in self._pending.dead:
                self._pending.dead.remove(letter)
            else:
                self._pending.revived.append(letter)
        return letters[0] if letters else None

    def _dead_letter(self, event: Event, attempts: int, outcome: Outcome, now: datetime) -> DeadLetter:
        letter = DeadLetter(event.feed, event.key, event.sequence, attempts, now, outcome.reason)
        self._pending.dead.append(letter)
        if self.holds:
            self._block(Blocked(event.feed, event.key, event.sequence, attempts, now, outcome.reason, held=True))
        else:
            self._go_on(event, now)
        return letter

    def _go_on(self, event: Event, now: datetime) -> None:
        """Let the next event of a key follow one that is settled."""
        place = (event.feed, event.key)
        self._suspects.pop(place, None)
        self._askers.pop(place, None)
        cursor = self._cursors[event.feed]
        cursor.furthest = max(cursor.furthest, event.sequence)
        if place in self._blocked:
            self._block(Blocked(event.feed, event.key, event.sequence + 1, 0, now))
            return
        cursor.forget(event)
        queue = self._fresh[place]
        queue.popleft()
        if queue:
            self._ready.append((queue[0], 1))
        else:
            del self._fresh[place]

    def _settle_replay(self, flight: _Flight, replay: Replay, outcome: Outcome, now: datetime, jitter: float) -> None:
        attempt, event = flight.attempt, flight.event
        is_suspect = replay.id in self._suspect_replays
        self._suspect_replays.discard(replay.id)
        is_own = is_suspect and outcome.kind in (OutcomeKind.FAILED, OutcomeKind.REFUSED)
        is_own = (is_own or outcome.is_own) and not self.breaker.is_open
        is_failure = outcome.kind in (OutcomeKind.FAILED, OutcomeKind.REFUSED, OutcomeKind.UNREACHABLE)
        if is_failure and not is_own and self._speak_against_receiver(flight, outcome, now):
            self._give_back(now, self._streak)
        again: Replay | None = None
        match outcome.kind:
            case OutcomeKind.UNREACHABLE | OutcomeKind.CLOSED:
                again = replace(replay, due=now, error=outcome.reason)
            case OutcomeKind.FAILED | OutcomeKind.REFUSED if self.breaker.is_open:
                again = replace(replay, due=now, error=outcome.reason)
                self._suspect_replays.add(replay.id)
            case OutcomeKind.FAILED if (due := self._next_attempt(flight, outcome, now, jitter)) is not None:
                again = replace(replay, attempts=attempt, due=due, error=outcome.reason)
            case OutcomeKind.FAILED | OutcomeKind.REFUSED | OutcomeKind.UNFIT:
                letter = DeadLetter(event.feed, event.key, event.sequence, attempt, now, outcome.reason)
                self._pending.dead.append(letter)
        if again is None:
            self._pending.replayed.append(replay.id)
        else:
            if is_own:
                self._suspect_replays.add(replay.id)
            self._pending.postponed.append(again)

    # What waits -----------------------------------------------------------------------------------------------------

    def _block(self, entry: Blocked) -> None:
        """Set a key's entry, and forget its events: they are read again when their turn comes."""
        place = (entry.feed, entry.key)
        self._blocked[place] = entry
        self._resuming.discard(place)
        self._pending.blocked[place] = entry
        self._pending.freed.discard(place)
        if entry.held:
            self._held.add(place)
        else:
            self._held.discard(place)
            heapq.heappush(self._due, (entry.due, entry.feed, entry.key))
            if len(self._due) > 2 * len(self._blocked) + _STALE_MOST:  # of entries that were set anew before their time
                self._due = [(each.due, *each_place) for each_place, each in self._blocked.items() if not each.held]
                heapq.heapify(self._due)
        for event in self._fresh.pop(place, ()):
            self._cursors[entry.feed].forget(event)

    def release(self, entry: Blocked) -> None:
        """Let a key go on that was held, from where an operator has decided."""
        current = self._blocked.get((entry.feed, entry.key))
        if current is not None and current.held:
            self._block(entry)

    def forget_refusals(self) -> None:
        """Take back no dead letter that there is by now: an operator has decided what becomes of them."""
        self._refused.clear()

    def put_off(self, step: timedelta) -> None:
        """Go on with the pause that the receiver has asked for, by a clock that was set forward meanwhile."""
        self.breaker.put_off(step)
        if self.breaker.asked_at is not None and self.breaker.probe_at is not None:
            self._pending.pause = Pause(self.breaker.asked_at, self.breaker.probe_at)

    def hurry(self, now: datetime) -> None:
        """Make due what waits for its next attempt, and forget what was thought of the receiver."""
        self.breaker.reset()
        self._suspects.clear()
        self._askers.clear()
        self._suspect_replays.clear()
        for place, entry in list(self._blocked.items()):
            if not entry.held and entry.due > now and not self._is_moving(place):
                self._block(replace(entry, due=now, planned_at=None))

    @property
    def held(self) -> AbstractSet[Place]:
        """The keys that wait for an operator."""
        return self._held

    def due(self, now: datetime, most: int) -> list[Blocked]:
        """Return blocked keys whose next event is to be read from the outbox now; answer each by :meth:`resume`."""
        free = min(most, self.window - len(self._resuming))
        if self.breaker.probe_at is not None:
            for waiting in self._retries:
                heapq.heappush(self._due, waiting)
            self._retries.clear()
            free = int(now >= self.breaker.probe_at and not (self._flights or self._resuming))
            # What nobody answered is as good a probe as a fresh event, which would need an entry of its own. What the
            # receiver did not take is not: others must have their turn.
            if free and self.breaker.is_answered:
                return [] if self._ready else self._draw_probe(now)
        entries: list[Blocked] = []
        room = self._room_to_retry
        while len(entries) < free and ((room and self._retries) or (self._due and self._due[0][0] <= now)):
            waiting = self._retries.popleft() if room and self._retries else heapq.heappop(self._due)
            entry = self._find_due(*waiting, now)
            if entry is None:
                continue
            has_failed = self._has_failed((entry.feed, entry.key))
            if has_failed and not room:
                self._retries.append(waiting)
                continue
            room -= has_failed
            self._resuming.add((entry.feed, entry.key))
            entries.append(entry)
        return entries

    @property
    def _room_to_retry(self) -> int:
        """How many more of those that have failed before may be on their way."""
        return max(0, max(1, self.window // 2) - sum(map(self._has_failed, self._resuming)))

    def _has_failed(self, place: Place) -> bool:
        entry = self._blocked.get(place)
        return place in self._suspects or (entry is not None and entry.attempts > 0)

    def _find_due(self, due: datetime, feed: Feed, key: str, now: datetime) -> Blocked | None:
        entry = self._blocked.get((feed, key))
        is_current = entry is not None and entry.due == due <= now and not entry.held
        return entry if is_current and not self._is_moving((feed, key)) else None

    def _draw_probe(self, now: datetime) -> list[Blocked]:
        """Return one blocked key; neighbours tend to be of one kind, which may be what the receiver does not take."""
        count = len(self._due)
        for step in range(count):
            entry = self._find_due(*self._due[(self._drawn + step) % count], now)
            if entry is not None:
                self._drawn = (self._drawn + step + count * 5 // 8 + 1) % count
                self._resuming.add((entry.feed, entry.key))
                return [entry]
        return []

    def _is_moving(self, place: Place) -> bool:
        return place in self._resuming or self._is_flying(place)

    def _is_flying(self, place: Place) -> bool:
        return place in self._flights and self._flights[place].replay is None

    def resume(self, entry: Blocked, event: Event | None, frontier: int, now: datetime) -> None:
        """Answer :meth:`due`: the key's first owed event up to ``frontier``, or None when there is no more."""
        place = (entry.feed, entry.key)
        if place not in self._resuming:
            return  # its entry was set anew meanwhile
        if event is not None:
            attempts = entry.attempts if event.sequence == entry.sequence else 0
            if event.sequence != entry.sequence:
                self._blocked[place] = replace(entry, sequence=event.sequence, attempts=0)
            if self.breaker.is_open:
                self._ready.appendleft((event, attempts + 1))
            else:
                self._ready.append((event, attempts + 1))
        elif frontier < self._cursors[entry.feed].frontier:
            self._block(replace(entry, due=now))  # more was read meanwhile: look again
        else:
            self._resuming.discard(place)
            del self._blocked[place]
            self._pending.blocked.pop(place, None)
            self._pending.freed.add(place)

    def wake_at(self, now: datetime) -> datetime | None:
        """Return when to look again if nothing is settled or admitted before, or None."""
        if len(self._flights) >= self.window:
            return None
        is_ready = any((event.feed, event.key) not in self._flights for event, _ in self._ready)
        is_ready = is_ready or (bool(self._retries) and self._room_to_retry > 0)
        due = now if is_ready else self._due[0][0] if self._due else None
        if due is not None and self._next_at is not None:
            due = max(due, self._next_at)
        if self.breaker.probe_at is None or due is None:
            return due
        return None if self._flights else max(self.breaker.probe_at, due)

    # What is saved --------------------------------------------------------------------------------------------------

    def checkpoint(self, now: datetime) -> Settlement:
        """Return what is to be saved, and begin anew.

        Keys whose delivery was in flight at the previous checkpoint already are blocked, so that the position passes
        them.
        """
        if self._checked_at is not None:
            for place, flight in list(self._flights.items()):
                if flight.since < self._checked_at and flight.replay is None and place not in self._blocked:
                    event = flight.event
                    self._block(Blocked(event.feed, event.key, event.sequence, flight.attempt - 1, now))
        self._checked_at = now
        for feed, cursor in self._cursors.items():
            self._pass_overtaken(cursor, now)
            if (backfill := cursor.backfill) is not None:
                self._save_backfill(feed, cursor, backfill)
            # While some records might be told again after a crash, what follows them must be, too.
            if cursor.backfill is None and cursor.settled > cursor.position:
                cursor.position = self._pending.positions[feed] = cursor.settled
        settlement, self._pending = self._pending, Settlement()
        settlement.origins = {
            feed: cursor.origin for feed, cursor in self._cursors.items() if cursor.origin is not None
        }
        return settlement

    def _pass_overtaken(self, cursor: FeedCursor, now: datetime) -> None:
        """Block the keys that hold the position back from what was settled at the previous checkpoint already.

        Such are keys with many events, which wait for each other: none of their deliveries need last long.
        """
        overtaken: dict[Place, None] = {}
        if self.room < self.read_ahead // 2 and not self._ready and len(self._flights) < self.window:
            # Some keys have so many events that nothing of others can be read, although they could be delivered.
            overtaken |= {place: None for place, events in self._fresh.items() if len(events) > _QUEUE_MOST}
        for sequence, event in cursor.unsettled.items():
            if sequence > cursor.overtaking:
                break
            overtaken[event.feed, event.key] = None
        cursor.overtaking = cursor.furthest
        for place in overtaken:
            head, flight = self._fresh[place][0], self._flights.get(place)
            attempts = flight.attempt - 1 if flight is not None and flight.event is head else 0
            self._block(Blocked(*place, head.sequence, attempts, now))
        if overtaken:
            self._ready = deque(each for each in self._ready if (each[0].feed, each[0].key) not in overtaken)

    def _save_backfill(self, feed: Feed, cursor: FeedCursor, backfill: Backfill) -> None:
        if backfill.is_read and not backfill.unsettled:
            self._pending.backfilled_to[feed] = None
            cursor.backfill = None
        elif backfill.settled > backfill.backfilled_to:
            backfill.backfilled_to = backfill.settled
            self._pending.backfilled_to[feed] = backfill.settled


def _plan_anew(entry: Blocked, now: datetime) -> Blocked:
    due = plan_anew(entry.planned_at, entry.due, now)
    return replace(entry, due=due, planned_at=None if entry.planned_at is None else min(entry.planned_at, now))
