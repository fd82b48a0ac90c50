"""What the pages of one run showed, counted page by page, and what the runs of a feed know of each other's pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dockbell.core.comparing.page_diff import Bad, PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import ChangeKind, Page, RunKind
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.window import HEAVY_TICK_RECORDS, Proof
from dockbell.ports import Committed, Tally

_PLANNED_MICROS: Final = 86_400_000_000
"""A record dated further ahead than a day is planned; its date says nothing of a clock."""
_UNSTEADY_SHARE: Final = 0.01
_COLLISIONS_MOST: Final = 3
_COLLISIONS_SHARE: Final = 0.25


@dataclass
class RunSummary:
    """What a run found so far."""

    kind: RunKind  # poll, trailing poll or pass
    rows: SeenRows  # the rows that the run itself showed
    began_at: datetime | None = None  # our time when it began; None where that is not known
    asked_at: datetime | None = None  # the service's time of its first request; None before it
    answered_at: datetime | None = None  # the service's time of its last answer
    offset: timedelta = timedelta(0)  # how far our clock was ahead of the service's at its last answer
    pages: int = 0
    records: int = 0
    events: int = 0
    collisions: int = 0  # records that it showed a second time with other content, which no later date explains
    tally: Tally = field(default_factory=Tally)
    lateness: list[timedelta] = field(default_factory=list)
    on_time: int = 0
    oldest_unseen: datetime | None = None
    """The oldest date of a record or version that was not stored before; None while there is none."""
    newest: datetime | None = None  # the newest date that is not ahead of the service's clock; None while there is none
    newest_key: str = ""  # the key of a record with that date
    lag: timedelta | None = None
    """The least by which the newest date of a page was behind the answer; None where no record was dated."""
    last_record: bytes | None = None  # the last record that can be read
    age: timedelta = timedelta(0)  # for how long a cache has kept one of its pages, the oldest of them
    keyless_allowed: int = 0
    """A poll that meets no more records without a key proves something all the same: as many were in quarantine before,
    and their text may be another each time."""
    bad: list[str] = field(default_factory=list)  # what is wrong with the records that keep it from being complete
    anchor: str = ""  # the key of a record that a poll must show, because its window covers the date that it had
    has_anchor: bool = False  # it showed it
    ahead: int = 0  # how many records were dated ahead of the service's clock, by a day at the most
    latest_ahead: datetime | None = None  # the newest date of these; None while there is none
    _ticks: Counter[int] = field(default_factory=Counter, init=False)
    _keyless: dict[bytes, str] = field(default_factory=dict, init=False)
    _page_rows: set[int] = field(default_factory=set, init=False)  # of the last page
    _page_dates: list[int] = field(default_factory=list, init=False)  # of the last page of a poll
    _repeatable: set[int] = field(default_factory=set, init=False)  # rows whose second coming means nothing

    @property
    def sent_at(self) -> datetime | None:
        """Our time of its first request, as our clock stands against the service's now; None before it."""
        return None if self.asked_at is None else self.asked_at + self.offset

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
        """Whether more than 1 % of the records came twice: the order is unstable, so others may be missing."""
        return self.tally.repeated > self.records * _UNSTEADY_SHARE

    def prove(self, *, complete: bool) -> Proof | None:
        """Return what the run says about the watermark; None before its first answer."""
        if self.asked_at is None:
            return None
        heavy = max((from_micros(at) for at, count in self._ticks.items() if count > HEAVY_TICK_RECORDS), default=None)
        return Proof(self.asked_at, self.pages, complete, self.oldest_unseen, self.newest, heavy, self.answered_at)

    def restart(self, last_row: int) -> None:
        """Forget the list, which is read again from its first page; what is committed counts."""
        self.rows = SeenRows(last_row)
        self.asked_at = None
        self.pages = self.records = self.collisions = self.ahead = 0
        self.bad.clear()
        self._keyless.clear()
        self._ticks.clear()
        self._repeatable.clear()
        self.tally = replace(self.tally, repeated=0)

    def count(self, page: Page, committed: Committed | None) -> None:
        """Count one of the run's pages, and what it came to in the store; None where that is nothing."""
        if self.asked_at is None:
            self.asked_at = page.asked_at
        self.answered_at = page.answered_at
        self.age = max(self.age, page.age)
        self.offset = page.received_at - page.answered_at
        self.pages += 1
        self.records += len(page.records)
        if committed is None:
            return
        self.count_stored(committed)
        bad = {each.raw for each in committed.page_diff.bad}
        self.last_record = next((raw for raw in reversed(page.records) if raw not in bad), self.last_record)
        self._count_bad(committed.page_diff.bad)
        self._count_dates(page, committed.page_diff)
        repeated = self._count_rows(committed)
        page_diff, tally = committed.page_diff, self.tally
        self.tally = replace(
            tally,
            drifted=tally.drifted + page_diff.drifted,
            bad=tally.bad + len(page_diff.bad),
            skipped=tally.skipped + page_diff.skipped,
            keyless=tally.keyless + _count_keyless(page_diff.bad),
            repeated=tally.repeated + repeated,
        )

    def count_stored(self, committed: Committed | None) -> None:
        """Count what a page has come to in the store, whether or not it is one of the run's pages."""
        if committed is None:
            return
        page_diff, tally = committed.page_diff, self.tally
        self.events += committed.events
        self.lateness += page_diff.lateness
        self.on_time += page_diff.on_time
        unseen = (self.oldest_unseen, page_diff.oldest_unseen)
        self.oldest_unseen = min((moment for moment in unseen if moment is not None), default=None)
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

    def uncount(self, page: Page, committed: Committed | None) -> None:
        """Take back the last page; what it came to in the store stays, and its records may come once more."""
        self._repeatable |= self._page_rows
        self.pages -= 1
        self.records -= len(page.records)
        self._ticks.subtract(self._page_dates)
        if committed is None:
            return
        page_diff, tally = committed.page_diff, self.tally
        self.tally = replace(
            tally,
            drifted=tally.drifted - page_diff.drifted,
            bad=tally.bad - len(page_diff.bad),
            keyless=tally.keyless - _count_keyless(page_diff.bad),
        )

    def find_bad(self) -> str:
        """Return what is wrong with a record that keeps the run from being complete; empty where none does.

        A pass is complete all the same: at its end it is decided whether a bad record may be an absent one. A pass that
        could read no record at all is not complete: then the key does not fit.
        """
        if self.kind is RunKind.PASS:
            return self.bad[0] if self.bad and self.tally.bad >= self.records else ""
        keyless = list(self._keyless.values()) if len(self._keyless) > self.keyless_allowed else []
        return next(iter([*self.bad, *keyless]), "")

    def _count_bad(self, bad: Sequence[Bad]) -> None:
        if self.kind is RunKind.PASS:
            self.bad += [each.problem for each in bad]
        else:
            self.bad += [each.problem for each in bad if each.key and not each.known]
            self._keyless |= {each.digest: each.problem for each in bad if not each.key}

    def _count_dates(self, page: Page, page_diff: PageDiff) -> None:
        self.has_anchor = self.has_anchor or self.anchor in page_diff.dates
        answered = to_micros(page.answered_at)
        dates = [at for at in page_diff.dates.values() if at is not None]
        self._page_dates = dates if self.kind is not RunKind.PASS else []
        self._ticks.update(self._page_dates)
        newest = max(dates, default=None)
        if newest is not None and newest > answered:
            ahead = [at for at in dates if answered < at <= answered + _PLANNED_MICROS]
            self.ahead += len(ahead)
            if ahead:
                latest = from_micros(max(ahead))
                self.latest_ahead = latest if self.latest_ahead is None else max(latest, self.latest_ahead)
            newest = max((at for at in dates if at <= answered), default=None)
        if newest is None:
            return
        self.lag = min(page.answered_at - from_micros(newest), timedelta.max if self.lag is None else self.lag)
        if self.newest is None or newest > to_micros(self.newest):
            self.newest = from_micros(newest)
            self.newest_key = next(key for key, at in page_diff.dates.items() if at == newest)

    def _count_rows(self, committed: Committed) -> int:
        """Take in the rows of a page; return how many of them the run showed a second time."""
        page_diff = committed.page_diff
        self.collisions += page_diff.doubled
        repeated = set(self.rows.add(page_diff.seen)) - self._repeatable
        self._repeatable.difference_update(page_diff.seen)
        if repeated:
            self.collisions += sum(write.is_unexplained and write.row in repeated for write in page_diff.writes)
        self.rows.grow(committed.inserted.stop - 1)
        self.rows.add(committed.inserted)
        self._page_rows = {*page_diff.seen, *committed.inserted}
        return len(repeated)


