from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from dockbell.core.document import decode, encode
from dockbell.core.model import JSON
from dockbell.core.publishing.catalogue.messages import Learned, name_type

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
RECORDS = st.lists(st.dictionaries(st.sampled_from(["id", "a", "b"]), VALUES), min_size=1, max_size=4)


def learn(*records: JSON) -> dict[str, Any]:
    learned = Learned()
    for record in records:
        learned.see(decode(json.dumps(record).encode()))
    return learned.describe("Thing")


@given(RECORDS)
def test_whatever_was_seen_fits_what_was_learned(records: list[JSON]) -> None:
    schema = learn(*records)
    Draft7Validator.check_schema(schema)
    for record in records:
        Draft7Validator(schema).validate(record)


@given(RECORDS, RECORDS)
def test_what_two_have_learned_is_what_one_had_learned_of_both(some: list[JSON], others: list[JSON]) -> None:
    one, other, both = Learned(), Learned(), Learned()
    for record in some:
        one.see(record)
        both.see(record)
    for record in others:
        other.see(record)
        both.see(record)
    one.join(other)
    assert encode(one.describe("Thing")) == encode(both.describe("Thing"))


def test_names_kinds_and_what_is_always_there_are_learned_and_no_value() -> None:
    schema = learn(
        {"id": "shp_1", "weight": 1, "at": "2026-11-21T02:30:00.5+01:00", "to": {"city": "Köln"}, "lines": []},
        {
            "id": "shp_2",
            "weight": 1.5,
            "at": "2026-11-21T02:30:00Z",
            "to": None,
            "lines": [{"sku": "A"}, 7],
            "ok": True,
        },
    )
    assert schema == {
        "title": "Thing",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "weight": {"type": "number"},
            "at": {"type": "string", "format": "date-time"},
            "to": {
                "title": "ThingTo",
                "type": ["null", "object"],
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
            "lines": {
                "type": "array",
                "items": {
                    "title": "ThingLinesElement",
                    "type": ["integer", "object"],
                    "properties": {"sku": {"type": "string"}},
                    "required": ["sku"],
                },
            },
            "ok": {"type": "boolean"},
        },
        "required": ["id", "weight", "at", "to", "lines"],
    }


def test_text_that_is_a_time_now_and_then_is_text() -> None:
    assert learn({"a": "2026-11-21T02:30:00Z"}, {"a": "soon"})["properties"]["a"] == {"type": "string"}


def test_an_object_of_very_many_members_is_a_map_whose_names_are_data() -> None:
    record = {"by_person": {f"person{number}@example.com": {"n": number} for number in range(60)}}
    other = {"by_person": {f"person{number}@example.com": {"n": 0.5, "m": None} for number in range(50, 120)}}
    schema = learn(record, other, record)["properties"]["by_person"]
    assert schema == {
        "title": "ThingByPerson",
        "type": "object",
        "additionalProperties": {
            "title": "ThingByPersonValue",
            "type": "object",
            "properties": {"n": {"type": "number"}, "m": {}},
            "required": ["n"],
        },
    }


def test_maps_are_joined_with_objects() -> None:
    small, large = Learned(), Learned()
    small.see({"a": 1})
    large.see({f"name{number}": None for number in range(101)})
    small.join(large)
    assert small.describe("Thing")["additionalProperties"] == {"type": ["integer", "null"]}


def test_where_nothing_or_only_null_was_seen_anything_may_stand() -> None:
    assert Learned().describe("Thing") == {}
    assert learn({"a": None, "b": []})["properties"] == {"a": {}, "b": {"type": "array", "items": {}}}


def test_names_become_names_of_types() -> None:
    assert [name_type(name) for name in ("line_items", "stock.low", "a-b c", "äöü", "SKU")] == [
        "LineItems",
        "StockLow",
        "ABC",
        "",
        "SKU",
    ]
