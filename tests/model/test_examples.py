"""What the machine has found, each as the shortest story that shows it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from dockbell.core.model import Event
from tests.model.api import SECOND, Deployment, ModelApi, Step, VirtualClock
from tests.model.disks import FileDisk
from tests.model.oracle import Oracle
from tests.model.rig import Crash, Rig


class Story:
    """One feed over the model, from four records on, watched by the oracle."""

    def __init__(self, folder: Path, deployment: Deployment, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.api = ModelApi(self.clock, deployment)
        for key in "abcd":
            self.clock.pass_(7 * SECOND)
            self.api.put(key)
        self.clock.pass_(600 * SECOND)
        self.rig = Rig(self.api, FileDisk(folder), settings)
        self.oracle = Oracle(self.rig)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.rig.start()
        try:
            yield
        finally:
            await self.rig.stop()

    async def read_whole(self, *steps: Step, after: float = 15) -> None:
        self.clock.pass_(timedelta(seconds=after))
        self.api.script = deque(steps)
        assert await self.rig.read_whole() == ""
        await self.look()

    async def poll(self, *steps: Step, after: float = 15) -> None:
        self.clock.pass_(timedelta(seconds=after))
        self.api.script = deque(steps)
        assert await self.rig.poll() == ""
        await self.look()

    async def look(self) -> None:
        await self.oracle.look()
        await self.oracle.judge_runs(complete=True)

    async def crash(self, awaits: int, *steps: Step) -> None:
        """Die at an await of a pass, and begin again from the disk."""
        self.api.script = deque(steps)
        self.rig.fuse.left = awaits
        try:
            await self.rig.read_whole()
        except Crash:
            await self.rig.crash()
        self.rig.fuse.left = None
        self.api.script.clear()
        await self.oracle.look()

    async def told(self) -> list[str]:
        return [f"{event.key} {event.change} {event.revision}" for event in await self.rig.events() if event.key]

    async def statements(self, kind: str) -> list[Event]:
        return [event for event in await self.rig.events() if event.type == f"dockbell.feed.{kind}"]

    def doing(self, act: Callable[..., object], *args: Any, **named: Any) -> Step:
        """Return a request that something happens at."""
        return Step(partial(act, *args, **named))


async def test_a_record_that_the_first_pass_met_is_not_called_created(tmp_path: Path) -> None:
    """The key is learned, so what changed during the first pass waits for the next run; it was there all the time."""
    story = Story(tmp_path, Deployment(resource="packages", page_most=50))
    async with story.running():
        await story.read_whole(Step(), Step(), story.doing(story.api.put, "a"))
        await story.poll()
        assert await story.told() == ["a updated 1"]


async def test_a_crash_among_the_snapshots_of_a_first_pass_leaves_the_chain_whole(tmp_path: Path) -> None:
    """Whatever the await: what was stated as a snapshot is not replaced in silence by the pass after the crash."""
    for awaits in range(60):
        folder = tmp_path / str(awaits)
        folder.mkdir()
        story = Story(folder, Deployment(resource="packages", page_most=50), first_pass="emit")
        async with story.running():
            await story.crash(awaits)
            story.api.put("a", silent=True)
            await story.read_whole()
            await story.poll()
            await story.read_whole(after=130)
            await story.oracle.judge_rest()


async def test_a_lagging_replica_is_not_believed_within_the_second_that_date_is_cut_to(tmp_path: Path) -> None:
    """``Date`` knows whole seconds: what was stamped within this one is not in the future."""
    story = Story(tmp_path, Deployment(resource="stock", page_most=50, lag=10 * SECOND), key="/id")
    async with story.running():
        await story.read_whole()
        story.clock.service = story.clock.service.replace(microsecond=600_000)
        story.api.put("a")
        await story.read_whole(after=0.05)
        await story.read_whole(Step(stale=True), after=0.05)
        assert await story.told() == ["a updated 1"]


async def test_a_lagging_replica_that_answers_slowly_is_not_believed(tmp_path: Path) -> None:
    """S is the time of the answer less the round trip: a stamp between the two is not in the future."""
    story = Story(tmp_path, Deployment(resource="stock", page_most=50, lag=10 * SECOND), key="/id")
    async with story.running():
        await story.read_whole()
        story.api.put("a")
        await story.read_whole(after=0.05)
        await story.read_whole(Step(stale=True, trip=5 * SECOND), after=0)
        assert await story.told() == ["a updated 1"]


async def test_the_digest_of_a_pass_tells_contents_apart(tmp_path: Path) -> None:
    """Two feeds with the same keys and other contents have other digests, though nothing of them changed yet."""
    digests = set()
    for more in range(2):
        folder = tmp_path / str(more)
        folder.mkdir()
        story = Story(folder, Deployment(resource="packages", page_most=50))
        story.api.put("a", content={"n": 1000 + more})
        story.clock.pass_(600 * SECOND)
        async with story.running():
            await story.read_whole()
            (statement,) = await story.statements("reconciled")
            digests.add(json.loads(statement.body)["data"]["digest"])
    assert len(digests) == 2


async def test_the_digest_of_a_pass_does_not_depend_on_how_members_stand(tmp_path: Path) -> None:
    story = Story(tmp_path, Deployment(resource="packages", page_most=50, scrambled=True))
    async with story.running():
        for _ in range(4):
            await story.read_whole()
        statements = [json.loads(event.body)["data"] for event in await story.statements("reconciled")]
        assert len({statement["digest"] for statement in statements}) == 1


async def test_a_lagging_replica_is_not_believed_where_stamps_run_ahead_of_the_services_time(tmp_path: Path) -> None:
    """A stamp some seconds ahead is another clock's, not a date of the future."""
    deployment = Deployment(resource="packages", page_most=50, lag=30 * SECOND, stamps_behind=-10 * SECOND)
    story = Story(tmp_path, deployment, key="/id")
    async with story.running():
        await story.read_whole()
        story.api.put("a")
        await story.poll(after=1)
        await story.poll(Step(stale=True), after=1)
        assert await story.told() == ["a updated 1"]


async def test_a_purged_record_comes_back_under_the_next_revision_wherever_it_was(tmp_path: Path) -> None:
    story = Story(tmp_path, Deployment(resource="packages", page_most=50), key="/id")
    async with story.running():
        await story.read_whole()
        story.api.remove("b")
        for _ in range(2):
            await story.read_whole(after=130)
        for key in "abb":  # one that is there, one that is gone, and nothing that is left
            await story.rig.purge(key)
            await story.look()
        await story.read_whole(after=130)
        story.api.put("b")
        await story.poll(after=130)
        assert await story.told() == ["b deleted 1", "a deleted 1", "b deleted 2", "a restored 2", "b restored 3"]


async def test_what_slips_past_a_poll_is_read_by_the_next_though_stamps_run_ahead(tmp_path: Path) -> None:
    """Much has changed meanwhile; what changed first changes again between two pages, and the rest slips."""
    deployment = Deployment(page_most=2, order="updated", cursors="offset", precision="s", stamps_behind=-10 * SECOND)
    story = Story(tmp_path, deployment)

    def change(keys: str) -> None:
        for key in keys:
            story.clock.pass_(SECOND)
            story.api.put(key)

    async with story.running():
        await story.read_whole()
        await story.poll()
        change("abcd")
        await story.poll(Step(), story.doing(change, "ab"), after=70)
        await story.poll()
        assert (await story.told())[-2:] == ["c updated 1", "d updated 1"]
