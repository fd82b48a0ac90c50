from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dockbell.sandbox.api import ORDER_BYTES_MOST
from dockbell.sandbox.table import RESOURCES

if TYPE_CHECKING:
    from tests.sandbox.conftest import Clock, Open, ReadAll

LISTINGS = tuple(RESOURCES)


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["code"]
    assert error["message"]
    assert isinstance(error, dict)
    return error


def fields_of(records: list[Any], field: str) -> set[Any]:
    return {record[field] for record in records}


# The envelope and its pages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", LISTINGS)
async def test_a_listing_is_an_envelope_of_at_most_25_records(client: httpx.AsyncClient, resource: str) -> None:
    response = await client.get(f"/v1/{resource}")
    assert response.headers["content-type"] == "application/json"
    page = response.json()
    assert set(page) == {resource, "next_cursor"}
    assert len(page[resource]) == min(25, len(page[resource]))
    assert (page["next_cursor"] is None) == (resource == "warehouses")


@pytest.mark.parametrize("resource", LISTINGS)
@pytest.mark.parametrize("cursors", ["keyset", "offset"])
async def test_a_pass_at_rest_meets_every_record_once(
    opened: Open, read_all: ReadAll, resource: str, cursors: str
) -> None:
    sandbox, client = await opened(requests_per_minute=0, cursors=cursors)
    extra = {"status": "all"} if resource == "items" else {}
    records = await read_all(client, resource, limit=7, **extra)
    assert [record["id"] for record in records] == list(sandbox.records(resource))


async def test_records_come_as_they_are_stored(opened: Open) -> None:
    sandbox, client = await opened()
    response = await client.get("/v1/stock?limit=200")
    assert b",".join(sandbox.records("stock").values()) in response.content


async def test_a_keyset_pass_loses_nothing_while_records_move(opened: Open, read_all: ReadAll) -> None:
    sandbox, client = await opened(requests_per_minute=0)
    stayed = set(sandbox.records("shipments"))
    met: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get("/v1/shipments?limit=5" + (f"&cursor={cursor}" if cursor else ""))).json()
        met += [record["id"] for record in page["shipments"]]
        cursor = page["next_cursor"]
        sandbox.step(40)
        stayed &= set(sandbox.records("shipments"))
    assert stayed <= set(met)
    assert len(met) == len(set(met))


async def test_pages_of_offset_cursors_drift_when_a_record_goes(opened: Open) -> None:
    sandbox, client = await opened(requests_per_minute=0, cursors="offset", shipments=60)
    first = (await client.get("/v1/shipments?limit=30")).json()
    before = list(sandbox.records("shipments"))
    gone = None
    while gone is None:
        sandbox.step()
        gone = next((name for name in before[:30] if name not in sandbox.records("shipments")), None)
    second = (await client.get(f"/v1/shipments?limit=30&cursor={first['next_cursor']}")).json()
    met = fields_of(first["shipments"] + second["shipments"], "id")
    assert set(before) & set(sandbox.records("shipments")) - met


@pytest.mark.parametrize(
    ("choice", "shown"), [("null", {"next_cursor": None}), ("absent", {}), ("empty", {"next_cursor": ""})]
)
async def test_the_end_of_the_list_is_shown_as_chosen(opened: Open, choice: str, shown: dict[str, Any]) -> None:
    _, client = await opened(end_of_list=choice)
    page = (await client.get("/v1/warehouses?limit=200")).json()
    del page["warehouses"]
    assert page == shown
    assert (await client.get("/v1/warehouses?limit=1")).json()["next_cursor"]


async def test_the_name_of_the_array_can_be_chosen(opened: Open) -> None:
    _, client = await opened(envelope="Stock levels é")
    assert set((await client.get("/v1/stock")).json()) == {"Stock levels é", "next_cursor"}


# The parameters of listings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", LISTINGS)
@pytest.mark.parametrize("limit", [1, 2, 200])
async def test_limit_is_how_many_records_a_page_has_at_most(
    client: httpx.AsyncClient, resource: str, limit: int
) -> None:
    records = (await client.get(f"/v1/{resource}?limit={limit}")).json()[resource]
    assert 0 < len(records) <= limit


@pytest.mark.parametrize("limit", ["0", "201", "-1", "-0", "1.0", "ten", "", "%2B5", "5%20", "%D9%A5", "9" * 5000])
async def test_any_other_limit_is_refused(client: httpx.AsyncClient, limit: str) -> None:
    response = await client.get(f"/v1/stock?limit={limit}")
    assert response.status_code == 400
    error = error_of(response)
    assert (error["code"], error["parameter"]) == ("invalid_parameter", "limit")


