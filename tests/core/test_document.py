from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.document import DEPTH_MAX, decode, encode
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
