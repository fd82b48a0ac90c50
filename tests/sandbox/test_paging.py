from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.sandbox import SandboxOptions
from dockbell.sandbox.options import Settings
from dockbell.sandbox.paging import Pages, arrange
from dockbell.sandbox.requests import Query, Refusal
from dockbell.sandbox.table import RESOURCES, Row, Table

if TYPE_CHECKING:
    from tests.sandbox.conftest import Open, ReadAll


async def read(opened: Open, read_all: ReadAll, resource: str = "stock", **options: Any) -> list[Any]:
    """Return all records of a listing; the last three items were edited before."""
    sandbox, client = await opened(requests_per_minute=0, **options)
    for number in (3, 1, 2):
        sandbox.edit(resource, identity=f"{RESOURCES[resource].prefix}{number}")
    return await read_all(client, resource, limit=9)


def ids(records: list[Any]) -> list[str]:
    return [record["id"] for record in records]


async def test_lists_are_in_the_order_of_creation(opened: Open, read_all: ReadAll) -> None:
    found = ids(await read(opened, read_all))
    assert found == sorted(found, key=lambda identity: int(identity[4:]))


async def test_lists_can_be_in_the_order_of_the_last_change(opened: Open, read_all: ReadAll) -> None:
    found = await read(opened, read_all, order="updated_at")
    assert found == sorted(found, key=lambda record: record["updated_at"])
    assert ids(found)[-3:] == ["stk_3", "stk_1", "stk_2"]


@pytest.mark.parametrize("cursors", ["keyset", "offset"])
async def test_lists_can_be_in_the_order_of_ids_as_text(opened: Open, read_all: ReadAll, cursors: str) -> None:
    found = ids(await read(opened, read_all, order="id", cursors=cursors))
    assert found == sorted(found)
    assert found[:3] == ["stk_1", "stk_10", "stk_100"]


@pytest.mark.parametrize("options", [{}, {"id_form": "integer"}, {"stock_key": "composite"}])
async def test_stock_can_be_sorted_by_warehouse(opened: Open, read_all: ReadAll, options: dict[str, Any]) -> None:
    sandbox, client = await opened(requests_per_minute=0, order="warehouse", **options)
    found = [str(record["warehouse_id"]) for record in await read_all(client, "stock", limit=9)]
    assert len(found) == len(sandbox.records("stock"))
    assert found == sorted(found, key=lambda identity: int(identity.removeprefix("whs_")))
    assert len(await read_all(client, "warehouses")) == len(sandbox.records("warehouses"))


@pytest.mark.parametrize("order", ["creation", "updated_at", "id", "warehouse"])
async def test_every_order_can_be_the_other_way_round(opened: Open, read_all: ReadAll, order: str) -> None:
    upward = await read(opened, read_all, order=order)
    assert await read(opened, read_all, order=order, descending=True) == upward[::-1]


async def test_pages_can_be_shuffled_each_in_itself(opened: Open, read_all: ReadAll) -> None:
    plain = ids(await read(opened, read_all))
    found = ids(await read(opened, read_all, order="shuffled"))
    assert found != plain
    for start in range(0, len(plain), 9):
        assert sorted(found[start : start + 9]) == sorted(plain[start : start + 9])


async def test_the_whole_list_can_be_shuffled_for_every_request(opened: Open) -> None:
    _, client = await opened(order="random")
    pages = [ids((await client.get("/v1/stock?limit=200")).json()["stock"]) for _ in range(3)]
    assert len({tuple(page) for page in pages}) == 3
    assert len({frozenset(page) for page in pages}) == 1


async def test_a_walk_through_a_shuffled_list_misses_some_and_meets_others_twice(
    opened: Open, read_all: ReadAll
) -> None:
    found = ids(await read(opened, read_all, order="random"))
    assert len(set(found)) < len(found)


async def test_an_order_of_ids_holds_for_updated_since_too(opened: Open) -> None:
    sandbox, client = await opened(order="id")
    for number in (3, 10, 2):
        sandbox.edit("items", identity=f"itm_{number}")
    page = (await client.get("/v1/items?status=all&updated_since=2026-11-21T00:00:00Z")).json()
    assert ids(page["items"]) == ["itm_10", "itm_2", "itm_3"]


