"""Webhook endpoints in a time of their own, and the real sinks, relays and store that deliver to them."""

from __future__ import annotations

import json
import sqlite3
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread
import httpcore
import pytest

from dockbell.delivery.relay import Relay
from dockbell.ports import Store
from dockbell.sinks.webhook import WebhookSink
from dockbell.telemetry import AgentFails, Fact, Telemetry
from dockbell.testing import Outbox, open_outbox
from tests.acceptance.deployment import START, Clock

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LATENCY: Final = 0.05
Answer: TypeAlias = tuple[int, Mapping[str, str]]


@dataclass(frozen=True)
class AgentTask:
    """One delivery as an endpoint got it.

    Attributes:
        at: When, in seconds since the beginning.
        status: How it was answered.
        event: What was delivered.
    """

    at: float
    status: int
    event: Any

    @property
    def key(self) -> str:
        """The record's key; empty for a statement."""
        return str(self.event.get("subject", ""))

    @property
    def sequence(self) -> int:
        """The event's number."""
        return int(self.event["sequence"])

    @property
    def delay(self) -> float:
        """How many seconds after its change was seen it came."""
        return (START + timedelta(seconds=self.at) - datetime.fromisoformat(self.event["time"])).total_seconds()


@dataclass
class Endpoint:
    """A receiver that takes a while over each delivery.

    Attributes:
        judge: Says how to answer an event, at which time; raises where nobody is there.
        posts: What came, in order.
    """

    judge: Callable[[Any, float], Answer] = lambda _event, _at: (204, {})
    posts: list[AgentTask] = field(default_factory=list)

    @property
    def taken(self) -> list[AgentTask]:
        """What it said yes to."""
        return [post for post in self.posts if post.status == 204]

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Answer, as the one connection of a lane would."""
        assert isinstance(request.stream, AsyncIterable)
        event = json.loads(b"".join([part async for part in request.stream]))
        came_at = anyio.current_time()
        status, headers = self.judge(event, came_at)
        await anyio.sleep(LATENCY)
        self.posts.append(AgentTask(came_at, status, event))
        return httpcore.Response(status, headers=list(headers.items()))

    async def aclose(self) -> None:
        """Close nothing."""

    def make_relay(self, name: str, store: Store, clock: Clock, facts: list[Fact], **settings: Any) -> Relay:
        """Return a relay with a webhook sink whose lanes all lead here."""
        given = {"type": "webhook", "url": "http://endpoint.example", "secret": SECRET, "timeout": "20s"}
        checked = WebhookSink.Settings.model_validate(given | settings)
        sink = WebhookSink(name, checked, Telemetry(facts.append))

        def open_lane(
            trust: ssl.SSLContext, proxy_url: str | None, backend: httpcore.AsyncNetworkBackend | None = None
        ) -> httpcore.AsyncConnectionPool:
            return cast("httpcore.AsyncConnectionPool", self)

        sink._backend.open_pool = open_lane  # type: ignore[method-assign]
        return Relay(
            sink, checked, store=store, telemetry=Telemetry(facts.append), now=clock, jitter=lambda: 0.0, name="acme"
        )


@dataclass
class Dispatch:
    """One endpoint, and the store whose events it gets.

    Attributes:
        facts: What was told.
    """

    outbox: Outbox
    endpoint: Endpoint
    relay: Relay
    path: Path
    facts: list[Fact] = field(default_factory=list)

    async def until_all_taken(self, seconds: float, *, but: int = 0) -> None:
        """Let time pass until the endpoint has said yes to all but some events."""
        expected = len(await self.outbox.events()) - but
        with anyio.fail_after(seconds):
            while len({post.event["id"] for post in self.endpoint.taken}) < expected:  # noqa: ASYNC110  # no real time
                await anyio.sleep(5)

    def dead(self) -> list[tuple[str, int]]:
        """Return the dead letters that are stored: key and sequence."""
        return read_rows(self.path, "SELECT key, sequence FROM dead_letters ORDER BY sequence")

    def orders(self) -> dict[str, list[int]]:
        """Return the sequences of each key in the order in which the endpoint took them."""
        orders: dict[str, list[int]] = {}
        for post in self.endpoint.taken:
            orders.setdefault(post.key, []).append(post.sequence)
        return orders


def read_rows(path: Path, statement: str) -> list[Any]:
    """Return the rows of a question to a store."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


async def run_here(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
    """Call what would run in a thread: there is one time, and it stands still meanwhile."""
    return function(*args)


@contextmanager
def virtual_clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Put the clocks in, and let nothing run in threads."""
    clock = Clock()
    monkeypatch.setattr(anyio.to_thread, "run_sync", run_here)
    monkeypatch.setattr("dockbell.sinks.webhook.datetime", clock)
    yield clock


@asynccontextmanager
async def dispatching(
    folder: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, **settings: Any
) -> AsyncIterator[Dispatch]:
    """Relay to an endpoint while inside, in virtual time."""
    facts: list[Fact] = []
    with virtual_clocks(monkeypatch) as clock:
        async with open_outbox(folder, "erp", now=clock) as outbox, anyio.create_task_group() as group:
            relay = endpoint.make_relay("erp", outbox.store, clock, facts, **settings)
            group.start_soon(relay.run)
            yield Dispatch(outbox, endpoint, relay, outbox.store.path, facts)
            relay.stop()
    assert [fact for fact in facts if isinstance(fact, AgentFails)] == []
