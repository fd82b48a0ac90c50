"""Finishes an upgrade of the store: what older processes need is removed once none of them works on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

import anyio

from dockbell.ports import Alarm, Upgrade
from dockbell.telemetry import Telemetry, UpgradeFinished, UpgradeWaits

_AGAIN: Final = timedelta(seconds=30)
"""How long after a failure it is tried again: a try may keep all processes from writing for half a second."""


class Upgradable(Protocol):
    """What a process knows of the upgrade of a store that it shares."""

    leads: bool

    async def finish_upgrade(self) -> Upgrade:
        """Remove what only older processes need, as far as none of them works on the store."""


class Upgrading:
    """Of the processes that share a store the one that leads finishes its upgrade."""

    def __init__(self, shared: Upgradable, telemetry: Telemetry) -> None:
        self._shared = shared
        self._telemetry = telemetry
        self._waits_for = ""

    async def run(self, alarm: Alarm) -> None:
        """Look whenever the alarm rings, until nothing is left to do or cancelled."""
        failure = ""
        is_finished = False
        while not is_finished:
            await alarm.wait()
            try:
                is_finished = self._shared.leads and await self.run_once()
            except Exception as error:  # noqa: BLE001  # detection and delivery go on, and so will this one
                if str(error) != failure:
                    self._telemetry.emit_failure("upgrade", error)
                failure = str(error)
                await anyio.sleep(_AGAIN.total_seconds())

    async def run_once(self) -> bool:
        """Do what may be done now; return whether nothing is left to do."""
        upgrade = await self._shared.finish_upgrade()
        if upgrade.oldest != upgrade.before:
            self._telemetry.emit(UpgradeFinished(upgrade.oldest))
        older = ", ".join(upgrade.older)
        if older and older != self._waits_for:
            self._telemetry.emit(UpgradeWaits(older))
        self._waits_for = older
        return not older
