"""What an operator asks of a sink: kept events to be sent to it again, and what becomes of its dead letters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio
from msgspec.structs import replace

from dockbell.admin.why import ATTEMPTS_MOST, read_key
from dockbell.config import SinkSettings, parse_duration
from dockbell.core.counting import count_of
from dockbell.core.model import Event, Feed
from dockbell.core.moment import parse_moment
from dockbell.core.publishing.filters import Filter
from dockbell.core.publishing.settlement import Attempt
from dockbell.host.evaluator import SHARED
from dockbell.ports import Candidate, CommandStore, Reach, ReadStore, Selection, Undelivered

SAMPLE: Final = 5
"""How many of the chosen events a dry run shows."""

_AT_ONCE: Final = 1000
"""Events that are read to a portion: a few MB in memory."""
_LOOK_AT_ONCE: Final = 20_000
"""Sequences that are looked through at once where hardly any is chosen."""
_WRITE_AT_ONCE: Final = 250
"""Events that are written to a portion: the daemon's commits wait for some milliseconds."""
_PAUSE: Final = timedelta(milliseconds=5)
"""Pause after each portion, because other processes only try now and then whether the store is free."""
_SPAN: Final = re.compile(r"(?P<only>\d{1,18})|(?P<first>\d{1,18})?-(?P<last>\d{1,18})?")

# What is asked for ---------------------------------------------------------------------------------------------------


def read_span(text: str) -> tuple[int | None, int | None]:
    """Return the first and the last of the sequences that are meant by ``5``, ``5-10``, ``5-`` or ``-10``.

    Raises:
        ValueError: None are.
    """
    match = _SPAN.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f'must be a sequence or a range such as "5-10", got "{text}"')
    first, last = (
        None if part is None else int(part)
        for part in (match["only"] or match["first"], match["only"] or match["last"])
    )
    if first is not None and last is not None and first > last:
        raise ValueError(f'must not end before it begins, got "{text}"')
    return first, last