def test_a_sorted_order_is_remembered_until_something_changes() -> None:
    rows = [Row(number, f"stk_{number}", 1, None, (None,), json.dumps({}).encode()) for number in range(3)]
    table = Table(RESOURCES["stock"], rows)
    options = SandboxOptions(order="id")
    first = arrange(table, Query("stock", 1), options, Random(1)).places
    assert arrange(table, Query("stock", 1), options, Random(1)).places is first
    table.write({0: None})
    assert [place[-1] for place in arrange(table, Query("stock", 1), options, Random(1)).places] == [1, 2]


if TYPE_CHECKING:
    from tests.sandbox.conftest import Clock

STOCK = RESOURCES["stock"]
Kind = Literal["keyset", "offset", "page"]
kinds: st.SearchStrategy[Kind] = st.sampled_from(["keyset", "offset", "page"])


def make_table(stamps: list[int]) -> Table:
    rows = (Row(number, f"stk_{number}", stamp, None, ("itm_1",), b"{}") for number, stamp in enumerate(stamps))
    return Table(STOCK, rows)


def now() -> datetime:
    return datetime(2026, 11, 21, tzinfo=UTC)


def take_page(table: Table, query: Query, cursors: Kind, **options: Any) -> tuple[list[Row], str | None]:
    settings = Settings(SandboxOptions(cursors=cursors, **options), now)
    return Pages(settings, now, Random(1)).take(table, query)


def walk(table: Table, query: Query, kind: Kind) -> list[int]:
    numbers: list[int] = []
    while True:
        rows, cursor = take_page(table, query, kind)
        assert len(rows) <= query.limit
        numbers += [row.number for row in rows]
        if cursor is None:
            return numbers
        query = replace(query, cursor=cursor)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 7), st.none() | st.integers(0, 10), kinds)
def test_a_walk_meets_every_record_once_whatever_the_page_size(
    stamps: list[int], limit: int, since: int | None, kind: Kind
) -> None:
    expected = [number for number, stamp in enumerate(stamps) if since is None or stamp >= since]
    assert sorted(walk(make_table(stamps), Query("stock", limit, since=since), kind)) == expected


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), kinds)
def test_any_other_text_is_refused_as_a_cursor(token: bytes, kind: Kind) -> None:
    query = Query("stock", 2, cursor=token.decode("utf-8", "replace"))
    with pytest.raises(Refusal) as refused:
        take_page(make_table([1, 2, 3]), query, kind)
    assert (refused.value.status, refused.value.error["parameter"]) == (400, "cursor")


@pytest.mark.parametrize(
    "other",
    [
        Query("items", 1),
        Query("stock", 1, since=0),
        Query("stock", 1, terms={"item_id": "itm_1"}),
    ],
)
def test_a_cursor_of_another_query_is_refused(other: Query) -> None:
    table = make_table([1, 2, 3])
    _, cursor = take_page(table, Query("stock", 1), "keyset")
    with pytest.raises(Refusal, match="not a cursor of this listing"):
        take_page(make_table([1]), replace(other, cursor=cursor), "keyset")


def test_a_cursor_of_the_other_kind_is_refused() -> None:
    table = make_table([1, 2, 3])
    _, cursor = take_page(table, Query("stock", 1), "keyset")
    with pytest.raises(Refusal, match="not a cursor of this listing"):
        take_page(table, Query("stock", 1, cursor=cursor), "offset")


def test_the_page_size_may_change_from_page_to_page() -> None:
    table = make_table([1, 2, 3, 4])
    _, cursor = take_page(table, Query("stock", 1), "keyset")
    rows, _ = take_page(table, Query("stock", 3, cursor=cursor), "keyset")
    assert [row.number for row in rows] == [1, 2, 3]


# Variants ------------------------------------------------------------------------------------------------------------

