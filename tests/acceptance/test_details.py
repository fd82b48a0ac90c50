"""Details that do not come, or not at once, from a whole deployment of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from msgspec.structs import replace

from dockbell.core.model import Feed, RunKind
from dockbell.telemetry import RequestSent, RunEnded
from tests.acceptance.deployment import START, Deployment, deploy
from tests.virtual_time import SkippingLoop

SHIPMENTS = Feed("main", "shipments")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


async def break_off(_: httpx.Request) -> None:
    raise httpx.ReadError("reset")


async def hang(_: httpx.Request) -> None:
    await anyio.sleep_forever()


def only_alone(answer: Callable[[httpx.Request], Awaitable[None]]) -> Callable[[httpx.Request], Awaitable[None]]:
    """Let something happen to requests for single shipments, and nothing to others."""

    async def choose(request: httpx.Request) -> None:
        if request.url.path.startswith("/v1/shipments/"):
            await answer(request)

    return choose


async def find_updates(dockbell: Deployment) -> list[dict[str, Any]]:
    """Return what was told of changes."""
    account = await dockbell.account()
    told = [event["data"] for events in account.events.values() for event in events.values()]
    return [data for data in told if data["change"] == "updated"]


@pytest.mark.parametrize("trouble", [break_off, hang])
async def test_while_no_detail_comes_every_change_is_told_in_time_and_the_list_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[httpx.Request], Awaitable[None]]
) -> None:
    settings = {"detail": ("packages",)}
    async with (
        deploy(
            tmp_path, monkeypatch, resources=("shipments",), settings=settings, apart=("packages",), shipments=300
        ) as dockbell,
        anyio.create_task_group() as group,
    ):
        await dockbell.run(60)
        feeds = dockbell.agents.sources["main"].feeds
        detail_fetcher = feeds[SHIPMENTS].detail_fetcher
        assert detail_fetcher is not None
        with detail_fetcher.task.working_in(group):
            feeds[SHIPMENTS] = replace(feeds[SHIPMENTS], detail_fetcher=None)
            dockbell.wire.before = only_alone(trouble)
            began_at = anyio.current_time()
            dockbell.sandbox.edit("shipments", 300)
            await dockbell.run(360)
            told = await find_updates(dockbell)
            group.cancel_scope.cancel()
    assert len(told) == 300
    assert all(data["detail_missing"] for data in told)
    # The next poll, the timeout, and a pause.
    latest = START + timedelta(seconds=began_at + 30 + 300 + 6)
    assert max(datetime.fromisoformat(data["detected_at"]) for data in told) <= latest
    polls = [fact for fact in dockbell.facts if isinstance(fact, RunEnded) and fact.kind is RunKind.POLL]
    assert len(polls) >= 13
    asked = [fact for fact in dockbell.facts if isinstance(fact, RequestSent) and fact.path.count("/") > 2]
    assert len(asked) <= 300


async def test_details_that_an_outage_held_up_come_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: httpx.Request) -> None:
        dockbell.wire.before = None
        dockbell.sandbox.set(refuse_with=503, refuse_for=200.0)

    settings = {"detail": ("packages",)}
    async with deploy(
        tmp_path, monkeypatch, resources=("shipments",), settings=settings, apart=("packages",)
    ) as dockbell:
        await dockbell.run(60)
        dockbell.wire.before = only_alone(refuse)
        dockbell.edit(5)
        await dockbell.run(330)
        told = await find_updates(dockbell)
        assert len(told) == 5
        assert not [data for data in told if data.get("detail_missing")]
        assert await dockbell.judge() == []


@pytest.mark.parametrize("shape", ["json", "html", "empty", "410", "null"])
async def test_a_shipment_that_goes_before_its_detail_came_is_told_to_have_changed_and_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    async def delete(request: httpx.Request) -> None:
        dockbell.wire.before = None
        dockbell.sandbox.delete("shipments", identity=request.url.path.rpartition("/")[2])

    settings = {"detail": ("packages",)}
    async with deploy(
        tmp_path, monkeypatch, resources=("shipments",), settings=settings, apart=("packages",), unknown_shipment=shape
    ) as dockbell:
        await dockbell.run(60)
        dockbell.wire.before = only_alone(delete)
        dockbell.edit(1)
        await dockbell.run(900)
        (told,) = await find_updates(dockbell)
        assert told["detail_missing"]
        assert await dockbell.told("deleted") == [("shipments", told["key"])]
        assert await dockbell.judge() == []