def read_time(text: str, now: datetime) -> datetime:
    """Return a time that is written as ISO 8601, UTC where it names no zone, or as how long ago it was: ``2h``.

    Raises:
        ValueError: It is neither.
    """
    moment = parse_moment(f"{text}T00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    if moment is not None:
        return moment
    try:
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        raise ValueError(f'must be a time such as "2026-11-21T02:30" or "2h" for two hours ago, got "{text}"') from None


def read_keys(given: Iterable[str]) -> tuple[str, ...]:
    """Return every key string that may be meant by keys as they are in events, or as the API writes them.

    Raises:
        ValueError: One can be no key.
    """
    return tuple(dict.fromkeys(reading for key in given for reading in read_key(key)))


# Replays -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FeedReplay:
    """What a replay came to in one feed, counted in events."""

    feed: Feed
    chosen: int = 0  # those that are sent again because of it
    waiting: int = 0  # those whose replay waits since before
    owed: int = 0  # those that the sink is still owed: it gets them without a replay
    filtered: int = 0  # those that the sink's filters hold back

    def __bool__(self) -> bool:
        return bool(self.chosen or self.waiting or self.owed or self.filtered)


@dataclass(slots=True)
class Replayed:
    feeds: list[FeedReplay] = field(default_factory=list)
    sample: list[Event] = field(default_factory=list)  # the first of the chosen events
    problems: list[str] = field(default_factory=list)  # what was asked for and is not there, one line each

    @property
    def chosen(self) -> int:
        return sum(each.chosen for each in self.feeds)


Tell = Callable[[int, int, int], None]
"""Is told again and again how many events were looked at, of how many, and how many were chosen."""


class Replaying:
    """Chooses kept events that a sink's filters let through, and has them sent to it again.

    Where the selection names no feed, those are meant that the sink wants.
    """

    def __init__(
        self,
        command_store: CommandStore,
        sink: str,
        settings: SinkSettings,
        reaches: Mapping[Feed, Reach],
        selection: Selection,
    ) -> None:
        self._command_store = command_store
        self._sink = sink
        self._filter = Filter(settings)
        self._reaches = reaches
        self._selection = selection
        self.feeds: Sequence[Feed] = [feed for feed in selection.feeds or reaches if self._filter.wants(feed)]
        self.unwanted: Sequence[Feed] = [feed for feed in selection.feeds if not self._filter.wants(feed)]

    async def run(self, now: datetime, tell: Tell, *, dry: bool) -> Replayed:
        """Go through the events in portions, each chosen, judged and written; with ``dry`` nothing is written.

        What was written stays when it is interrupted, and is not written twice when it is repeated.
        """
        replayed = Replayed()
        missing = set(self._selection.ids)
        spans = {feed: self._find_span(self._reaches[feed]) for feed in self.feeds if feed in self._reaches}
        total = sum(max(0, end - begin) for begin, end in spans.values())
        looked = chosen = 0
        for feed, (begin, end) in spans.items():
            count = FeedReplay(feed)
            replayed.feeds.append(count)
            async for through, events in self._read(feed, begin, end, count, missing):
                fresh = [each.event for each in events if not each.is_waiting]
                replayed.sample += fresh[: SAMPLE - len(replayed.sample)]
                await self._enter(feed, events, count, now, dry=dry)
                tell(looked + through - begin, total, chosen + count.chosen)
            looked, chosen = looked + max(0, end - begin), chosen + count.chosen
        replayed.problems += [f"event {each}: is not among the kept events of these feeds" for each in sorted(missing)]
        replayed.problems += self._find_pruned()
        return replayed

    def _find_span(self, reach: Reach) -> tuple[int, int]:
        """Return the sequence after which events may be chosen, and the one up to which."""
        selection, extent = self._selection, reach.extent
        begin = max(extent.pruned, 0 if selection.first is None else selection.first - 1)
        if selection.failed:  # these outlive their time
            begin = 0 if selection.first is None else selection.first - 1
        end = extent.last if selection.last is None else min(extent.last, selection.last)
        return begin, min(end, reach.origin) if selection.never_sent and not selection.failed else end

    async def _read(
        self, feed: Feed, begin: int, end: int, count: FeedReplay, missing: set[str]
    ) -> AsyncIterator[tuple[int, list[Candidate]]]:
        """Yield the events to be sent again in portions, each with the sequence up to which it goes."""
        reach = self._reaches[feed]
        while begin < end:
            through = min(end, begin + _LOOK_AT_ONCE)
            found = await self._command_store.read_candidates(
                self._sink, feed, reach, self._selection, within=(begin, through), limit=_AT_ONCE
            )
            begin = found[-1].event.sequence if len(found) == _AT_ONCE else through
            missing.difference_update(candidate.event.id for candidate in found)
            passed = [each for each in found if (await SHARED.evaluate_event(self._filter, each.event)).lets_through]
            count.filtered += len(found) - len(passed)
            count.owed += sum(each.is_owed for each in passed)
            count.waiting += sum(each.is_waiting and not each.is_owed for each in passed)
            yield begin, [each for each in passed if not each.is_owed]

    async def _enter(
        self, feed: Feed, events: Sequence[Candidate], count: FeedReplay, now: datetime, *, dry: bool
    ) -> None:
        """Offer events, those that wait already as well: they may have been delivered in this moment."""
        if not dry:
            async for portion in _paced([(each.event.sequence, each.event.key) for each in events]):
                await self._command_store.offer(self._sink, feed, portion, now)
        count.chosen += sum(not each.is_waiting for each in events)

    def _find_pruned(self) -> list[str]:
        """Return which of the sequences that were asked for are not there."""
        selection, lines = self._selection, []
        for feed in self.feeds:
            extent = self._reaches[feed].extent if feed in self._reaches else None
            if extent is None:
                lines.append(f"feed {feed}: was never read")
            elif selection.first is not None and selection.first <= extent.pruned:
                lines.append(f"feed {feed}: events up to {extent.pruned} are no longer kept")
            if extent is not None and selection.last is not None and selection.last > extent.last:
                lines.append(f"feed {feed}: its last event is {extent.last}")
        return lines


async def forget_replays(command_store: CommandStore, sink: str) -> int:
    """Delete all replays of a sink that wait, in portions; return how many."""
    forgotten = 0
    while count := await command_store.forget_replays(sink, _WRITE_AT_ONCE):
        forgotten += count
        await anyio.sleep(_PAUSE.total_seconds())
    return forgotten


# Dead letters --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Retried:
    """What came of dead letters that were to be sent again."""

    entered: int = 0  # those that wait to be sent again and did not before
    released: int = 0  # keys that were on hold and go on with their dead letter
    missing: int = 0  # those whose event is not kept any more; they stay dead letters
    filtered: int = 0  # those that the sink's filters hold back by now; they stay dead letters

    def __add__(self, other: Retried) -> Retried:
        entered, released = self.entered + other.entered, self.released + other.released
        return Retried(entered, released, self.missing + other.missing, self.filtered + other.filtered)

    def __str__(self) -> str:
        parts = [f"{count_of(self.entered, 'dead letter')} will be sent again"]
        if self.released:
            parts.append(f"{count_of(self.released, 'record')} on hold will continue, starting with the dead letter")
        return ", ".join([*parts, *self.find_problems()])

    def find_problems(self) -> Sequence[str]:
        """Return which of them stay, and why, one line each."""
        return [
            f"{count_of(count, 'dead letter')} not sent: {why}; discard them"
            for count, why in (
                (self.missing, "no longer kept"),
                (self.filtered, "held back by the current filters of the sink"),
            )
            if count
        ]


async def load_letter(read_store: ReadStore, found: Undelivered) -> tuple[Event | None, Sequence[Attempt]]:
    """Return the event of a dead letter and the attempts to deliver it, oldest first, as far as they are kept."""
    letter = found.letter
    events = await read_store.read_events(letter.feed, letter.sequence - 1, 1)
    event = next((each for each in events if (each.sequence, each.key) == (letter.sequence, letter.key)), None)
    attempts = await read_store.read_attempts(letter.feed, letter.key, ATTEMPTS_MOST)
    return event, [each for each in attempts.get(found.sink, ()) if each.sequence == letter.sequence]


async def retry_dead(
    command_store: CommandStore, sink: str, settings: SinkSettings, selection: Selection, now: datetime
) -> Retried:
    """Have dead letters offered to their sink again, in portions; return what came of them."""
    came = Retried()
    reaches = await command_store.load_reaches(sink, settings.start)
    passing = Filter(settings)
    async for feed, letters in _read_dead(command_store, sink, selection):
        # What the relay would leave out must not be lost on the way.
        within = (letters[0][0] - 1, letters[-1][0])
        found = await command_store.read_candidates(
            sink, feed, reaches[feed], replace(selection, failed=True), within=within, limit=len(letters)
        )
        held_back = {
            (each.event.sequence, each.event.key)
            for each in found
            if not (passing.wants(feed) and (await SHARED.evaluate_event(passing, each.event)).lets_through)
        }
        came.filtered += len(held_back)
        async for portion in _paced([letter for letter in letters if letter not in held_back]):
            offered = await command_store.offer(sink, feed, portion, now)
            came.entered += offered.entered
            came.released += offered.released
            came.missing += offered.missing
    return came


async def discard_dead(command_store: CommandStore, sink: str, selection: Selection, now: datetime) -> tuple[int, int]:
    """Delete dead letters, in portions; return how many, and how many keys go on because of it."""
    letters = released = 0
    async for feed, events in _read_dead(command_store, sink, selection):
        async for portion in _paced(events):
            released += await command_store.discard(sink, feed, portion, now)
        letters += len(events)
    return letters, released


async def find_sinks_with_dead(command_store: CommandStore) -> Sequence[str]:
    """Return the names of sinks that have dead letters, also those that have left the configuration."""
    return list(dict.fromkeys(group.sink for group in await command_store.count_dead(None, Selection())))


async def _read_dead(
    command_store: CommandStore, sink: str, selection: Selection
) -> AsyncIterator[tuple[Feed, Sequence[tuple[int, str]]]]:
    """Yield the chosen dead letters by feed in portions, each a sequence and a key."""
    last: Undelivered | None = None
    while found := await command_store.read_dead(sink, selection, _AT_ONCE, last):
        last = found[-1]
        for feed in dict.fromkeys(each.letter.feed for each in found):
            yield feed, [(each.letter.sequence, each.letter.key) for each in found if each.letter.feed == feed]


async def _paced(events: Sequence[tuple[int, str]]) -> AsyncIterator[Sequence[tuple[int, str]]]:
    """Yield events in portions that are small enough to be written at once, with a pause after each."""
    for start in range(0, len(events), _WRITE_AT_ONCE):
        yield events[start : start + _WRITE_AT_ONCE]
        await anyio.sleep(_PAUSE.total_seconds())
