"""Takes this process's share of the sources that several processes have together, and hands over what others lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

import anyio

from dockbell.core.model import NOTICES
from dockbell.errors import DockbellError, LeaseLost, StoreError
from dockbell.ports import Alarm, Claim, Fleet, Share, Spent
from dockbell.telemetry import SourcesClaimed, SourcesHandedOver, Telemetry

_DECLARE_EVERY: Final = timedelta(seconds=0.5)


class Worker(Protocol):
    """What works on the sources of this process."""

    def list_accounts(self) -> Mapping[str, str]:
        """Return the first source with the same API key, of each source that is configured."""

    def declare_spent(self) -> Mapping[str, Spent]:
        """Return what may be spent of each key until the next call, by the first source with the key."""

    def confirm_spent(self, told: Collection[str]) -> None:
        """Let what was declared of keys be spent: it is stored."""

    def settle_spent(self, sources: Collection[str]) -> Callable[[], Mapping[str, Spent]]:
        """Return what tells, once the work on some sources has ended, what was spent of their keys."""

    async def work_on(self, sources: Collection[str], claims: Mapping[str, Claim]) -> None:
        """Begin with the sources among these that are new, and end the others; return when these have ended.

        Args:
            sources: All that this process has.
            claims: What was spent of the keys that are new, by the first source with the key.
        """


class Sharing:
    """Takes this process's share once a second, and works on what it has then."""

    def __init__(self, fleet: Fleet, worker: Worker, telemetry: Telemetry) -> None:
        self._fleet = fleet
        self._worker = worker
        self._telemetry = telemetry
        self._held: frozenset[str] = frozenset()

    async def run(self, alarm: Alarm) -> None:
        """Do it whenever the alarm rings.

        Raises:
            LeaseLost: This process is no member any more: what it works on is another's.
        """
        told = ""
        while True:
            await alarm.wait()
            try:
                await self.run_once()
            except LeaseLost:
                raise
            except DockbellError as error:  # a secret that cannot be read, say: what it has goes on
                if str(error) != told:
                    self._telemetry.emit_failure("sharing", error)
                told = str(error)
            else:
                told = ""

    async def run_once(self) -> Share:
        worker = self._worker
        share = await self._fleet.take_share(worker.list_accounts())
        claims = share.claims or {}
        if share.held != self._held:
            if added := _count(share.held - self._held):
                self._telemetry.emit(SourcesClaimed(added, _count(share.held)))
            await worker.work_on(share.held, claims)
            self._held = share.held
        if share.surplus:
            await self._hand_over(share)
        return share

    async def _hand_over(self, share: Share) -> None:
        left = share.held - share.surplus
        await self._fleet.prepare(share.surplus)
        settle = self._worker.settle_spent(share.surplus)
        await self._worker.work_on(left, {})
        await self._fleet.hand_over(share.surplus, settle())
        self._held = left
        self._telemetry.emit(SourcesHandedOver(len(share.surplus), _count(left)))

    async def declare(self) -> None:
        """Say twice a second what may be spent of each key, until cancelled, also while sources are loaded."""
        while True:
            with suppress(StoreError):  # the writer meets the same and reports it
                spent = self._worker.declare_spent()
                await self._fleet.note_spent(spent)
                self._worker.confirm_spent(spent)
            await anyio.sleep(_DECLARE_EVERY.total_seconds())

    async def follow(self) -> None:
        """Announce the events of other processes, for those who read them here, until cancelled."""
        await self._fleet.follow()

    async def leave(self) -> None:
        """Say what was spent: others take over at once."""
        if not self._held:
            return
        try:
            await self._fleet.hand_over(self._held, self._worker.settle_spent(self._held)())
        except StoreError as error:
            self._telemetry.emit_failure("sharing", error)


def _count(sources: Collection[str]) -> int:
    """Return how many sources of the configuration are among some; notices are none."""
    return len(sources) - (NOTICES.source in sources)
