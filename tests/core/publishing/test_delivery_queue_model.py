"""The delivery queue against a small outbox, a sink with a will of its own, an operator, and crashes."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from dockbell.core.model import DELIVERED, Event, Outcome, OutcomeKind
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.settlement import Blocked, Replay, Settlement, StartOffset
from tests.core.publishing.test_delivery_queue import FAILED, FEED, NOON, REFUSED, UNREACHABLE, make_event

OUTCOMES = [
    DELIVERED,
    DELIVERED,
    FAILED,
    REFUSED,
    UNREACHABLE,
    Outcome(OutcomeKind.UNFIT, "too large"),
    Outcome(OutcomeKind.CLOSED, "HTTP 410"),
    Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(seconds=30)),
]
MOODS = [DELIVERED, DELIVERED, DELIVERED, REFUSED, REFUSED, UNREACHABLE, FAILED, None]
"""What a receiver answers for a while; None is something else each time."""
KEYS = "abcdef"


@dataclass
class Saved:
    """What a crash leaves."""

    position: int = 0
    backfilled_to: int | None = None
    blocked: dict[str, Blocked] = field(default_factory=dict)
    dead: set[tuple[int, str]] = field(default_factory=set)
    replays: dict[int, Replay] = field(default_factory=dict)

    def apply(self, settlement: Settlement) -> None:
        """Do what a store does, in its order."""
        self.position = settlement.positions.get(FEED, self.position)
        self.backfilled_to = settlement.backfilled_to.get(FEED, self.backfilled_to)
        for _, key in settlement.freed:
            self.blocked.pop(key, None)
        for (_, key), entry in settlement.blocked.items():
            self.blocked[key] = entry
        self.dead -= {(letter.sequence, letter.key) for letter in settlement.revived}
        self.dead |= {(letter.sequence, letter.key) for letter in settlement.dead}
        for replay in settlement.postponed:
            self.replays[replay.id] = replay
        for number in settlement.replayed:
            del self.replays[number]


BEGUN = 2
"""A sink that is told of stored records begins after so many events."""


class QueueMachine(RuleBasedStateMachine):
    """Appends, deliveries, failures, operators, checkpoints and crashes in any order."""

    @initialize(holds=st.booleans(), stored=st.none() | st.lists(st.sampled_from(KEYS), unique=True))
    def begin(self, holds: bool, stored: list[str] | None) -> None:
        self.holds = holds
        self.mood: Outcome | None = DELIVERED
        self.now = NOON
        self.outbox = [make_event(number, "a") for number in range(1, BEGUN + 1)]
        self.origin = 0 if stored is None else BEGUN
        self.stored = ["", *(stored or ())]  # row 0 is what is said of the feed
        self.saved = Saved(self.origin, None if stored is None else 0)
        self.broken: set[int] = set()
        self.crashes = 0
        self.last: dict[str, int] = {}
        self.may_repeat: set[str] = set()
        self.delivered: Counter[tuple[int, str]] = Counter()
        self.settled: set[tuple[int, str]] = set()
        self.is_paused = False
        self.numbers = itertools.count()
        self.start()

    def start(self) -> None:
        """Begin from what is saved."""
        self.queue = DeliveryQueue(window=3, holds=self.holds, read_ahead=12)
        start = StartOffset(self.origin, NOON, self.saved.backfilled_to)
        self.queue.restore({FEED: self.saved.position}, self.saved.blocked.values(), {FEED: start})
        self.flying: list[tuple[Event, bool]] = []
        self.lent: list[Replay] = []
        self.writing: Settlement | None = None

    def owed(self, key: str) -> list[int]:
        """Return what is owed of a key, in order; what it is told of first has the number of the origin."""
        told = [self.origin] if self.origin and key in self.stored else []
        return told + [event.sequence for event in self.outbox[self.origin :] if event.key == key]

    def passes(self, event: Event) -> bool:
        if event.sequence in self.broken and event.sequence != self.origin:
            self.queue.dead_letter(event, self.now, "where cannot be evaluated")
            return False
        return True

    # What happens ------------------------------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), is_broken=st.sampled_from([False, False, False, True]))
    def something_changes(self, key: str, is_broken: bool) -> None:
        self.outbox.append(make_event(len(self.outbox) + 1, key))
        if is_broken:
            self.broken.add(len(self.outbox))

    @rule(seconds=st.sampled_from([0.1, 1, 6, 400, 100_000]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.turn()

    def turn(self) -> None:
        """Do what a relay does whenever its bell rings."""
        self.read_ahead()
        if self.queue.closed:
            self.queue.closed, self.is_paused = "", True
        if not self.is_paused:
            for entry in self.queue.due(self.now, 3):
                frontier = self.queue.frontier(FEED)
                self.queue.resume(entry, self.find_owed(entry, frontier), frontier, self.now)
        if self.queue.must_save:
            self.save()
        if not self.is_paused:
            self.flying += [(event, False) for event, _ in self.queue.take(self.now)]
            self.replay()

    def read_ahead(self) -> None:
        if self.queue.capacity <= 0:
            return
        if (row := self.queue.backfill_from(FEED)) is not None:
            rows = list(enumerate(self.stored))[row + 1 if row else 0 : row + 3]
            told = [(number, make_event(self.origin, key)) for number, key in rows]
            end = max([row, *(number for number, _ in rows)])
            self.queue.admit_backfill(FEED, told, end, is_read=end == len(self.stored) - 1)
            return
        frontier = self.queue.frontier(FEED)
        more = self.outbox[frontier : frontier + self.queue.capacity]
        if more:
            self.queue.admit(FEED, filter(self.passes, more), more[-1].sequence)

    def find_owed(self, entry: Blocked, frontier: int) -> Event | None:
        if entry.sequence == self.origin and entry.key in self.stored:
            return make_event(self.origin, entry.key)
        after = max(entry.sequence - 1, self.origin)
        return next((each for each in self.outbox[after:frontier] if each.key == entry.key and self.passes(each)), None)

    def replay(self) -> None:
        replays_at = self.queue.replays_at(self.now)
        if replays_at is None or replays_at > self.now or self.queue.is_replaying:
            return
        self.save()
        for replay in [each for each in self.saved.replays.values() if each.due <= self.now]:
            if (at := self.queue.replays_at(self.now)) is None or at > self.now:
                break
            event = make_event(replay.sequence, replay.key)
            if self.queue.admit_replay(replay, event, self.now):
                self.flying.append((event, True))

    @rule(mood=st.sampled_from(MOODS))
    def the_receiver_changes(self, mood: Outcome | None) -> None:
        self.mood = mood

    @precondition(lambda self: self.flying)
    @rule(choices=st.lists(st.integers(0, 2), min_size=1, max_size=3), outcome=st.sampled_from(OUTCOMES))
    def some_are_settled(self, choices: list[int], outcome: Outcome) -> None:
        for choice in choices[: len(self.flying)]:
            self.settle(choice, self.mood or outcome)
        self.turn()

    def settle(self, choice: int, outcome: Outcome) -> None:
        event, is_replay = self.flying.pop(choice % len(self.flying))
        if outcome.kind is OutcomeKind.DELIVERED and not is_replay:
            self.check_order(event)
        self.queue.settle(event, outcome, self.now, 0.5)

    def check_order(self, event: Event) -> None:
        """Nothing comes too early, and nothing again but after a crash, when all that follows it must come again."""
        key, last = event.key, self.last.get(event.key, -1)
        self.delivered[event.sequence, key] += 1
        assert self.delivered[event.sequence, key] <= 1 + self.crashes, "told twice"
        assert event.sequence > last or key in self.may_repeat, "again, or out of order"
        between = {(each, key) for each in self.owed(key) if last < each < event.sequence}
        assert between <= self.settled | self.saved.dead, "too early"
        self.settled.add((event.sequence, key))
        self.may_repeat.discard(key)
        self.last[key] = event.sequence

    # What an operator does ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_paused)
    @rule()
    def the_sink_is_resumed(self) -> None:
        self.is_paused = False
        self.turn()

    @precondition(lambda self: len(self.saved.replays) < 3)
    @rule(choice=st.integers(0, 30))
    def a_replay_is_wished_for(self, choice: int) -> None:
        event = self.outbox[choice % len(self.outbox)]
        if (event.sequence, event.key) not in {(each.sequence, each.key) for each in self.saved.replays.values()}:
            number = next(self.numbers)
            if (event.sequence, event.key) in self.saved.dead:
                self.saved.dead.discard((event.sequence, event.key))
                self.settled.add((event.sequence, event.key))
            self.saved.replays[number] = Replay(number, FEED, event.sequence, event.key, 0, NOON)

    @precondition(lambda self: self.queue.held)
    @rule(is_discarded=st.booleans())
    def a_key_on_hold_goes_on(self, is_discarded: bool) -> None:
        held = [entry for entry in self.saved.blocked.values() if entry.held]
        if not held:
            return
        entry = held[0]
        self.saved.dead.discard((entry.sequence, entry.key))
        if is_discarded:
            self.settled.add((entry.sequence, entry.key))
            entry = replace(entry, sequence=entry.sequence + 1)
        self.saved.blocked[entry.key] = replace(entry, attempts=0, due=self.now, held=False)
        self.look()

    def look(self) -> None:
        """Take what an operator decided, as a relay does."""
        held = self.queue.held
        self.save()
        for entry in self.saved.blocked.values():
            if (entry.feed, entry.key) in held and not entry.held:
                self.queue.release(entry)

    # What is saved -----------------------------------------------------------------------------------------------

    @rule()
    def a_checkpoint_begins_or_ends(self) -> None:
        if self.writing is None and not self.queue.must_save:
            self.writing = self.queue.checkpoint(self.now)
        else:
            self.end_writing()

    def end_writing(self) -> None:
        if self.writing is not None:
            self.saved.apply(self.writing)
            self.writing = None

    def save(self) -> None:
        self.end_writing()
        self.saved.apply(self.queue.checkpoint(self.now))

    @rule()
    def crash(self) -> None:
        self.crashes += 1
        self.may_repeat = {"", *KEYS}
        self.start()

    # What always holds -------------------------------------------------------------------------------------------

    @invariant()
    def one_delivery_in_flight_per_key(self) -> None:
        keys = [event.key for event, _ in self.flying]
        assert len(keys) == len(set(keys)) <= 3

    @invariant()
    def what_is_owed_and_not_in_flight_has_a_time(self) -> None:
        if not self.flying and (len(self.queue.held) < len(self.queue.owed) or not self.queue.idle):
            assert self.queue.wake_at(self.now) is not None

    @invariant()
    def no_position_passes_what_is_owed(self) -> None:
        told = len(self.stored) if self.saved.backfilled_to is None else self.saved.backfilled_to
        passed = {(self.origin, key) for key in self.stored[: told + 1] if self.origin and (told or key)}
        passed |= {(each.sequence, each.key) for each in self.outbox[self.origin : self.saved.position]}
        for sequence, key in passed - self.settled - self.saved.dead:
            assert key in self.saved.blocked, (sequence, key)
            assert self.saved.blocked[key].sequence <= sequence

    def teardown(self) -> None:
        """Let the sink recover: everything is delivered in the end, or dead."""
        if not hasattr(self, "queue"):
            return
        for _ in range(300):
            self.is_paused = False
            self.a_key_on_hold_goes_on(is_discarded=False)
            self.turn()
            while self.flying:
                self.settle(0, DELIVERED)
            self.save()
            dues = [each.due for each in self.saved.blocked.values()]
            dues += [each.due for each in self.saved.replays.values()]
            self.now = max([self.now + timedelta(seconds=40), *dues])
            if (self.saved.position, self.saved.backfilled_to) == (len(self.outbox), None) and not dues:
                break
        for key in ("", *KEYS):
            owed = {(sequence, key) for sequence in self.owed(key)}
            assert owed <= self.settled | self.saved.dead, "lost"
            later = {each for each in owed if each[0] > self.last.get(key, -1)}
            assert later <= self.saved.dead | {each for each in self.settled if not self.delivered[each]}, "stale"
        assert not self.saved.replays


TestLedger = QueueMachine.TestCase
TestLedger.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
