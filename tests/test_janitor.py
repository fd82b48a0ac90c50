from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.judge import Judge, Reading
from dockbell.core.model import Change, ClockSource, Event, Feed, Page, Via
from dockbell.core.publishing.event import compose
from dockbell.janitor import Janitor
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import AgentFails
from tests.fakes import NOON, Clock, Ear

FEED = Feed("main", "shipments")
JUDGE = Judge(FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())


def number(change: Change, sequence: int) -> Event:
    return compose(change, name="acme", singular="shipment", epoch="epoch", sequence=sequence)


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
    records = tuple(json.dumps({"id": str(each)}).encode() for each in range(2500))
    page = Page(records, None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
    await store.commit_page(state.id, partial(JUDGE.judge, page, Reading(Via.POLL, NOON)), number)
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


async def test_a_janitor_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=Clock())
    await store.aclose()
    ear = Ear()
    janitor = Janitor(store, keep=timedelta(days=7), sinks=[], telemetry=ear.telemetry, now=Clock())
    with anyio.move_on_after(0.1):
        await janitor.run(Bells())  # type: ignore[arg-type]
    assert [type(fact) for fact in ear.facts] == [AgentFails]
