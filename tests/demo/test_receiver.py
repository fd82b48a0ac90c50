from __future__ import annotations

import json
import time
from collections.abc import Callable

import httpx
import pytest

from dockbell.core.publishing.signature import parse_secret, sign
from dockbell.demo.arrival import Arrival
from dockbell.demo.receiver import receive

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = json.dumps({"id": "evt_1", "data": {"key": "shp_1"}}).encode()


async def post(url: str, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(url, content=BODY, headers=headers)


def make_headers(event_id: str = "evt_1", *, age: int = 0) -> dict[str, str]:
    timestamp = int(time.time()) - age
    signature = sign([parse_secret(SECRET)], event_id, timestamp, BODY)
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


async def test_what_is_signed_is_taken() -> None:
    taken: list[Arrival] = []
    refused: list[str] = []
    async with receive(SECRET, taken.append, refused.append) as url:
        assert (await post(url, make_headers())).status_code == 204
    assert [(each.sink, each.event["id"]) for each in taken] == [("hook", "evt_1")]
    assert refused == []


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (lambda: make_headers() | {"webhook-id": "evt_2"}, "no signature matches"),
        (lambda: make_headers(age=600), "the timestamp is too old"),
        (dict, "the timestamp is not a number of seconds"),
    ],
)
async def test_what_is_not_signed_is_refused(headers: Callable[[], dict[str, str]], reason: str) -> None:
    taken: list[Arrival] = []
    refused: list[str] = []
    async with receive(SECRET, taken.append, refused.append) as url:
        response = await post(url, headers())
    assert (response.status_code, response.text) == (401, reason)
    assert (taken, refused) == ([], [reason])
