from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request

from dockbell.admin import shared_read
from dockbell.admin.status import Status
from dockbell.core.model import RunKind
from dockbell.errors import StoreError
from dockbell.ports import Condition, Found, RunRecord
from dockbell.web.client import Principal
from dockbell.web.page_state import PageState
from dockbell.web.status import Health
from tests.fakes import NOON
from tests.web.sites import Served, serve

WELL = {"status": "ready", "reasons": []}


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what a test changes seen at once."""
    monkeypatch.setattr(shared_read, "KEPT", timedelta(0))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Served]:
    """Return a site of one feed, which was read a moment ago, and one sink."""
    tables = {"resources": {"stock": {"every": "5m"}}, "sinks": {"erp": {"type": "stdout"}}}
    async with serve(tmp_path, tables=tables) as served:
        await read(served, "main/stock")
        await served.store.sink("erp").enroll("now")
        yield served


async def read(site: Served, name: str, minutes: float = 1, problem: str = "") -> None:
    """Let a pass over a feed have ended so long ago."""
    filled = await site.fill(source=name.partition("/")[0], resource=name.partition("/")[2])
    at = NOON - timedelta(minutes=minutes)
    run = RunRecord(RunKind.PASS, at, None, at, pages=1, records=1, events=0, problem=problem)
    await site.store.feed(filled.state.feed).close_run(run)


async def test_the_daemon_is_alive_while_it_answers(site: Served) -> None:
    response = await site.client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_it_is_ready_while_its_feeds_are_read_and_its_sinks_reached(site: Served) -> None:
    response = await site.client.get("/readyz")
    assert (response.status_code, response.json()) == (200, WELL)


async def test_a_blind_feed_hinders(site: Served) -> None:
    state = await site.store.feed((await site.read_store.load_feeds())[0].feed).open()
    await site.store.feed(state.feed).save_problem("source main: HTTP 401")
    response = await site.client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"status": "not ready", "reasons": ["main/stock: source main: HTTP 401"]}


async def test_a_receiver_that_cannot_be_reached_for_a_while_hinders(site: Served) -> None:
    since = NOON - timedelta(seconds=9)
    await site.store.health.note_conditions({"erp": Found(Condition.DOWN, since, "connection refused")})
    assert (await site.client.get("/readyz")).json() == WELL
    since = NOON - timedelta(minutes=2)
    await site.store.health.note_conditions({"erp": Found(Condition.DOWN, since, "connection refused")})
    response = await site.client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["reasons"] == ["sink erp: no event could be delivered for 2m: connection refused"]


async def test_what_an_operator_has_paused_hinders_nothing(site: Served) -> None:
    await site.store.health.note_conditions(
        {"erp": Found(Condition.DOWN, NOON - timedelta(hours=2), "connection refused")}
    )
    await site.store.sink("erp").pause("maintenance")
    assert (await site.client.get("/readyz")).json() == WELL


async def test_the_first_pass_may_take_its_time(tmp_path: Path) -> None:
    async with serve(tmp_path, tables={"resources": {"stock": {}}, "sinks": {}}) as site:
        assert (await site.client.get("/readyz")).json() == WELL
        await read(site, "main/stock", problem="page 2: no answer")
        response = await site.client.get("/readyz")
        assert response.status_code == 503
        assert "last attempt: page 2: no answer" in response.json()["reasons"][0]


async def test_without_the_token_only_the_number_of_reasons_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("open-sesame-9b1d")
    tables: dict[str, Any] = {"resources": {"stock": {}}, "sinks": {}}
    async with serve(tmp_path, tables=tables, token={"file": str(tmp_path / "token")}) as site:
        await read(site, "main/stock", minutes=60)
        secret = {"authorization": "Bearer open-sesame-9b1d"}
        told = (await site.client.get("/readyz")).json()
        assert told == {"status": "not ready", "reasons": 1}
        [reason] = (await site.client.get("/readyz", headers=secret)).json()["reasons"]
        assert reason.startswith("main/stock: last read completely")
        assert (await site.client.get("/readyz", headers={"authorization": "Bearer guess"})).json() == told
        assert (await site.client.get("/healthz")).json() == {"status": "ok"}


async def test_however_many_ask_it_is_looked_once_a_second(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_read, "KEPT", timedelta(hours=1))
    reads, load = [], PageState.load

    async def read_parts(page_state: PageState) -> Status:
        reads.append(1)
        return await load(page_state)

    monkeypatch.setattr(PageState, "load", read_parts)

    async def ask() -> None:
        assert (await site.client.get("/readyz")).json() == WELL

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
    await ask()
    assert len(reads) == 1


# A store that fails ---------------------------------------------------------------------------------------------------


class Troubled:
    """A store that answers as it is told."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def load(self) -> Status:
        if self.error is not None:
            raise self.error
        return Status(NOON, "process 1", (), ())

    async def ask(self) -> tuple[int, bytes]:
        endpoint = Health(self.load, concerns=lambda _: True, is_open=True)
        scope = {"type": "http", "query_string": b"", "headers": [], "state": {"principal": Principal("127.0.0.1")}}
        response = await endpoint.answer_ready(Request(scope))
        return response.status_code, bytes(response.body)


@pytest.mark.parametrize("error", [StoreError("store: has no room; make some"), OSError("has no room; make some")])
async def test_a_store_that_cannot_be_written_hinders(error: Exception) -> None:
    store = Troubled()
    assert (await store.ask())[0] == 200
    store.error = error
    assert await store.ask() == (503, b'{"status":"not ready","reasons":["store: has no room; make some"]}')


async def test_a_store_that_hangs_hinders_and_does_not_hang_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.web.status._PATIENCE", timedelta(seconds=0.05))
    store = Troubled()
    monkeypatch.setattr(store, "load", anyio.sleep_forever)
    status, body = await store.ask()
    assert status == 503
    assert b"does not answer" in body


async def test_status_is_as_the_command_prints_it(served: Served) -> None:
    await served.fill("a", resource="shipments")
    told = (await served.client.get("/status")).json()
    assert told["daemon"].startswith("process ")
    assert not told["well"]
    assert told["reasons"][0] == "daemon: reads all 5 feeds for the first time; changes are detected after that"
    assert told["feeds"][0]["records"] == 1
    assert [sink["sink"] for sink in told["sinks"]] == ["erp", "floor"]


async def test_why_is_as_the_command_prints_it(served: Served) -> None:
    await served.fill("a b", resource="shipments")
    told = (await served.client.get("/why/main/shipments/a%20b")).json()
    assert (told["key"], told["given"], told["presence"]) == ("a%20b", "a b", "present")
    assert [event["sequence"] for event in told["events"]] == [1]
    assert (await served.client.get("/why/main/shipments/a%2520b")).json()["key"] == "a%20b"
    assert (await served.client.get("/why/main/stock/x")).json()[
        "why"
    ] == 'main/stock was never read; "dockbell run" reads it'


@pytest.mark.parametrize(
    ("place", "status"), [("/why/main/nothing/a", 404), ("/why/main/shipments/%ff", 200), ("/why/main/shipments/", 404)]
)
async def test_only_what_is_configured_is_explained(served: Served, place: str, status: int) -> None:
    assert (await served.client.get(place)).status_code == status