def _count_keyless(bad: Sequence[Bad]) -> int:
    return sum(not each.key for each in bad)


class Sightings:
    """What the pages of one feed showed, whichever run read them.

    Attributes:
        oldest_aside: The oldest date that was not stored before and that other runs than polls met, since
            :meth:`take_oldest_aside`; None while there is none.
    """

    def __init__(self) -> None:
        self.oldest_aside: datetime | None = None
        self._watched: list[SeenRows] = []

    @contextmanager
    def watch(self, seen: SeenRows) -> Iterator[None]:
        """Add to ``seen`` every stored row that a page shows meanwhile: a pass does not miss what a poll shows."""
        self._watched.append(seen)
        try:
            yield
        finally:
            self._watched.remove(seen)

    def take_page(self, kind: RunKind, page_diff: PageDiff) -> None:
        for seen in self._watched:
            seen.add(page_diff.seen)
        unseen = page_diff.oldest_unseen
        if kind is not RunKind.POLL and unseen is not None:
            self.meet_aside(unseen)

    def meet_aside(self, unseen: datetime) -> None:
        """Take in a date that was not stored before, and that something else than a poll met."""
        self.oldest_aside = min(self.oldest_aside or unseen, unseen)

    def take_oldest_aside(self) -> datetime | None:
        """Return the oldest date that other runs met since this was called: a poll counts it as if it had met it."""
        oldest, self.oldest_aside = self.oldest_aside, None
        return oldest
