"""A whole dockbell over a deployment of the API, in a time of their own: hours pass in a moment, the same each time.

The sandbox is called in process, streams and all; the client, the store and the agents are those that the program
assembles. Only time is not real: the loop jumps to whatever is due next, and all clocks show its time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx
import pytest
from anyio.abc import ObjectReceiveStream, ObjectSendStream

from dockbell.app import opening
from dockbell.app.agents import Agents, assemble
from dockbell.app.source_agents import FeedAgents
from dockbell.config import Config
from dockbell.core.model import Feed, RunKind
from dockbell.detection.guarded import run_guarded
from dockbell.host import system
from dockbell.ports import FeedState
from dockbell.sandbox import LoggedChange, Sandbox, SandboxOptions
from dockbell.sources import InventoryClient, connection_pool
from dockbell.telemetry import Fact, RunEnded, Telemetry
from tests.oracle import Account, Place, Story

START: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
POLLED: Final = ("shipments", "packages", "items")
POLL_EVERY: Final = 30.0
SMALL: Final[dict[str, Any]] = {
    "shipments": 12,
    "packages": 14,
    "items": 8,
    "stock": 15,
    "warehouses": 3,
    "page_cap": 6,
    "requests_per_minute": 0,
}
"""A few records of each resource, and several pages of them."""


# Time ----------------------------------------------------------------------------------------------------------------


class Clock:
    """Every clock there is: that of the service, that of dockbell, and what its client measures with."""

    def __call__(self) -> datetime:
        return START + timedelta(seconds=anyio.current_time())

    def now(self, _: object = None) -> datetime:
        return self()

    def monotonic(self) -> float:
        return anyio.current_time()

    def steady(self) -> timedelta:
        """Return the time that has passed, whatever dockbell's clock was set to."""
        return timedelta(seconds=anyio.current_time())


