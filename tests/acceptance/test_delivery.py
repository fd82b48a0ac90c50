"""Receivers that refuse, vanish for weeks, are deployed badly, or ask to wait: the others do not notice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import httpcore
import pytest

from dockbell.app.janitor import Janitor
from dockbell.config import StoreSettings
from dockbell.core.model import Feed
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import AgentFails, Fact, RunEnded, SinkPaused, SinkResumed, Telemetry
from tests.acceptance.deployment import START, deploy
from tests.acceptance.endpoints import (
    LATENCY,
    AgentTask,
    Answer,
    Dispatch,
    Endpoint,
    dispatching,
    read_rows,
    virtual_clocks,
)
from tests.oracle import read_content
from tests.virtual_time import SkippingLoop

pytestmark = pytest.mark.acceptance

TEN = tuple(f"key_{number}" for number in range(10))
TAKEN: Answer = (204, {})


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


async def change_often(dispatch: Dispatch, seconds: float, *, every: float = 0.5) -> None:
    """Change one key after the other for some time."""
    for number in range(int(seconds / every)):
        await dispatch.outbox.change(TEN[number % len(TEN)])
        await anyio.sleep(every)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


# One key --------------------------------------------------------------------------------------------------------------


async def run_ten_minutes(folder: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> Endpoint:
    """Deliver for a while to an endpoint that does not take one key for the first ten minutes."""
    over_at = anyio.current_time() + 600
    endpoint = Endpoint(lambda event, at: (500, {}) if event.get("subject") == refused and at < over_at else TAKEN)
    async with dispatching(folder, monkeypatch, endpoint) as dispatch:
        await change_often(dispatch, 660, every=1)
        await dispatch.until_all_taken(3600)
    assert dispatch.dead() == []
    assert all(order == sorted(order) for order in dispatch.orders().values())
    return endpoint


async def test_a_key_that_is_refused_for_ten_minutes_delays_no_other(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = await run_ten_minutes(tmp_path, monkeypatch, "")
    troubled = await run_ten_minutes(tmp_path_factory.mktemp("troubled"), monkeypatch, "key_3")
    before, with_it = (
        percentile([post.delay for post in endpoint.taken if post.key != "key_3"], 0.99)
        for endpoint in (calm, troubled)
    )
    print(f"p99 {before * 1000:.0f} ms, beside a refused key {with_it * 1000:.0f} ms")
    assert with_it <= before + 0.001
    late = [post for post in troubled.taken if post.key == "key_3"]
    assert len(late) == len([post for post in calm.taken if post.key == "key_3"])
    # At once, after 5, 20 and 65 s, 3 and 8 minutes; then all of it, one after the other without a pause.
    assert len([post for post in troubled.posts if post.status == 500]) == 6
    assert late[-1].at - late[0].at < 2 * LATENCY * len(late)


# One sink -------------------------------------------------------------------------------------------------------------


async def test_a_sink_that_is_dead_for_forty_days_is_noticed_by_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is due each second, or each half minute while a sink is dead, is due each hour: days pass in moments.
    monkeypatch.setattr("dockbell.delivery.relay._CHECKPOINT_EVERY", timedelta(hours=1))
    monkeypatch.setattr("dockbell.delivery.relay._LOOK_EVERY", timedelta(hours=1))
    monkeypatch.setattr("dockbell.core.publishing.retry._PROBE_MOST", timedelta(hours=1))
    day, revived_at = 86_400.0, 40 * 86_400.0
    facts: list[Fact] = []
    feed = Feed("main", "packages")

    def be_dead(_event: Any, at: float) -> Answer:
        if at < revived_at:
            raise httpcore.ConnectError("connection refused")
        return TAKEN

    dead, others = Endpoint(be_dead), [Endpoint(), Endpoint()]
    with virtual_clocks(monkeypatch) as clock:
        calm = {"every": "3h", "reconcile": "24h"}
        async with (
            deploy(tmp_path, monkeypatch, resources=("packages",), settings=calm) as dockbell,
            anyio.create_task_group() as group,
        ):
            store = dockbell.agents.store
            endpoints = dict(zip(("dead", "one", "two"), (dead, *others), strict=True))
            for name in endpoints:
                await store.sink(name).enroll("beginning")
            relays = [each.make_relay(name, store, clock, facts) for name, each in endpoints.items()]
            for relay in relays:
                group.start_soon(relay.run)
            janitor = Janitor(store, settings=StoreSettings(), sinks=tuple(endpoints), telemetry=Telemetry(), now=clock)
            await dockbell.agents.feeds[feed].reconciler.run_once()
            poller = dockbell.agents.feeds[feed].poller
            assert poller is not None
            kept: list[tuple[float, int]] = []
            for number in range(42 * 8):
                dockbell.sandbox.step(4)
                await poller.run_once()
                await anyio.sleep(day / 8)
                if number % 8 == 0:
                    await janitor.run_once()
                    ((count,),) = read_rows(tmp_path / "dockbell.db", "SELECT count(*) FROM events")
                    kept.append((anyio.current_time(), count))
            for relay in relays:
                relay.stop()
    runs = [fact for fact in dockbell.facts if isinstance(fact, RunEnded)]
    assert {run.problem for run in runs} == {""}
    assert max(run.elapsed for run in runs) < timedelta(seconds=5)
    assert [fact for fact in facts if isinstance(fact, AgentFails)] == []
    for endpoint in others:
        assert sorted(post.sequence for post in endpoint.posts) == list(range(1, len(endpoint.posts) + 1))
        assert max(post.delay for post in endpoint.posts) < 1
    await assert_revived(dead, others[0], revived_at)
    # What is owed is kept for 30 days, all else for 7; the janitor comes once a day.
    recorded = [post.at for post in others[0].posts]
    assert all(count <= sum(at - 31 * day <= each <= at for each in recorded) for at, count in kept)
    at, count = kept[-1]
    assert count <= sum(at - 8 * day <= each <= at for each in recorded)
    print(f"{len(recorded)} events, at most {max(each for _, each in kept)} kept, {count} in the end")


async def assert_revived(dead: Endpoint, other: Endpoint, revived_at: float) -> None:
    """Check that a sink that was overrun got: what it lost, what is stored, and then what happens."""
    assert min(post.at for post in dead.posts) >= revived_at
    stored = [post for post in dead.posts if post.event["data"].get("via") == "state"]
    (gap,) = [post for post in dead.posts if post.event["data"].get("reason") == "overrun"]
    assert gap.event["type"] == "dockbell.feed.gap"
    assert {post.event["data"]["change"] for post in stored} == {"snapshot"}
    assert {post.sequence for post in (gap, *stored)} == {gap.sequence}
    live = [post for post in dead.posts if post not in (gap, *stored)]
    assert {post.event["id"] for post in live} == {
        post.event["id"] for post in other.posts if post.sequence > gap.sequence
    }
    assert min(post.sequence for post in live) == gap.sequence + 1
    for key in {post.key for post in live} - {""}:
        sequences = [post.sequence for post in dead.posts if post.key == key]
        assert sequences == sorted(set(sequences)), "the stored record first, then what happened to it"
    assert read_states(dead.posts) == read_states(other.posts)


def read_states(posts: list[AgentTask]) -> Mapping[str, Any]:
    """Return the records as a subscriber would have rebuilt them."""
    latest = {post.key: post.event["data"]["after"] for post in posts if post.key}
    return {key: read_content(after) for key, after in latest.items() if after is not None}


# One deploy -----------------------------------------------------------------------------------------------------------


async def test_a_deploy_that_answers_422_to_everything_for_a_minute_kills_nothing_but_a_culprit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    culprit = 250

    def be_deployed(event: Any, at: float) -> Answer:
        return (422, {}) if 60 <= at < 120 or int(event["sequence"]) == culprit else TAKEN

    endpoint = Endpoint(be_deployed)
    async with dispatching(tmp_path, monkeypatch, endpoint) as dispatch:
        await change_often(dispatch, 180)
        await dispatch.until_all_taken(600, but=1)
    assert [sequence for _, sequence in dispatch.dead()] == [culprit]
    assert all(order == sorted(order) for order in dispatch.orders().values())
    refused = [post for post in endpoint.posts if post.status == 422 and post.sequence != culprit]
    print(f"{len(refused)} refusals in that minute")
    assert len(refused) < 20
    assert min(post.at for post in endpoint.taken if post.at > 120) < 155


# One wish -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_receiver_that_asks_to_wait_is_left_alone_for_exactly_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, form: str
) -> None:
    begin, wait = 20, 90
    header = str(wait) if form == "seconds" else format_datetime(START + timedelta(seconds=begin + wait), usegmt=True)
    asked: list[float] = []

    def ask_to_wait(_event: Any, at: float) -> Answer:
        if at >= begin and not asked:
            asked.append(at)
            return status, {"Retry-After": header}
        return TAKEN

    endpoint = Endpoint(ask_to_wait)
    async with dispatching(tmp_path, monkeypatch, endpoint) as dispatch:
        await change_often(dispatch, 130)
        await dispatch.until_all_taken(60)
    assert dispatch.dead() == []
    assert all(order == sorted(order) for order in dispatch.orders().values())
    (asked_at,) = asked
    over_at = asked_at + LATENCY + wait if form == "seconds" else begin + wait
    # What was in flight when it asked is answered; then nothing comes until the time is over, and at once after that.
    times = [post.at for post in endpoint.posts if post.at > asked_at + LATENCY]
    assert over_at <= min(times) < over_at + 0.1


async def test_a_receiver_that_is_gone_is_asked_nothing_until_an_operator_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(lambda _event, at: (410, {}) if 30 <= at < 100 else TAKEN)
    async with dispatching(tmp_path, monkeypatch, endpoint) as dispatch:
        await change_often(dispatch, 120)
        gone = [post.at for post in endpoint.posts if post.status == 410]
        command_store = await SqliteCommandStore.open(dispatch.path)
        assert await command_store.resume("erp", datetime.now(UTC))
        await command_store.aclose()
        resumed_at = anyio.current_time()
        await dispatch.until_all_taken(120)
    assert len(gone) <= 4, "what was in flight"
    assert max(gone) < 31
    assert dispatch.dead() == []
    assert all(order == sorted(order) for order in dispatch.orders().values())
    assert resumed_at <= min(post.at for post in endpoint.posts if post.at > 31) < resumed_at + 1
    told = [type(fact) for fact in dispatch.facts if isinstance(fact, SinkPaused | SinkResumed)]
    assert told == [SinkPaused, SinkResumed]
