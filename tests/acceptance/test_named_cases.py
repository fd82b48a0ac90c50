"""The cases that detection was built for, each by its name."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dockbell.errors import CursorExpired, DockbellError, PageUnreadable, SchemaMismatch, SourceUnavailable
from tests.brokers import Received, Subscriber, find_free_port, make_broker, started
from tests.cli.programs import run
from tests.model.api import Deployment, ModelApi, Step, VirtualClock
from tests.model.disks import FileDisk
from tests.model.oracle import Oracle
from tests.model.rig import Rig, read
from tests.services import Daemon
from tests.serving import listening

pytestmark = pytest.mark.acceptance


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@dataclass
class Case:
    """One feed over the model, watched by the oracle."""

    folder: Path
    deployment: Deployment
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.api = ModelApi(self.clock, self.deployment)
        self.disk = FileDisk(self.folder)
        self.rig = Rig(self.api, self.disk, self.settings)
        self.oracle = Oracle(self.rig)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let dockbell run, from its first pass on."""
        await self.rig.start()
        try:
            yield
        finally:
            await self.rig.stop()

    async def poll(self, after: float = 15) -> str | None:
        """Poll, some seconds later."""
        self.clock.pass_(seconds(after))
        problem = await self.rig.poll()
        await self.oracle.look()
        await self.oracle.judge_runs(complete=not problem)
        return problem

    async def trail(self) -> None:
        await self.rig.trail()
        await self.oracle.look()

    async def read_whole(self, after: float = 15) -> str:
        """Make a pass, some seconds later."""
        self.clock.pass_(seconds(after))
        problem = await self.rig.read_whole()
        await self.oracle.look()
        await self.oracle.judge_runs(complete=not problem)
        return problem

    async def told(self) -> list[str]:
        """Return the events about records, as ``key change``."""
        return [f"{event.key} {event.change}" for event in await self.rig.events() if event.key]

    async def final(self) -> dict[str, Any]:
        """Return the last content that was told of each record."""
        bodies = [json.loads(event.body)["data"] for event in await self.rig.events() if event.key]
        return {data["key"]: read(data["after"]) for data in bodies}

    async def statements(self) -> Counter[str]:
        """Return what was stated about the feed, passes left out."""
        types = (event.type.removeprefix("dockbell.feed.") for event in await self.rig.events() if not event.key)
        return Counter(kind for kind in types if kind != "reconciled")

    def put_all(self, keys: list[str], *, every: float = 1) -> None:
        """Create records before dockbell comes."""
        for key in keys:
            self.clock.pass_(seconds(every))
            self.api.put(key)
        self.clock.pass_(seconds(600))

    def script(self, *before: Callable[[], object], trip: float = 0.02) -> None:
        """Let something happen before each of the next answers."""
        self.api.script = deque(Step(act, trip=seconds(trip)) for act in before)


# (a) -----------------------------------------------------------------------------------------------------------------


async def test_a_after_an_hour_without_the_api_nothing_is_lost_though_pages_drift(tmp_path: Path) -> None:
    """One hour's outage, offset cursors in ``updated_at`` order, four changes a second: polls alone find them all."""
    case = Case(tmp_path, Deployment(resource="packages", order="updated", cursors="offset", page_most=200))
    keys, dice = [f"p{number}" for number in range(1500)], random.Random(1)
    case.put_all(keys, every=0.01)
    changed_at = case.clock.service

    def live() -> None:
        """Make the changes that are due, four a second."""
        nonlocal changed_at
        now = case.clock.service
        while changed_at <= now:
            case.clock.service = changed_at
            case.api.put(dice.choice(keys))
            changed_at += seconds(0.25)
        case.clock.service = now

    async with case.running():
        await case.read_whole(after=0)
        changed_at = case.clock.service
        await case.poll()
        case.clock.pass_(seconds(3600))
        live()
        changes_away = case.api.counter - len(keys)
        for _ in range(6):  # it goes on while the hour is read
            case.script(*[live] * 100, trip=0.4)
            assert await case.poll() == ""
        case.script()
        for _ in range(4):
            await case.poll()
        assert changes_away >= 14_400
        real = {key: version.content for key, version in case.api.view(case.clock.service).items()}
        assert await case.rig.stored() == real
        assert await case.final() == {key: real[key] for key in await case.final()}


# (b) -----------------------------------------------------------------------------------------------------------------


