"""Takes this process's share of the sources that several processes have together, and hands over what others lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

import anyio
import msgspec

from dockbell.core.model import NOTICES
from dockbell.errors import LeaseLost, StoreError, StoreUnavailable
from dockbell.ports import Alarm, Claim, SharedSources, Spent
from dockbell.telemetry import SourcesClaimed, SourcesHandedOver, Telemetry

_DECLARE_EVERY: Final = timedelta(seconds=0.5)
_AGAIN: Final = timedelta(seconds=1)


class Worker(Protocol):
    """What works on the sources of this process."""

    def list_accounts(self) -> Mapping[str, str]:
        """Return the first source with the same API key, of each source that is configured."""

    def list_intervals(self) -> Mapping[str, timedelta]:
        """Return the shortest interval of the sources with each API key, by the first of them."""

    def declare_spent(self) -> Mapping[str, Spent]:
        """Return what may be spent of each key until the next call, by the first source with the key."""

    def confirm_spent(self, told: Collection[str]) -> None:
        """Let what was declared of keys be spent: it is stored."""

    def settle_spent(self, sources: Collection[str]) -> Callable[[], Mapping[str, Spent]]:
        """Return what tells, once the work on some sources has ended, what was spent of their keys."""

    async def work_on(self, sources: Collection[str], claims: Mapping[str, Claim]) -> None:
        """Begin to read the sources among these that are new, and end the reading of all others.

        Args:
            sources: All that this process has.
            claims: What was spent of the keys that are new, by the first source with the key.
        """

    async def wait_for_due(self) -> None:
        """Return when all sources that are due are read, or after some seconds."""

    async def end_deliveries(self) -> None:
        """Return when no delivery is in flight of a source that this process does not work on any more."""


class Leaving(msgspec.Struct, frozen=True):
    """Sources that are not read any more, and are freed once their deliveries have ended."""

    sources: frozenset[str]
    settle_spent: Callable[[], Mapping[str, Spent]]


class Sharing:
    """Takes this process's share once a second, and works on it.

    To claim what a dead process had does not wait for what takes long: sources are loaded, and deliveries of what is
    handed over end, beside it. Where more is free than a process claims at once, it claims the rest the next times: so
    that all processes have read what is due before any opens what is not.
    """

    def __init__(self, shared: SharedSources, worker: Worker, telemetry: Telemetry) -> None:
        self._shared = shared
        self._worker = worker
        self._telemetry = telemetry
        self._held: frozenset[str] = frozenset()
        self._claims: dict[str, Claim] = {}
        self._taken_over = self._added = 0
        self._declaring = anyio.Lock()

    async def run(self, alarm: Alarm) -> None:
        """Do it whenever the alarm rings.

        Raises:
            ExceptionGroup: With LeaseLost: this process is no member any more, and what it works on is another's.
        """
        told = ""
        async with anyio.create_task_group() as handing_over:
            while True:
                await alarm.wait()
                try:
                    if (leaving := await self.run_once()) is not None:
                        handing_over.start_soon(self.hand_over, leaving)
                except LeaseLost:
                    raise
                except Exception as error:  # noqa: BLE001  # what this process has goes on
                    if str(error) != told:
                        self._telemetry.emit_failure("sharing", error)
                    told = str(error)
                else:
                    told = ""

    async def run_once(self) -> Leaving | None:
        """Work on the share as it is now; return what others should have of it."""
        worker = self._worker
        share = await self._shared.take_share(worker.list_accounts(), worker.list_intervals())
        self._claims |= share.claims  # until they are used: the work may fail
        self._taken_over += share.taken_over
        if share.held != self._held:
            await worker.work_on(share.held, self._claims)
            added = _count(share.held - self._held)
            self._added += added
            self._held, self._claims = share.held, {}
            if added:
                await self._declare()  # nothing is asked before
                await worker.wait_for_due()
        if self._added and not share.has_more:
            self._telemetry.emit(SourcesClaimed(self._added, _count(share.held), self._taken_over))
            self._added = self._taken_over = 0
        if not share.surplus:
            return None
        leaving = Leaving(share.surplus, worker.settle_spent(share.surplus))
        self._held = share.held - share.surplus
        await worker.work_on(self._held, {})
        await self._shared.prepare(share.surplus)
        return leaving

    async def hand_over(self, leaving: Leaving) -> None:
        """Free sources as soon as their deliveries have ended; where the store cannot be used, try again."""
        await self._worker.end_deliveries()
        while True:
            try:
                await self._shared.hand_over(leaving.sources, leaving.settle_spent())
            except StoreUnavailable:
                await anyio.sleep(_AGAIN.total_seconds())
            else:
                break
        self._telemetry.emit(SourcesHandedOver(len(leaving.sources), _count(self._held)))

    async def declare(self) -> None:
        """Say twice a second what may be spent of each key, until cancelled, also while sources are loaded."""
        while True:
            await self._declare()
            await anyio.sleep(_DECLARE_EVERY.total_seconds())

    async def _declare(self) -> None:
        async with self._declaring:  # else one could confirm what another has declared, and not stored yet
            spent = self._worker.declare_spent()
            with suppress(StoreError):  # the writer meets the same and reports it
                await self._shared.note_spent(spent)
                self._worker.confirm_spent(spent)

    async def leave(self) -> None:
        """Free all sources at the end, so that others take over at once."""
        if not self._held:
            return
        try:
            await self._shared.hand_over(self._held, self._worker.settle_spent(self._held)())
        except StoreError as error:
            self._telemetry.emit_failure("sharing", error)


def _count(sources: Collection[str]) -> int:
    """Return how many sources of the configuration are among some; notices are none."""
    return len(sources) - (NOTICES.source in sources)