async def _run_here(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
    """Call what would run in a thread: there is one time, and it stands still meanwhile."""
    return function(*args)


# The wire ------------------------------------------------------------------------------------------------------------


class Wire(httpx.AsyncBaseTransport):
    """Calls an ASGI application as a server would, and hands its answer on piece by piece.

    Attributes:
        paths: What was asked for, in order, with the query.
        statuses: How each request was answered; 0 where it was not.
        times: When each came.
        before: Called with each request before the service gets it.
    """

    def __init__(self, target: Any) -> None:
        self.paths: list[str] = []
        self.statuses: list[int] = []
        self.times: list[float] = []
        self.before: Callable[[httpx.Request], Awaitable[None]] | None = None
        self._target = target

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.before is not None:
            await self.before(request)
        self.paths.append(request.url.raw_path.decode())
        self.statuses.append(0)
        self.times.append(anyio.current_time())
        number = len(self.statuses) - 1
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": ("sandbox", 80),
            "client": ("127.0.0.1", 1),
            "extensions": {},
        }
        put, take = anyio.create_memory_object_stream[dict[str, Any]](0)
        serving = asyncio.create_task(self._serve(scope, request, put))
        try:
            start = await take.receive()
        except anyio.EndOfStream:
            take.close()
            await serving
            raise httpx.ReadError("the service broke the connection") from None
        except BaseException:
            take.close()
            serving.cancel()
            raise
        self.statuses[number] = start["status"]
        return httpx.Response(start["status"], headers=start.get("headers", []), stream=_Body(take, serving))

    def most_in_a_minute(self) -> int:
        """Return the most requests that came within any 60 seconds."""
        return max(sum(start <= time < start + 60 for time in self.times) for start in self.times)

    async def _serve(
        self, scope: dict[str, Any], request: httpx.Request, put: ObjectSendStream[dict[str, Any]]
    ) -> None:
        told: list[dict[str, Any]] = [{"type": "http.request", "body": await request.aread(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not told:
                await anyio.sleep_forever()  # who hangs up ends all of this at once
            return told.pop()

        async with put:
            with suppress(ConnectionResetError, anyio.BrokenResourceError):
                await self._target(scope, receive, put.send)


class _Body(httpx.AsyncByteStream):
    def __init__(self, take: ObjectReceiveStream[dict[str, Any]], serving: asyncio.Task[None]) -> None:
        self._take = take
        self._serving = serving

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._take:
            if event.get("body"):
                yield event["body"]
            if not event.get("more_body"):
                return
        raise httpx.ReadError("the service broke the connection")

    async def aclose(self) -> None:
        await self._take.aclose()
        self._serving.cancel()
        with suppress(asyncio.CancelledError):
            await self._serving


# What is told --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """What of a record says nothing.

    Attributes:
        apart: Its timestamp, and what stands in its detail only.
        sorts: The order of elements, where they come in any.
    """

    apart: Sequence[str | None] = ("updated_at",)
    sorts: bool = False

    def plain(self, value: Any) -> Any:
        """Return a record without what says nothing."""
        if value is None:
            return None
        record = json.loads(value) if isinstance(value, bytes) else value
        plain = self._sorted(record) if self.sorts else dict(record)
        return {name: part for name, part in plain.items() if name not in self.apart}

    def _sorted(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._sorted(part) for name, part in value.items()}
        if isinstance(value, list):
            return sorted(map(self._sorted, value), key=lambda part: json.dumps(part, sort_keys=True))
        return value


# The deployment ------------------------------------------------------------------------------------------------------


@dataclass
class Deployment:
    """A dockbell that watches a sandbox.

    Attributes:
        initial: The records before the first change.
        facts: What was told to logs and metrics.
    """

    sandbox: Sandbox
    agents: Agents
    wire: Wire
    form: Form
    facts: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.resources = [feed.resource for feed in self.agents.feeds]
        self.initial = {name: self.sandbox.records(name) for name in self.resources}
        self._polls_at = 0.0
        self._trails_at = 300.0

    # What is done -----------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        """Let the agents do what is due, as the program would, for some time."""
        end = anyio.current_time() + seconds
        agents = self.agents.feeds.values()
        pollers = [(each, each.poller) for each in agents if each.poller is not None]
        detail_fetchers = [each.detail_fetcher for each in agents if each.detail_fetcher is not None]
        while True:
            for each in agents:
                if await each.reconciler.delay() <= timedelta(0):
                    await self._tend(each, each.reconciler.run_once)
            if anyio.current_time() >= self._polls_at:
                self._polls_at = anyio.current_time() + POLL_EVERY
                for each, poller in pollers:
                    await self._tend(each, poller.run_once)
            if anyio.current_time() >= self._trails_at:
                self._trails_at = anyio.current_time() + 300
                for each, poller in pollers:
                    await self._tend(each, poller.trail_once)
            for detail_fetcher in detail_fetchers:
                await detail_fetcher.run_once()
            if anyio.current_time() >= end:
                return
            dues = [(await each.reconciler.delay()).total_seconds() for each in agents]
            now = anyio.current_time()
            await anyio.sleep(max(0.001, min(end - now, self._polls_at - now, self._trails_at - now, *dues)))

    async def _tend(self, agents: FeedAgents, run_once: Callable[[], Awaitable[object]]) -> None:
        await run_guarded(agents.tracked, run_once, pause=False)

    def edit(self, count: int = 2) -> None:
        """Change the oldest records of each resource."""
        for resource in self.resources:
            self.sandbox.edit(resource, count)

    # What came of it --------------------------------------------------------------------------------------------------

    async def state(self, resource: str) -> FeedState:
        """Return what is stored about a feed."""
        return await self.agents.feeds[Feed("main", resource)].tracked.state()

    async def account(self) -> Account:
        """Return what the events tell."""
        account = Account()
        for feed in self.agents.feeds:
            for event in await self.agents.store.read_events(feed, 0, 1_000_000):
                told = json.loads(event.body)
                if event.key:
                    data = told["data"]
                    told["data"] = data | {name: self.form.plain(data[name]) for name in ("before", "after")}
                account.hear(told)
        return account

    def story(self) -> Story:
        """Return what really happened."""
        story = Story({}, ())
        for resource, records in self.initial.items():
            for identity, raw in records.items():
                story.versions[resource, identity] = [self.form.plain(raw)]
        for change in self.changes():
            versions = story.versions.setdefault((change.resource, change.identity), [None])
            versions.append(self.form.plain(change.after))
        return story

    def changes(self) -> list[LoggedChange]:
        """Return what was changed of the resources that are watched."""
        return [change for change in self.sandbox.changes() if change.resource in self.resources]

    async def judge(self) -> list[str]:
        """Return what of all that was told is wrong: missed, invented, repeated, in another order."""
        account = await self.account()
        problems = account.judge(self.story())
        for place, events in account.events.items():
            for event in events.values():
                data = event["data"]
                if data["change"] == "updated" and data["before"] == data["after"]:
                    problems.append(f"{place} revision {data['revision']} changes nothing")
                if data["change"] == "created" and place[1] in self.initial[place[0]]:
                    problems.append(f"{place} was created, but had been there before")
        return problems

    async def behind(self) -> list[Place]:
        """Return the records of polled resources whose last content was not told yet, deletions apart."""
        told, real = (await self.account()).state(), self.story().final()
        return [place for place in real if place[0] in POLLED and told.get(place) != real[place]]

    async def told(self, *changes: str) -> list[Place]:
        """Return the records of which changes of some kinds were told, once for each."""
        account = await self.account()
        return sorted(
            place
            for place, events in account.events.items()
            for event in events.values()
            if event["data"]["change"] in changes
        )

    def problems(self, resource: str, kind: RunKind) -> set[str]:
        """Return why runs of one kind were incomplete."""
        runs = [fact for fact in self.facts if isinstance(fact, RunEnded)]
        return {run.problem for run in runs if (run.feed.resource, run.kind) == (resource, kind) and run.problem}

    async def statements(self) -> list[str]:
        """Return what was stated, but for certificates, as ``resource statement reason``."""
        account = await self.account()
        return [
            f"{data['resource']} {data['statement']} {data.get('reason', '')}".strip()
            for data in (event["data"] for event in account.statements)
            if data["statement"] != "reconciled"
        ]

    async def certificates(self, resource: str) -> list[dict[str, Any]]:
        """Return the certificates of the passes over a resource."""
        account = await self.account()
        told = [event["data"] for event in account.statements]
        return [data for data in told if data["statement"] == "reconciled" and data["resource"] == resource]


@asynccontextmanager
async def deploy(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    resources: Sequence[str] = ("shipments", "packages", "stock"),
    settings: dict[str, Any] | None = None,
    per_minute: int = 60_000,
    backoff: float = 30,
    sorts: bool = False,
    apart: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Deployment]:
    """Yield a dockbell that watches a sandbox, before its first request.

    Args:
        folder: Where the store is.
        monkeypatch: Puts the clocks in.
        resources: What is watched.
        settings: Of all of these; under the name of one, of this one alone.
        per_minute: What the client believes of its budget.
        backoff: How long the client waits for an answer, in seconds.
        sorts: Elements of arrays come in any order.
        apart: What no list shows of a record.
        options: The sandbox's.
    """
    clock = Clock()
    sandbox = Sandbox(SandboxOptions(**(SMALL | options)), now=clock)
    wire, facts = Wire(sandbox.app), list[Fact]()

    def open_source(_: Config, name: str, telemetry: Telemetry, *, checked: bool) -> InventoryClient:
        return InventoryClient(
            "http://sandbox",
            "sandbox",
            name=name,
            requests_per_minute=per_minute,
            timeout=timedelta(seconds=backoff),
            telemetry=telemetry,
            transport=wire,
        )

    monkeypatch.setattr(anyio.to_thread, "run_sync", _run_here)
    monkeypatch.setattr(connection_pool, "time", clock)
    monkeypatch.setattr(connection_pool, "datetime", clock)
    monkeypatch.setattr(opening, "now", clock)
    monkeypatch.setattr(system, "elapsed", clock.steady)
    monkeypatch.setattr(opening, "open_source", open_source)
    async with assemble(_configure(folder, resources, settings or {}), Telemetry(facts.append)) as agents:
        await agents.load()
        form = Form((sandbox.options.timestamp_field, *apart), sorts=sorts)
        yield dataclasses.replace(Deployment(sandbox, agents, wire, form), facts=facts)


def _configure(folder: Path, resources: Sequence[str], settings: dict[str, Any]) -> Config:
    common = {name: value for name, value in settings.items() if name not in (*POLLED, "stock", "warehouses")}
    tables = {}
    for resource in resources:
        polled: dict[str, Any] = {"every": "30s", "reconcile": "2m"}
        schedule = polled if resource in POLLED else {"every": "60s"}
        known = {"first_pass": "emit", "confirm_after": "50s", "stale_window": "40s"}
        tables[resource] = known | schedule | common | settings.get(resource, {})
    return Config.model_validate(
        {
            "name": "acme",
            "store": {"url": f"sqlite:///{folder}/dockbell.db"},
            "sources": {"main": {"base_url": "http://sandbox", "api_key": {"env": "PATH"}}},
            "resources": tables,
        }
    )
