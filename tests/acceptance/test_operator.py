"""What an operator decides about sinks while the daemon runs, which notices it within a second."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dockbell.app import now
from dockbell.core.model import Feed
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.stores.handles.command_store import SqlCommandStore
from tests.brokers import find_free_port
from tests.cli.programs import run, started
from tests.serving import listening
from tests.stores.places import Place, open_command_store, url_of
from tests.stores.standings import read

pytestmark = pytest.mark.acceptance

SHIPMENTS = Feed("main", "shipments")
SECRET = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"
COUNT = 8
CONFIG = """
[store]
url = "{store}"

[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "100ms", first_pass = "emit" }}

[sinks.erp]
type = "webhook"
url = "{receiver}/erp"
secret = "{secret}"

[sinks.shop]
type = "webhook"
url = "{receiver}/shop"
secret = "{secret}"
on_dead = "hold"
"""


@dataclass(frozen=True)
class Heard:
    """One delivery that was taken."""

    at: float
    key: str
    revision: int
    sequence: int
    id: str
    is_replay: bool


@dataclass
class Floor:
    """A quiet API, a daemon that reads it, and receivers that take everything but what they are told to refuse."""

    folder: Path
    place: Place
    api: str
    refused: dict[tuple[str, str], HTTPStatus] = field(default_factory=dict)
    heard: dict[str, list[Heard]] = field(default_factory=lambda: {"erp": [], "shop": []})

    async def take(self, request: Request) -> Response:
        """Answer one delivery."""
        sink, event = request.path_params["sink"], await request.json()
        key = event["data"].get("key", "")
        status = self.refused.get((sink, key), HTTPStatus.NO_CONTENT)
        if status is HTTPStatus.NO_CONTENT and key:
            is_replay = request.headers.get("dockbell-replay") == "true"
            revision, sequence = event["data"]["revision"], int(event["sequence"])
            self.heard[sink].append(Heard(time.monotonic(), key, revision, sequence, event["id"], is_replay))
        return Response(status_code=status)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so."""
        with anyio.fail_after(30):
            while not condition():  # noqa: ASYNC110  # other processes bring it about
                await anyio.sleep(0.01)

    async def ask(self, *words: str, code: int = 0) -> Any:
        """Run a command beside the servers of this process, and return what it tells."""
        result = await to_thread.run_sync(partial(run, *words, "--json", cwd=self.folder))
        assert result.returncode == code, result.stderr
        return json.loads(result.stdout)

    def count(self, part: str) -> int:
        """Return how many rows a part of the store has."""
        return len(read(self.place, f"SELECT 1 FROM {part}"))  # noqa: S608  # the test's own words

    async def edit(self, key: str) -> None:
        """Change a record."""
        async with httpx.AsyncClient(trust_env=False, headers={"authorization": "Bearer sandbox"}) as client:
            answer = await client.post(f"{self.api}/sandbox/edit/shipments", params={"id": key})
        assert answer.status_code == HTTPStatus.OK

    def revisions(self, sink: str, key: str) -> list[tuple[int, bool]]:
        """Return the revisions of a record that a sink has heard, each with whether it was a replay."""
        return [(each.revision, each.is_replay) for each in self.heard[sink] if each.key == key]


@pytest.fixture
async def floor(tmp_path: Path, place: Place) -> AsyncIterator[Floor]:
    """Return a floor on which each sink has heard of all records once."""
    port = find_free_port()
    sandbox = Sandbox(SandboxOptions(shipments=COUNT, activity=0, requests_per_minute=0))
    async with serve(sandbox) as api:
        floor = Floor(tmp_path, place, api)
        config = CONFIG.format(store=url_of(place), api=api, receiver=f"http://127.0.0.1:{port}", secret=SECRET)
        (tmp_path / "dockbell.toml").write_text(config)
        app = Starlette(routes=[Route("/{sink}", floor.take, methods=["POST"])])
        async with listening(app, port):
            with started(tmp_path, "run"):
                await floor.until(lambda: [len(heard) for heard in floor.heard.values()] == [COUNT, COUNT])
                yield floor


@pytest.fixture
async def command_store(floor: Floor) -> AsyncIterator[SqlCommandStore]:
    command_store = await open_command_store(floor.place)
    yield command_store
    await command_store.aclose()