async def test_b_what_is_visible_late_or_dated_2099_is_told_and_an_outage_is_not_lateness(tmp_path: Path) -> None:
    """A record visible 90 s late; one dated 2099 and then edited five times with true dates; an outage."""
    case = Case(tmp_path, Deployment(resource="packages", page_most=50))
    case.put_all(["late", "future", *(f"p{number}" for number in range(20))])
    async with case.running():
        await case.read_whole(after=0)
        await case.poll()
        lookback = case.rig.tracked.profile.lookback
        for number in range(20):  # an hour's outage
            case.clock.pass_(seconds(180))
            case.api.put(f"p{number}")
        await case.poll()
        await case.poll()
        assert case.rig.tracked.profile.lookback == lookback
        assert len(await case.told()) == 20

        late = case.api.put("late", late=seconds(90))
        for _ in range(20):
            await case.poll()
        await case.trail()
        assert (await case.final())["late"] == late.content

        case.api.put("future", stamp=datetime(2099, 1, 1, tzinfo=UTC))
        await case.poll()
        edits = []
        for _ in range(5):
            edits.append(case.api.put("future"))
            await case.poll()
            assert (await case.final())["future"] == edits[-1].content
        for _ in range(4):
            await case.poll()
        assert [told for told in await case.told() if told.startswith("future")] == ["future updated"] * 6


# (c) -----------------------------------------------------------------------------------------------------------------


async def test_c_stock_without_id_or_timestamp_and_a_lagging_replica_give_no_invented_event(tmp_path: Path) -> None:
    """Stock sorted by warehouse, one lagging replica: every event of 20 passes tells what was, and in its order."""
    case = Case(
        tmp_path,
        Deployment(
            resource="stock", stamped=False, composite=True, order="key", cursors="offset", page_most=7, lag=seconds(30)
        ),
    )
    keys, dice = [f"w{number % 4}-{number:03}" for number in range(60)], random.Random(3)
    case.put_all(keys)
    async with case.running():
        await case.read_whole(after=0)
        for _ in range(20):
            for key in dice.sample(keys, 15):
                case.clock.pass_(seconds(20))
                case.api.put(key)
            case.api.script = deque(Step(stale=dice.random() < 0.3, trip=seconds(0.5)) for _ in range(20))
            await case.read_whole(after=0)
        await case.read_whole(after=61)
        await case.read_whole(after=61)
        await case.oracle.judge_rest()
        assert len(await case.told()) > 100


# (d) -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(SourceUnavailable("HTTP 503"), id="503"),
        pytest.param(PageUnreadable("cut short"), id="cut short"),
        pytest.param(CursorExpired("HTTP 410"), id="cursor forgotten"),
        pytest.param(SchemaMismatch("no records"), id="no records"),
    ],
)
async def test_d_a_pass_that_dies_on_page_3_deletes_nothing(tmp_path: Path, error: Exception) -> None:
    case = Case(tmp_path, Deployment(resource="packages", page_most=4))
    case.put_all([f"p{number}" for number in range(20)])
    async with case.running():
        await case.read_whole(after=0)
        for _ in range(3):
            case.clock.pass_(seconds(3600))
            # Whatever is tried again fails again: the pages before are read, and no page after.
            case.api.script = deque([Step(), Step(), *[Step(error=error)] * 40])
            try:
                assert await case.rig.read_whole()
            except DockbellError as stopped:
                assert stopped is error  # noqa: PT017  # some of the ways stop the feed, others only the run
            case.api.script.clear()
            await case.oracle.look()
        await case.read_whole(after=3600)
        assert await case.told() == []
        assert (await case.rig.state()).confirm_at is None


async def test_d_deletions_of_14_of_15_warehouses_are_held(tmp_path: Path) -> None:
    case = Case(tmp_path, Deployment(resource="warehouses", page_most=50))
    keys = [f"w{number}" for number in range(15)]
    case.put_all(keys)
    async with case.running():
        await case.read_whole(after=0)
        for key in keys[1:]:
            case.api.remove(key)
        for _ in range(3):
            await case.read_whole(after=3600)
        assert await case.told() == []
        assert (await case.rig.state()).held == 14
        assert (await case.statements())["held"] == 1


async def test_d_a_record_created_and_moved_during_a_pass_is_not_suspected(tmp_path: Path) -> None:
    case = Case(tmp_path, Deployment(resource="packages", order="updated_desc", cursors="offset", page_most=4))
    case.put_all([f"p{number:02}" for number in range(20)])
    async with case.running():
        await case.read_whole(after=0)
        # Created while the pass goes on, before what was read already, and moved from there again.
        case.script(
            lambda: None,
            lambda: case.api.put("new"),
            lambda: case.clock.pass_(seconds(1)),
            lambda: case.api.put("new"),
        )
        await case.read_whole(after=3600)
        assert (await case.rig.state()).confirm_at is None
        await case.poll()
        await case.read_whole(after=130)
        assert await case.told() == ["new created"]


# (e) -----------------------------------------------------------------------------------------------------------------

