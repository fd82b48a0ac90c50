from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.sandbox import SandboxOptions
from dockbell.sandbox.gate import UNLIMITED, Limits

if TYPE_CHECKING:
    from tests.sandbox.conftest import Clock, Open

PATHS = ("/v1/stock", "/v1/shipments/shp_1", "/nowhere", "/sandbox/changes")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "header", [None, "", "sandbox", "Basic c2FuZGJveA==", "Bearer", "Bearer ", "Bearer wrong", "Bearer é"]
)
async def test_without_a_known_key_nothing_is_told(opened: Open, path: str, header: str | None) -> None:
    _, client = await opened()
    del client.headers["Authorization"]
    headers = {} if header is None else {b"Authorization": header.encode()}
    response = await client.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith('Bearer realm="dockbell sandbox"')
    assert response.json()["error"]["code"] == (
        "invalid_key" if header and header.startswith("Bearer") else "unauthenticated"
    )


async def test_two_authorization_headers_are_none(opened: Open) -> None:
    _, client = await opened()
    headers = [("Authorization", "Bearer sandbox"), ("Authorization", "Bearer sandbox")]
    del client.headers["Authorization"]
    assert (await client.get("/v1/stock", headers=headers)).status_code == 401


@pytest.mark.parametrize("header", ["Bearer one", "bearer two", "BEARER  two"])
async def test_each_of_the_keys_is_accepted(opened: Open, header: str) -> None:
    _, client = await opened(api_keys=("one", "two"))
    assert (await client.get("/v1/stock", headers={"Authorization": header})).status_code == 200


