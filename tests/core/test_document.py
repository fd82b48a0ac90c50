from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.document import DEPTH_MAX, NotWhole, cut_elements, cut_members, decode, encode, salvage
from dockbell.core.model import JSON

NUMBERS = st.integers() | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | st.sampled_from([0, 1, Decimal("1.0"), "1"])
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


def identity(value: JSON) -> JSON:
    """Return what Python compares as JSON values compare."""
    match value:
        case bool() | None | str():
            return (type(value).__name__, value)
        case int() | Decimal():
            return ("number", Fraction(value))
        case list():
            return [identity(element) for element in value]
        case _:
            return {name: identity(member) for name, member in value.items()}


def test_numbers_are_read_exactly() -> None:
    document = decode(b"[18446744073709551616, -9223372036854775809, 0.10000000000000000000001, 1e400000, 1.50]")
    assert document == [2**64, -(2**63) - 1, Decimal("0.10000000000000000000001"), Decimal("1e400000"), Decimal("1.5")]
    assert [type(number) for number in document] == [int, int, Decimal, Decimal, Decimal]


@given(DOCUMENTS)
def test_reading_agrees_with_the_standard_library(document: JSON) -> None:
    raw = encode(document)
    assert identity(decode(raw)) == identity(json.loads(raw, parse_float=Decimal)) == identity(document)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"{",
        b'{"a":1,}',
        b"[1 2]",
        b"{'a':1}",
        b"01",
        b"1.",
        b"+1",
        b"NaN",
        b"[Infinity]",
        b"nul",
        b'{"a":1} x',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\n"',
        b"\xef\xbb\xbf{}",
        b"<html></html>",
        b"9" * 4301,
        b"1e1000000000000000000",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=lambda raw: repr(raw[:12]),
)
def test_what_is_no_usable_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not (usable )?JSON: "):
        decode(raw)


def test_the_depth_is_bounded_exactly() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")):
        width = (opening.count(b"[") + opening.count(b"{")) or 1
        deepest = DEPTH_MAX // width
        decode(opening * deepest + b"1" + closing * deepest)
        with pytest.raises(ValueError, match="nested more than 200 deep"):
            decode(opening * (deepest + 1) + b"1" + closing * (deepest + 1))


def test_many_brackets_are_not_depth() -> None:
    assert len(decode(b"[" + b"[]," * 1000 + b"{}]")) == 1001
    assert decode(b'"' + b"[{" * 1000 + b'"') == "[{" * 1000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", "\r : ")])


@pytest.mark.parametrize(
    ("text", "members"),
    [
        (b"{}", []),
        (b" { \n} ", []),
        (b'{"a":1}', [("a", b"1")]),
        (rb' {"a" : "\ud83d" ,"b":[1,{"c":"]}"}]} ', [("a", rb'"\ud83d"'), ("b", b'[1,{"c":"]}"}]')]),
        (b'{"a": NaN, "a": -Infinity}', [("a", b"NaN"), ("a", b"-Infinity")]),
        (rb'{"\u0061": "\"", "b": "\\"}', [("a", rb'"\""'), ("b", rb'"\\"')]),
        (b'{"a": "\xff\n"}', [("a", b'"\xff\n"')]),
    ],
)
def test_members_are_cut_out_as_they_are(text: bytes, members: list[tuple[str, bytes]]) -> None:
    assert cut_members(text) == members


@pytest.mark.parametrize(
    ("text", "elements"),
    [(b"[]", []), (b"[ ]", []), (b"[1]", [b"1"]), (b'[{"a":NaN}, {} ,[]]', [b'{"a":NaN}', b"{}", b"[]"])],
)
def test_elements_are_cut_out_as_they_are(text: bytes, elements: list[bytes]) -> None:
    assert cut_elements(text) == elements


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"}",
        b'"a"',
        b"[1]",
        b"{,}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a" 1}',
        b'{"a"::1}',
        b'{"a":1',
        b'{"a":"1}',
        b'{"a":1}}',
        b'{"a":[}]',
        b'{"a":[1 2]}',
        b'{"a":1} {"b":1}',
        b'{"a":1} x',
        b'{"a":"x"y"}',
        b"{a:1}",
        b'{"\xff":1}',
        rb'{"\ud800":1}',
        b"<html></html>",
    ],
)
def test_what_is_not_whole_is_not_cut(text: bytes) -> None:
    with pytest.raises(NotWhole):
        cut_members(text)


@given(st.lists(json_values), separators)
def test_sound_text_is_cut_as_a_parser_reads_it(values: list[Any], separators: tuple[str, str]) -> None:
    text = json.dumps(values, separators=separators, ensure_ascii=False).encode()

    assert [json.loads(element) for element in cut_elements(text)] == values


@given(st.dictionaries(st.text(max_size=3), json_values, min_size=1), st.data())
def test_text_that_ends_early_is_never_cut(members: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(members).encode()

    with pytest.raises(NotWhole):
        cut_members(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.lists(st.dictionaries(st.text("ab,:{}[]", max_size=3), st.text('ab,:{}[]"', max_size=5)), min_size=1))
def test_a_stray_quotation_mark_never_moves_what_follows_into_another_record(records: list[dict[str, str]]) -> None:
    text = json.dumps([{"id": "x"}, *records]).encode().replace(b'"x"', b'"x"y"', 1)

    with pytest.raises(NotWhole):
        cut_elements(text)


@given(st.binary())
def test_any_bytes_are_cut_or_refused(text: bytes) -> None:
    for cut in (cut_members, cut_elements):
        try:
            cut(text)
        except NotWhole as error:
            assert str(error).isprintable()  # noqa: PT017  # both are right; this holds for the one
    salvage(text)


def test_deep_nesting_is_cut_and_not_salvaged() -> None:
    deep = b"[" * 50_000 + b"]" * 50_000

    assert cut_members(b'{"a": %b, "id": 1}' % deep) == [("a", deep), ("id", b"1")]
    assert salvage(b'{"a": %b, "id": 1}' % deep) == {"a": [[[None]]], "id": 1}


def test_salvage_leaves_none_for_what_cannot_be_read() -> None:
    text = b'{"a": {"id": 7, "x": NaN}, "b": "\\ud83d", "c": ["\xff", 1], "d": {"\xff": 1}, "e": 1.5}'

    assert salvage(text) == {"a": {"id": 7, "x": None}, "b": None, "c": [None, 1], "d": None, "e": 1.5}
    assert salvage(b"NaN") is None
    assert salvage(b'{"a": ') is None
