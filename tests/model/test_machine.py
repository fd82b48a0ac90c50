"""The real reader, poller, reconciler and store against the model, driven by chance (docs/guarantees.md).

Chance decides what the deployment is like, what becomes of the records, when what is read, what happens between the
pages of a run, which requests fail, and at which await the process dies. The oracle looks after every step.

Thousands of steps by default, the same ones every time; ``pytest tests/model --model-steps=100000`` tries others.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dockbell.errors import CursorExpired, PageUnreadable, RateLimited, SchemaMismatch, SourceUnavailable
from tests import postgres
from tests.model.api import ZERO, Deployment, ModelApi, Step, VirtualClock
from tests.model.disks import DatabaseDisk, Disk, FileDisk
from tests.model.oracle import Oracle
from tests.model.rig import Crash, Rig

KEYS: Final = ("a", "b", "c", "d", "e", "f", "g", "hh", "ii", "jj")
FUTURE: Final = datetime(2099, 1, 1, tzinfo=UTC)
GONE_MOST: Final = 2
"""More deletions at a time would be held, and wait for an operator."""

STEPS: Final = 4000
STEPS_POSTGRES: Final = 120
STEPS_AN_EXAMPLE: Final = 40

ERRORS: Final = (
    SourceUnavailable("HTTP 503"),
    PageUnreadable("cut short"),
    RateLimited("HTTP 429"),
    CursorExpired("HTTP 410"),
)


errors: st.SearchStrategy[Exception | None] = st.sampled_from([*[None] * 12, *ERRORS])


faults: st.SearchStrategy[Exception | None] = st.sampled_from([*[None] * 3, ERRORS[0], *ERRORS])
"""Like errors, where one is worth more."""


def seconds(*values: float) -> st.SearchStrategy[timedelta]:
    return st.sampled_from([timedelta(seconds=value) for value in values])


lateness = seconds(0, 0, 0, 0.4, 5, 20, 45, 90, 600)
spans = seconds(0.1, 1, 15, 31, 61, 125, 300, 3600, 90_000)
trips = seconds(0.02, 0.02, 0.3, 3, 40)
keys = st.sampled_from(KEYS)

Act = tuple[str, str, timedelta]
acts = st.tuples(st.sampled_from(["put", "put", "put", "silent", "revert", "remove", "restore"]), keys, lateness)
"""What becomes of a record: how, which, and how late that can be seen."""


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    """Draw one kind of deployment."""
    resource = draw(st.sampled_from(["shipments", "packages", "packages", "stock"]))
    order, cursors = draw(
        st.sampled_from(
            [
                ("updated", "offset"),
                ("updated", "offset"),
                ("updated", "keyset"),
                ("updated_desc", "offset"),
                ("created", "offset"),
                ("created", "keyset"),
                ("key", "keyset"),
                ("shuffled", "frozen"),
            ]
        )
    )
    stamped = draw(st.booleans()) if resource == "stock" else draw(st.sampled_from([True, True, True, False]))
    return Deployment(
        resource=resource,
        stamped=stamped,
        precision=draw(st.sampled_from(["s", "ms", "us"])),
        stamps_behind=draw(seconds(0, 0, 10, -10)),
        composite=resource == "stock" and draw(st.booleans()),
        page_most=draw(st.sampled_from([2, 3, 5, 50])),
        order=order,  # type: ignore[arg-type]  # drawn from those that there are
        cursors=cursors,  # type: ignore[arg-type]  # same
        dated=draw(st.sampled_from([True, True, False])),
        lag=draw(seconds(0, 0, 10, 30)),
        scrambled=draw(st.booleans()),
    )


class Machine(RuleBasedStateMachine):
    """One feed of one deployment, from its first request on."""

    @initialize(
        deployment=deployments(),
        emit=st.booleans(),
        learned=st.booleans(),
        ahead=seconds(0, 0, -30, 30, 86_400),
        first=st.lists(keys, min_size=4, unique=True),
        ready=st.sampled_from([True, True, False]),
    )
    def begin(
        self, deployment: Deployment, *, emit: bool, learned: bool, ahead: timedelta, first: list[str], ready: bool
    ) -> None:
        """Set up what there is before dockbell comes."""
        if not deployment.dated:
            ahead = min(ahead, timedelta(seconds=30))
        self.clock = VirtualClock(ahead=ahead)
        self.api = ModelApi(self.clock, deployment)
        for key in first:
            self.clock.pass_(timedelta(seconds=7))
            self.api.put(key)
        self.clock.pass_(timedelta(minutes=10))
        made_of = {"first_pass": "emit" if emit else "baseline"}
        if not learned:
            made_of["key"] = ["/sku", "/warehouse_id"] if deployment.composite else "/id"  # type: ignore[assignment]  # TOML allows both
        self.runner = asyncio.Runner()
        self.disk = self.make_disk()
        self.rig = Rig(self.api, self.disk, made_of)
        self.oracle = Oracle(self.rig)
        self.do(self.rig.start())
        if ready:
            self.do(self.run(self.rig.read_whole))
        event(f"{deployment.order} {deployment.cursors}")

    @abstractmethod
    def make_disk(self) -> Disk:
        """Return where the store is to be."""

    def do(self, what: Coroutine[Any, Any, None]) -> None:
        self.sound = False
        self.runner.run(what)
        self.sound = True

    # What becomes of records ------------------------------------------------------------------------------------------

    @rule(act=acts)
    def change(self, act: Act) -> None:
        self.act(act)

    @rule(which=st.lists(keys, unique=True, min_size=3), late=lateness)
    def tick(self, which: list[str], late: timedelta) -> None:
        """Change many records under one timestamp."""
        for key in which:
            self.act(("put", key, late))

    @precondition(lambda self: not self.api.deployment.lag)  # else nothing tells its age
    @rule(key=keys)
    def misdate(self, key: str) -> None:
        """Date a record far in the future."""
        if self.there(key):
            self.api.put(key, stamp=FUTURE)

    def act(self, act: Act) -> None:
        """Do something to a record, if it can be done to it."""
        what, key, late = act
        if what == "put":
            if self.api.latest(key) is None or self.there(key):
                self.api.put(key, late=late)
        elif what == "silent" and self.there(key) and not self.api.deployment.lag:  # else nothing tells its age
            self.api.put(key, silent=True)
        elif what == "revert" and self.there(key):
            self.api.revert(key, late=late)
        elif what == "remove" and self.there(key) and len(self.gone()) < GONE_MOST:
            self.api.remove(key, late=late)
        elif what == "restore" and key in self.gone():
            self.api.put(key, late=late)

    def there(self, key: str) -> bool:
        version = self.api.latest(key)
        return version is not None and version.content is not None

    def gone(self) -> list[str]:
        return [key for key in self.api.history if not self.there(key)]

    # Time -------------------------------------------------------------------------------------------------------------

    @rule(span=spans)
    def wait(self, span: timedelta) -> None:
        self.clock.pass_(span)

    @precondition(lambda self: self.api.deployment.dated)
    @rule(step=seconds(-3600, -5, 5, 3600))
    def step_our_clock(self, step: timedelta) -> None:
        """Our machine's clock is set."""
        self.clock.ahead += step

    # What dockbell does -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.rig.polled)
    @rule(script=st.data())
    def poll(self, script: st.DataObject) -> None:
        self.plan(script, "poll")
        self.do(self.run(self.rig.poll))

    @precondition(lambda self: self.rig.polled)
    @rule(script=st.data())
    def trail(self, script: st.DataObject) -> None:
        """Poll from long before."""
        self.plan(script, "trailing poll")
        self.do(self.run(self.rig.trail))

    @precondition(lambda self: self.rig.polled)
    @rule(
        which=st.lists(keys, unique=True, min_size=4),
        pace=seconds(1, 40),
        away=seconds(70, 3600),
        moved=st.integers(0, 3),
        error=faults,
        early=st.booleans(),
    )
    def come_back(
        self, which: list[str], pace: timedelta, away: timedelta, moved: int, error: Exception | None, *, early: bool
    ) -> None:
        """Poll after a while in which much has changed; what changed first changes again after the first page."""
        for key in which:
            self.clock.pass_(pace)
            self.act(("put", key, ZERO))
        self.clock.pass_(away)
        again = partial(self.act_all, [("put", key, ZERO) for key in which[:moved]])
        self.api.script = deque([Step(), Step(again, error)] if early else [Step(), Step(again), Step(error=error)])
        self.do(self.run(self.rig.poll))
        self.do(self.run(self.rig.poll))

    @rule(
        changes=st.lists(st.lists(acts, max_size=2), min_size=1, max_size=4),
        error=faults,
        awaits=st.none() | st.integers(10, 60),
    )
    def read_whole_twice(self, changes: list[list[Act]], error: Exception | None, awaits: int | None) -> None:
        """Make a pass, and the one that is to confirm it; both end in the same way."""
        for _ in range(2):
            steps = [Step(partial(self.act_all, some), trip=timedelta(seconds=20)) for some in changes]
            self.api.script = deque([*steps, Step(error=error)])
            self.do(self.run(self.rig.read_whole, awaits=awaits))
            self.clock.pass_(timedelta(seconds=125))

    @rule(script=st.data(), polls=st.frozensets(st.integers(0, 4), max_size=2))
    def read_whole(self, script: st.DataObject, polls: frozenset[int]) -> None:
        """Make a pass, with polls between its pages."""
        self.plan(script, "pass")
        self.do(self.run(self.rig.read_whole, polls if self.rig.polled else frozenset()))

    @precondition(lambda self: self.api.deployment.resource == "shipments")
    @rule(script=st.data(), pauses=st.lists(seconds(1, 31, 61), min_size=1, max_size=3))
    def read_whole_and_ask(self, script: st.DataObject, pauses: list[timedelta]) -> None:
        """Make a pass, and ask for what it did not show."""
        self.plan(script, "pass")
        self.do(self.run(self.rig.read_whole))
        for pause in pauses:
            self.clock.pass_(pause)
            self.plan(script, "requests for single records")
            self.do(self.ask())

    async def ask(self) -> None:
        await self.rig.ask()
        self.api.script.clear()
        await self.oracle.look()

    @rule(script=st.data(), awaits=st.integers(0, 40), whole=st.booleans())
    def crash(self, script: st.DataObject, awaits: int, *, whole: bool) -> None:
        """Die in the middle of a run, and begin again from the disk."""
        self.plan(script, "run that dies")
        self.do(self.run(self.rig.read_whole if whole or not self.rig.polled else self.rig.poll, awaits=awaits))

    @rule(key=keys)
    def purge(self, key: str) -> None:
        """Erase a record, be it there or gone."""
        self.do(self.erase(key))

    async def erase(self, key: str) -> None:
        if key in self.api.history and not await self.rig.is_provisional():
            await self.rig.purge(key)
            await self.oracle.look()

    @rule()
    def restart(self) -> None:
        self.do(self.rig.restart())

    def plan(self, data: st.DataObject, label: str) -> None:
        """Draw what happens at the requests of a run."""
        script = data.draw(st.lists(self.moments(), max_size=5), label=label)
        self.api.script = deque(script)

    def moments(self) -> st.SearchStrategy[Step]:
        return st.builds(
            lambda changes, error, stale, trip: Step(partial(self.act_all, changes), error, stale, trip),
            st.lists(acts, max_size=2),
            errors,
            st.booleans(),
            trips,
        )

    def act_all(self, changes: list[Act]) -> None:
        for change in changes:
            self.act(change)

    async def run(
        self,
        read: Callable[[], Coroutine[Any, Any, str | None]],
        polls: frozenset[int] = frozenset(),
        *,
        awaits: int | None = None,
    ) -> None:
        """Make a run, perhaps with polls beside it, perhaps the last of this process; then look."""
        problem: str | None = "died"
        begun = len(self.api.listings)
        self.rig.fuse.left = awaits
        try:
            if polls:
                problem = await self.run_with_polls(read, polls)
            else:
                problem = await read()
        except* SchemaMismatch:
            # Without timestamps, records that change while a run goes on look like ones that a key does not tell apart.
            assert not self.api.deployment.stamped
            problem = "stopped"
        except* Crash:
            pass
        self.api.script.clear()
        event(f"{'died' if problem == 'died' else 'incomplete' if problem else 'complete'}")
        if self.rig.fuse.blown:
            for listing in self.api.listings[begun:]:
                listing.is_cut = True
            await self.rig.crash()
        self.rig.fuse.left = None
        await self.oracle.look()
        await self.oracle.judge_runs(complete=problem == "" and not polls)

    async def run_with_polls(
        self, read: Callable[[], Coroutine[Any, Any, str | None]], polls: frozenset[int]
    ) -> str | None:
        script = [*self.api.script, *[Step()] * 5][:5]
        problem: str | None = None
        async with anyio.create_task_group() as group:
            for number in polls:
                script[number] = dataclasses.replace(
                    script[number], before=partial(self.poll_aside, group, script[number])
                )
            self.api.script = deque(script)
            problem = await read()
        return problem  # noqa: RET504  # a task group might swallow what ends it, as far as types tell

    def poll_aside(self, group: TaskGroup, step: Step) -> None:
        """Begin a poll, which waits until the page is read."""
        step.before()
        group.start_soon(self.rig.poll)

    # At rest ----------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let all come to rest, and judge what is known."""
        if not hasattr(self, "rig"):
            return
        try:
            if self.sound:
                self.do(self.settle())
        finally:
            self.runner.run(self.rig.stop())
            self.runner.close()
            self.disk.clear()

    async def settle(self) -> None:
        self.clock.pass_(max(self.api.settled_at - self.clock.service, ZERO) + timedelta(seconds=1))
        for pause in (0, 15, 130, 130, 90_000, 130, 130):
            self.clock.pass_(timedelta(seconds=pause))
            if self.rig.polled:
                await self.run(self.rig.poll)
            await self.run(self.rig.read_whole)
        await self.oracle.judge_rest()


class FileMachine(Machine):
    """The same with SQLite."""

    def make_disk(self) -> Disk:
        return FileDisk(Path(tempfile.mkdtemp(prefix="dockbell-model-", dir=_quick_folder())))


class DatabaseMachine(Machine):
    """The same with PostgreSQL."""

    server: postgres.Server

    def make_disk(self) -> Disk:
        return DatabaseDisk(self.server)


def _quick_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  # a folder of our own is made in it


def prove(machine: type[Machine], steps: int, request: pytest.FixtureRequest) -> None:
    asked = request.config.getoption("--model-steps")
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, (asked or steps) // STEPS_AN_EXAMPLE),
            stateful_step_count=STEPS_AN_EXAMPLE,
            derandomize=not asked,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_nothing_is_missed_and_nothing_invented(request: pytest.FixtureRequest) -> None:
    prove(FileMachine, STEPS, request)


def test_nothing_is_missed_and_nothing_invented_in_postgres(
    request: pytest.FixtureRequest, postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer steps, each of which is dearer."""
    monkeypatch.setattr(DatabaseMachine, "server", postgres_server, raising=False)
    prove(DatabaseMachine, STEPS_POSTGRES, request)