ODD = "a/b+#%é"
ODD_TEXT = "a%2Fb%2B%23%25é"
KEYS = {("shipments", ODD_TEXT): ODD, ("shipments", "7"): 7, ("stock", f"7,{ODD_TEXT}"): [7, ODD]}
"""The key strings, and the ids that the API writes."""
IDENTITIES: dict[str, list[dict[str, Any]]] = {
    "shipments": [{"id": ODD}, {"id": 7}],
    "stock": [{"sku": 7, "warehouse_id": ODD}],
}

TWO_ACCOUNTS = """
name = "acme"

[sources.one]
base_url = "{api}"
api_key = "key-one"
requests_per_minute = 6000

[sources.two]
base_url = "{api}"
api_key = "key-two"
requests_per_minute = 6000

[resources]
shipments = {{ every = "300ms", first_pass = "emit", detail = ["packages"] }}
stock = {{ every = "500ms", first_pass = "emit" }}

[sinks.floor]
type = "mqtt"
url = "{broker}"
"""


class Accounts:
    """Two accounts of one API with the same ids, and other contents."""

    def __init__(self) -> None:
        self.port = find_free_port()
        self.count = 1
        self.changed_at = datetime.now(UTC) - seconds(3600)
        self.asked: set[tuple[str, str]] = set()
        self.app = Starlette(routes=[Route("/v1/{path:path}", self._answer)])

    def change(self) -> None:
        """Change every record of both accounts."""
        self.count += 1
        self.changed_at = datetime.now(UTC)

    def record(self, account: str, identity: dict[str, Any]) -> dict[str, Any]:
        return identity | {
            "account": account,
            "count": self.count,
            "updated_at": self.changed_at.isoformat().replace("+00:00", "Z"),
        }

    async def _answer(self, request: Request) -> Response:
        account = request.headers["authorization"].removeprefix("Bearer key-")
        date = {"date": format_datetime(datetime.now(UTC), usegmt=True)}
        resource, _, identity = request.scope["raw_path"].decode().removeprefix("/v1/").partition("/")
        if identity:
            self.asked.add((account, identity))
            given = {"id": ODD if unquote(identity) == ODD else int(identity)}
            return JSONResponse(self.record(account, given) | {"packages": [account]}, headers=date)
        records = [self.record(account, each) for each in IDENTITIES[resource]]
        return JSONResponse({resource: records, "next_cursor": None}, headers=date)


async def test_e_two_accounts_with_odd_keys_never_mix(tmp_path: Path) -> None:
    """Two accounts on one base URL: topics, URLs, ``why`` and ids agree."""
    accounts = Accounts()
    places: set[tuple[str, ...]] = {(source, *place) for source in ("one", "two") for place in KEYS}
    with started(make_broker(tmp_path)) as broker, Subscriber(broker, "dockbell/event/#") as subscriber:
        config = TWO_ACCOUNTS.format(api=f"http://127.0.0.1:{accounts.port}", broker=broker.url)
        (tmp_path / "dockbell.toml").write_text(config)
        async with listening(accounts.app, accounts.port):
            with Daemon(tmp_path) as daemon:
                daemon.start()
                await subscriber.until(lambda received: told(received, "snapshot") == places)
                accounts.change()
                await subscriber.until(lambda received: told(received, "updated") == places)
                whys = {place: await explain(tmp_path, *place) for place in places}
                assert (await explain(tmp_path, "one", "shipments", ODD))["key"] == ODD_TEXT
                assert daemon.end(signal.SIGTERM) == 0
    events = [(each.topic.split("/")[2:], json.loads(each.payload)) for each in subscriber.received]
    ids: dict[tuple[str, ...], list[str]] = {place: [] for place in places}
    for (source, resource, key, change), event in events:
        if resource == "feed" or not event.get("subject"):
            continue
        data = event["data"]
        ids[source, resource, key].append(event["id"])
        assert (data["key"], event["subject"], data["change"]) == (key, key, change)
        assert event["source"] == f"dockbell://acme/{source}/{resource}"
        assert event["partitionkey"] == f"{source}/{resource}/{key}"
        assert data["id"] == KEYS[resource, key]
        assert data["after"]["account"] == source
        assert data["after"].get("packages", [source]) == [source]
    given = [each for some in ids.values() for each in some]
    assert len(given) == len(set(given))
    for (source, resource, key), account in whys.items():
        assert (account["feed"], account["key"]) == (f"{source}/{resource}", key)
        assert [event["id"] for event in account["events"]] == ids[source, resource, key]
    assert {(account, unquote(path)) for account, path in accounts.asked} == {
        (account, identity) for account in ("one", "two") for identity in (ODD, "7")
    }
    assert not any("/" in path for _, path in accounts.asked)


def told(received: list[Received], change: str) -> set[tuple[str, ...]]:
    """Return source, resource and key of what was published of a change."""
    levels = [each.topic.split("/") for each in received]
    return {(level[2], level[3], level[4]) for level in levels if level[-1] == change}