ORDERS = st.fixed_dictionaries(
    {
        "cursors": st.sampled_from(["keyset", "offset"]),
        "order": st.sampled_from(["creation", "updated_at", "id", "warehouse", "shuffled"]),
        "descending": st.booleans(),
        "short_pages": st.sampled_from([0.0, 0.5]),
        "empty_pages": st.sampled_from([0.0, 0.5]),
        "trailing_page": st.booleans(),
        "page_cap": st.sampled_from([2, 200]),
    }
)


def pages_of(table: Table, query: Query, options: SandboxOptions) -> list[list[int]]:
    """Return the numbers of the records of each page, to the end of the list."""
    pages = Pages(Settings(options, now), now, Random(1))
    walked: list[list[int]] = []
    while True:
        rows, cursor = pages.take(table, query)
        walked.append([row.number for row in rows])
        if cursor is None:
            return walked
        query = replace(query, cursor=cursor)
        assert len(walked) < 1000


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 7), st.none() | st.integers(0, 10), ORDERS)
def test_whatever_the_pages_are_like_a_walk_at_rest_meets_every_record_once(
    stamps: list[int], limit: int, since: int | None, options: dict[str, Any]
) -> None:
    expected = [number for number, stamp in enumerate(stamps) if since is None or stamp >= since]
    pages = pages_of(make_table(stamps), Query("stock", limit, since=since), SandboxOptions(**options))
    assert sorted(number for page in pages for number in page) == expected
    assert all(len(page) <= min(limit, options["page_cap"]) for page in pages)


@given(
    st.lists(st.integers(0, 9), max_size=30),
    st.builds(Query, st.just("stock"), st.integers(1, 7), since=st.none() | st.integers(0, 10)),
    st.fixed_dictionaries({"cursors": st.sampled_from(["keyset", "offset"]), "descending": st.booleans()}),
    st.sampled_from(["digits", "integer"]),
)
def test_numbers_as_cursors_lead_through_the_whole_list_too(
    stamps: list[int], query: Query, options: dict[str, Any], form: Any
) -> None:
    plain = pages_of(make_table(stamps), query, SandboxOptions(**options))
    assert pages_of(make_table(stamps), query, SandboxOptions(**options, cursor_form=form)) == plain


def test_a_higher_limit_than_the_cap_is_ignored() -> None:
    pages = pages_of(make_table([1] * 5), Query("stock", 200), SandboxOptions(page_cap=2))
    assert pages == [[0, 1], [2, 3], [4]]


def test_a_full_last_page_can_have_a_cursor_to_an_empty_one() -> None:
    options = SandboxOptions(trailing_page=True)
    assert pages_of(make_table([1] * 4), Query("stock", 2), options) == [[0, 1], [2, 3], []]
    assert pages_of(make_table([1] * 3), Query("stock", 2), options) == [[0, 1], [2]]


def test_short_and_empty_pages_have_a_cursor() -> None:
    options = SandboxOptions(short_pages=0.5, empty_pages=0.3)
    sizes = [len(page) for page in pages_of(make_table([1] * 60), Query("stock", 5), options)]
    assert {0, 5} < set(sizes[:-1])
    assert set(sizes) & {1, 2, 3, 4}


def test_no_two_empty_pages_have_the_same_cursor() -> None:
    pages = Pages(Settings(SandboxOptions(empty_pages=1.0), now), now, Random(1))
    query = Query("stock", 5)
    seen = []
    for _ in range(20):
        rows, cursor = pages.take(make_table([1, 2]), query)
        assert (rows, cursor in seen) == ([], False)
        seen.append(cursor)
        query = replace(query, cursor=cursor)


@pytest.mark.parametrize("form", ["opaque", "digits"])
@pytest.mark.parametrize("cursors", ["keyset", "offset"])
def test_a_cursor_can_lead_to_the_same_page_again_and_again(cursors: Any, form: Any) -> None:
    options = SandboxOptions(repeated_pages=1.0, cursors=cursors, cursor_form=form)
    pages = Pages(Settings(options, now), now, Random(1))
    query = Query("stock", 2)
    for _ in range(3):
        rows, cursor = pages.take(make_table([1, 2, 3]), query)
        assert [row.number for row in rows] == [0, 1]
        query = replace(query, cursor=cursor)