async def test_every_response_says_where_the_key_stands_and_what_time_it_is(opened: Open, clock: Clock) -> None:
    _, client = await opened()
    clock.turn(12)
    reset = str(int(clock.now.timestamp()) // 60 * 60 + 60)
    for count, path in enumerate(("/v1/stock", "/v1/nothing", "/v1/stock?limit=0", "/v1/shipments/shp_0"), 1):
        headers = (await client.get(path)).headers
        assert headers["x-ratelimit-limit"] == "300"
        assert headers["x-ratelimit-remaining"] == str(300 - count)
        assert headers["x-ratelimit-reset"] == reset
        assert headers["date"] == "Sat, 21 Nov 2026 02:30:12 GMT"


async def test_a_refused_key_uses_up_nothing_and_sees_a_fresh_window(opened: Open) -> None:
    _, client = await opened()
    await client.get("/v1/stock")
    refused = await client.get("/v1/stock", headers={"Authorization": "Bearer wrong"})
    assert refused.headers["x-ratelimit-remaining"] == "300"
    assert (await client.get("/v1/stock")).headers["x-ratelimit-remaining"] == "298"


async def test_the_301st_request_of_a_minute_is_refused_until_the_next(opened: Open, clock: Clock) -> None:
    _, client = await opened()
    clock.turn(20.5)
    for remaining in range(299, -1, -1):
        response = await client.get("/v1/warehouses?limit=1")
        assert (response.status_code, response.headers["x-ratelimit-remaining"]) == (200, str(remaining))
    refused = await client.get("/v1/warehouses")
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limited"
    assert (refused.headers["x-ratelimit-remaining"], refused.headers["retry-after"]) == ("0", "40")
    clock.turn(40)
    assert (await client.get("/v1/warehouses")).headers["x-ratelimit-remaining"] == "299"


async def test_the_eleventh_order_of_a_minute_is_refused_and_reading_goes_on(opened: Open) -> None:
    sandbox, client = await opened()
    for remaining in range(9, -1, -1):
        response = await client.post("/v1/sales-orders", json={})
        assert response.status_code == 201
        assert response.headers["x-ratelimit-limit"] == "10"
        assert response.headers["x-ratelimit-remaining"] == str(remaining)
    orders = len(sandbox.changes())
    refused = await client.post("/v1/sales-orders", json={})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert len(sandbox.changes()) == orders
    reading = await client.get("/v1/stock")
    assert (reading.status_code, reading.headers["x-ratelimit-remaining"]) == (200, "289")


async def test_date_and_rate_headers_can_be_missing(opened: Open) -> None:
    sandbox, client = await opened(date="missing")
    headers = (await client.get("/v1/stock")).headers
    assert ("date" in headers, "x-ratelimit-reset" in headers) == (False, True)
    sandbox.set(date="true", rate_headers="missing")
    headers = (await client.get("/v1/stock")).headers
    assert "date" in headers
    assert not [name for name in headers if name.startswith("x-ratelimit")]


@pytest.mark.parametrize(("skew", "date"), [(90.0, "02:31:30"), (-90.0, "02:28:30")])
async def test_date_can_be_ahead_or_behind(opened: Open, skew: float, date: str) -> None:
    _, client = await opened(date_skew=skew)
    headers = (await client.get("/v1/stock")).headers
    assert headers["date"] == f"Sat, 21 Nov 2026 {date} GMT"
    assert headers["x-ratelimit-reset"] == "1795228260"


@pytest.mark.parametrize("years", [-5, 3])
async def test_the_whole_service_can_be_years_off(opened: Open, clock: Clock, years: int) -> None:
    """Its date, its windows, its records' timestamps and what updated_since means all agree."""
    sandbox, client = await opened(clock_skew=years * 365 * 86_400.0, since_most=60.0)
    sandbox.edit("items")
    clock.turn(12)
    for remaining in (299, 298):
        headers = (await client.get("/v1/stock")).headers
        date = parsedate_to_datetime(headers["date"])
        assert date == clock.now + timedelta(days=years * 365)
        assert headers["x-ratelimit-remaining"] == str(remaining)
        assert int(headers["x-ratelimit-reset"]) == date.timestamp() + 48
    (item,) = (
        await client.get("/v1/items", params={"updated_since": (date - timedelta(seconds=20)).isoformat()})
    ).json()["items"]
    assert datetime.fromisoformat(item["updated_at"]) == date - timedelta(seconds=12)
    assert sandbox.changes()[0].at == clock.now - timedelta(seconds=12)


@pytest.mark.parametrize("status", [401, 403, 503])
async def test_every_request_is_refused_for_a_while(opened: Open, clock: Clock, status: int) -> None:
    sandbox, client = await opened(refuse_with=status, refuse_after=60.0, refuse_for=30.0)

    async def ask() -> int:
        return (await client.get("/v1/stock")).status_code

    assert await ask() == 200
    for seconds, expected in ((59, 200), (1, status), (29, status), (1, 200), (3600, 200)):
        clock.turn(seconds)
        assert await ask() == expected
    sandbox.set(refuse_with=status, refuse_after=0.0, refuse_for=0.0)
    clock.turn(3600)
    refused = await client.get("/v1/stock")
    assert (refused.status_code, refused.headers["x-ratelimit-remaining"]) == (status, "300")
    assert refused.json()["error"]["code"]
    assert (await client.get("/sandbox/changes")).status_code == 200
    sandbox.set(refuse_with=0)
    assert await ask() == 200


@pytest.mark.parametrize("status", [401, 403, 503])
async def test_one_resource_can_be_refused_alone(opened: Open, status: int) -> None:
    _, client = await opened(refuse_with=status, refuse_resource="packages")
    asked = {path: (await client.get(f"/v1/{path}")).status_code for path in ("shipments", "packages", "stock")}
    assert asked == {"shipments": 200, "packages": status, "stock": 200}


async def test_retry_after_can_be_absurd_or_a_date(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=1, retry_after_form="date", date_skew=60.0)
    clock.turn(20)
    await client.get("/v1/stock")
    assert (await client.get("/v1/stock")).headers["retry-after"] == "Sat, 21 Nov 2026 02:32:00 GMT"
    sandbox.set(retry_after=86_400, retry_after_form="seconds")
    refused = await client.get("/v1/stock")
    assert (refused.status_code, refused.headers.get_list("retry-after")) == (429, ["86400"])
    sandbox.set(requests_per_minute=0, error_rate=1.0, error_with=503)
    assert (await client.get("/v1/stock")).headers["retry-after"] == "86400"
    sandbox.set(retry_after=None)
    assert "retry-after" not in (await client.get("/v1/stock")).headers
    sandbox.set(retry_after=5, error_with=500)
    assert "retry-after" not in (await client.get("/v1/stock")).headers


async def test_keys_can_be_exchanged_while_it_runs(opened: Open) -> None:
    sandbox, client = await opened()
    sandbox.set(api_keys=("new",))
    assert (await client.get("/v1/stock")).status_code == 401
    assert (await client.get("/v1/stock", headers={"Authorization": "Bearer new"})).status_code == 200


async def test_the_limit_can_be_lowered_while_it_runs(opened: Open) -> None:
    sandbox, client = await opened()
    for _ in range(3):
        await client.get("/v1/warehouses")
    sandbox.set(requests_per_minute=2)
    refused = await client.get("/v1/warehouses")
    assert (refused.status_code, refused.headers["x-ratelimit-remaining"]) == (429, "0")


async def test_an_application_server_may_ask_for_other_than_http(opened: Open) -> None:
    sandbox, _ = await opened()
    sent: list[object] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup" if not sent else "lifespan.shutdown"}

    async def send(event: object) -> None:
        sent.append(event)

    await sandbox.app({"type": "lifespan", "app": None, "state": {}}, receive, send)
    assert sent == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


def limits_of(requests: int, orders: int) -> Limits:
    return Limits(SandboxOptions(requests_per_minute=requests, orders_per_minute=orders))


requests = st.tuples(st.sampled_from("ab"), st.booleans(), st.floats(0, 30))


@given(st.lists(requests, max_size=80))
def test_no_window_of_a_key_ever_admits_more_than_its_limits(asked: list[tuple[str, bool, float]]) -> None:
    limits = limits_of(5, 2)
    now = 0.0
    admitted: dict[tuple[str, int, str], int] = {}
    for key, order, pause in asked:
        now += pause
        standing = limits.admit(key, now, order=order)
        assert standing.reset == now // 60 * 60 + 60
        if standing.admitted:
            for scope in ("requests", "orders") if order else ("requests",):
                window = (key, int(now // 60), scope)
                admitted[window] = admitted.get(window, 0) + 1
    assert all(count <= (2 if scope == "orders" else 5) for (_, _, scope), count in admitted.items())


def test_a_request_is_admitted_until_the_window_is_full_and_again_in_the_next() -> None:
    limits = limits_of(2, 10)
    standings = [limits.admit("key", now) for now in (60, 119.9, 119.99, 120)]
    assert [(standing.admitted, standing.remaining) for standing in standings] == [
        (True, 1),
        (True, 0),
        (False, 0),
        (True, 1),
    ]


def test_an_order_counts_in_both_windows_and_shows_the_tighter_one() -> None:
    limits = limits_of(5, 2)
    assert limits.admit("key", 0, order=True).limit == 2
    assert limits.look("key", 0).remaining == 4
    for _ in range(3):
        limits.admit("key", 0)
    standing = limits.admit("key", 0, order=True)
    assert (standing.admitted, standing.limit, standing.remaining) == (True, 5, 0)


def test_a_refused_order_counts_nowhere() -> None:
    limits = limits_of(5, 1)
    limits.admit("key", 0, order=True)
    assert not limits.admit("key", 0, order=True).admitted
    assert limits.look("key", 0).remaining == 4


def test_keys_are_counted_apart() -> None:
    limits = limits_of(1, 1)
    assert limits.admit("one", 0).admitted
    assert limits.admit("other", 0).admitted


def test_without_a_limit_the_headers_say_a_very_large_one() -> None:
    standing = limits_of(0, 0).admit("key", 0, order=True)
    assert (standing.limit, standing.remaining) == (UNLIMITED, UNLIMITED - 1)
