"""Three processes on one PostgreSQL: one is killed, one is stopped for a while, one is ended, the database crashes."""

from __future__ import annotations

import os
import signal
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.acceptance.sharing import CONFIG, RESOURCES, SECRET, Ledger, Processes, change, judge_store
from tests.oracle import Story
from tests.postgres import Server
from tests.receivers import Receiver
from tests.services import Daemon

pytestmark = pytest.mark.acceptance

SOURCES: Final = tuple(f"s{number:02}" for number in range(12))
BUSY: Final = "busy"
"""Asks for the details of every change: more than its key allows."""
LIMIT: Final = 120
"""Requests a minute of each key; a process that took over would soon exceed it if it began to count anew."""
TTL: Final = 6
STOPPED: Final = 9
UNDER_WAY: Final = 0.1
"""So long after the death of a process its last requests may arrive."""

SOURCE = """
[sources.{source}]
base_url = "{api}"
api_key = "{source}"
requests_per_minute = {limit}
share = 1.0
"""

DETAILS = """
[sources.{source}.resources]
shipments = {{ every = "1s", detail = ["packages"] }}
stock = {{ every = "1s" }}
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the API, when it arrived."""

    at: float
    key: str
    status: int


class RequestLog:
    """Notes the requests that an API gets, by its own clock."""

    def __init__(self, app: ASGIApp) -> None:
        self.requests: list[Asked] = []
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at = time.monotonic()

        async def hear(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = dict(scope["headers"])
                key = headers[b"authorization"].decode().removeprefix("Bearer ")
                self.requests.append(Asked(at, key, message["status"]))
            await send(message)

        await self._app(scope, receive, hear)

    def find_fullest(self, window: float = 60) -> Mapping[str, int]:
        """Return the most requests of each key that arrived within a window, wherever it begins."""
        times: dict[str, list[float]] = defaultdict(list)
        for each in sorted(self.requests, key=lambda each: each.at):
            if each.status != 429:  # it counts nowhere
                times[each.key].append(each.at)
        return {
            key: max(bisect_right(moments, at + window) - place for place, at in enumerate(moments))
            for key, moments in times.items()
        }

    def find_first(self, key: str, since: float) -> float | None:
        """Return after how many seconds a process asked with a key of one that could ask no more since then."""
        found = [each.at for each in self.requests if each.key == key and each.at > since + UNDER_WAY]
        return min(found) - since if found else None


class Trial(Processes):
    """Three processes, and what is done to them.

    Attributes:
        takeovers: The seconds from the death of a process until another asked with each of its keys.
    """

    def __init__(self, folder: Path, server: Server, url: str, log: RequestLog, stack: ExitStack) -> None:
        super().__init__(server, url, (*SOURCES, BUSY))
        self.takeovers: dict[str, list[float]] = {}
        self._log = log
        for name in ("a", "b", "c"):
            (folder / name).mkdir()
            self.daemons[name] = stack.enter_context(Daemon(folder / name))

    def read_log(self, folder: Path) -> str:
        return "".join((folder / name / "dockbell.log").read_text() for name in self.daemons)

    async def await_takeover(self, what: str, keys: Collection[str], since: float) -> None:
        """Note when others asked with the keys of a process that died; the busy one may have nothing left to spend."""
        assert keys
        found: list[float | None] = [None]
        with anyio.move_on_after(20):
            while None in (found := [self._log.find_first(key, since) for key in keys]):  # noqa: ASYNC110
                await anyio.sleep(0.1)
        assert None not in found, f"{what}: {dict(zip(keys, found, strict=True))}\n{await self.describe()}"
        self.takeovers[what] = [seconds for seconds in found if seconds is not None]


async def disturb(trial: Trial) -> None:
    """Kill, stop and end a process each, always the one with the busy key, and crash the database."""
    victim = await trial.find_holder(BUSY)
    keys = await trial.find_held(victim) - {BUSY}
    await to_thread.run_sync(trial.daemons[victim].end, signal.SIGKILL)
    killed_at = time.monotonic()
    await trial.await_takeover("kill -9", keys, killed_at)
    trial.daemons[victim].start()
    victim = await trial.find_holder(BUSY)
    keys = await trial.find_held(victim) - {BUSY}
    os.kill(trial.daemons[victim].pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    await trial.await_takeover("SIGSTOP", keys, stopped_at)
    await anyio.sleep(max(0.0, stopped_at + STOPPED - time.monotonic()))
    os.kill(trial.daemons[victim].pid, signal.SIGCONT)
    victim = await trial.find_holder(BUSY)
    keys = await trial.find_held(victim) - {BUSY}
    assert await to_thread.run_sync(trial.daemons[victim].end, signal.SIGTERM) == 0
    await trial.await_takeover("SIGTERM", keys, time.monotonic())
    trial.daemons[victim].start()
    await trial.settle(3)


@pytest.fixture
def running(postgres_server: Server) -> Iterator[Server]:
    """Return the server, which is there for others afterwards whatever happens."""
    yield postgres_server
    postgres_server.stop()
    postgres_server.start()


async def test_three_processes_tell_everything_once_whatever_happens_to_one(
    tmp_path: Path, running: Server, postgres_url: str
) -> None:
    sandbox = Sandbox(
        SandboxOptions(
            seed=7,
            shipments=40,
            packages=0,
            items=10,
            stock=30,
            warehouses=3,
            requests_per_minute=LIMIT,
            api_keys=(*SOURCES, BUSY),
        )
    )
    initial = {resource: sandbox.records(resource) for resource in RESOURCES}
    sandbox.app = log = RequestLog(sandbox.app)
    ledger = Ledger()
    receiver = Receiver(SECRET, ledger)
    with ExitStack() as stack:
        trial = Trial(tmp_path, running, postgres_url, log, stack)
        async with serve(sandbox) as api, receiver.listening():
            config = CONFIG.format(store=postgres_url, receiver=receiver.url, secret=SECRET)
            for source in (*SOURCES, BUSY):
                config += SOURCE.format(source=source, api=api, limit=LIMIT)
            config += DETAILS.format(source=BUSY)
            for name, daemon in trial.daemons.items():
                (tmp_path / name / "dockbell.toml").write_text(config)
                daemon.start()
            await trial.settle(3)
            async with anyio.create_task_group() as group:
                group.start_soon(change, sandbox, RESOURCES)
                await anyio.sleep(5)
                await disturb(trial)
                await to_thread.run_sync(running.stop)
                await anyio.sleep(1)
                await to_thread.run_sync(running.start)
                await trial.settle(3)
                group.cancel_scope.cancel()
            changes = [change for change in sandbox.changes() if change.resource in RESOURCES]
            story = Story(initial, changes)
            with anyio.move_on_after(20):
                while any(ledger.sources[source].state() != story.final() for source in SOURCES):  # noqa: ASYNC110
                    await anyio.sleep(0.2)
            for daemon in trial.daemons.values():
                assert await to_thread.run_sync(daemon.end, signal.SIGTERM) == 0
    judge(ledger, story)
    await judge_store(trial, ledger, story, SOURCES)
    fullest = log.find_fullest()
    print_figures(trial, log, ledger, fullest, trial.read_log(tmp_path))
    assert {key: most for key, most in fullest.items() if most > LIMIT} == {}
    assert len(changes) > 100
    assert fullest[BUSY] > LIMIT / 2, "its limit did not matter"


def judge(ledger: Ledger, story: Story) -> None:
    """Check all that arrived against all that happened; the busy source may be late."""
    assert ledger.problems == []
    for source in SOURCES:
        assert ledger.sources[source].judge(story) == [], source
    late = [each for each in ledger.sources[BUSY].judge(story) if "not as it was told" not in each]
    assert ledger.sources[BUSY].problems == []
    assert [each for each in late if "came in the order" in each] == []


def print_figures(trial: Trial, log: RequestLog, ledger: Ledger, fullest: Mapping[str, int], said: str) -> None:
    for what, takeovers in trial.takeovers.items():
        print(
            f"{what}: {len(takeovers)} keys taken over in {median(takeovers):.1f} s at the median,"
            f" {max(takeovers):.1f} s at most"
        )
    print(f"{len(ledger.contents)} events, {ledger.repeats} repeats; {len(log.requests)} requests, fullest {fullest}")
    print(f"{sum(each.status == 429 for each in log.requests)} answers 429; lost {said.count('taken over what')}")
