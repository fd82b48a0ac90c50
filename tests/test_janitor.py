from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import anyio

from dockbell.core.model import RunKind
from dockbell.janitor import Janitor
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import AgentFails
from tests.fakes import Clock, Ear
from tests.stores.pages import FEED, a_run, bury, close_pass, commit


class Bells:
    """An alarm that has rung once."""

    def __init__(self) -> None:
        self.rings = 1

    async def wait(self) -> None:
        if not self.rings:
            await anyio.sleep_forever()
        self.rings -= 1


async def test_events_are_kept_for_their_time_and_while_a_sink_owes_them(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.open_feed(FEED)
    await store.enroll("slow", "beginning")
    await commit(store, state, *({"id": str(each)} for each in range(2500)))
    ear = Ear()
    owing, free = (
        Janitor(store, keep=timedelta(days=7), sinks=sinks, telemetry=ear.telemetry, now=clock)
        for sinks in (["slow"], [])
    )
    clock.pass_(7 * 86_400)
    assert await free.run_once() == 0
    clock.pass_(1)
    assert await owing.run_once() == 0
    assert await free.run_once() == 2500
    assert await store.read_events(FEED, 0, 10) == []
    await store.aclose()


async def test_the_history_is_kept_as_long_as_the_events(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.open_feed(FEED)
    await commit(store, state, *({"id": str(each)} for each in range(1500)))
    for _ in range(1500):
        await store.close_run(state.id, a_run(RunKind.POLL))
    await close_pass(store, state, suspected=range(1, 1201))
    await bury(store, state, *range(1, 1201))
    janitor = Janitor(store, keep=timedelta(days=7), sinks=[], telemetry=Ear().telemetry, now=clock)
    clock.pass_(7 * 86_400)
    assert await janitor.run_once() == 0
    assert len(await store.read_bodies(range(1, 1501))) == 1500
    clock.pass_(1)
    assert await janitor.run_once() == 2700
    assert len(await store.read_bodies(range(1, 1501))) == 300
    assert (await store.open_feed(FEED)).poll == a_run(RunKind.POLL)
    assert await store.prune_history(clock(), 1) == 0
    await store.close_run(state.id, a_run(RunKind.POLL))
    assert await store.prune_history(clock(), 10) == 1
    await store.aclose()


async def test_a_janitor_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=Clock())
    await store.aclose()
    ear = Ear()
    janitor = Janitor(store, keep=timedelta(days=7), sinks=[], telemetry=ear.telemetry, now=Clock())
    with anyio.move_on_after(0.1):
        await janitor.run(Bells())  # type: ignore[arg-type]
    assert [type(fact) for fact in ear.facts] == [AgentFails]