async def explain(folder: Path, source: str, resource: str, key: str) -> dict[str, Any]:
    """Return what ``dockbell why`` says."""
    words = ("why", resource, key, "--source", source, "--json")
    said = await anyio.to_thread.run_sync(partial(run, *words, cwd=folder))
    assert said.returncode == 0, said.stderr
    account: dict[str, Any] = json.loads(said.stdout)
    return account


# (f) -----------------------------------------------------------------------------------------------------------------


def lose(file: Path) -> None:
    """Delete a store."""
    for end in ("", "-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)


async def test_f_another_expand_or_query_is_no_flood(tmp_path: Path) -> None:
    """Read differently, the records differ, and none of them has changed."""
    case = Case(tmp_path, Deployment(resource="packages", page_most=10))
    case.put_all([f"p{number:02}" for number in range(40)])
    async with case.running():
        await case.read_whole(after=0)
        await case.poll()
        for reading in ({"expand": ["shipment"]}, {"query": {"n": 7}}):
            await case.rig.stop()
            case.settings.update(reading)
            await case.rig.start()
            for _ in range(20):
                case.clock.pass_(seconds(15))
                await case.rig.read_whole()
                await case.rig.poll()
        assert await case.told() == []
        assert await case.statements() == {"rebaselined": 2}


async def test_f_a_store_that_was_deleted_begins_a_new_life_with_a_gap(tmp_path: Path) -> None:
    case = Case(tmp_path, Deployment(resource="packages", page_most=10))
    case.put_all([f"p{number:02}" for number in range(40)])
    async with case.running():
        await case.read_whole(after=0)
        case.api.put("p01")
        await case.poll()
        before = {event.id for event in await case.rig.events()}
        await case.rig.stop()
        lose(case.disk.place)
        case.clock.pass_(seconds(1800))
        case.api.put("p02")
        case.clock.pass_(seconds(1800))
        await case.rig.start()
        await case.rig.read_whole()
        case.clock.pass_(seconds(15))
        case.api.put("p01")
        await case.rig.poll()
        events = await case.rig.events()
        assert before.isdisjoint(event.id for event in events)
        assert [event.type for event in events if not event.key][0] == "dockbell.feed.gap"  # noqa: RUF015
        assert (await case.statements())["gap"] == 1
        assert await case.told() == ["p01 updated"]


async def test_f_yesterdays_backup_tells_what_is_new_once_and_reuses_no_id(tmp_path: Path) -> None:
    case = Case(tmp_path, Deployment(resource="packages", page_most=10))
    keys = [f"p{number:02}" for number in range(40)]
    case.put_all(keys)
    async with case.running():
        await case.read_whole(after=0)
        case.api.put("p01")
        await case.poll()
        await case.rig.stop()
        shutil.copy(case.disk.place, tmp_path / "backup.db")
        await case.rig.start()
        for key in keys[:10]:
            case.clock.pass_(seconds(3600))
            case.api.put(key)
            await case.poll()
        before = {event.id: event for event in await case.rig.events()}
        await case.rig.stop()
        lose(case.disk.place)
        shutil.copy(tmp_path / "backup.db", case.disk.place)
        await case.rig.start()
        await case.rig.poll()
        await case.rig.read_whole()
        events = await case.rig.events()
        # What the backup holds it holds under its ids; what came after has others now.
        for event in events:
            assert event.id not in before or event.body == before[event.id].body
        assert [json.loads(event.body)["data"]["reason"] for event in events if event.type.endswith(".gap")] == [
            "store_lost"
        ]
        told = [event for event in events if event.id not in before]
        assert told[0].type == "dockbell.feed.gap"
        assert sorted(event.key for event in told if event.key) == keys[:10]


# (g) -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["packages", "stock"])
async def test_g_a_new_field_on_every_record_is_held_as_drift(tmp_path: Path, resource: str) -> None:
    """The service was deployed with a new field: nobody changed anything, and nobody is told that."""
    case = Case(tmp_path, Deployment(resource=resource, stamped=resource == "packages", page_most=10))
    keys = [f"p{number:02}" for number in range(40)]
    case.put_all(keys)
    async with case.running():
        await case.read_whole(after=0)
        for key in keys:
            version = case.api.latest(key)
            assert version is not None
            assert version.content is not None
            case.api.put(key, silent=True, content=version.content | {"colour": None})
        for _ in range(3):
            await case.rig.read_whole()
            case.clock.pass_(seconds(15))
        assert await case.told() == []
        assert await case.statements() == {"held": 1}
        state = await case.rig.state()
        assert state.drift is not None
        assert (set(state.drift.paths), state.drifted) == ({"/colour"}, 40)
