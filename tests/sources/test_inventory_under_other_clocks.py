"""The key's budget where the clocks of the service, of its limiter and of ours have nothing to do with each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from dockbell import InventoryClient
from dockbell.sandbox import Sandbox, SandboxOptions
from dockbell.sources import connection_pool
from tests.acceptance.deployment import SMALL, Clock, Wire
from tests.virtual_time import SkippingLoop

DAY = timedelta(days=1)
SKEWS = [3 * DAY, -3 * DAY, 90 * DAY, -90 * DAY, 3650 * DAY, -3650 * DAY, timedelta(seconds=40), -timedelta(seconds=40)]


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection_pool, "time", clock)
    monkeypatch.setattr(connection_pool, "datetime", clock)
    return clock


def skewed(clock: Clock, skew: timedelta, **options: Any) -> Wire:
    """Return a service that allows 20 requests a minute by a clock that is off from ours."""
    settings = SandboxOptions(**(SMALL | options | {"requests_per_minute": 20}))
    return Wire(Sandbox(settings, now=lambda: clock() + skew).app)


@pytest.mark.parametrize("skew", [timedelta(0), *SKEWS], ids=str)
@pytest.mark.parametrize("date", ["true", "missing"])
async def test_what_remains_is_heeded_whatever_time_the_service_has(clock: Clock, skew: timedelta, date: str) -> None:
    wire = skewed(clock, skew, date=date)

    await exhaust(wire)


@pytest.mark.parametrize("skew", SKEWS, ids=str)
async def test_what_remains_is_heeded_though_date_is_told_by_another_clock(clock: Clock, skew: timedelta) -> None:
    wire = skewed(clock, timedelta(0), date_skew=skew.total_seconds())

    await exhaust(wire)


@pytest.mark.parametrize("service", SKEWS, ids=str)
async def test_what_remains_is_heeded_though_no_two_clocks_agree(clock: Clock, service: timedelta) -> None:
    wire = skewed(clock, service, date_skew=-3 * service.total_seconds())

    await exhaust(wire)


async def exhaust(wire: Wire) -> None:
    """Ask as often as the service allows, with a client that believes in more; nothing is refused, and little wasted.

    The last of 20 is left to the key's other users, since the client may take nine tenths of them.
    """
    client = InventoryClient("http://sandbox", "sandbox", requests_per_minute=60_000, transport=wire)

    for _ in range(7 * 19):
        await client.read_page("warehouses")
        await anyio.sleep(1)

    assert set(wire.statuses) == {200}
    assert anyio.current_time() < 10 * 60