@pytest.mark.parametrize("options", [{}, {"cursor_form": "digits"}])
@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_a_cursor_expires(clock: Clock, options: dict[str, Any], status: Any) -> None:
    settings = Settings(SandboxOptions(cursor_lifetime=30.0, cursor_expired=status, **options), clock)
    pages = Pages(settings, clock, Random(1))
    query = Query("stock", 1)
    _, cursor = pages.take(make_table([1, 2, 3]), query)
    clock.turn(30)
    rows, _ = pages.take(make_table([1, 2, 3]), replace(query, cursor=cursor))
    assert [row.number for row in rows] == [1]
    clock.turn(1)
    with pytest.raises(Refusal, match="cursors are accepted for 30 s; begin again") as refused:
        pages.take(make_table([1, 2, 3]), replace(query, cursor=cursor))
    assert (refused.value.status, refused.value.error["code"]) == (status, "cursor_expired")


def test_a_cursor_given_before_cursors_could_expire_has_expired(clock: Clock) -> None:
    settings = Settings(SandboxOptions(), clock)
    pages = Pages(settings, clock, Random(1))
    query = Query("stock", 1)
    _, cursor = pages.take(make_table([1, 2]), query)
    settings.change(cursor_lifetime=60.0)
    with pytest.raises(Refusal, match="begin again"):
        pages.take(make_table([1, 2]), replace(query, cursor=cursor))


def test_the_ages_of_so_many_cursors_are_known_and_no_more(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.sandbox.paging._ISSUED_MOST", 2)
    pages = Pages(Settings(SandboxOptions(cursor_lifetime=60.0), clock), clock, Random(1))
    table = make_table([1] * 9)
    issued = [pages.take(table, Query("stock", limit))[1] for limit in (1, 2, 1, 3)]
    for cursor in (issued[0], issued[3]):
        assert pages.take(table, Query("stock", 9, cursor=cursor))[0]
    with pytest.raises(Refusal, match="begin again"):
        pages.take(table, Query("stock", 1, cursor=issued[1]))


@given(st.text(max_size=30), st.sampled_from(["keyset", "offset"]))
def test_a_number_as_a_cursor_is_a_number(token: str, cursors: Any) -> None:
    pages = Pages(Settings(SandboxOptions(cursors=cursors, cursor_form="digits"), now), now, Random(1))
    query = Query("stock", 2, cursor=token)
    if token.isascii() and token.isdigit() and len(token) < 28:
        assert len(pages.take(make_table([1, 2, 3]), query)[0]) <= 2
    else:
        with pytest.raises(Refusal, match="not a cursor of this listing"):
            pages.take(make_table([1, 2, 3]), query)


def test_a_cursor_of_another_order_is_refused() -> None:
    settings = Settings(SandboxOptions(order="id"), now)
    pages = Pages(settings, now, Random(1))
    _, cursor = pages.take(make_table([1, 2, 3]), Query("stock", 1))
    settings.change(order="creation")
    with pytest.raises(Refusal, match="not a cursor of this listing"):
        pages.take(make_table([1, 2, 3]), Query("stock", 1, cursor=cursor))


@pytest.mark.parametrize("form", ["digits", "opaque"])
def test_a_page_s_number_means_other_records_at_another_limit(form: Literal["digits", "opaque"]) -> None:
    table, query = make_table([0] * 40), Query("stock", 10)
    _, cursor = take_page(table, query, "page", cursor_form=form)
    assert cursor
    rows, cursor = take_page(table, replace(query, cursor=cursor), "page", cursor_form=form)
    assert [row.number for row in rows] == list(range(10, 20))
    rows, cursor = take_page(table, replace(query, cursor=cursor, limit=4), "page", cursor_form=form)
    assert [row.number for row in rows] == [8, 9, 10, 11]
    assert form == "opaque" or cursor == "4"


def test_a_page_before_the_first_is_the_first() -> None:
    rows, _ = take_page(make_table([0] * 40), Query("stock", 2, "0"), "page", cursor_form="digits")
    assert [row.number for row in rows] == [0, 1]
