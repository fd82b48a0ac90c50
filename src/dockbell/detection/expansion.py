"""Asks for a feed's pages with the records of another feed embedded, and takes out of them what only that has added.

What ``expand`` adds is learned by pages that are read with and without it: those without it are what is compared and
stored until that is known. Wherever a page does not come as it should, it is asked for without ``expand``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from dockbell.core.model import Page
from dockbell.core.reading.embedding import Pair, find_added, find_member, read_embedded, take_out
from dockbell.detection.feed import TrackedFeed
from dockbell.errors import (
    CursorExpired,
    RateLimited,
    RequestRefused,
    SchemaMismatch,
    SourceRefused,
    SourceUnavailable,
)

Ask: TypeAlias = Callable[[tuple[str, ...]], Awaitable[Page]]
"""Asks for one page with these relations embedded."""

_ALIKE_LEAST: Final = 20
"""So many records must be seen with and without ``expand`` before what it adds is taken out unseen."""
_ALIKE_FOR: Final = timedelta(hours=1)
"""Then they are looked at again: the service may be deployed meanwhile."""
_ODD_MOST: Final = 2
_REST: Final = timedelta(minutes=10)
"""After a request with ``expand`` was not answered, it is asked without it for so long."""


class Embedding(NamedTuple):
    """A page, and the records that it embeds."""

    page: Page  # as it is without them, unless the operator wants them
    embedded: Page | None = None  # the same with these in place of its own; None where there are none
    problem: str = ""  # why there can be none


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
        self._is_asking = False  # for the pages of the run at hand
        self._rests_until = timedelta(0)
        self._known_until: timedelta | None = None  # what ``expand`` adds is known until then; None: it is not
        self._alike = self._odd = 0

    @property
    def _now(self) -> timedelta:
        return self._carrier.clocks.steady()

    @property
    def _asked(self) -> str:
        return f"{self._pair.carrier}?expand={self._pair.relation}"

    def begin(self, *, is_wanted: bool) -> bool:
        """Decide at the first page of a run whether its pages are asked for with ``expand``."""
        self._is_asking = is_wanted and self._now >= self._rests_until
        return self._is_asking

    @property
    def is_asking(self) -> bool:
        return self._is_asking

    async def read(self, ask: Ask) -> Embedding:
        """Return a page and what it embeds.

        Raises:
            SourceError: As ``ask``.
        """
        plain = self._carrier.settings.expand
        if self._pair.relation in plain:
            page = await ask(plain)
            return Embedding(page, _embed(page, self._find_embedded(page)))
        if self._known_until is not None and self._now < self._known_until:
            return await self._read_expanded(ask)
        page = await ask(plain)
        if not page.records or page.next_cursor is not None:
            return Embedding(page)
        expanded, problem = await self._ask_expanded(ask)
        return Embedding(page, problem=problem or ("" if expanded is None else self._learn_added(page, expanded)))

    async def _ask_expanded(self, ask: Ask) -> tuple[Page | None, str]:
        """Return the page with the records embedded; None, and why it is refused, where it does not come so."""
        try:
            page = await ask((*self._carrier.settings.expand, self._pair.relation))
        except RequestRefused as error:
            return None, f"{self._asked} is refused: {error}"
        except (RateLimited, SourceRefused):
            raise
        except CursorExpired:
            self._rest()
            raise
        except (SourceUnavailable, SchemaMismatch):
            self._rest()
            return None, ""
        if page.unsound:
            self._rest()
            return None, ""
        return page, ""

    async def _read_expanded(self, ask: Ask) -> Embedding:
        """Return the page without what was added; the page that is shown without ``expand`` where it does not come."""
        page, problem = await self._ask_expanded(ask)
        if page is None:
            return Embedding(await ask(self._carrier.settings.expand), problem=problem)
        taken = [take_out(raw, self.member) for raw in page.records]
        plain = replace(page, records=tuple(record for record, _ in taken))
        return Embedding(plain, _embed(page, [value for _, value in taken]))

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
            member, alike, odd = find_added(page.records, expanded.records, detector.fingerprint, name)
        except ValueError:  # one cannot be read; others will be
            return ""
        self._odd += odd + (alike if self.member not in ("", member) else 0)
        if self._odd > _ODD_MOST:
            return f"{self._asked} does not just add one member"
        if alike:
            self.member, self._alike = member, self._alike + alike
        if self._alike >= _ALIKE_LEAST:
            self._alike = self._odd = 0
            self._known_until = self._now + _ALIKE_FOR
        return ""

    def _rest(self) -> None:
        self._is_asking, self._rests_until = False, self._now + _REST


def _embed(page: Page, values: Sequence[bytes | None]) -> Page | None:
    records = tuple(raw for value in values for raw in read_embedded(value))
    return replace(page, records=records, next_cursor=None, unsound={}) if records else None
