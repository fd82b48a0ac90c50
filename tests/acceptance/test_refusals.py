"""What one refused resource, a dead key and an absurd wish for peace do to a whole dockbell, in a time of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, deploy
from tests.virtual_time import SkippingLoop

REFUSED = (401, 403, 429)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


async def behind(deployment: Deployment, resource: str) -> list[str]:
    return [key for name, key in await deployment.behind() if name == resource]


def refused(deployment: Deployment) -> int:
    return sum(status in REFUSED for status in deployment.wire.statuses)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("resource", ["packages", "stock", "items"])
async def test_one_refused_resource_delays_no_change_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, resource: str
) -> None:
    lie: dict[str, Any] = {"refuse_with": status, "refuse_resource": resource, "refuse_for": 600.0}
    watched = ("shipments", "packages", "items", "stock")
    async with deploy(tmp_path, monkeypatch, resources=watched, **lie) as deployment:
        await deployment.run(60)
        for _ in range(14):
            deployment.sandbox.edit("shipments", 1)
            await deployment.run(31)
            assert await behind(deployment, "shipments") == []
        assert refused(deployment) <= 12

        await deployment.run(240)
        deployment.edit()
        await deployment.run(120)
        assert await deployment.behind() == []
        assert {(await deployment.state(name)).problem for name in watched} == {""}


async def test_a_key_that_dies_just_after_it_was_accepted_costs_a_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie: dict[str, Any] = {"refuse_with": 401, "refuse_after": 130.0, "refuse_for": 600.0}
    async with deploy(tmp_path, monkeypatch, **lie) as deployment:
        await deployment.run(125)
        assert await behind(deployment, "shipments") == []
        await deployment.run(600)
        assert 3 <= refused(deployment) <= 3 + 11
        assert all([(await deployment.state(name)).problem for name in deployment.resources])

        deployment.edit()
        await deployment.run(180)
        assert await deployment.behind() == []
        assert {(await deployment.state(name)).problem for name in deployment.resources} == {""}


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_wish_for_a_day_of_peace_silences_nothing_for_longer_than_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    lie: dict[str, Any] = {"requests_per_minute": 8, "rate_headers": "missing", "retry_after": 86_400}
    async with deploy(tmp_path, monkeypatch, **lie, retry_after_form=form) as deployment:
        await deployment.run(900)
        assert refused(deployment) >= 1
        deployment.sandbox.set(requests_per_minute=0)
        deployment.edit()
        await deployment.run(420)
        assert await deployment.behind() == []
