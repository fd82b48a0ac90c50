from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.paging import Query, take_page
from dockbell.sandbox.refusal import Refusal
from dockbell.sandbox.table import Row, Table

STOCK = RESOURCES["stock"]
kinds = st.sampled_from(["keyset", "offset"])


def make_table(stamps: list[int]) -> Table:
    rows = (Row(number, f"stk_{number}", stamp, None, ("itm_1",), b"{}") for number, stamp in enumerate(stamps))
    return Table(STOCK, rows)


def walk(table: Table, query: Query, kind: str) -> list[int]:
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
    stamps: list[int], limit: int, since: int | None, kind: Literal["keyset", "offset"]
) -> None:
    expected = [number for number, stamp in enumerate(stamps) if since is None or stamp >= since]
    assert sorted(walk(make_table(stamps), Query("stock", limit, since=since), kind)) == expected


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), kinds)
def test_any_other_text_is_refused_as_a_cursor(token: bytes, kind: str) -> None:
    query = Query("stock", 2, cursor=token.decode("utf-8", "replace"))
    with pytest.raises(Refusal) as refused:
        take_page(make_table([1, 2, 3]), query, kind)
    assert (refused.value.status, refused.value.parameter) == (400, "cursor")


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
