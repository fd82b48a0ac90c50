"""Asks for a feed's pages with the records of another feed embedded, and takes out of them what only that has added.

What ``expand`` adds is learned by pages that are read with and without it: those without it are what is compared and
stored until that is known. Each request with ``expand`` is tried once, in the feed's turn, and not for long; where its
page does not come as it should, the run goes on without, or begins again where it has come to a later page.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from enum import Enum, auto
from typing import Final, NamedTuple

import anyio

from dockbell.core.model import Page
from dockbell.core.reading.embedding import Pair, find_added, find_member, find_names, read_embedded, take_out
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.page_fetcher import Ask
from dockbell.errors import CursorExpired, RequestRefused, SourceError

_ALIKE_LEAST: Final = 20
"""So many records must be seen with and without ``expand`` before what it adds is taken out unseen."""
_ALIKE_FOR: Final = timedelta(hours=1)
"""Then they are looked at again: the service may be deployed meanwhile."""
_ODD_MOST: Final = 2
_PATIENCE: Final = timedelta(seconds=10)
_REST: Final = timedelta(minutes=10)
"""After a request with ``expand`` was not answered, it is asked without it for so long."""
_FAILURES_MOST: Final = 3


class Embedding(NamedTuple):
    """A page, and the records that it embeds."""

    page: Page  # as it is without them, unless the operator wants them
    embedded: Page | None = None  # the same with these in place of its own; None where there are none
    problem: str = ""  # why there can be none


class _Way(Enum):
    """How the pages of a run are asked for."""

    PLAIN = auto()
    CONFIGURED = auto()  # the operator has the records embedded
    LEARNING = auto()  # without and with ``expand``
    EXPANDED = auto()  # with it, and what it adds is taken out


class Expansion:
    """One feed's pages with the records of another one embedded.

    Attributes:
        member: Where they stand in a record; empty while that is not known.
    """

    def __init__(self, pair: Pair, carrier: TrackedFeed, target: TrackedFeed) -> None:
        self.member = ""
        self._pair = pair
        self._carrier = carrier
        self._target = target
        self._way = _Way.PLAIN
        self._rests_until = timedelta(0)
        self._failures = 0  # in a row
        self._problem = ""  # of a run that has begun again since
        self._known_until: timedelta | None = None  # what ``expand`` adds is known until then; None: it is not
        self._alike = self._bare = self._odd = 0  # records that were seen with and without it
        self._names: set[str] = set()  # of the members that were seen without it

    @property
    def _now(self) -> timedelta:
        return self._carrier.clocks.steady()

    @property
    def _plain(self) -> tuple[str, ...]:
        """What the operator has embedded."""
        return self._carrier.settings.expand

    @property
    def _asked(self) -> str:
        return f"{self._pair.carrier}?expand={self._pair.relation}"

    @property
    def is_asking(self) -> bool:
        """Whether the pages of the run at hand may show embedded records."""
        return self._way is not _Way.PLAIN

    def begin(self, *, is_wanted: bool) -> None:
        """Decide at the first page of a run how all its pages are asked for."""
        if not is_wanted:
            self._way = _Way.PLAIN
        elif self._pair.relation in self._plain:
            self._way = _Way.CONFIGURED
        elif self._now < self._rests_until:
            self._way = _Way.PLAIN
        else:
            is_known = self._known_until is not None and self._now < self._known_until
            self._way = _Way.EXPANDED if is_known else _Way.LEARNING

    async def read(self, ask: Ask, cursor: str | None) -> Embedding:
        """Return a page and what it embeds.

        Raises:
            SourceError: As ``ask``.
        """
        if self._way is _Way.EXPANDED:
            return await self._read_expanded(ask, cursor)
        page = await ask(self._plain)
        if self._way is _Way.CONFIGURED:
            return Embedding(page, _embed(page, self._find_embedded(page)))
        if self._way is _Way.PLAIN:
            problem, self._problem = self._problem, ""
            return Embedding(page, problem=problem)
        is_whole = cursor is None and page.next_cursor is None
        if not (is_whole and page.records):
            return Embedding(page)
        expanded, problem = await self._try(ask)
        return Embedding(page, problem=problem or ("" if expanded is None else self._learn_added(page, expanded)))

    async def _try(self, ask: Ask) -> tuple[Page | None, str]:
        """Return a page with the records embedded; None, and why there can be none, where it does not come."""
        page, refusal = None, ""
        try:
            with anyio.move_on_after(_PATIENCE.total_seconds()):
                page = await ask((*self._plain, self._pair.relation), patient=False)
        except RequestRefused as error:
            refusal = f"{self._asked} is refused: {error}"
        except SourceError:
            pass
        if page is not None and not page.unsound:
            if page.next_cursor is None:
                self._failures = 0
            return page, ""
        self._failures += 1
        self._rests_until = self._now + _REST
        return None, refusal or (f"{self._asked} is not answered" if self._failures >= _FAILURES_MOST else "")

    async def _read_expanded(self, ask: Ask, cursor: str | None) -> Embedding:
        """Return the page without what was added; the page that is shown without ``expand`` where it does not come.

        The cursors of a run that began with ``expand`` may hold that, so none of its pages can be asked for without.

        Raises:
            CursorExpired: A later page does not come, so that the run must begin again.
        """
        page, problem = await self._try(ask)
        is_known = page is not None and find_names(page.records) - {self.member} <= self._names
        if page is not None and is_known:
            taken = [self._take_out(raw) for raw in page.records]
            plain = replace(page, records=tuple(record for record, _ in taken))
            return Embedding(plain, _embed(page, [value for _, value in taken]))
        if page is not None:  # it shows a member that was not there: is it shown without ``expand`` too?
            self._known_until = None
        if cursor is not None:
            self._problem = problem
            raise CursorExpired(f"{self._asked}: a page does not come as it should, and is read without from the first")
        self._way = _Way.PLAIN
        plain = await ask(self._plain)
        if page is not None:
            problem = self._learn_added(plain, page)
        return Embedding(plain, problem=problem)

    def _take_out(self, raw: bytes) -> tuple[bytes, bytes | None]:
        try:
            return take_out(raw, self.member)
        except ValueError:  # no object; it stays what it is
            return raw, None

    def _find_embedded(self, page: Page) -> list[bytes | None]:
        """Return the embedded records of a page whose carriers show them always, because the operator wants them."""
        if not self.member:
            detector, relation = self._target.detector, self._pair.relation
            members = (find_member(raw, relation, detector.identify) for raw in page.records)
            self.member = next(filter(None, members), "")
        found: list[bytes | None] = []
        for raw in page.records if self.member else ():
            with suppress(ValueError):
                found.append(take_out(raw, self.member)[1])
        return found

    def _learn_added(self, page: Page, expanded: Page) -> str:
        """Learn by a page that was read with and without ``expand`` what that adds; return what speaks against it.

        Anything but one member, always the same, is odd.
        """
        detector = self._carrier.detector

        def name(raw: bytes) -> str:
            return f"{detector.identify(raw).text} {detector.find_date(raw)}"

        try:
            member, alike, bare, odd = find_added(page.records, expanded.records, detector.fingerprint, name)
        except ValueError:  # one cannot be read; others will be
            return ""
        self._names |= find_names(page.records)
        self._odd += odd + (alike if self.member not in ("", member) else 0)
        if self._odd > _ODD_MOST:
            return f"{self._asked} does not just add one member"
        self._bare += bare
        if not (alike or self._alike) and self._bare >= _ALIKE_LEAST:
            return f"{self._asked} adds nothing"
        if alike:
            self.member, self._alike = member, self._alike + alike
        if self._alike >= _ALIKE_LEAST:
            self._alike = self._bare = self._odd = 0
            self._known_until = self._now + _ALIKE_FOR
        return ""


def _embed(page: Page, values: Sequence[bytes | None]) -> Page | None:
    records = tuple(raw for value in values for raw in read_embedded(value))
    return replace(page, records=records, next_cursor=None, unsound={}) if records else None
