"""The pages of one run, one after the other, guarded against lists that never end and pages that cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias

import msgspec

from dockbell.core.comparing.page_diff import Bad
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import ChangeKind, Page, RunKind
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.page_limit import LIMITS
from dockbell.core.reading.page_sample import RECORDS_LEAST
from dockbell.core.reading.silence import Silence, Silences
from dockbell.core.reading.window import HEAVY_TICK_RECORDS, Proof
from dockbell.errors import CursorExpired, PageUnreadable, SourceUnavailable
from dockbell.ports import Checkpoint, Committed, Tally

CURSOR_EXPIRED: Final = "the API forgot the cursor"
LIMIT_CHANGED: Final = "a page could be read with a smaller limit only, so that others may have been skipped"

_EMPTY_PAGES_MOST: Final = 10
_AGAIN_MOST: Final = 10
"""So many pages of one record in a row may show what earlier pages have shown."""
_PLANNED_MICROS: Final = 86_400_000_000
"""A record dated further ahead than a day is planned; its date says nothing of a clock."""
_REPEATS_MOST: Final = 2000
_UNSTEADY_SHARE: Final = 0.01
_COLLISIONS_MOST: Final = 3
_COLLISIONS_SHARE: Final = 0.25
_CHECKPOINT_PAGES: Final = 100
_CHECKPOINT_EVERY: Final = timedelta(seconds=30)


_Answer: TypeAlias = tuple[Page, Committed | None]


class ReadPage(Protocol):
    """Reads and commits one page; None for a page without records before any were seen."""

    def __call__(self, cursor: str | None, limit: int) -> Awaitable[tuple[Page, Committed | None]]:
        """Read the page that a cursor asks for."""
        ...


@dataclass
class Walk:
    """How far a run has come, and what it found.

    Attributes:
        kind: Poll, trailing poll or pass.
        rows: The rows that the run itself showed.
        began_at: Our time when it began; None where that is not known.
        asked_at: S of its first request; None before it.
        answered_at: The service's time of its last answer.
        offset: How far our clock was ahead of the service's at its last answer.
        collisions: Records that it showed a second time with other content, which no later date explains.
        forgiven: So many records without a key may be met by a poll that proves something all the same: as many as were
            in quarantine before, for their text may be another each time.
        bad: What is wrong with the records that keep it from being complete.
        age: For how long a cache has kept one of its pages, the oldest of them.
        lag: The least by which the newest date of a page was behind the answer; None where no record was dated.
        problem: Why it is incomplete.
        cause: The error that made it so.
        is_cursor_lost: The API did not accept a cursor that it gave.
        refused_at: After so many pages it called the request with the cursor wrong.
        level: Its limit, as an index of ``LIMITS``; the pages of a run are all asked for with the same.
        ahead: How many records were dated ahead of the service's clock, by a day at the most.
        latest_ahead: The newest date of these; None while there is none.
        newest_key: The key of a record that is dated ``newest``.
        anchor: The key of a record that a poll must show, because its window covers the date that it had.
        has_anchor: It showed it.
        page_most: The most records on a page of the feed that had a cursor; 0 while there was none.
        silences: The times in which none of its pages was answered.
        needed: The smallest limit that one of its pages needed. Where that is smaller than its own, its pages do not
            join: it certifies nothing, and begins again with the smaller one when it has come to its end.
    """

    kind: RunKind
    rows: SeenRows
    began_at: datetime | None = None
    asked_at: datetime | None = None
    answered_at: datetime | None = None
    offset: timedelta = timedelta(0)
    pages: int = 0
    records: int = 0
    events: int = 0
    collisions: int = 0
    tally: Tally = field(default_factory=Tally)
    lateness: list[timedelta] = field(default_factory=list)
    on_time: int = 0
    oldest_unseen: datetime | None = None
    newest: datetime | None = None
    lag: timedelta | None = None
    last_record: bytes | None = None
    age: timedelta = timedelta(0)
    forgiven: int = 0
    bad: list[str] = field(default_factory=list)
    problem: str = ""
    cause: SourceUnavailable | None = None
    is_cursor_lost: bool = False
    refused_at: int | None = None
    level: int = 0
    newest_key: str = ""
    anchor: str = ""
    has_anchor: bool = False
    ahead: int = 0
    latest_ahead: datetime | None = None
    page_most: int = 0
    silences: Silences = field(default_factory=Silences)
    needed: int = field(default=0, init=False)
    _cursor: str | None = None
    _level: int = field(default=0, init=False)
    _empty: int = 0
    _again: int = field(default=0, init=False)
    _cursors: set[bytes] = field(default_factory=set)
    _pages: set[bytes] = field(default_factory=set)
    _ticks: Counter[int] = field(default_factory=Counter)
    _keyless: dict[bytes, str] = field(default_factory=dict)
    _most: int = LIMITS[0]
    _shown: set[int] = field(default_factory=set, init=False)  # the rows of its last page
    _dates: list[int] = field(default_factory=list, init=False)  # their dates
    _awaited: set[int] = field(default_factory=set, init=False)  # rows that may come again, and mean nothing by it

    def __post_init__(self) -> None:
        self.needed = self._level = self.level

    @property
    def sent_at(self) -> datetime | None:
        """Our time of its first request, as our clock stands against the service's now; None before it."""
        return None if self.asked_at is None else self.asked_at + self.offset

    @property
    def proof(self) -> Proof | None:
        """What it says about the watermark; None before its first answer."""
        if self.asked_at is None:
            return None
        return Proof(
            self.asked_at,
            self.pages,
            not self.problem,
            self.oldest_unseen,
            self.newest,
            max((from_micros(at) for at, count in self._ticks.items() if count > HEAVY_TICK_RECORDS), default=None),
            self.answered_at,
        )

    @property
    def is_unambiguous(self) -> bool:
        """Whether the key told all records apart."""
        return self.collisions == 0

    @property
    def is_colliding(self) -> bool:
        """Whether the key stands for different records: so many changes while the run went on are not plausible."""
        return self.collisions > max(_COLLISIONS_MOST, self.records * _COLLISIONS_SHARE)

    @property
    def is_unsteady(self) -> bool:
        """Whether so many records came twice that their order is none: as many others may not have come at all."""
        return self.tally.repeated > self.records * _UNSTEADY_SHARE

    @property
    def is_uneven(self) -> bool:
        """Whether one of its pages was read with a smaller limit than the others."""
        return self.needed > self.level

    def begin_again(self, last_row: int) -> None:
        """Return to the first page, with the limit that all pages can be read with; what is committed counts."""
        self.level = self._level = self.needed
        self._most = LIMITS[0]
        self.rows = SeenRows(last_row)
        self._cursor, self._empty, self._again = None, 0, 0
        self._cursors.clear()
        self._pages.clear()
        self.asked_at = None
        self.pages = self.records = self.collisions = self.ahead = 0
        self.bad.clear()
        self._keyless.clear()
        self._ticks.clear()
        self._awaited.clear()
        self.tally = replace(self.tally, repeated=0)
        self.problem, self.cause, self.is_cursor_lost = "", None, False

    async def go(self, read_page: ReadPage, save: Callable[[Checkpoint], Awaitable[None]] | None = None) -> None:
        """Read to the end, or to what ends it before."""
        saved_pages, saved_at = self.pages, None
        while True:
            try:
                page, committed = await self._read(read_page)
                self._count(page, committed)
                if self._seems_cut(page):
                    page = await self._check_end(read_page, page, committed)
            except CursorExpired as error:
                self.problem = f"{CURSOR_EXPIRED}: page {self.pages + 1}: {error}"
                self.refused_at = self.pages if error.is_refusal else None
                self.is_cursor_lost = True
                return
            except PageUnreadable as error:
                self.problem, self.cause = f"page {self.pages + 1}: {error}", error
                return
            except SourceUnavailable as error:
                self.problem, self.cause = str(error), error
                return
            if page.next_cursor is None:
                self.problem = LIMIT_CHANGED if self.is_uneven else self.problem or self._find_bad()
                return
            self.problem = self._find_anomaly(page, page.next_cursor)
            if self.problem:
                # Where pages do not join, an anomaly says nothing of the list.
                self.problem = LIMIT_CHANGED if self.is_uneven else self.problem
                return
            self._cursor = page.next_cursor
            saved_at = saved_at or page.received_at
            due = self.pages - saved_pages >= _CHECKPOINT_PAGES or page.received_at - saved_at >= _CHECKPOINT_EVERY
            if save is not None and due and not self.is_uneven:
                saved_pages, saved_at = self.pages, page.received_at
                await save(self._checkpoint(page.received_at))

    async def _read(self, read_page: ReadPage) -> _Answer:
        """Return the next page; in a smaller part where it cannot be read otherwise.

        What could be read in a part is asked for whole once more: perhaps the moment was bad, and not the size. The
        limit of a run that has no page yet may still change; one that has read pages is uneven from then on, and only
        goes on to report what it meets.
        """
        answer = await self._read_part(read_page)
        if self._level > self.level and not self.is_uneven:
            whole = await self._read_whole(read_page, answer)
            if whole is not None:
                self._level = self.level
                self._count_found(answer[1])
                return whole
            if self.pages == 0:
                self.level = self._level
        self.needed = max(self.needed, self._level)
        self._level = max(self.level, self._level - 1)
        return answer

    async def _read_part(self, read_page: ReadPage) -> _Answer:
        """Return as much of the next page as can be read."""
        while True:
            try:
                return await read_page(self._cursor, self._limit(self._level))
            except PageUnreadable:
                if self._level + 1 == len(LIMITS):
                    raise
                self._level += 1  # what cannot be read stands in the way of fewer records then

    async def _read_whole(self, read_page: ReadPage, part: _Answer) -> _Answer | None:
        """Return the next page as the others are read; None where only the part of it can be read that is known."""
        try:
            return await read_page(self._cursor, self._limit(self.level))
        except PageUnreadable:
            return None
        except (CursorExpired, SourceUnavailable):
            self._count_found(part[1])
            raise

    def _limit(self, level: int) -> int:
        return min(LIMITS[level], self._most)

    def _seems_cut(self, page: Page) -> bool:
        """Return whether a last page is as full as pages get, so that the list may go on behind it.

        An API may give fewer records than it is asked for; how many that are, other pages have shown. Pages of a few
        records are full too often.
        """
        if page.next_cursor is not None:
            if len(page.records) >= RECORDS_LEAST:
                self.page_most = max(self.page_most, len(page.records))
            return False
        full = min(self._limit(self._level), self.page_most or LIMITS[0])
        return len(page.records) >= max(full, RECORDS_LEAST) and not self.is_uneven

    async def _check_end(self, read_page: ReadPage, page: Page, committed: Committed | None) -> Page:
        """Ask once more for a last page that is full, and return what the list says now.

        It may end there by chance, or an answer was cut. An only page is asked for with one record less: an honest list
        must go on then. Other pages are asked for as they were, since another limit may skip records.
        """
        full = len(page.records)
        is_only = self._cursor is None
        limit = full - 1 if is_only else self._limit(self._level)
        again, found = await read_page(self._cursor, limit)
        self._uncount(page, committed)
        self._count(again, found)
        if is_only and again.next_cursor is not None:
            self._most = limit  # for all of its pages
        if is_only and again.next_cursor is None and len(again.records) == limit:
            self.problem = f"the API ends the list at {full} records when asked for as many, and at {limit} likewise"
        return again

    def _uncount(self, page: Page, committed: Committed | None) -> None:
        """Take back the last page, of which what was found stays: its records may come once more."""
        self._awaited |= self._shown
        self.pages -= 1
        self.records -= len(page.records)
        self._ticks.subtract(self._dates)
        if committed is not None:
            tally, page_diff = self.tally, committed.page_diff
            self.tally = replace(
                tally,
                drifted=tally.drifted - page_diff.drifted,
                bad=tally.bad - len(page_diff.bad),
                keyless=tally.keyless - _count_keyless(page_diff.bad),
            )

    def _count(self, page: Page, committed: Committed | None) -> None:
        if self.asked_at is None:
            self.asked_at = page.asked_at
        self.answered_at = page.answered_at
        self.age = max(self.age, page.age)
        self.offset = page.received_at - page.answered_at
        self.pages += 1
        self.records += len(page.records)
        if committed is None:
            return
        page_diff = committed.page_diff
        unsound = {each.raw for each in page_diff.bad}
        self.last_record = next((each for each in reversed(page.records) if each not in unsound), self.last_record)
        self._count_found(committed)
        bad = {each.raw for each in page_diff.bad}
        self.last_record = next((raw for raw in reversed(page.records) if raw not in bad), self.last_record)
        self._count_bad(page_diff.bad)
        self.has_anchor = self.has_anchor or self.anchor in page_diff.dates
        answered = to_micros(page.answered_at)
        dates = [at for at in page_diff.dates.values() if at is not None]
        ahead = [at for at in dates if answered < at <= answered + _PLANNED_MICROS]
        self.ahead += len(ahead)
        if ahead:
            latest = from_micros(max(ahead))
            self.latest_ahead = latest if self.latest_ahead is None else max(latest, self.latest_ahead)
        self._dates = dates if self.kind is not RunKind.PASS else []
        self._ticks.update(self._dates)
        newest = max((at for at in dates if at <= answered), default=None)
        if newest is not None:
            self.lag = min(page.answered_at - from_micros(newest), timedelta.max if self.lag is None else self.lag)
            if self.newest is None or newest > to_micros(self.newest):
                self.newest = from_micros(newest)
                self.newest_key = next(key for key, at in page_diff.dates.items() if at == newest)
        self.collisions += page_diff.doubled
        repeated = set(self.rows.add(page_diff.seen)) - self._awaited
        self._awaited.difference_update(page_diff.seen)
        if repeated:
            self.collisions += sum(write.is_unexplained and write.row in repeated for write in page_diff.writes)
        self.rows.grow(committed.inserted.stop - 1)
        self.rows.add(committed.inserted)
        self._shown = {*page_diff.seen, *committed.inserted}
        tally = self.tally
        self.tally = replace(
            tally,
            drifted=tally.drifted + page_diff.drifted,
            bad=tally.bad + len(page_diff.bad),
            skipped=tally.skipped + page_diff.skipped,
            keyless=tally.keyless + _count_keyless(page_diff.bad),
            repeated=tally.repeated + len(repeated),
        )

    def _count_found(self, committed: Committed | None) -> None:
        """Count what a page has come to in the store; its records are counted where it is one of the run's pages."""
        if committed is None:
            return
        page_diff, tally = committed.page_diff, self.tally
        self.events += committed.events
        self.lateness += page_diff.lateness
        self.on_time += page_diff.on_time
        self.oldest_unseen = _first(self.oldest_unseen, page_diff.oldest_unseen)
        kinds = Counter(change.kind for change in page_diff.changes)
        self.tally = replace(
            tally,
            created=tally.created + kinds[ChangeKind.CREATED],
            updated=tally.updated + kinds[ChangeKind.UPDATED],
            restored=tally.restored + kinds[ChangeKind.RESTORED],
            missed=tally.missed + page_diff.missed,
            silent=tally.silent + page_diff.silent,
            held=tally.held + len(page_diff.holds),
        )

    def _count_bad(self, bad: Sequence[Bad]) -> None:
        if self.kind is RunKind.PASS:
            self.bad += [each.problem for each in bad]
        else:
            self.bad += [each.problem for each in bad if each.key and not each.known]
            self._keyless |= {each.digest: each.problem for each in bad if not each.key}

    def _find_bad(self) -> str:
        """Return what is wrong with a record that keeps the run from being complete; empty where none does.

        A pass is complete all the same: whether such a record may be one that it did not show is judged at its end. One
        that could read no record at all is not: then it is the key that does not fit.
        """
        if self.kind is RunKind.PASS:
            return self.bad[0] if self.bad and self.tally.bad >= self.records else ""
        keyless = list(self._keyless.values()) if len(self._keyless) > self.forgiven else []
        return next(iter([*self.bad, *keyless]), "")

    def _find_anomaly(self, page: Page, cursor: str) -> str:
        mark = blake2b(cursor.encode(), digest_size=16).digest()
        if mark in self._cursors:
            return "the API gave a cursor a second time"
        self._cursors.add(mark)
        if self.tally.repeated > _REPEATS_MOST + self.records // 2:
            return f"the API gives more pages than plausible: {self.tally.repeated} records a second time"
        if page.records:
            self._empty = 0
            # By its ends: no two pages of a list that moves on begin and end with the same records.
            digest = blake2b(page.records[0] + page.records[-1], digest_size=16).digest()
            if digest not in self._pages:
                self._again = 0
                self._pages.add(digest)
                return ""
            self._again += 1
            # One record may well stand on the next page again, but not on all that follow.
            return "the API gave the same page twice" if len(page.records) > 1 or self._again > _AGAIN_MOST else ""
        self._empty += 1
        return "the API gives empty pages without end" if self._empty > _EMPTY_PAGES_MOST else ""

    # A run that goes on after a crash ---------------------------------------------------------------------------------

    def _checkpoint(self, now: datetime) -> Checkpoint:
        assert self._cursor is not None
        assert self.asked_at is not None
        kept = _Kept(
            began_at=None if self.began_at is None else to_micros(self.began_at),
            asked_at=to_micros(self.asked_at),
            pages=self.pages,
            records=self.records,
            events=self.events,
            collisions=self.collisions,
            tally={name: getattr(self.tally, name) for name in Tally.__slots__},
            newest=None if self.newest is None else to_micros(self.newest),
            lag=None if self.lag is None else self.lag.total_seconds(),
            age=self.age.total_seconds(),
            bad=self.bad[:1],
            level=self.level,
            most=self._most,
            answered_at=None if self.silences.answered_at is None else to_micros(self.silences.answered_at),
            silences=list(self.silences.keep()),
        )
        return Checkpoint(self._cursor, msgspec.json.encode(kept), self.rows, self.rows, now)

    @classmethod
    def resume(cls, checkpoint: Checkpoint) -> Walk:
        """Return an interrupted pass where its last checkpoint left it.

        Raises:
            ValueError: The checkpoint is another version's.
        """
        kept = msgspec.json.decode(checkpoint.walk, type=_Kept)
        if not kept.tally.keys() <= set(Tally.__slots__) or not 0 <= kept.level < len(LIMITS):
            raise ValueError("checkpoint: counts what this dockbell does not know")
        answered_at = checkpoint.saved_at if kept.answered_at is None else from_micros(kept.answered_at)
        return cls(
            RunKind.PASS,
            checkpoint.rows,
            began_at=None if kept.began_at is None else from_micros(kept.began_at),
            asked_at=from_micros(kept.asked_at),
            pages=kept.pages,
            records=kept.records,
            events=kept.events,
            collisions=kept.collisions,
            tally=Tally(**kept.tally),
            newest=None if kept.newest is None else from_micros(kept.newest),
            lag=None if kept.lag is None else timedelta(seconds=kept.lag),
            age=timedelta(seconds=kept.age),
            bad=kept.bad,
            level=kept.level,
            silences=Silences(kept.silences, answered_at=answered_at),
            _most=kept.most,
            _cursor=checkpoint.cursor,
        )


class _Kept(msgspec.Struct):
    """What of a pass outlives a crash."""

    began_at: int | None
    asked_at: int
    pages: int
    records: int
    events: int
    collisions: int
    tally: dict[str, int]
    newest: int | None
    bad: list[str]
    level: int
    lag: float | None = None  # in seconds
    age: float = 0  # in seconds
    most: int = LIMITS[0]
    answered_at: int | None = None
    silences: list[Silence] = []


def _count_keyless(bad: Sequence[Bad]) -> int:
    return sum(not each.key for each in bad)


def _first(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
