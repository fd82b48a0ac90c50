from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.document import decode, encode
from dockbell.core.model import RESOURCES
from dockbell.core.reading.embedding import PAIRS, find_added, find_member, find_names, read_embedded, take_out

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
objects = st.dictionaries(st.text(), values, max_size=5)
STYLES: tuple[dict[str, Any], ...] = (
    {"separators": (",", ":")},
    {},
    {"indent": 2},
    {"separators": (" , ", " : ")},
    {"ensure_ascii": False},
)


@given(before=objects, name=st.text(), value=values, after=objects, style=st.sampled_from(STYLES))
def test_what_is_left_is_to_the_byte_what_is_written_without_the_member(
    before: dict[str, Any], name: str, value: Any, after: dict[str, Any], style: dict[str, Any]
) -> None:
    before = {key: each for key, each in before.items() if key != name}
    after = {key: each for key, each in after.items() if key != name and key not in before}
    left, taken = take_out(json.dumps(before | {name: value} | after, **style).encode(), name)
    assert left == json.dumps(before | after, **style).encode() or decode(left) == before | after
    assert taken is not None
    assert decode(taken) == value
    if style.get("ensure_ascii", True) and name.isascii() and name.isidentifier() and before | after:
        assert left == json.dumps(before | after, **style).encode()


def test_a_record_without_the_member_stays_as_it_is() -> None:
    assert take_out(b'{ "id" : 1 }', "stock") == (b'{ "id" : 1 }', None)


def test_of_a_member_that_stands_twice_nothing_is_left() -> None:
    left, taken = take_out(b'{"stock":[1],"id":7,"stock":[2]}', "stock")
    assert (left, taken) == (b'{"id":7}', b"[2]")


def test_the_same_text_inside_another_member_is_left_alone() -> None:
    record = b'{"id":7,"stock":[1],"note":{"stock":[1]}}'
    assert take_out(record, "stock") == (b'{"id":7,"note":{"stock":[1]}}', b"[1]")
    assert take_out(b'{"stock": [], "id": 7, "tags": []}', "stock") == (b'{"id": 7, "tags": []}', b"[]")


def test_what_is_no_object_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        take_out(b"[1]", "stock")


@pytest.mark.parametrize(
    ("value", "embedded"),
    [
        (b'[{"id":1}, {"id":2}]', [b'{"id":1}', b'{"id":2}']),
        (b' {"id":1}', [b' {"id":1}']),
        (b"[]", []),
        (b"null", []),
        (b"17", []),
        (None, []),
        (b'[{"id":', []),
    ],
)
def test_embedded_records_are_the_elements_of_an_array_or_one_object(
    value: bytes | None, embedded: list[bytes]
) -> None:
    assert read_embedded(value) == embedded


def form(raw: bytes) -> bytes:
    return encode(decode(raw))


def key(raw: bytes) -> str:
    record = decode(raw)
    return f"{record['id']} {record['updated_at']}"


def write(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "updated_at": "2026-11-21", **more}).encode()


def test_the_member_is_found_that_expand_adds() -> None:
    plain = [write(number) for number in range(3)]
    expanded = [write(number, stock=[]) for number in range(4)]
    assert find_added(plain, expanded, form, key) == ("stock", 3, 0, 0)


def test_a_record_that_changed_in_between_counts_for_nothing() -> None:
    changed = json.dumps({"id": 1, "updated_at": "2026-11-22", "name": "new", "stock": []}).encode()
    assert find_added([write(1), write(2)], [changed, write(2, stock=[])], form, key) == ("stock", 1, 0, 0)


def test_records_that_expand_leaves_alone_are_bare() -> None:
    assert find_added([write(1), write(2)], [write(1), write(2, stock=[])], form, key) == ("stock", 1, 1, 0)


@pytest.mark.parametrize("expanded", [write(1, stock=[], links={}), write(1, name="other", stock=[])])
def test_records_that_expand_changes_otherwise_are_odd(expanded: bytes) -> None:
    plain = [write(1, name="x")] if b"name" in expanded else [write(1)]
    assert find_added(plain, [expanded], form, key)[1:] == (0, 0, 1)


def identify(raw: bytes) -> str:
    found = decode(raw)
    if not isinstance(found, dict) or "id" not in found:
        raise ValueError("no key")
    return str(found["id"])


@pytest.mark.parametrize(
    ("record", "member"),
    [
        (b'{"id":1,"stock":[{"id":2}]}', "stock"),
        (b'{"id":1,"levels":[{"id":2}],"tags":["a"]}', "levels"),
        (b'{"id":1,"levels":[{"id":2}],"stock":{"id":3}}', "stock"),
        (b'{"id":1,"levels":[{"id":2}],"suppliers":[{"id":3}]}', ""),
        (b'{"id":1,"stock":[]}', ""),
        (b"[1]", ""),
    ],
)
def test_the_member_is_found_that_holds_records_with_keys(record: bytes, member: str) -> None:
    assert find_member(record, "stock", identify) == member


def test_the_names_are_those_of_all_records_that_can_be_read() -> None:
    assert find_names([b'{"a": 1, "b": 2}', b"null", b'{"c"', b'{"b": 1, "d": {"e": 1}}']) == {"a", "b", "d"}


def test_the_pairs_are_resources_of_which_the_carrier_is_polled() -> None:
    for pair in PAIRS:
        assert RESOURCES[pair.carrier].polled
        assert pair.target in RESOURCES
