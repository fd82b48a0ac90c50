"""Fetches the detail of each changed record of a feed, and publishes the change with it.

The queue is in the store, written with the page that showed the change: whatever crashes, each change gets its event,
without the detail where that does not come in time. Pages of the list are read while a detail is asked for: where one
shows another change of the record, the detail may belong to either, and is asked for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.comparing.page_diff import Pending
from dockbell.core.document import decode
from dockbell.core.model import Change
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.on_demand import OnDemand
from dockbell.errors import SourceError
from dockbell.ports import Awaited
from dockbell.telemetry import ChangesStored

_OVERDUE_AT_ONCE: Final = 200
_FAILURES_MOST: Final = 5
"""After so many failures in a row no detail is asked for during a pause."""
_PAUSE_SECONDS: Final = 5


class DetailFetcher:
    """Completes the changes of one feed.

    Attributes:
        task: Works while changes wait.
    """

    def __init__(self, feed: TrackedFeed) -> None:
        self._feed = feed
        self.task = OnDemand(self._complete_all)
        self.task.ask()  # for what an earlier process has left
        feed.ask_for_details = self.task.ask

    async def _complete_all(self) -> None:
        """Complete what waits, until nothing does."""
        while True:
            await self._feed.health.recovered()  # else details would be asked for in vain
            try:
                waits = await self.run_once()
            except Exception as error:  # noqa: BLE001  # whatever it is, the queue is kept, and is tried again
                self._feed.telemetry.emit_failure(f"{self._feed.feed} detail", error)
                waits = True
            if not waits:
                return
            await anyio.sleep(_PAUSE_SECONDS)

    async def run_once(self) -> bool:
        """Complete what waits; return whether something still does, because its detail did not come."""
        feed = self._feed
        state = await feed.state()
        if state.shape is None:
            return False  # the feed is read differently from now on, and has not met a record yet
        failed: set[int] = set()  # each is asked for once a round: what fails must not eat up the budget
        failures = 0
        while (oldest := await self._complete_overdue()) is not None:
            awaited = await self._find_next(failed)
            if awaited is None or failures == _FAILURES_MOST:
                return True
            detail = await self._ask_for(awaited.pending.raw, within=feed.settings.detail_timeout - oldest)
            if detail is None:
                failures += 1
                failed.add(awaited.row)
                await feed.store.postpone(awaited.row)
                continue
            failures = 0
            completed: list[Change] = []
            detector, listed = self._complete_with(detail, completed), awaited.pending.raw
            await feed.store.complete(awaited.row, detector, feed.compose, listed=listed)
            self._report(completed, feed.clocks.age(awaited.queued_at))
        return False

    async def _find_next(self, failed: Collection[int]) -> Awaited | None:
        """Return the next change to complete, apart from those whose details did not come; None when there is none."""
        awaited = await self._feed.store.load_awaited(1 + len(failed))
        return next((each for each in awaited if each.row not in failed), None)

    async def _complete_overdue(self) -> timedelta | None:
        """Publish what has waited too long as it is; return how long the oldest waits that is left, if any is."""
        feed, most = self._feed, self._feed.settings.detail_timeout
        while True:
            ages = {at: feed.clocks.age(at) for at in await feed.store.load_waits()}
            overdue = sorted(at for at, age in ages.items() if age >= most)
            if not overdue:
                return max(ages.values(), default=None)
            completed: list[Change] = []
            await feed.store.complete_overdue(
                overdue, self._complete_with(None, completed), feed.compose, _OVERDUE_AT_ONCE
            )
            self._report(completed, most)

    async def _ask_for(self, listed: bytes, within: timedelta) -> bytes | None:
        """Return the detail of a record that the list shows like this; None where it has not come within a time.

        A replica that lags may not have a new record yet, so "not found" is no answer. Neither is an object that cannot
        be compared, or that is not the record.
        """
        feed = self._feed
        key, detector = feed.detector.identify(listed), feed.detector
        with anyio.move_on_after(within.total_seconds()), suppress(SourceError, ValueError):
            answer = await feed.fetcher.fetch_detail(str(key.id))
            detail = None if answer is None else detector.find_own(answer, key)
            if detail is not None:
                decode(detail)
            return detail
        return None

    def _complete_with(
        self, detail: bytes | None, completed: list[Change]
    ) -> Callable[[Pending, bytes | None, int], Change | None]:
        detector, now = self._feed.detector, self._feed.clocks.now()

        def complete(pending: Pending, before: bytes | None, revision: int) -> Change | None:
            change = detector.complete(pending, before, detail, revision, now=now)
            if change is not None:
                completed.append(change)
            return change

        return complete

    def _report(self, completed: Sequence[Change], took: timedelta) -> None:
        """Report changes that are stored now, so long after the list showed them."""
        if not completed:
            return
        shown_at = self._feed.clocks.now() - took
        ages = [shown_at - each.visible_at for each in completed if each.visible_at is not None]
        self._feed.telemetry.emit(
            ChangesStored(
                self._feed.feed,
                Counter(each.kind for each in completed),
                tuple(max(age, timedelta(0)) for age in ages),
                took,
            )
        )
