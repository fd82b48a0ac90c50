"""The quick ways to read many records at once come to the same as reading one after the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.record_rules import RecordIdentity

PLAIN = st.text("abcXYZ019_-", min_size=1, max_size=8)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    ["", "a b", "a\nb", "\n", "ä", "a/b", "a,b", "\ud83d", 0, 7, 1.5, True, None, [], {}, {"id": "a"}]
)
DATES = st.sampled_from(
    ["2026-11-21T12:00:00Z", "2026-11-21T12:00:00.123456+01:00", 1_763_726_400, "soon", "", None, 7.5]
)
MEMBERS = {"id": PLAIN | ODD, "updated_at": DATES, "name": st.text(max_size=5)}
RECORDS = st.lists(st.fixed_dictionaries({}, optional=MEMBERS), max_size=6)


def write(records: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def make_identity(*key: str, updated_at: str | None = "/updated_at") -> RecordIdentity:
    return RecordIdentity(key=key or ["/id"], updated_at=updated_at, created_at=None)


@given(RECORDS)
def test_records_that_are_identified_at_once_have_the_keys_that_each_has(records: list[dict[str, Any]]) -> None:
    identity, raws = make_identity(), write(records)
    if (plain := identity.find_plain(raws)) is not None:
        texts, heads = plain
        keys = [identity.identify(raw) for raw in raws]
        assert [(key.text, key.id) for key in keys] == list(zip(texts, texts, strict=True))
        assert heads == [identity.read_head(raw) for raw in raws]


@given(st.lists(PLAIN, unique=True, max_size=6))
def test_plain_keys_are_found_at_once(keys: list[str]) -> None:
    found = make_identity().find_plain(write([{"id": key} for key in keys]))
    assert found is not None
    assert found[0] == keys


@pytest.mark.parametrize(
    "raws",
    [
        [b'{"id": "a"}', b'{"id": "a"}'],
        [b'{"id": "a\\nb"}'],
        [b'{"id": "a"}', b'{"id": 7}'],
        [b'{"id": "a"}', b"{}"],
        [b'{"id": "a"}', b'{"id": "b'],
        [b'{"id": "a"}', b"[]"],
        [b'{"id": ""}'],
        [b'{"id": "a"}', b'{"id": "\xff"}'],
    ],
)
def test_where_one_record_needs_a_closer_look_none_is_identified_at_once(raws: list[bytes]) -> None:
    assert make_identity().find_plain(raws) is None


@pytest.mark.parametrize("key", [("/id", "/updated_at"), ("/of/id",)])
def test_composite_and_nested_keys_are_not_found_at_once(key: tuple[str, ...]) -> None:
    assert make_identity(*key).find_plain(write([{"id": "a", "of": {"id": "a"}, "updated_at": "b"}])) is None


@pytest.mark.parametrize("updated_at", ["/updated_at", "/of/updated_at", None])
@given(records=st.lists(st.fixed_dictionaries({}, optional=MEMBERS | {"of": st.fixed_dictionaries(MEMBERS)})))
def test_many_records_have_the_dates_that_each_has(records: list[dict[str, Any]], updated_at: str | None) -> None:
    identity = make_identity(updated_at=updated_at)
    assert [*identity.dates(records)] == [identity.date(record) for record in records]