@pytest.mark.parametrize("cursor", ["x", "bm90IG91cnM", "%00", "é", "=", ""])
async def test_a_cursor_that_was_not_given_out_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    response = await client.get(f"/v1/stock?cursor={cursor}")
    assert response.status_code == 400
    assert error_of(response)["parameter"] == "cursor"


async def test_a_cursor_goes_with_the_parameters_it_was_given_for(client: httpx.AsyncClient) -> None:
    cursor = (await client.get("/v1/packages?limit=1")).json()["next_cursor"]
    assert (await client.get(f"/v1/packages?limit=9&cursor={cursor}")).status_code == 200
    for other in ("shipments?", "packages?status=delivered&", "packages?updated_since=2020-01-01&"):
        response = await client.get(f"/v1/{other}cursor={cursor}")
        assert response.status_code == 400
        assert error_of(response)["code"] == "invalid_cursor"


@pytest.mark.parametrize("resource", ["shipments", "packages", "items"])
async def test_updated_since_gives_what_changed_then_or_later(
    opened: Open, read_all: ReadAll, clock: Clock, resource: str
) -> None:
    sandbox, client = await opened(requests_per_minute=0)
    sandbox.step(300)
    records = [json.loads(body) for body in sandbox.records(resource).values()]
    if resource == "items":
        records = [record for record in records if record["status"] == "active"]
    times = sorted(record["updated_at"] for record in records)
    for since in (times[0], times[len(times) // 2], times[-1]):
        met = await read_all(client, resource, updated_since=since, limit=9)
        assert [record["updated_at"] for record in met] == [time for time in times if time >= since]


async def test_updated_since_can_have_to_lie_in_the_near_past(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(since_most=3600.0)
    sandbox.edit("items")
    clock.turn(3600)
    path = "/v1/items?updated_since=2026-11-21T02:30:00Z"
    assert len((await client.get(path)).json()["items"]) == 1
    clock.turn(0.5)
    refused = await client.get(path)
    assert refused.status_code == 400
    assert error_of(refused) == {
        "code": "invalid_parameter",
        "message": "updated_since must lie within the last 3600 s, got '2026-11-21T02:30:00Z'",
        "parameter": "updated_since",
    }
    assert (await client.get("/v1/items")).status_code == 200


async def test_pages_can_have_to_lie_within_a_window(opened: Open) -> None:
    _, client = await opened(stock=60, items=30, warehouses=3, result_window=45)
    first = await client.get("/v1/stock?limit=20")
    second = await client.get(f"/v1/stock?limit=20&cursor={first.json()['next_cursor']}")
    cursor = second.json()["next_cursor"]
    third = await client.get(f"/v1/stock?limit=20&cursor={cursor}")
    assert [page.status_code for page in (first, second, third)] == [200, 200, 400]
    assert error_of(third)["message"] == "result window is too large: a page must end within 45 records, got 60"
    assert (await client.get(f"/v1/stock?limit=5&cursor={cursor}")).status_code == 200
    assert (await client.get("/v1/stock?limit=50")).status_code == 400


@pytest.mark.parametrize(
    ("accepts", "beside", "refused"),
    [
        ("nothing", "", ""),
        ("nothing", "&limit=3", "limit"),
        ("nothing", "&status=all", "status"),
        ("limit", "&limit=3", ""),
        ("limit", "&limit=3&updated_since=2020-01-01", "updated_since"),
        ("limit", "&expand=stock", "expand"),
    ],
)
async def test_a_cursor_can_have_to_come_alone(opened: Open, accepts: str, beside: str, refused: str) -> None:
    """It stands for the parameters of its first page then, and is of no use for another resource."""
    sandbox, client = await opened(records=400)
    plain = (await client.get("/v1/items?status=all&updated_since=2020-01-01&expand=stock&limit=6")).json()["items"]
    sandbox.set(cursor_with=accepts)
    first = await client.get("/v1/items?status=all&updated_since=2020-01-01&expand=stock&limit=3")
    cursor = first.json()["next_cursor"]
    second = await client.get(f"/v1/items?cursor={cursor}{beside}")
    if refused:
        assert (second.status_code, error_of(second)["parameter"]) == (400, refused)
    else:
        assert first.json()["items"] + second.json()["items"] == plain
    assert (await client.get(f"/v1/stock?cursor={cursor}")).status_code == 400


@pytest.mark.parametrize("options", [{}, {"order": "id"}, {"descending": True}, {"order": "updated_at"}])
async def test_only_the_youngest_records_can_be_listed(opened: Open, options: dict[str, Any]) -> None:
    """The others answer when they are asked for by their ids."""
    sandbox, client = await opened(**options)
    youngest = list(sandbox.records("shipments"))[-3:]
    sandbox.set(listed_most=3)
    sandbox.edit("shipments", 100)
    for path in ("/v1/shipments", "/v1/shipments?updated_since=2026-11-21"):
        assert sorted(record["id"] for record in (await client.get(path)).json()["shipments"]) == sorted(youngest)
    assert (await client.get("/v1/shipments/shp_1")).json()["id"] == "shp_1"
    sandbox.set(listed_most=0)
    assert (await client.get("/v1/shipments")).json() == {"shipments": [], "next_cursor": None}
    sandbox.set(listed_most=None)
    assert len((await client.get("/v1/shipments?limit=200")).json()["shipments"]) > 3


async def test_a_record_changed_meanwhile_moves_to_the_end_of_an_updated_since_listing(
    opened: Open, read_all: ReadAll
) -> None:
    sandbox, client = await opened(requests_per_minute=0, cursors="offset", shipments=60, items=3, stock=0)
    since = "2020-01-01T00:00:00Z"
    first = (await client.get(f"/v1/shipments?limit=30&updated_since={since}")).json()
    all_before = [record["id"] for record in await read_all(client, "shipments", updated_since=since)]
    met = fields_of(first["shipments"], "id")
    while not any(change.identity in met for change in sandbox.changes()):
        sandbox.step()
    second = (await client.get(f"/v1/shipments?limit=30&updated_since={since}&cursor={first['next_cursor']}")).json()
    assert second["shipments"][0]["id"] != all_before[30]


@pytest.mark.parametrize(
    "text",
    ["2026-01-01T01:00:00Z", "2026-01-01T01:00:00%2B00:00", "2026-01-01T03:00:00.000%2B02:00", "2026-01-01T01:00"],
)
async def test_updated_since_may_have_any_offset_and_is_utc_without_one(opened: Open, clock: Clock, text: str) -> None:
    clock.now = datetime.fromisoformat("2026-01-01T01:00:00Z")
    sandbox, client = await opened()
    for _ in range(50):
        sandbox.step()
    changed = {change.identity for change in sandbox.changes() if change.resource == "shipments" and change.after}
    records = (await client.get(f"/v1/shipments?limit=200&updated_since={text}")).json()["shipments"]
    assert fields_of(records, "id") == changed & set(sandbox.records("shipments"))
    assert records


@pytest.mark.parametrize("text", ["yesterday", "1766000000", "2026-13-01T00:00:00Z", "", "0001-01-01T00:00:00%2B14:00"])
async def test_anything_but_an_iso_8601_time_is_refused(client: httpx.AsyncClient, text: str) -> None:
    response = await client.get(f"/v1/items?updated_since={text}")
    assert response.status_code == 400
    assert error_of(response)["parameter"] == "updated_since"


async def test_a_plus_that_became_a_space_is_explained(client: httpx.AsyncClient) -> None:
    response = await client.get("/v1/items?updated_since=2026-01-01T00:00:00+00:00")
    assert "write + as %2B" in error_of(response)["message"]


@pytest.mark.parametrize("resource", ["stock", "warehouses"])
@pytest.mark.parametrize("parameter", ["updated_since=2026-01-01", "status=active", "sku=A"])
async def test_stock_and_warehouses_accept_no_filter(client: httpx.AsyncClient, resource: str, parameter: str) -> None:
    response = await client.get(f"/v1/{resource}?{parameter}")
    assert response.status_code == 400
    assert error_of(response)["code"] == "unknown_parameter"


@pytest.mark.parametrize(
    ("resource", "given", "close"),
    [
        ("shipments", "updated_sinse", "updated_since"),
        ("items", "manufacturer-sku", "manufacturer_sku"),
        ("stock", "Limit", "limit"),
    ],
)
async def test_an_unknown_parameter_is_named_with_the_one_that_may_be_meant(
    client: httpx.AsyncClient, resource: str, given: str, close: str
) -> None:
    error = error_of(await client.get(f"/v1/{resource}?{given}=1"))
    assert (error["code"], error["parameter"]) == ("unknown_parameter", given)
    assert error["message"].endswith(f"did you mean {close}?")


async def test_a_parameter_given_twice_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.get("/v1/stock?limit=1&limit=1")
    assert response.status_code == 400
    assert error_of(response)["parameter"] == "limit"


@pytest.mark.parametrize("resource", ["shipments", "packages"])
async def test_status_gives_the_records_in_that_state(opened: Open, read_all: ReadAll, resource: str) -> None:
    sandbox, client = await opened(requests_per_minute=0)
    found = 0
    for status in RESOURCES[resource].statuses:
        for extra in ({}, {"updated_since": "2020-01-01"}):
            records = await read_all(client, resource, status=status, limit=9, **extra)
            assert fields_of(records, "status") <= {status}
        found += len(records)
    assert found == len(sandbox.records(resource))


async def test_items_are_the_active_ones_unless_asked_otherwise(opened: Open, read_all: ReadAll) -> None:
    sandbox, client = await opened(requests_per_minute=0, items=120)
    default, active, inactive, both = [
        await read_all(client, "items", limit=200, **extra)
        for extra in ({}, {"status": "active"}, {"status": "inactive"}, {"status": "all"})
    ]
    assert default == active
    assert fields_of(active, "status") == {"active"}
    assert fields_of(inactive, "status") == {"inactive"}
    assert len(active) + len(inactive) == len(both) == len(sandbox.records("items"))


@pytest.mark.parametrize(
    "query", ["shipments?status=all", "packages?status=pending", "items?status=Active", "items?status="]
)
async def test_a_state_that_does_not_exist_is_refused(client: httpx.AsyncClient, query: str) -> None:
    response = await client.get(f"/v1/{query}")
    assert response.status_code == 400
    assert error_of(response)["parameter"] == "status"


@pytest.mark.parametrize(
    ("resource", "parameter"), [("packages", "tracking_number"), ("items", "sku"), ("items", "manufacturer_sku")]
)
async def test_a_filter_gives_exactly_the_records_with_that_value(
    opened: Open, read_all: ReadAll, resource: str, parameter: str
) -> None:
    sandbox, client = await opened(requests_per_minute=0, items=120)
    extra = {"status": "all"} if resource == "items" else {}
    records = [json.loads(body) for body in sandbox.records(resource).values()]
    for value in sorted(fields_of(records, parameter) - {None})[:20]:
        expected = [record for record in records if record[parameter] == value]
        assert await read_all(client, resource, limit=1, **extra, **{parameter: value}) == expected
    assert await read_all(client, resource, **{parameter: "none has this"}) == []


async def test_filters_hold_together(opened: Open, read_all: ReadAll) -> None:
    sandbox, client = await opened(requests_per_minute=0, items=120)
    item = json.loads(next(body for body in sandbox.records("items").values() if b'"inactive"' in body))
    both = {"sku": item["sku"], "manufacturer_sku": item["manufacturer_sku"]}
    assert await read_all(client, "items", **both) == []
    assert await read_all(client, "items", **both, status="all", updated_since=item["updated_at"]) == [item]
    assert await read_all(client, "items", **both, status="all", updated_since="2026-06-01") == []
    assert await read_all(client, "items", sku=item["sku"], manufacturer_sku="other", status="all") == []


# Embedded relations --------------------------------------------------------------------------------------------------


async def test_one_shipment_is_one_object(opened: Open) -> None:
    sandbox, client = await opened()
    for identity, body in list(sandbox.records("shipments").items())[:5]:
        assert (await client.get(f"/v1/shipments/{identity}")).content == body


@pytest.mark.parametrize("identity", ["shp_0", "shp_999999", "shp_01", "1", "pkg_1", "%20", "é", "..%2fitems"])
async def test_a_shipment_that_does_not_exist_is_not_found(client: httpx.AsyncClient, identity: str) -> None:
    response = await client.get(f"/v1/shipments/{identity}")
    assert response.status_code == 404
    assert error_of(response)["code"] == "not_found"


async def test_expand_adds_packages_line_items_and_invoices_to_a_shipment(opened: Open) -> None:
    sandbox, client = await opened(requests_per_minute=0)
    for identity, body in sandbox.records("shipments").items():
        plain = json.loads(body)
        full = (await client.get(f"/v1/shipments/{identity}?expand=packages,line_items,invoices")).json()
        packages, lines, invoices = (full.pop(name) for name in ("packages", "line_items", "invoices"))
        assert full == plain
        assert len(packages) == plain["package_count"]
        assert all(package["shipment_id"] == identity for package in packages)
        assert [line["quantity"] for line in lines] == [line["quantity"] for line in plain["lines"]]
        assert all(line["name"] for line in lines)
        assert [invoice["status"] for invoice in invoices] == (
            [] if not plain["shipped_at"] else ["paid" if plain["delivered_at"] else "open"]
        )


async def test_expand_adds_stock_to_items(opened: Open) -> None:
    sandbox, client = await opened()
    levels = [json.loads(body) for body in sandbox.records("stock").values()]
    for item in (await client.get("/v1/items?limit=200&expand=stock")).json()["items"]:
        assert item["stock"] == [level for level in levels if level["item_id"] == item["id"]]


@pytest.mark.parametrize(
    ("resource", "relation"), [("packages", "shipment"), ("stock", "item"), ("stock", "warehouse")]
)
async def test_expand_adds_what_a_record_belongs_to(client: httpx.AsyncClient, resource: str, relation: str) -> None:
    for record in (await client.get(f"/v1/{resource}?expand={relation}")).json()[resource]:
        assert record[relation]["id"] == record[f"{relation}_id"]


async def test_expand_works_with_a_composite_stock_key(opened: Open) -> None:
    _, client = await opened(stock_key="composite")
    level = (await client.get("/v1/stock?limit=1&expand=item,warehouse")).json()["stock"][0]
    assert level["item"]["id"] == level["item_id"]
    assert any(item["stock"] for item in (await client.get("/v1/items?expand=stock")).json()["items"])


async def test_a_line_of_a_deleted_item_stays_without_its_name(opened: Open) -> None:
    sandbox, client = await opened(requests_per_minute=0, items=2, stock=0, warehouses=1, shipments=30, packages=0)
    while any(identity in sandbox.records("items") for identity in ("itm_1", "itm_2")):
        sandbox.step()
    shipments = (await client.get("/v1/shipments?limit=200&expand=line_items")).json()["shipments"]
    lines = [line for shipment in shipments for line in shipment["line_items"]]
    assert {line["name"] is None for line in lines if line["item_id"] in ("itm_1", "itm_2")} == {True}


@pytest.mark.parametrize(
    "path",
    ["shipments?expand=package", "shipments?expand=packages,", "items?expand=packages", "warehouses?expand=stock",
     "shipments/shp_1?expand=stock", "stock?expand="],
)  # fmt: skip
async def test_a_relation_that_does_not_exist_is_refused(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(f"/v1/{path}")
    assert response.status_code == 400
    assert error_of(response)["parameter"] == "expand"


async def test_the_single_shipment_accepts_nothing_but_expand(client: httpx.AsyncClient) -> None:
    response = await client.get("/v1/shipments/shp_1?limit=1")
    assert response.status_code == 400
    assert error_of(response)["parameter"] == "limit"


# Sales orders --------------------------------------------------------------------------------------------------------


async def test_a_sales_order_starts_the_life_of_a_shipment(opened: Open) -> None:
    sandbox, client = await opened()
    item = json.loads(next(body for body in sandbox.records("items").values() if b'"active"' in body))
    order = {"reference": "Bestellung № 7", "lines": [{"sku": item["sku"], "quantity": 3}]}
    response = await client.post("/v1/sales-orders", json=order)
    assert response.status_code == 201
    created = response.json()
    assert (created["number"], created["status"]) == ("Bestellung № 7", "accepted")
    shipment = json.loads(sandbox.records("shipments")[created["shipment_id"]])
    assert (shipment["status"], shipment["order_reference"]) == ("pending", "Bestellung № 7")
    assert [(line["sku"], line["quantity"]) for line in shipment["lines"]] == [(item["sku"], 3)]
    assert {change.resource for change in sandbox.changes()} <= {"shipments", "stock"}
    statuses = {"pending"}
    while "delivered" not in statuses and "cancelled" not in statuses:
        sandbox.step()
        statuses.add(json.loads(sandbox.records("shipments")[created["shipment_id"]])["status"])
    assert len(statuses) > 1


@pytest.mark.parametrize(
    "order",
    [{}, {"lines": "none"}, {"lines": [7, {"sku": 1}, {"sku": "?"}]}, {"reference": ""}, {"reference": "\ud800"},
     {"reference": "x" * 101}, {"reference": 5}, {"lines": [{"sku": "A", "quantity": True}]}],
)  # fmt: skip
async def test_any_object_is_an_order(opened: Open, order: dict[str, Any]) -> None:
    sandbox, client = await opened()
    content = json.dumps(order)
    response = await client.post("/v1/sales-orders", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 201
    assert response.json()["number"].startswith("SO-2")
    assert response.json()["shipment_id"] in sandbox.records("shipments")


async def test_an_order_is_accepted_where_nothing_is_on_offer(opened: Open) -> None:
    sandbox, client = await opened(records=2)
    while sandbox.records("items"):
        sandbox.step()
    assert (await client.post("/v1/sales-orders", json={})).json()["lines"] == []
    sandbox.step(100)


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"{}", "", 415),
        (b"{}", "application/vnd.order+json; charset=utf-8", 201),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"a": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[]", "application/json", 422),
        (b"7", "application/json", 422),
        (b" " * (ORDER_BYTES_MOST + 1), "application/json", 413),
    ],
)
async def test_what_is_not_an_object_is_refused(
    client: httpx.AsyncClient, content: bytes, media_type: str, status: int
) -> None:
    response = await client.post("/v1/sales-orders", content=content, headers={"Content-Type": media_type})
    assert response.status_code == status
    if status != 201:
        error_of(response)


async def test_an_order_takes_no_query_parameters(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/sales-orders?dry_run=1", json={})).status_code == 400


# Paths and methods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/shipment", "/v1/stock/", "/v1/items/itm_1", "/v2/items", "/v1/%2e"]
)
async def test_other_paths_are_not_found(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 404
    assert error_of(response)["code"] == "not_found"


async def test_a_path_like_a_known_one_is_answered_with_that(client: httpx.AsyncClient) -> None:
    assert error_of(await client.get("/v1/shipment"))["message"].endswith("did you mean /v1/shipments?")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", ["/v1/shipments", "/v1/shipments/shp_1", "/v1/stock"])
async def test_listings_can_only_be_read(client: httpx.AsyncClient, method: str, path: str) -> None:
    response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET"
    if method != "HEAD":
        assert error_of(response)["code"] == "method_not_allowed"


async def test_orders_can_only_be_created(client: httpx.AsyncClient) -> None:
    response = await client.get("/v1/sales-orders")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_an_error_of_the_sandbox_itself_is_json_with_all_headers(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, _ = await opened()
    monkeypatch.setattr("dockbell.sandbox.api.Pages.take", lambda *_: 1 / 0)
    transport = httpx.ASGITransport(sandbox.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sandbox") as client:
        response = await client.get("/v1/stock", headers={"Authorization": "Bearer sandbox"})
    assert response.status_code == 500
    assert error_of(response)["code"] == "internal_error"
    assert response.headers["x-ratelimit-remaining"] == "299"


# Late visibility -----------------------------------------------------------------------------------------------------


async def test_a_change_is_shown_only_after_its_delay(opened: Open, clock: Clock, read_all: ReadAll) -> None:
    sandbox, client = await opened(requests_per_minute=0, late_visibility=5.0, items=120)

    async def shown() -> list[Any]:
        return [
            await read_all(client, name, limit=200, **({"status": "all"} if name == "items" else {}))
            for name in LISTINGS
        ]

    def true() -> list[Any]:
        return [[json.loads(body) for body in sandbox.records(name).values()] for name in LISTINGS]

    before = await shown()
    sandbox.step(300)
    clock.turn(4.9)
    assert await shown() == before
    clock.turn(0.2)
    late = await shown()
    assert [sorted(records, key=str) for records in late] == [sorted(records, key=str) for records in true()]
    assert late != before


async def test_a_late_record_carries_the_time_of_its_change(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(late_visibility=5.0)
    created = (await client.post("/v1/sales-orders", json={})).json()
    path = f"/v1/shipments/{created['shipment_id']}"
    assert created["shipment_id"] in sandbox.records("shipments")
    assert (await client.get(path)).status_code == 404
    clock.turn(5)
    assert (await client.get(path)).json()["updated_at"] == created["created_at"] == "2026-11-21T02:30:00.000000Z"


# Variants ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("envelope", ["data", "records", "Stock levels"])
async def test_the_array_can_have_any_name(opened: Open, envelope: str) -> None:
    sandbox, client = await opened(envelope=envelope)
    page = (await client.get("/v1/warehouses?limit=200")).json()
    assert list(page) == [envelope, "next_cursor"]
    assert len(page[envelope]) == len(sandbox.records("warehouses"))


async def test_the_array_can_be_named_as_the_specification_labels_it(opened: Open) -> None:
    _, client = await opened(envelope="{label}")
    names = [next(iter((await client.get(f"/v1/{resource}")).json())) for resource in LISTINGS]
    assert names == ["Shipments", "Packages", "Items", "Stock levels", "Warehouses"]


async def test_the_envelope_can_be_nested_and_the_single_shipment_is_not(opened: Open) -> None:
    _, client = await opened(wrapper="data")
    page = (await client.get("/v1/stock?limit=1")).json()
    assert list(page) == ["data"]
    assert list(page["data"]) == ["stock", "next_cursor"]
    assert (await client.get("/v1/shipments/shp_1")).json()["id"] == "shp_1"


async def test_a_cursor_can_be_a_json_integer(opened: Open, read_all: ReadAll) -> None:
    sandbox, client = await opened(requests_per_minute=0, cursor_form="integer", cursors="offset")
    assert (await client.get("/v1/stock?limit=7")).json()["next_cursor"] == 7
    assert [level["id"] for level in await read_all(client, "stock", limit=7)] == list(sandbox.records("stock"))


@pytest.mark.parametrize(
    ("choice", "status", "media_type", "content"),
    [
        ("json", 404, "application/json", None),
        ("html", 404, "text/html; charset=utf-8", None),
        ("empty", 404, None, b""),
        ("410", 410, "application/json", None),
        ("null", 200, "application/json", b"null"),
    ],
)
async def test_an_unknown_shipment_is_answered_as_chosen(
    opened: Open, choice: str, status: int, media_type: str | None, content: bytes | None
) -> None:
    _, client = await opened(unknown_shipment=choice)
    response = await client.get("/v1/shipments/shp_0")
    assert (response.status_code, response.headers.get("content-type")) == (status, media_type)
    if content is not None:
        assert response.content == content
    assert (await client.get("/v1/shipments/shp_1")).json()["id"] == "shp_1"


async def test_unknown_parameters_can_be_ignored(opened: Open) -> None:
    _, client = await opened(unknown_parameters="ignore")
    right = await client.get("/v1/stock?limit=200")
    assert (await client.get("/v1/stock?limit=200&updated_since=x&colour=red")).content == right.content
    assert (await client.get("/v1/shipments/shp_1?colour=red")).json()["id"] == "shp_1"
    assert (await client.get("/v1/stock?limit=0")).status_code == 400


async def test_unknown_relations_can_be_ignored(opened: Open) -> None:
    _, client = await opened(unknown_expand="ignore")
    path = "/v1/shipments/shp_1"
    known = await client.get(f"{path}?expand=packages")
    assert "packages" in known.json()
    assert (await client.get(f"{path}?expand=packages,ghosts")).content == known.content


async def test_ids_can_be_integers_and_so_are_references(opened: Open) -> None:
    sandbox, client = await opened(id_form="integer")
    sandbox.step(200)
    assert set(sandbox.records("items")) >= {"1", "2"}
    shipment = (await client.get("/v1/shipments/1?expand=packages,line_items")).json()
    assert shipment["id"] == 1
    assert isinstance(shipment["warehouse_id"], int)
    assert [package["shipment_id"] for package in shipment["packages"]] == [1] * len(shipment["packages"])
    assert all(isinstance(line["item_id"], int) and line["name"] for line in shipment["line_items"])
    created = (await client.post("/v1/sales-orders", json={})).json()
    assert (await client.get(f"/v1/shipments/{created['shipment_id']}")).json()["id"] == created["shipment_id"]
    assert (await client.get("/v1/shipments/shp_1")).status_code == 404
    (package,) = (await client.get("/v1/packages?limit=1&expand=shipment")).json()["packages"]
    assert package["shipment"]["id"] == package["shipment_id"]


async def test_the_identity_of_a_composite_level_is_what_its_record_says(opened: Open) -> None:
    sandbox, _ = await opened(id_form="integer", stock_key="composite")
    for identity, body in sandbox.records("stock").items():
        level = json.loads(body)
        assert identity == f"{level['sku']},{level['warehouse_id']}"
