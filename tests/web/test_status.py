from __future__ import annotations

import pytest

from tests.web.sites import Served


async def test_status_is_as_the_command_prints_it(served: Served) -> None:
    await served.fill("a", resource="shipments")
    told = (await served.client.get("/status")).json()
    assert told["daemon"].startswith("process ")
    assert not told["well"]
    assert told["reasons"][0] == "main/shipments: never read to its end yet"
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
