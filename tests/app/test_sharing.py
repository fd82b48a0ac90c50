from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

import anyio
import pytest

from dockbell.app.sharing import Sharing
from dockbell.errors import ConfigError, LeaseLost, StoreUnavailable
from dockbell.ports import Claim, Share, SharedSources, Spent
from dockbell.telemetry import AgentFails, SourcesClaimed, SourcesHandedOver
from tests.fakes import Ear
from tests.rig import CountedAlarm

ACCOUNTS = {"a": "a", "b": "b", "c": "c"}
DECLARED = ["note {'a': (8, 0)}", "confirm ['a']"]
BEGUN = [*DECLARED, "wait for what is due"]
INTERVALS = {"a": timedelta(seconds=30)}


class Log:
    """What the store was told and a worker did, in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []


class FakeSources(SharedSources):
    def __init__(self, log: Log, *shares: Share | Exception) -> None:
        self._log = log
        self._shares = list(shares)
        self.outages = 0

    async def note_spent(self, spent: Mapping[str, Spent]) -> None:
        self._log.steps.append(f"note {dict(spent)}")

    async def take_share(self, accounts: Mapping[str, str], intervals: Mapping[str, timedelta] | None = None) -> Share:
        assert (accounts, intervals) == (ACCOUNTS, INTERVALS)
        share = self._shares.pop(0) if len(self._shares) > 1 else self._shares[0]
        if isinstance(share, Exception):
            raise share
        return share

    async def prepare(self, sources: Collection[str]) -> None:
        self._log.steps.append(f"prepare {sorted(sources)}")

    async def hand_over(self, sources: Collection[str], spent: Mapping[str, Spent]) -> None:
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("away")
        assert spent == dict.fromkeys(sources, (0, 5))
        self._log.steps.append(f"hand over {sorted(sources)}")


class FakeWorker:
    def __init__(self, log: Log) -> None:
        self._log = log
        self.problem: Exception | None = None
        self.claims: list[dict[str, Claim]] = []
        self.ended = anyio.Event()

    def list_accounts(self) -> Mapping[str, str]:
        return ACCOUNTS

    def list_intervals(self) -> Mapping[str, timedelta]:
        return INTERVALS

    def declare_spent(self) -> Mapping[str, Spent]:
        return {"a": (8, 0)}

    def settle_spent(self, sources: Collection[str]) -> Callable[[], Mapping[str, Spent]]:
        return lambda: dict.fromkeys(sources, (0, 5))

    def confirm_spent(self, told: Collection[str]) -> None:
        self._log.steps.append(f"confirm {sorted(told)}")

    async def work_on(self, sources: Collection[str], claims: Mapping[str, Claim]) -> None:
        self.claims.append(dict(claims))
        if self.problem is not None:
            raise self.problem
        self._log.steps.append(f"work on {sorted(sources)}")

    async def wait_for_due(self) -> None:
        self._log.steps.append("wait for what is due")

    async def end_deliveries(self) -> None:
        await self.ended.wait()
        self._log.steps.append("deliveries have ended")


def share(held: str, surplus: str = "") -> Share:
    return Share(frozenset(held), frozenset(surplus), {})


async def test_it_works_on_what_it_has_and_nothing_is_done_twice() -> None:
    log, ear = Log(), Ear()
    sharing = Sharing(FakeSources(log, share("ab")), FakeWorker(log), ear.telemetry)
    await sharing.run_once()
    await sharing.run_once()
    assert log.steps == ["work on ['a', 'b']", *BEGUN]
    assert ear.facts == [SourcesClaimed(2, 2)]


async def test_where_it_claims_some_at_a_time_it_says_once_what_it_has_taken() -> None:
    log, ear = Log(), Ear()
    shares = [
        Share(frozenset("a"), taken_over=1, has_more=True),
        Share(frozenset("ab"), taken_over=1, has_more=True),
        share("abc"),
    ]
    alarm = CountedAlarm(3)
    async with anyio.create_task_group() as group:
        group.start_soon(Sharing(FakeSources(log, *shares), FakeWorker(log), ear.telemetry).run, alarm)
        await alarm.is_quiet.wait()
        group.cancel_scope.cancel()
    assert [step for step in log.steps if step.startswith("work")] == [
        "work on ['a']",
        "work on ['a', 'b']",
        "work on ['a', 'b', 'c']",
    ]
    assert ear.facts == [SourcesClaimed(3, 3, 2)]


async def test_it_says_how_much_of_what_it_has_taken_was_a_dead_process_s_once_the_work_has_begun() -> None:
    log, ear = Log(), Ear()
    worker = FakeWorker(log)
    worker.problem = StoreUnavailable("away")
    taken = Share(frozenset("ab"), taken_over=1)
    sharing = Sharing(FakeSources(log, taken, share("ab")), worker, ear.telemetry)
    with pytest.raises(StoreUnavailable):
        await sharing.run_once()
    worker.problem = None
    await sharing.run_once()
    assert [str(fact) for fact in ear.facts] == [
        "fleet: this process claimed 2 sources (1 from processes that died), it now has 2"
    ]


async def test_others_get_what_it_has_too_many_of_once_its_deliveries_have_ended() -> None:
    log, ear = Log(), Ear()
    worker = FakeWorker(log)
    sharing = Sharing(FakeSources(log, share("abc"), share("abc", surplus="c")), worker, ear.telemetry)
    await sharing.run_once()
    leaving = await sharing.run_once()
    assert leaving is not None
    worker.ended.set()
    await sharing.hand_over(leaving)
    assert log.steps[4:] == ["work on ['a', 'b']", "prepare ['c']", "deliveries have ended", "hand over ['c']"]
    assert ear.facts[-1] == SourcesHandedOver(1, 2)


async def test_it_goes_on_to_claim_while_deliveries_of_what_it_hands_over_have_not_ended() -> None:
    log = Log()
    worker = FakeWorker(log)
    shares = [share("abc"), share("abc", surplus="c"), share("abd")]
    alarm = CountedAlarm(3)
    async with anyio.create_task_group() as group:
        group.start_soon(Sharing(FakeSources(log, *shares), worker, Ear().telemetry).run, alarm)
        await alarm.is_quiet.wait()
        assert "work on ['a', 'b', 'd']" in log.steps
        worker.ended.set()
        await anyio.wait_all_tasks_blocked()
        assert log.steps[-1] == "hand over ['c']"
        group.cancel_scope.cancel()


async def test_where_the_store_cannot_be_used_sources_are_freed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.app.sharing._AGAIN", timedelta(0))
    log = Log()
    shared, worker = FakeSources(log, share("a", surplus="a")), FakeWorker(log)
    shared.outages = 2
    worker.ended.set()
    sharing = Sharing(shared, worker, Ear().telemetry)
    leaving = await sharing.run_once()
    assert leaving is not None
    await sharing.hand_over(leaving)
    assert log.steps[-1] == "hand over ['a']"


async def test_what_was_spent_of_a_claimed_key_is_kept_until_the_work_begins() -> None:
    log, claim = Log(), Claim((24, 8), timedelta(seconds=7))
    shares = [Share(frozenset("a"), frozenset(), {"a": claim}), share("a"), share("a")]
    worker = FakeWorker(log)
    sharing = Sharing(FakeSources(log, *shares), worker, Ear().telemetry)
    worker.problem = ConfigError("ca_file: not found")
    with pytest.raises(ConfigError):
        await sharing.run_once()
    worker.problem = None
    await sharing.run_once()
    await sharing.run_once()
    assert worker.claims == [{"a": claim}, {"a": claim}]


async def test_at_its_end_it_hands_over_all() -> None:
    log = Log()
    sharing = Sharing(FakeSources(log, share("ab")), FakeWorker(log), Ear().telemetry)
    await sharing.leave()
    await sharing.run_once()
    await sharing.leave()
    assert log.steps == ["work on ['a', 'b']", *BEGUN, "hand over ['a', 'b']"]


async def test_work_that_cannot_begin_is_told_once_and_tried_again() -> None:
    log, ear = Log(), Ear()
    fleet, worker = FakeSources(log, *[share("ab")] * 3, LeaseLost("gone")), FakeWorker(log)
    worker.problem = ConfigError("[sources.b] api_key: cannot be read")
    with pytest.RaisesGroup(LeaseLost):
        await Sharing(fleet, worker, ear.telemetry).run(CountedAlarm(9))
    assert sum(isinstance(fact, AgentFails) for fact in ear.facts) == 1
    assert log.steps == []


async def test_what_is_declared_may_be_spent_once_it_is_stored() -> None:
    log = Log()
    sharing = Sharing(FakeSources(log, share("a")), FakeWorker(log), Ear().telemetry)
    with anyio.move_on_after(0.1):
        await sharing.declare()
    assert log.steps == DECLARED
