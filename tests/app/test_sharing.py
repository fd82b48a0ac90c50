from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import anyio
import pytest

from dockbell.app.sharing import Sharing
from dockbell.errors import ConfigError, LeaseLost
from dockbell.ports import Claim, Configurations, Fleet, Share, Spent
from dockbell.telemetry import AgentFails, SourcesClaimed, SourcesHandedOver
from tests.fakes import Ear
from tests.rig import CountedAlarm

ACCOUNTS = {"a": "a", "b": "b", "c": "c"}


class Log:
    """What a fleet was told and a worker did, in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []


class FakeFleet(Fleet):
    is_trusted = True

    def __init__(self, log: Log, *shares: Share | Exception) -> None:
        self.slot = 0
        self.leads = True
        self._log = log
        self._shares = list(shares)

    async def note_spent(self, spent: Mapping[str, Spent]) -> None:
        self._log.steps.append(f"note {dict(spent)}")

    async def take_share(self, accounts: Mapping[str, str]) -> Share:
        assert accounts == ACCOUNTS
        share = self._shares.pop(0) if len(self._shares) > 1 else self._shares[0]
        if isinstance(share, Exception):
            raise share
        return share

    async def prepare(self, sources: Collection[str]) -> None:
        self._log.steps.append(f"prepare {sorted(sources)}")

    async def hand_over(self, sources: Collection[str], spent: Mapping[str, Spent]) -> None:
        assert spent == dict.fromkeys(sources, (0, 5))
        self._log.steps.append(f"hand over {sorted(sources)}")

    @property
    def configurations(self) -> Configurations:
        raise NotImplementedError

    async def follow(self) -> None:
        raise NotImplementedError

    async def wait_until_lost(self) -> None:
        raise NotImplementedError

    async def wait_for_trust(self) -> None:
        raise NotImplementedError


class FakeWorker:
    def __init__(self, log: Log) -> None:
        self._log = log
        self.problem: Exception | None = None

    def list_accounts(self) -> Mapping[str, str]:
        return ACCOUNTS

    def declare_spent(self) -> Mapping[str, Spent]:
        return {"a": (8, 0)}

    def settle_spent(self, sources: Collection[str]) -> Callable[[], Mapping[str, Spent]]:
        return lambda: dict.fromkeys(sources, (0, 5))

    def confirm_spent(self, told: Collection[str]) -> None:
        self._log.steps.append(f"confirm {sorted(told)}")

    async def work_on(self, sources: Collection[str], claims: Mapping[str, Claim]) -> None:
        if self.problem is not None:
            raise self.problem
        self._log.steps.append(f"work on {sorted(sources)}")


def share(held: str, surplus: str = "") -> Share:
    return Share(frozenset(held), frozenset(surplus), {})


async def test_it_works_on_what_it_has_and_nothing_is_done_twice() -> None:
    log, ear = Log(), Ear()
    sharing = Sharing(FakeFleet(log, share("ab")), FakeWorker(log), ear.telemetry)
    await sharing.run_once()
    await sharing.run_once()
    assert log.steps == ["work on ['a', 'b']"]
    assert ear.facts == [SourcesClaimed(2, 2)]


async def test_what_it_has_too_many_of_has_ended_before_others_may_have_it() -> None:
    log, ear = Log(), Ear()
    sharing = Sharing(FakeFleet(log, share("abc"), share("abc", surplus="c")), FakeWorker(log), ear.telemetry)
    await sharing.run_once()
    await sharing.run_once()
    assert log.steps[1:] == ["prepare ['c']", "work on ['a', 'b']", "hand over ['c']"]
    assert ear.facts[-1] == SourcesHandedOver(1, 2)


async def test_at_its_end_it_hands_over_all() -> None:
    log = Log()
    sharing = Sharing(FakeFleet(log, share("ab")), FakeWorker(log), Ear().telemetry)
    await sharing.leave()
    await sharing.run_once()
    await sharing.leave()
    assert log.steps == ["work on ['a', 'b']", "hand over ['a', 'b']"]


async def test_a_source_that_cannot_be_opened_is_told_once_and_tried_again() -> None:
    log, ear = Log(), Ear()
    fleet, worker = FakeFleet(log, *[share("ab")] * 3, LeaseLost("gone")), FakeWorker(log)
    worker.problem = ConfigError("[sources.b] api_key: cannot be read")
    with pytest.raises(LeaseLost):
        await Sharing(fleet, worker, ear.telemetry).run(CountedAlarm(9))
    assert sum(isinstance(fact, AgentFails) for fact in ear.facts) == 1
    assert log.steps == []


async def test_what_is_declared_may_be_spent_once_it_is_stored() -> None:
    log = Log()
    sharing = Sharing(FakeFleet(log, share("a")), FakeWorker(log), Ear().telemetry)
    with anyio.move_on_after(0.1):
        await sharing.declare()
    assert log.steps == ["note {'a': (8, 0)}", "confirm ['a']"]
