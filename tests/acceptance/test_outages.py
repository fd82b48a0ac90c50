"""An API that answers nothing for a while: what it is asked meanwhile, and how soon all goes on afterwards."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import RunKind
from dockbell.telemetry import RunEnded, SourceAnswers, SourceFails
from tests.acceptance.at_work import at_work, reasons
from tests.acceptance.deployment import Deployment, deploy
from tests.virtual_time import SkippingLoop

ALL = ("shipments", "packages", "items", "stock", "warehouses")
OUTAGE = 1800.0
POLL_EVERY = 30
PROBE_EVERY = 15
TIMEOUT = 30
UP: dict[str, Any] = {"refuse_with": 0, "latency": 0.0, "reset_rate": 0.0}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


def count_per_minute(dockbell: Deployment, since: float) -> list[int]:
    """Return how many requests came in each whole minute."""
    minutes = int((anyio.current_time() - since) // 60)
    return [
        sum(since + 60 * number <= time < since + 60 * (number + 1) for time in dockbell.wire.times)
        for number in range(minutes)
    ]


def find_waits(dockbell: Deployment, since: float) -> dict[str, float]:
    """Return how long after a moment each resource was asked for."""
    waits: dict[str, float] = {}
    for path, time in zip(dockbell.wire.paths, dockbell.wire.times, strict=True):
        resource = path.removeprefix("/v1/").partition("?")[0].partition("/")[0]
        if time >= since:
            waits.setdefault(resource, time - since)
    return waits


@pytest.mark.parametrize(
    ("down", "most"),
    [({"refuse_with": 503}, PROBE_EVERY), ({"reset_rate": 1.0}, PROBE_EVERY), ({"latency": TIMEOUT + 10.0}, TIMEOUT)],
)
async def test_an_outage_costs_fewer_requests_than_quiet_and_all_feeds_go_on_soon_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: dict[str, Any], most: float
) -> None:
    """After the next probe, or after the last request that hangs, nothing waits any more."""
    async with deploy(tmp_path, monkeypatch, resources=ALL) as dockbell, at_work(dockbell):
        await anyio.sleep(310)
        quiet = max(count_per_minute(dockbell, 0)[1:])

        dockbell.sandbox.set(**down)
        began = anyio.current_time()
        await anyio.sleep(POLL_EVERY + 2 * TIMEOUT + 1)
        (reason,) = await reasons(dockbell)
        assert reason.startswith("source main: no feed is read")
        await anyio.sleep(OUTAGE - (anyio.current_time() - began))
        first, *later = count_per_minute(dockbell, began)
        assert max(later) <= 60 / PROBE_EVERY + 1 < quiet
        assert first <= 2 * quiet

        dockbell.edit(2)
        dockbell.sandbox.set(**UP)
        recovered = anyio.current_time()
        await anyio.sleep(most + 10)
        waits = find_waits(dockbell, recovered)
        assert waits.keys() == set(ALL)
        assert max(waits.values()) <= most + 1
        await anyio.sleep(300)
        assert await reasons(dockbell) == []
        assert await dockbell.judge() == []
        kinds = [type(fact) for fact in dockbell.facts if isinstance(fact, SourceFails | SourceAnswers)]
        assert kinds == [SourceFails, SourceAnswers]


@pytest.mark.parametrize("resource", ["stock", "shipments"])
async def test_a_resource_that_fails_alone_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=ALL) as dockbell, at_work(dockbell):
        await anyio.sleep(310)
        dockbell.sandbox.set(refuse_with=503, refuse_resource=resource)
        began = anyio.current_time()
        await anyio.sleep(OUTAGE)
        pairs = zip(dockbell.wire.paths, dockbell.wire.times, strict=True)
        polled = [time for path, time in pairs if path.startswith("/v1/packages") and time >= began]
        pauses = [later - earlier for earlier, later in pairwise(polled)]
        assert max(pauses) <= POLL_EVERY + 1
        assert all(f"main/{resource}" in reason for reason in await reasons(dockbell))


async def test_readings_that_an_outage_prevents_are_not_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=("packages",)) as dockbell, at_work(dockbell):
        await anyio.sleep(310)
        dockbell.sandbox.set(refuse_with=503)
        began = len(dockbell.facts)
        await anyio.sleep(OUTAGE)
        polls = [fact for fact in dockbell.facts[began:] if isinstance(fact, RunEnded) and fact.kind is RunKind.POLL]
        assert len(polls) >= OUTAGE / 60, "each gives up after half a minute"
        assert all(fact.late for fact in polls)