async def test_a_replay_begins_within_a_second_with_the_same_events_marked(
    floor: Floor, command_store: SqlCommandStore
) -> None:
    first = floor.heard["erp"].copy()
    behind = "positions JOIN feeds ON feeds.id = feed WHERE positions.sequence < feeds.sequence"
    await floor.until(lambda: not floor.count(behind))  # before that is saved they count as owed
    assert (await floor.ask("replay", "erp", "--feed", "shipments", "--sequence", "2-3"))["chosen"] == 2
    await floor.until(lambda: len(floor.heard["erp"]) == COUNT + 2)
    replayed = floor.heard["erp"][COUNT:]
    assert {(each.id, each.sequence) for each in replayed} == {
        (e.id, e.sequence) for e in first if e.sequence in (2, 3)
    }
    assert [each.is_replay for each in floor.heard["erp"]] == [False] * COUNT + [True] * 2
    assert len(floor.heard["shop"]) == COUNT
    delays = []
    for each in first[:3]:  # the best of three: others use this machine too
        await floor.until(lambda: not floor.count("replays"))  # one that waits to be saved would take this one with it
        count = len(floor.heard["erp"])
        await command_store.offer("erp", SHIPMENTS, [(each.sequence, each.key)], now())
        began = time.monotonic()
        await floor.until(lambda count=count: len(floor.heard["erp"]) > count)  # type: ignore[misc]
        delays.append(floor.heard["erp"][-1].at - began)
    print("replays begin after", delays)
    assert min(delays) < 1, delays
    await floor.until(lambda: floor.count("replays") == 0)


async def test_dead_letters_are_sent_again_or_discarded_and_held_records_go_on_in_order(floor: Floor) -> None:
    for sink in ("erp", "shop"):
        for key in ("shp_1", "shp_2"):
            floor.refused[sink, key] = HTTPStatus.UNPROCESSABLE_ENTITY
    for key in ("shp_1", "shp_2"):
        await floor.edit(key)
    await floor.until(lambda: floor.count("dead_letters") == 4)
    for key in ("shp_1", "shp_2", "shp_3"):
        await floor.edit(key)
    await floor.until(lambda: floor.revisions("shop", "shp_3") == [(0, False), (1, False)])
    # Of erp, which skips, both revisions die; of shop, which holds, the first alone.
    await floor.until(lambda: floor.count("dead_letters") == 6)
    found = await floor.ask("dead", "shop")
    assert [(each["key"], each["on_hold"], each["error"]) for each in found["letters"]] == [
        ("shp_1", True, "HTTP 422"),
        ("shp_2", True, "HTTP 422"),
    ]
    floor.refused.clear()
    assert (await floor.ask("dead", "retry", "shop", "--key", "shp_1"))["released"] == 1
    assert (await floor.ask("dead", "discard", "shop", "--key", "shp_2"))["released"] == 1
    assert (await floor.ask("dead", "retry", "erp", "--all"))["entered"] == 4
    await floor.until(lambda: floor.revisions("shop", "shp_1") == [(0, False), (1, False), (2, False)])
    await floor.until(lambda: floor.revisions("shop", "shp_2") == [(0, False), (2, False)])
    for key in ("shp_1", "shp_2"):
        await floor.until(lambda key=key: len(floor.revisions("erp", key)) == 3)  # type: ignore[misc]
        assert sorted(floor.revisions("erp", key)) == [(0, False), (1, True), (2, True)]
    assert floor.count("dead_letters") == 0


async def test_a_paused_sink_takes_nothing_and_goes_on_within_a_second(
    floor: Floor, command_store: SqlCommandStore
) -> None:
    await floor.ask("pause", "erp", "--reason", "moving house")
    await anyio.sleep(1)  # what is promised
    await floor.edit("shp_1")
    await floor.ask("replay", "erp", "--key", "shp_2")
    await floor.until(lambda: floor.revisions("shop", "shp_1") == [(0, False), (1, False)])
    sink = (await floor.ask("status", code=1))["sinks"][0]
    assert (sink["paused"], sink["owed"] > 0, sink["replays"]) == ("moving house", True, 1)
    assert len(floor.heard["erp"]) == COUNT
    await command_store.resume("erp", now())
    began = time.monotonic()
    await floor.until(lambda: len(floor.heard["erp"]) == COUNT + 2)
    print("a sink goes on after", floor.heard["erp"][COUNT].at - began)
    assert floor.heard["erp"][COUNT].at - began < 1
    assert {(each.key, each.is_replay) for each in floor.heard["erp"][COUNT:]} == {("shp_1", False), ("shp_2", True)}


async def test_a_sink_whose_receiver_is_gone_pauses_itself_until_it_is_resumed(floor: Floor) -> None:
    floor.refused["erp", "shp_1"] = HTTPStatus.GONE
    await floor.edit("shp_1")
    await floor.until(lambda: floor.count("pauses") == 1)
    assert "410" in (await floor.ask("status", code=1))["sinks"][0]["paused"]
    floor.refused.clear()
    assert (await floor.ask("resume", "erp"))["changed"]
    await floor.until(lambda: floor.revisions("erp", "shp_1") == [(0, False), (1, False)])
