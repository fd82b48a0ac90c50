from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import RESOURCES
from dockbell.core.reading.request import (
    PageLimit,
    Request,
    format_since,
    list_request,
    order_request,
    shipment_request,
)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_a_listing_asks_for_the_largest_page_by_default() -> None:
    assert list_request("warehouses") == Request("GET", "/v1/warehouses", (("limit", "200"),))


def test_a_listing_carries_every_parameter_of_the_description() -> None:
    request = list_request(
        "items",
        limit=5,
        cursor="a b&c",
        updated_since=NOON,
        expand=("stock", "images"),
        query={"status": "all", "page_size": 3, "archived": False},
    )

    assert request.target == (
        "/v1/items?limit=5&updated_since=2026-11-21T12%3A00%3A00Z&cursor=a%20b%26c&expand=stock%2Cimages"
        "&status=all&page_size=3&archived=false"
    )


def test_a_request_is_named_without_its_query() -> None:
    assert str(list_request("packages", query={"tracking_number": "1Z999"})) == "GET /v1/packages"


@pytest.mark.parametrize("cursor", [None, "abc"])
def test_a_request_knows_whether_it_continues_a_listing(cursor: str | None) -> None:
    assert list_request("shipments", cursor=cursor).continues is (cursor is not None)


@pytest.mark.parametrize("limit", [0, 201, -1])
def test_limits_outside_the_description_are_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f'resource "shipments": limit must be 1 to 200, got {limit}'):
        list_request("shipments", limit=limit)


@pytest.mark.parametrize("limit", [1, 200])
def test_limits_at_the_edge_are_accepted(limit: int) -> None:
    assert ("limit", str(limit)) in list_request("shipments", limit=limit).params


@pytest.mark.parametrize("resource", RESOURCES)
def test_updated_since_is_accepted_exactly_where_the_description_says(resource: str) -> None:
    if resource in {"shipments", "packages", "items"}:
        assert ("updated_since", "2026-11-21T12:00:00Z") in list_request(resource, updated_since=NOON).params
    else:
        with pytest.raises(ValueError, match="accepted by shipments, packages, items only"):
            list_request(resource, updated_since=NOON)


@pytest.mark.parametrize("name", ["limit", "cursor", "updated_since", "expand"])
def test_a_filter_may_not_take_the_place_of_a_parameter(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is not a filter"):
        list_request("shipments", query={name: "1"})


def test_unknown_resources_are_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="must be one of shipments, packages, items, stock, warehouses, got 'orders'"):
        list_request("orders")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON, "2026-11-21T12:00:00Z"),
        (NOON.replace(microsecond=123_000), "2026-11-21T12:00:00.123Z"),
        (NOON.replace(microsecond=123_999), "2026-11-21T12:00:00.123Z"),
        (NOON.replace(microsecond=7), "2026-11-21T12:00:00.000Z"),
        (datetime(2026, 11, 21, 1, 0, tzinfo=timezone(timedelta(hours=3))), "2026-11-20T22:00:00Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds_only_where_needed(moment: datetime, text: str) -> None:
    assert format_since(moment) == text


def test_times_without_a_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="must have a time zone, got 2026-11-21T12:00:00; add tzinfo=UTC"):
        format_since(NOON.replace(tzinfo=None))


@given(st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.timezones()))  # noqa: DTZ001  # hypothesis wants it naive
def test_a_written_time_is_never_later_than_meant_nor_a_millisecond_earlier(moment: datetime) -> None:
    written = datetime.fromisoformat(format_since(moment))

    assert timedelta(0) <= moment.astimezone(UTC) - written < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("shipment_id", "path"),
    [
        ("shp_1", "/v1/shipments/shp_1"),
        ("a/b?c#d%e", "/v1/shipments/a%2Fb%3Fc%23d%25e"),
        ("..", "/v1/shipments/%2E%2E"),
        (".", "/v1/shipments/%2E"),
        ("7 ü", "/v1/shipments/7%20%C3%BC"),
    ],
)
def test_a_shipment_id_stays_one_segment_of_the_path(shipment_id: str, path: str) -> None:
    assert shipment_request(shipment_id).path == path


def test_a_shipment_is_asked_for_with_its_relations() -> None:
    request = shipment_request("shp_1", expand=("packages", "line_items"))

    assert request.target == "/v1/shipments/shp_1?expand=packages%2Cline_items"


def test_an_empty_shipment_id_does_not_ask_for_the_listing() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        shipment_request("")


@given(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_shipment_id_comes_back_from_its_path(shipment_id: str) -> None:
    path = shipment_request(shipment_id).path

    assert path.count("/") == 3
    assert unquote(path.removeprefix("/v1/shipments/")) == shipment_id


@given(st.dictionaries(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])), st.text(max_size=5)))
def test_any_filter_comes_back_from_the_target(query: dict[str, str]) -> None:
    query = {f"x{name}": value.encode(errors="ignore").decode() for name, value in query.items()}

    sent = dict(parse_qsl(urlsplit(list_request("stock", query=query).target).query, keep_blank_values=True))

    assert sent == {"limit": "200", **query}


def test_an_order_is_posted_as_json() -> None:
    request = order_request({"customer": "Zoë", "lines": [{"sku": "A-1", "quantity": 2}]})

    assert (request.method, request.path, request.params) == ("POST", "/v1/sales-orders", ())
    assert json.loads(request.body or b"") == {"customer": "Zoë", "lines": [{"sku": "A-1", "quantity": 2}]}


def test_an_order_with_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        order_request({"quantity": float("nan")})


@pytest.mark.parametrize(
    ("request_", "collection"),
    [
        (list_request("shipments", cursor="a/b"), "/v1/shipments"),
        (shipment_request("a/b"), "/v1/shipments/{id}"),
        (order_request({}), "/v1/sales-orders"),
    ],
)
def test_a_request_knows_its_collection(request_: Request, collection: str) -> None:
    assert request_.collection == collection


def test_a_request_knows_whether_it_asks_for_a_part_of_the_list() -> None:
    assert list_request("items", updated_since=datetime(2026, 11, 21, tzinfo=UTC)).narrows
    assert not list_request("items", cursor="a", query={"sku": "updated_since"}).narrows


def test_a_run_begins_with_the_largest_limit_until_one_needed_a_smaller() -> None:
    assert PageLimit().begins_at == 0
    assert PageLimit().end_run(0, complete=False) == PageLimit()


def test_what_an_incomplete_run_needed_holds_until_a_run_was_complete() -> None:
    limit = PageLimit().end_run(2, complete=False)
    assert limit.begins_at == 2
    assert limit.end_run(2, complete=False).begins_at == 2
    assert limit.end_run(2, complete=True).begins_at == 0


def test_the_largest_limit_is_tried_less_and_less_often_while_it_is_in_vain() -> None:
    limit, tried = PageLimit(), []
    for number in range(300):
        if limit.begins_at == 0:
            tried.append(number)
        limit = limit.end_run(1, complete=True)
    assert tried[:5] == [0, 1, 3, 7, 15]
    assert tried[-1] - tried[-2] == 64


def test_a_run_that_needed_no_smaller_limit_ends_it() -> None:
    limit = PageLimit().end_run(1, complete=True)
    assert limit.end_run(0, complete=True) == PageLimit()
