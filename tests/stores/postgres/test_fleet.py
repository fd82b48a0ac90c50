"""Several processes on one store; here each is a store of its own in this process, with its own row and leases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import psycopg
import pytest

from dockbell.core.model import NOTICES, Feed, NoticeKind, RunKind, Statement
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.settlement import Settlement
from dockbell.errors import LeaseLost, StoreInUse
from dockbell.ports import CommandKind, Fleet, Member, RunRecord, Share, Tally
from dockbell.stores.postgres import PostgresCommandStore, PostgresReadStore, PostgresStore
from tests.fakes import NOON
from tests.postgres import begin_writing
from tests.stores.pages import commit

SOURCES = {f"s{number}": f"s{number}" for number in range(1, 7)}
"""Six sources, each with an API key of its own."""


class Processes:
    """Opens stores as processes that share one."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self._stack = stack

    async def open(self) -> PostgresStore:
        store = await PostgresStore.open(self.url, now=lambda: NOON, epoch="epoch", shared=True)
        self._stack.push_async_callback(store.aclose)
        return store

    def query(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def bury(self, store: PostgresStore) -> None:
        """Do what another process does that finds the row of this one expired."""
        self.query("DELETE FROM holders WHERE id = %s", store.engine.holder.id)

    def expire(self, store: PostgresStore) -> None:
        """Let a process renew its row no more, as if it was stopped, and the row expire."""
        store.engine.holder._ending.set()
        store.engine.holder._thread.join()
        late = "UPDATE holders SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s"
        self.query(late, store.engine.holder.id)


@pytest.fixture(autouse=True)
def _settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.stores.postgres.leases.SETTLED_SECONDS", -1.0)


@pytest.fixture
async def processes(postgres_url: str) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as stack:
        yield Processes(postgres_url, stack)


def fleet(store: PostgresStore) -> Fleet:
    assert store.fleet is not None
    return store.fleet


async def take(store: PostgresStore, sources: Collection[str] = SOURCES) -> Share:
    return await fleet(store).take_share({name: SOURCES[name] for name in sources})


async def look(processes: Processes) -> Sequence[Member]:
    """Return what others are told of the processes."""
    read_store = await PostgresReadStore.open(processes.url)
    try:
        return await read_store.load_members()
    finally:
        await read_store.aclose()


def own(share: Share) -> set[str]:
    return set(share.held - {NOTICES.source})


async def balance(stores: Sequence[PostgresStore], rounds: int = 6) -> list[Share]:
    """Let the processes take their shares, and hand over what they have too many of, until nothing moves."""
    for _ in range(rounds):
        for store in stores:
            share = await take(store)
            if share.surplus:
                await fleet(store).hand_over(share.surplus, {})
    return [await take(store) for store in stores]


# Who has what --------------------------------------------------------------------------------------------------------


async def test_a_process_alone_takes_all_sources_and_leads(processes: Processes) -> None:
    store = await processes.open()
    share = await take(store)
    assert share.held == {*SOURCES, NOTICES.source}
    assert share.surplus == set()
    assert fleet(store).leads


async def test_processes_come_to_equal_shares_and_no_source_has_two(processes: Processes) -> None:
    stores = [await processes.open() for _ in range(3)]
    shares = await balance(stores)
    assert sorted(len(share.held) for share in shares) == [2, 2, 3]  # notices among them
    assert sorted(name for share in shares for name in share.held) == sorted([*SOURCES, NOTICES.source])
    assert [fleet(store).slot for store in stores] == [0, 1, 2]
    assert [fleet(store).processes for store in stores] == [3, 3, 3]
    assert sum(fleet(store).leads for store in stores) == 1


async def test_nothing_is_handed_over_to_a_process_that_has_just_come(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.stores.postgres.leases.SETTLED_SECONDS", 60.0)
    first = await processes.open()
    await take(first)
    second = await processes.open()
    assert own(await take(second)) == set()
    assert (await take(first)).surplus == set()
    processes.query("UPDATE holders SET began_at = began_at - interval '1 min'")
    assert len((await take(first)).surplus) == 3


async def test_sources_with_one_api_key_go_together(processes: Processes) -> None:
    accounts = {"a": "a", "b": "a", "c": "a", "d": "d", "e": "e", "f": "f"}
    stores = [await processes.open() for _ in range(2)]
    for _ in range(4):
        for store in stores:
            share = await fleet(store).take_share(accounts)
            if share.surplus:
                await fleet(store).hand_over(share.surplus, {})
    shares = [own(await fleet(store).take_share(accounts)) for store in stores]
    assert sorted(map(len, shares)) == [2, 4]
    assert {"a", "b", "c"} < max(shares, key=len)


async def test_a_source_that_gets_the_key_of_another_process_s_goes_there(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    shares = await balance([first, second])
    mine, others = sorted(own(shares[0])), sorted(own(shares[1]))
    accounts = SOURCES | {others[0]: mine[0]}
    share = await fleet(second).take_share(accounts)
    assert share.surplus == {others[0]}
    await fleet(second).hand_over(share.surplus, {})
    assert others[0] in (await fleet(first).take_share(accounts)).held


async def test_what_leaves_the_configuration_is_handed_over(processes: Processes) -> None:
    store = await processes.open()
    await take(store)
    assert (await take(store, ["s1", "s2"])).surplus == {"s3", "s4", "s5", "s6"}


async def test_what_is_claimed_brings_what_was_spent(processes: Processes) -> None:
    first = await processes.open()
    await take(first)
    await fleet(first).note_spent({"s1": (40, 8, 0, 0, 0, 0)})
    await fleet(first).hand_over({"s1", "s2"}, {"s2": (16, 0, 0, 0, 0, 0)})
    second = await processes.open()
    claims = (await take(second)).claims
    assert claims["s1"].spent == [40, 8, 0, 0, 0, 0]
    assert claims["s2"].spent == [16, 0, 0, 0, 0, 0]
    assert timedelta(0) <= claims["s1"].age < timedelta(minutes=1)


async def test_the_store_is_not_shared_with_one_that_must_be_alone(processes: Processes) -> None:
    await processes.open()
    with pytest.raises(StoreInUse, match="held by process"):
        await PostgresStore.open(processes.url, now=lambda: NOON)


async def test_who_looks_sees_each_process(processes: Processes) -> None:
    await balance([await processes.open(), await processes.open()])
    members = await look(processes)
    assert [(member.slot, member.sources, member.requests, member.taken_over) for member in members] == [
        (0, 3, 0, 0),
        (1, 3, 0, 0),
    ]


async def test_who_looks_sees_how_many_requests_each_process_sent_within_the_last_minute(processes: Processes) -> None:
    store = await processes.open()
    await take(store)
    await fleet(store).note_spent({"s1": (40, 8, 1, 0, 0, 0, 2), "s2": (5, 4, 0, 0, 0, 0, 0)})
    (member,) = await look(processes)
    assert member.requests == 8 + 1 + 2 + 4  # 40 and 5 may yet be sent
    processes.query("UPDATE leases SET spent_at = spent_at - interval '25 s'")
    (member,) = await look(processes)
    assert member.requests == 8 + 1 + 4
    processes.query("UPDATE leases SET spent_at = spent_at - interval '1 min'")
    (member,) = await look(processes)
    assert member.requests == 0


async def test_what_is_handed_over_counts_as_that_of_no_dead_process(processes: Processes) -> None:
    store = await processes.open()
    await fleet(store).hand_over(own(await take(store)), {})
    share = await take(store)
    assert own(share) == {*SOURCES}
    assert share.taken_over == 0


# Death ---------------------------------------------------------------------------------------------------------------


async def test_what_a_dead_process_had_is_claimed_by_the_others(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    await balance([first, second])
    processes.bury(second)
    share = await take(first)
    assert own(share) == {*SOURCES}
    assert share.taken_over == 3
    assert [member.taken_over for member in await look(processes)] == [3]
    with anyio.fail_after(5):
        await fleet(second).wait_until_lost()
    assert not fleet(second).is_trusted
    with pytest.raises(LeaseLost, match="another process took over the work of this one"):
        await take(second)


async def test_an_expired_row_is_removed_by_who_has_lived_long_enough(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    await balance([first, second])
    processes.expire(second)
    assert own(await take(first)) != {*SOURCES}  # perhaps the server was away, and the other is about to renew it
    first.engine.holder.lives_since -= timedelta(seconds=10)
    assert own(await take(first)) == {*SOURCES}


async def test_a_process_that_commits_is_not_removed_meanwhile(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    first.engine.holder.lives_since -= timedelta(seconds=10)
    await balance([first, second])
    with closing(psycopg.connect(processes.url)) as committing:
        begin_writing(committing, second.engine.holder)
        processes.expire(second)
        assert own(await take(first)) != {*SOURCES}
        committing.commit()
    assert own(await take(first)) == {*SOURCES}


async def test_of_the_connections_of_a_dead_process_those_in_a_transaction_are_ended(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    first.engine.holder.lives_since -= timedelta(seconds=10)
    await balance([first, second])
    name = f"dockbell {second.engine.holder.id}"
    with (
        closing(psycopg.connect(processes.url, application_name=name)) as writing,
        closing(psycopg.connect(processes.url, application_name=name, autocommit=True)) as resting,
    ):
        resting.execute("SELECT 1")
        begin_writing(writing, second.engine.holder)
        processes.expire(second)
        assert own(await take(first)) == {*SOURCES}
        with pytest.raises(psycopg.OperationalError):
            writing.execute("SELECT 1")
        resting.execute("SELECT 1")  # a pooler has given it to another process by now


async def test_a_transaction_that_rests_is_ended_by_the_server(processes: Processes) -> None:
    first = await processes.open()
    with closing(psycopg.connect(processes.url)) as resting:
        begin_writing(resting, first.engine.holder)
        await anyio.sleep(4.5)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            resting.execute("SELECT 1")


async def add_run(
    store: PostgresStore, feed: Feed, ago: timedelta, *, kind: RunKind = RunKind.POLL, every: float | None = None
) -> None:
    """Store a reading that took a second, and the interval of the feed's plan."""
    await store.add_feeds([feed])
    await store.feed(feed).open()
    began_at = datetime.now(UTC) - ago
    ended_at = began_at + timedelta(seconds=1)
    await store.feed(feed).close_run(RunRecord(kind, NOON, None, ended_at, 1, 0, 0, "", Tally(), began_at))
    if every is not None:
        await store.feed(feed).save_plan(StoredPlan(every=timedelta(seconds=every)).to_json())


def find_due(share: Share, source: str) -> float | None:
    due_in = share.claims[source].due_in
    return None if due_in is None else due_in.total_seconds()


async def test_what_is_most_overdue_by_its_runs_is_claimed_first(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.stores.postgres.fleet._CLAIMED_FIRST", 2)
    first = await processes.open()
    while (await take(first)).has_more:
        pass
    for number, source in enumerate(sorted(SOURCES)):
        await add_run(first, Feed(source, "shipments"), timedelta(seconds=10 * number))
    await fleet(first).hand_over(SOURCES, dict.fromkeys(SOURCES, (8, 0, 0, 0, 0, 0, 0)))  # declared of each just now
    await first.aclose()
    intervals = dict.fromkeys(SOURCES, timedelta(seconds=20)) | {"s6": timedelta(minutes=10)}
    second = await processes.open()
    taken = list[set[str]]()
    for _ in range(2):
        share = await fleet(second).take_share(SOURCES, intervals)
        taken.append(own(share) - set().union(*taken))
    assert taken == [{"s5", "s4"}, {"s3", "s2", "s1", "s6"}]  # all others at once
    assert not share.has_more


async def test_when_a_source_is_due_is_told_by_the_plan_of_the_first_of_its_feeds(processes: Processes) -> None:
    first = await processes.open()
    while (await take(first)).has_more:
        pass
    ago = timedelta(seconds=10)
    await add_run(first, Feed("s1", "shipments"), ago, every=60)
    await add_run(first, Feed("s2", "shipments"), ago, every=60)
    await add_run(first, Feed("s2", "packages"), timedelta(seconds=100), every=60)
    await add_run(first, Feed("s3", "shipments"), ago, every=60)
    await add_run(first, Feed("s3", "shipments"), timedelta(seconds=1), kind=RunKind.PASS)  # polls have their own time
    await add_run(first, Feed("s4", "stock"), ago, kind=RunKind.PASS, every=15)
    await add_run(first, Feed("s5", "shipments"), ago)  # no plan yet
    await add_run(first, Feed("s6", "shipments"), ago, every=60)
    await first.add_feeds([Feed("s6", "packages")])  # never read yet
    await first.aclose()
    second = await processes.open()
    share = await fleet(second).take_share(SOURCES, dict.fromkeys(SOURCES, timedelta(seconds=40)))
    due = {source: find_due(share, source) for source in SOURCES}
    told = {source: round(seconds / 5) * 5 for source, seconds in due.items() if seconds is not None}
    assert told == {"s1": 30, "s2": -60, "s3": 30, "s4": 5}  # of a plan no more than what is configured


async def test_each_takeover_begins_with_few_keys_again(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.stores.postgres.fleet._CLAIMED_FIRST", 2)
    first = await processes.open()
    assert (await take(first)).has_more
    others = [await processes.open() for _ in range(2)]
    for store in others:
        assert len(own(await take(store))) == 2
    assert len(own(await take(first))) == 2  # nothing is free any more
    for store in others:
        await store.aclose()
    share = await take(first)
    assert (len(own(share)), share.has_more) == (4, True)


async def test_feeds_of_others_may_be_opened_while_sources_are_handed_over(processes: Processes) -> None:
    first = await processes.open()
    while (await take(first)).has_more:
        pass
    await add_events(first, "s1", "s2")
    leases: Any = vars(fleet(first))["_feed_leases"]

    class Meanwhile:
        @property
        def source(self) -> str:
            leases[Feed("s3", "stock")] = leases[Feed("s2", "shipments")]  # as a thread does that opens it
            return "s2"

    leases[Meanwhile()] = leases[Feed("s2", "shipments")]
    await fleet(first).hand_over({"s1"}, {})
    assert Feed("s1", "shipments") not in leases
    assert {Feed("s2", "shipments"), Feed("s3", "stock")} <= leases.keys()


# What each of them sees ----------------------------------------------------------------------------------------------


async def add_events(store: PostgresStore, *sources: str) -> None:
    for source in sources:
        feed = Feed(source, "shipments")
        await store.add_feeds([feed])
        state = await store.feed(feed).open()
        await commit(store, state, {"id": f"{source}-a"})


async def test_a_sink_has_the_positions_of_its_process_s_sources_only(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    shares = await balance([first, second])
    for store, share in zip((first, second), shares, strict=True):
        await add_events(store, *sorted(own(share)))
        await store.sink("erp").enroll("beginning")
    for store, share in zip((first, second), shares, strict=True):
        positions, _ = await store.sink("erp").load_queue()
        assert {feed.source for feed in positions} - {NOTICES.source} == own(share)
        assert set(await store.sink("erp").load_starts()) == set(positions)


async def test_a_new_sink_begins_in_the_sources_of_all_processes_at_once(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    shares = await balance([first, second])
    for store, share in zip((first, second), shares, strict=True):
        await add_events(store, *sorted(own(share)))
    await first.sink("erp").enroll("now")
    await second.sink("erp").enroll("now")
    positions, _ = await second.sink("erp").load_queue()
    assert set(positions.values()) == {1}


async def test_what_is_about_to_leave_is_not_begun_with_but_settled(processes: Processes) -> None:
    store = await processes.open()
    await take(store)
    await add_events(store, "s1", "s2")
    await store.sink("erp").enroll("beginning")
    await fleet(store).prepare(["s1"])
    positions, _ = await store.sink("erp").load_queue()
    assert set(positions) == {Feed("s2", "shipments")}
    feed = Feed("s1", "shipments")
    await store.sink("erp").settle(Settlement(positions={feed: 1}, origins={feed: 0}))
    assert processes.query("SELECT sequence FROM positions ORDER BY feed") == [(1,), (0,)]


async def test_what_another_process_has_is_not_settled(processes: Processes) -> None:
    store = await processes.open()
    await take(store)
    await add_events(store, "s1")
    await store.sink("erp").enroll("beginning")
    await fleet(store).hand_over(["s1"], {})
    feed = Feed("s1", "shipments")
    await store.sink("erp").settle(Settlement(positions={feed: 1}, origins={feed: 0}))
    assert processes.query("SELECT sequence FROM positions") == [(0,)]


async def test_a_claimed_feed_is_announced_with_its_end(processes: Processes) -> None:
    first = await processes.open()
    await take(first)
    await add_events(first, "s1")
    await fleet(first).hand_over(["s1"], {})
    second = await processes.open()
    await take(second)
    assert second.outbox.ends[Feed("s1", "shipments")] == 1


async def test_a_source_that_comes_back_is_written_again(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    await take(first)
    feed = Feed("s1", "shipments")
    for number, (giver, taker) in enumerate([(first, second), (second, first), (first, second)]):
        await take(giver)
        await commit(giver, await giver.feed(feed).open(), {"id": f"record-{number}"})
        await fleet(giver).hand_over(SOURCES, {})
        await take(taker)
        await taker.feed(feed).open()
    assert processes.query("SELECT sequence FROM events ORDER BY entry") == [(1,), (2,), (3,)]


async def test_each_process_publishes_notices_and_the_leader_hears_of_them(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    await balance([first, second])
    compose = Composer(NOTICES, name="acme", singular="notice", epoch="epoch")
    for store in (first, second, first):
        await store.feed(NOTICES).open()
        notice = Statement(NOTICES, NoticeKind.UNREACHABLE, NOON, {"sink": "erp", "reason": "down", "count": 1})
        await store.feed(NOTICES).publish([notice], compose)
    assert processes.query("SELECT sequence FROM events ORDER BY 1") == [(1,), (2,), (3,)]
    leader = first if fleet(first).leads else second
    await take(leader)
    assert leader.outbox.ends[NOTICES] == 3


async def test_a_command_is_executed_by_who_has_its_source(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    shares = await balance([first, second])
    for store, share in zip((first, second), shares, strict=True):
        await add_events(store, *sorted(own(share)))
    await (await processes.open()).add_feeds([Feed("old", "shipments")])
    command_store = await PostgresCommandStore.open(processes.url)
    for source in (*SOURCES, "old"):
        await command_store.make_command(Feed(source, "shipments"), CommandKind.RECONCILE, NOON)
    await command_store.aclose()
    for store, share in zip((first, second), shares, strict=True):
        commands = await store.commands.take()
        found = {command.feed.source for command in commands if command.feed is not None}
        assert found == own(share) | ({"old"} if fleet(store).leads else set())


async def test_events_of_another_process_are_announced_to_who_waits(processes: Processes) -> None:
    first, second = await processes.open(), await processes.open()
    shares = await balance([first, second])
    source = min(own(shares[0]))
    feed, heard = Feed(source, "shipments"), anyio.Event()

    async def wait() -> None:
        await second.outbox.wait_beyond(feed, 0)
        heard.set()

    async with anyio.create_task_group() as group:
        group.start_soon(fleet(second).follow)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await add_events(first, source)
        with anyio.fail_after(5):
            await heard.wait()
        group.cancel_scope.cancel()
