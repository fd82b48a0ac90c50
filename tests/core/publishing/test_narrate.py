from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.diff import diff
from dockbell.core.publishing.narrate import narrate

GOLDEN: Final = Path(__file__).parents[2] / "golden"


def event(before: Any, after: Any, change: str = "updated", **more: Any) -> dict[str, Any]:
    data = {"id": "shp_1", "change": change, "before": before, "after": after} | more
    if before is not None and after is not None:
        data["patch"] = diff(before, after)
    return {"data": data}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"status": "packed"}, {"status": "shipped"}, "status: packed → shipped"),
        ({}, {"carrier": "DHL"}, "carrier: ∅ → DHL"),
        ({"carrier": "DHL"}, {}, "carrier: DHL → ∅"),
        ({"carrier": None}, {"carrier": "DHL"}, "carrier: null → DHL"),
        ({"n": 7}, {"n": "7"}, 'n: 7 → "7"'),
        ({"n": "null"}, {"n": None}, 'n: "null" → null'),
        ({"on": True}, {"on": Decimal("1.50")}, "on: true → 1.50"),
        ({"note": "two words"}, {"note": ""}, 'note: "two words" → ""'),
        ({"to": {"city": "Köln"}}, {"to": {"city": "Oslo"}}, "to/city: Köln → Oslo"),
        ({"to": None}, {"to": {"city": "Oslo", "no": [1, "2"]}}, 'to: null → {city: Oslo, no: [1, "2"]}'),
        ({"tags": ["a", "b", "c"]}, {"tags": ["c"]}, "tags/1: b → ∅, tags/0: a → ∅"),
        ({"tags": ["c"]}, {"tags": ["a", "c"]}, "tags/0: ∅ → a"),
        ([1], {"a": 1}, "record: [1] → {a: 1}"),
    ],
)
def test_an_update_tells_each_place_from_what_to_what(before: Any, after: Any, told: str) -> None:
    assert narrate(event(before, after)) == told


def test_an_update_tells_times_last_and_leaves_the_own_timestamp_out() -> None:
    before = {"updated_at": "2026-01-01T00:00:00Z", "shipped_at": None, "status": "packed"}
    after = {"updated_at": "2026-01-02T00:00:00.5Z", "shipped_at": "2026-01-02T00:00:00.5Z", "status": "shipped"}
    told = narrate(event(before, after, modified_at="2026-01-02T00:00:00.500Z"))
    assert told == "status: packed → shipped, shipped_at: null → 2026-01-02T00:00:00.5Z"


def test_an_update_of_the_own_timestamp_alone_is_told() -> None:
    before, after = {"t": "2026-01-01T00:00:00Z"}, {"t": "2026-01-02T00:00:00Z"}
    told = narrate(event(before, after, modified_at="2026-01-02T00:00:00.000Z"))
    assert told == "t: 2026-01-01T00:00:00Z → 2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("name", "told"), [("updated_purged", "purged"), ("deleted_purged", "purged"), ("deleted_absent", "absent")]
)
def test_what_was_purged_tells_nothing_but_that(name: str, told: str) -> None:
    line = narrate(json.loads((GOLDEN / f"{name}.json").read_bytes()))
    assert line == told or (told == "absent" and line.startswith("absent, status: shipped"))


RECORD = {"id": "shp_1", "number": "SH-1", "status": "new", "lines": [1], "note": None, "at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("change", ["created", "restored", "snapshot", "updated"])
def test_a_record_without_a_before_is_told_by_its_plain_fields(change: str) -> None:
    assert narrate(event(None, RECORD, change)) == "status: new, number: SH-1"


def test_a_deletion_tells_its_reason_and_what_the_record_was() -> None:
    assert narrate(event(RECORD, None, "deleted", reason="absent")) == "absent, status: new, number: SH-1"


def test_composite_keys_are_not_told_again() -> None:
    record = {"sku": "A", "warehouse_id": "w", "on_hand": 3}
    assert narrate(event(None, record, "created", id=["A", "w"])) == "on_hand: 3"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("reconciled", "repaired: 525 records on 3 pages, 2 updated, 1 deleted, 1 missed by polling"),
        ("gap", "unavailable: blind from 2026-11-21T02:10:00.123Z to 2026-11-21T02:30:00.123Z"),
        ("gap_store_lost", "store_lost: blind from an unknown time to 2026-11-21T02:30:00.123Z"),
        ("rebaselined", "read settings changed: query, expand"),
        ("held_deletions", "deletions: 14 records waiting for an operator since 2026-11-21T02:10:00.123Z"),
        ("held_drift", "drift: 525 records waiting for an operator since 2026-11-21T02:10:00.123Z, /customs_code"),
    ],
)
def test_a_statement_tells_what_it_is_about(name: str, told: str) -> None:
    statement = json.loads((GOLDEN / f"{name}.json").read_bytes())
    assert narrate(statement) == told
    assert len(narrate(statement, width=30)) <= 30


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"statement": "dead_letter", "sink": "erp", "reason": "main/stock a: HTTP 422", "count": 1},
            "dead_letter: sink erp: main/stock a: HTTP 422",
        ),
        (
            {"statement": "refused", "feed": "main/stock", "reason": "HTTP 401", "count": 3},
            "refused: feed main/stock: HTTP 401, 3 times",
        ),
        ({"statement": "paused", "sink": "a\x1bb", "reason": "x\x9by", "count": 1}, "paused: sink a�b: x�y"),
    ],
)
def test_a_notice_tells_whom_it_is_about_and_how_often(data: dict[str, Any], told: str) -> None:
    assert narrate({"data": data | {"resource": "notices"}}) == told


def test_a_statement_of_a_later_dockbell_is_told_by_its_name() -> None:
    assert narrate({"data": {"statement": "over\x1brun"}}) == "over�run"


def test_what_does_not_fit_is_counted() -> None:
    before, after = ({f"f{i}": i + step for i in range(100)} for step in (0, 1))
    assert narrate(event(before, after), width=40) == "f0: 0 → 1, f1: 1 → 2, +98 more"


def test_a_long_value_is_cut() -> None:
    told = narrate(event({"note": "x" * 1000}, {"note": "y"}))
    assert told == f"note: {'x' * 31}… → y"


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    told = narrate(event({"a\x1b[2J": "\x1b[31m", "b": "\x9b31m\u202e"}, {"a\x1b[2J": 1, "b": 1}))
    assert told == 'a�[2J: "\\u001b[31m" → 1, b: "�31m�" → 1'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values, st.integers(min_value=20, max_value=200))
def test_every_change_is_one_printable_line_of_bounded_width(before: Any, after: Any, width: int) -> None:
    for change in ("created", "updated", "deleted"):
        told = narrate(event(before, after, change), width=width)
        assert len(told) <= width
        assert told.isprintable()
