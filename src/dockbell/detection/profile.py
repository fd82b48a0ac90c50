"""What was learned of one feed: how its listing behaves, where its service's clock stands, how late changes show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dockbell.config import ResourceSettings
from dockbell.core.model import ClockSource, Feed, Page, RunKind
from dockbell.core.moment import to_micros
from dockbell.core.reading.lateness import MOST_LOOKBACK, Lateness
from dockbell.core.reading.listing_profile import Beside, ListingProfile
from dockbell.core.reading.page_sample import Head, Sampler, Sighting
from dockbell.core.reading.request import PageLimit
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import choose_lookback, is_narrow
from dockbell.detection.run import Run
from dockbell.detection.schedule import Clocks
from dockbell.ports import FeedState, FeedStore
from dockbell.telemetry import ListingChanged, LookbackNarrow, Telemetry


class FeedProfile:
    """What was learned of one feed.

    Attributes:
        listing: How its listing behaves.
        asked_at: The service's time of the last request; None before it.
        failed_searches: How often no answer came to the search for the records' clock.
    """

    def __init__(
        self, feed: Feed, settings: ResourceSettings, *, store: FeedStore, telemetry: Telemetry, clocks: Clocks
    ) -> None:
        self.listing = ListingProfile()
        self.asked_at: datetime | None = None
        self.failed_searches = 0
        self._feed = feed
        self._settings = settings
        self._store = store
        self._telemetry = telemetry
        self._clocks = clocks
        self._is_loaded = False
        self._clock: ClockSource | None = None
        self._ahead: timedelta | None = None  # how far the service's clock is ahead of ours
        self._sampler: Sampler | None = None
        self._heads: dict[RunKind, Head] = {}
        self._limits: dict[RunKind, PageLimit] = {}
        self._lateness = Lateness()
        self._is_narrow = False

    def load(self, state: FeedState) -> None:
        """Begin with what is stored, the first time; what this process has learned since is newer."""
        if not self._is_loaded:
            self._is_loaded, self._lateness = True, state.lateness
            self.listing = ListingProfile.from_json(state.listing_profile)

    def forget_listing(self) -> None:
        """Begin anew: the feed is read differently now."""
        self.listing = ListingProfile()

    def use_shape(self, shape: Shape) -> None:
        settings = self._settings
        self._sampler = Sampler(
            key=settings.key or shape.key,
            updated_at=settings.updated_at or shape.updated_at,
            created_at=shape.created_at,
        )

    # Clocks -----------------------------------------------------------------------------------------------------------

    def take_clock(self, page: Page) -> None:
        self._clock, self.asked_at = page.clock, page.asked_at
        self._ahead = page.answered_at - page.received_at

    @property
    def service_now(self) -> datetime:
        """The service's time now, as far as its last answer told it."""
        offset = self.listing.offset
        stored = timedelta(0) if offset is None else timedelta(seconds=offset.seconds)
        return self._clocks.now() + (stored if self._ahead is None else self._ahead)

    @property
    def lookback(self) -> timedelta:
        """How far before the watermark polls start now."""
        return choose_lookback(self._settings.lookback, self._clock, self._lateness.lookback(self._clocks.now()))

    def learn_lateness(self, run: Run) -> Lateness | None:
        """Take in how late the changes of a run were; return what is to be stored, None where nothing is."""
        now, known, lookback, found = self._clocks.now(), self._lateness, self.lookback, run.summary
        lateness = known.observe(found.lateness, found.on_time, now)
        if found.tally.missed and any(lookback < late <= MOST_LOOKBACK for late in found.lateness):
            lateness = lateness.miss(lookback, now)
        self._lateness = lateness
        self._warn_of_narrow_lookback(lateness.quantile(now))
        return None if lateness == known else lateness

    def _warn_of_narrow_lookback(self, late: timedelta) -> None:
        setting, was_narrow = self._settings.lookback, self._is_narrow
        self._is_narrow = setting != "auto" and is_narrow(setting, late)
        if setting != "auto" and self._is_narrow and not was_narrow:
            self._telemetry.emit(LookbackNarrow(self._feed, setting, late))

    # The listing ------------------------------------------------------------------------------------------------------

    def begin_level(self, kind: RunKind) -> int:
        """Return the limit that a run begins with, as an index of ``LIMITS``."""
        return self._limits.get(kind, PageLimit()).begins_at

    async def end_run(self, run: Run) -> None:
        """Take in how a run ended, with which limit, and whether its pages shifted."""
        kind, found, complete = run.kind, run.summary, not run.problem
        self._limits[kind] = self._limits.get(kind, PageLimit()).end_run(run.needed, complete=complete)
        await self.adopt(*self.listing.end_run(pages=found.pages, repeated=found.tally.repeated, complete=complete))

    async def observe(self, kind: RunKind, page: Page, dates: dict[str, int | None], *, is_first: bool) -> None:
        """Take in how a page of a run behaves; ``dates`` are those of its records, by key."""
        assert self._sampler is not None
        before = None if is_first else self._heads.get(kind)
        sighting = Sighting(self._sampler, list(dates), list(dates.values()), kind is not RunKind.PASS, before)
        self._heads[kind] = sighting.head
        await self.adopt(*self.listing.observe(page, sighting))

    async def adopt(self, listing: ListingProfile, drifts: Sequence[str]) -> None:
        """Store what was learned of the listing, and report where it no longer behaves as it did."""
        if listing is not self.listing:
            self.listing = listing
            await self._store.save_listing_profile(listing.to_json())
        for words in drifts:
            self._telemetry.emit(ListingChanged(self._feed, words))

    async def learn_beside_cursor(self, beside: Beside) -> None:
        await self.adopt(*self.listing.turn_beside_cursor(beside))

    def shows_before(self, page: Page, since: datetime) -> bool:
        sampler = self._sampler
        return sampler is not None and any(updated < to_micros(since) for updated in sampler.updated(page.records))
