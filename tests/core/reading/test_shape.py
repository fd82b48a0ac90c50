"""When the records of a feed are dated is learned as soon as a page shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dockbell.core.reading.shape import (
    Shape,
    describe_read_settings,
    find_differences,
    is_own_id,
    keeps_records,
    keeps_shape,
    learn_times,
)

UNDATED = Shape(("/id",))


def page(*records: dict[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], UNDATED),
        ([{"id": 1}], UNDATED),
        ([{"updated_at": None}, {"updated_at": "2026-11-21T12:00:00Z"}], Shape(("/id",), "/updated_at")),
        ([{"updated_at": "2026-11-21"}, {"updated_at": "2026-11-21T12:00:00Z"}], UNDATED),
        ([{"updated_at": "soon"}] * 30, UNDATED),
        (
            [{"modified": 1_700_000_000, "created": "2026-11-21T12:00:00Z"}, {"modified": None}],
            Shape(("/id",), "/modified", "/created"),
        ),
    ],
)
def test_times_are_learned_where_each_that_is_stated_can_be_read(
    records: list[dict[str, Any]], expected: Shape
) -> None:
    assert learn_times(UNDATED, page(*records)) == expected


def test_a_record_that_cannot_be_read_tells_nothing() -> None:
    assert learn_times(UNDATED, [b'{"updated_at": NaN}']) == UNDATED


@pytest.mark.parametrize(
    ("key", "expected"),
    [(["/id"], True), (["/shipment_id"], True), (["/package_id"], False), (["/code"], False), (["/id", "/at"], False)],
)
def test_only_the_records_own_id_identifies_it_without_proof(key: list[str], *, expected: bool) -> None:
    assert is_own_id(key, "shipments") is expected


READING: dict[str, Any] = {
    "base_url": "https://api.example.com",
    "key": ["/id"],
    "updated_at": "/updated_at",
    "query": {"status": "all", "region": "eu"},
    "expand": ["packages", "invoices"],
    "detail": [],
    "ignore": ["/seen", "/etag"],
    "unordered": [],
    "drop": ["/recipient/email"],
}


def test_the_order_in_which_something_is_asked_for_makes_no_difference() -> None:
    other = READING | {"query": {"region": "eu", "status": "all"}, "expand": ["invoices", "packages"]}
    assert find_differences(describe_read_settings(**READING), describe_read_settings(**other)) == []


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("base_url", "https://api.example.org"),
        ("key", ["/sku", "/warehouse_id"]),
        ("updated_at", "/modified_at"),
        ("query", {"status": "active"}),
        ("expand", []),
        ("detail", ["packages"]),
        ("ignore", ["/etag", "/links"]),
        ("drop", ["/recipient/phone"]),
    ],
)
def test_each_part_of_a_reading_makes_a_difference(part: str, value: Any) -> None:
    assert find_differences(describe_read_settings(**READING), describe_read_settings(**READING | {part: value})) == [
        part
    ]


def test_the_order_of_a_key_s_parts_makes_a_difference() -> None:
    keys = ["/sku", "/warehouse_id"], ["/warehouse_id", "/sku"]
    one, other = (describe_read_settings(**READING | {"key": key}) for key in keys)
    assert find_differences(one, other) == ["key"]


def test_to_leave_more_out_of_the_comparison_is_no_difference() -> None:
    more = READING | {"ignore": ["/links", "/etag", "/seen"], "unordered": ["/tags"]}
    assert find_differences(describe_read_settings(**READING), describe_read_settings(**more)) == []
    assert find_differences(describe_read_settings(**more), describe_read_settings(**READING)) == [
        "ignore",
        "unordered",
    ]


def test_what_is_dropped_was_and_may_be_merely_ignored() -> None:
    dropped = READING | {"ignore": ["/seen"], "drop": ["/recipient/email", "/etag"]}
    ignored = READING | {"ignore": ["/seen", "/etag", "/recipient/email"], "drop": []}
    one, other, old = (
        describe_read_settings(**dropped),
        describe_read_settings(**ignored),
        describe_read_settings(**READING),
    )
    assert find_differences(one, other) == find_differences(other, one) == find_differences(old, one) == []
    assert find_differences(one, describe_read_settings(**ignored | {"ignore": ["/seen", "/etag"]})) == ["drop"]


@pytest.mark.parametrize("part", ["key", "updated_at", "ignore", "drop"])
def test_what_was_not_known_and_is_learned_is_no_difference(part: str) -> None:
    known = describe_read_settings(**READING)
    unknown = known | {part: None}
    assert find_differences(unknown, known) == []
    assert find_differences(known, unknown) == []


@pytest.mark.parametrize(
    ("parts", "records", "shape"),
    [
        (["expand", "detail", "ignore", "unordered"], True, True),
        (["expand"], True, True),
        (["expand", "query"], False, True),
        (["query"], False, True),
        (["base_url"], False, False),
        (["ignore", "key"], False, False),
        (["updated_at"], False, False),
    ],
)
def test_on_its_parts_depends_whether_the_same_records_are_read_and_told_apart_as_before(
    parts: list[str], *, records: bool, shape: bool
) -> None:
    assert (keeps_records(parts), keeps_shape(parts)) == (records, shape)


def test_a_feed_that_was_never_signed_has_not_changed() -> None:
    assert find_differences(None, describe_read_settings(**READING)) == []
