from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from dockbell.app.upgrading import Upgrading
from dockbell.errors import StoreError, StoreUnavailable
from dockbell.ports import Upgrade
from dockbell.telemetry import AgentFails, Fact, UpgradeFinished, UpgradeWaits
from tests.fakes import Ear
from tests.rig import CountedAlarm


class FakeUpgrades:
    """A store whose upgrade comes this far at each try."""

    def __init__(self, *found: Upgrade | Exception) -> None:
        self.leads = True
        self.tries = 0
        self._found = found

    async def finish_upgrade(self) -> Upgrade:
        self.tries += 1
        found = self._found[self.tries - 1]
        if isinstance(found, Exception):
            raise found
        return found


async def run(upgrades: FakeUpgrades) -> list[Fact]:
    ear = Ear()
    with anyio.fail_after(5):
        await Upgrading(upgrades, ear.telemetry).run(CountedAlarm(9))
    return ear.facts


async def test_it_says_for_whom_the_upgrade_waits_and_when_it_is_finished() -> None:
    waiting = Upgrade(1, 1, ("process 1 on a (0.1.0)", "process 2 on a (0.1.0)"))
    upgrades = FakeUpgrades(waiting, waiting, Upgrade(1, 1, ("process 2 on a (0.1.0)",)), Upgrade(1, 2))
    assert await run(upgrades) == [
        UpgradeWaits("process 1 on a (0.1.0), process 2 on a (0.1.0)"),
        UpgradeWaits("process 2 on a (0.1.0)"),
        UpgradeFinished(2),
    ]


async def test_where_nothing_is_left_to_do_it_says_nothing_and_ends() -> None:
    upgrades = FakeUpgrades(Upgrade(2, 2))
    assert await run(upgrades) == []
    assert upgrades.tries == 1


async def test_a_process_that_does_not_lead_does_nothing() -> None:
    upgrades = FakeUpgrades()
    upgrades.leads = False
    alarm = CountedAlarm(3)
    async with anyio.create_task_group() as group:
        group.start_soon(Upgrading(upgrades, Ear().telemetry).run, alarm)
        await alarm.is_quiet.wait()
        group.cancel_scope.cancel()
    assert upgrades.tries == 0


async def test_what_fails_is_told_once_and_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.app.upgrading._AGAIN", timedelta(0))
    used = StoreError("its tables are used")
    facts = await run(FakeUpgrades(used, used, StoreUnavailable("away"), Upgrade(1, 2)))
    assert [type(fact) for fact in facts] == [AgentFails, UpgradeFinished]
