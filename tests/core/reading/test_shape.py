"""When the records of a feed are dated is learned as soon as a page shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dockbell.core.reading.shape import Shape, is_own_id, learn_times

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
