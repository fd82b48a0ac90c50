from __future__ import annotations

import json
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.canon import DEPTH_MAX, Canon, decode, encode
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


def print_of(raw: str, **rules: Any) -> bytes:
    return Canon(**rules).fingerprint(decode(raw.encode()))


# Reading -------------------------------------------------------------------------------------------------------------


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


# Fingerprints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1", "1.000"),
        ("1000", "1e3"),
        ("1000", "1E+3"),
        ("1000", "10.00e2"),
        ("0", "-0"),
        ("0", "-0.0"),
        ("0", "0e9"),
        ("12.5", "12.50"),
        ("0.001", "1e-3"),
        ("18446744073709551616", "18446744073709551616.0"),
        ("1" + "0" * 400, "1e400"),
        ("1" + "0" * 4299, "1e4299"),
        ("1e400000", "10e399999"),
        ("1e-400000", "0.1e-399999"),
        ('{"a":1,"b":{"c":2,"d":3}}', '{ "b" : {"d":3.0, "c":2}, "a":1 }'),
        ('[{"a":1,"b":2}]', '[{"b":2,"a":1}]'),
        ('"é/"', '"\\u00e9\\/"'),
        ('"😀"', '"\\ud83d\\ude00"'),
    ],
)
def test_what_means_the_same_has_one_fingerprint(one: str, other: str) -> None:
    assert print_of(one) == print_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", '"1"'),
        ("1.0", '"1.0"'),
        ("1", "true"),
        ("0", "false"),
        ("1.0", "true"),
        ("null", "0"),
        ("null", '""'),
        ("null", '"null"'),
        ("[]", "{}"),
        ("[]", "null"),
        ('{"a":null}', "{}"),
        ("[1,2]", "[2,1]"),
        ("[[1],2]", "[1,[2]]"),
        ('"a"', '"A"'),
        ('"é"', '"e\u0301"'),
        ('{"a":1}', '{"b":1}'),
        ("0.1", "0.10000000000000000000001"),
        ("1234567890123456789012345678901.1", "1234567890123456789012345678901.2"),
        ("9007199254740992", "9007199254740993"),
        ("1e400000", "1e400001"),
        ("1e4300", "1e4301"),
        ("-1", "1"),
    ],
)
def test_what_differs_has_different_fingerprints(one: str, other: str) -> None:
    assert print_of(one) != print_of(other)


@given(DOCUMENTS, DOCUMENTS)
def test_fingerprints_are_equal_exactly_for_equal_documents(one: JSON, other: JSON) -> None:
    canon = Canon()
    assert (canon.fingerprint(one) == canon.fingerprint(other)) is (identity(one) == identity(other))


@given(st.dictionaries(st.text(max_size=3), DOCUMENTS, max_size=6), st.randoms())
def test_the_order_of_members_never_matters(document: dict[str, JSON], random: Any) -> None:
    names = list(document)
    random.shuffle(names)
    assert Canon().fingerprint({name: document[name] for name in names}) == Canon().fingerprint(document)


def test_the_fingerprint_is_the_same_for_ever() -> None:
    """Stores hold fingerprints: another encoding, say by a new msgspec, would need a migration."""
    raw = '{"id":"shp_1","weight":1.50,"n":1e3,"tags":["b","a"],"note":null,"ok":true,"b":"\\u00e9","aa":{"z":-0.0}}'
    canonical = '{"aa":{"z":0},"b":"é","id":"shp_1","n":1000,"note":null,"ok":true,"tags":["a","b"],"weight":1.5}'
    assert print_of(raw, unordered=["/tags"]) == blake2b(canonical.encode(), digest_size=16).digest()


# The canonical form --------------------------------------------------------------------------------------------------

RECORD = {
    "id": "shp_1",
    "updated_at": "2026-11-21T02:30:00Z",
    "last_viewed_at": "2026-11-21T02:29:00Z",
    "tags": ["b", "a", "a"],
    "address": {"city": "Köln", "geo": {"lat": 1, "seen": 2}},
    "lines": [{"sku": "A", "seen": 1, "lots": ["y", "x"]}, {"sku": "B", "seen": 2, "lots": ["z"]}],
}


def test_the_timestamp_and_ignored_members_are_left_out() -> None:
    canon = Canon(updated_at="/updated_at", ignore=["/last_viewed_at", "/address/geo/seen", "/absent", "/id/no/object"])
    assert canon.form(RECORD) == {
        "id": "shp_1",
        "tags": ["b", "a", "a"],
        "address": {"city": "Köln", "geo": {"lat": 1}},
        "lines": RECORD["lines"],
    }


def test_a_star_stands_for_every_element_of_an_array() -> None:
    form = Canon(ignore=["/lines/*/seen", "/lines/*/lots/*"]).form(RECORD)
    assert form["lines"] == [{"sku": "A", "lots": []}, {"sku": "B", "lots": []}]


def test_an_index_stands_for_one_element_and_joins_the_star() -> None:
    form = Canon(ignore=["/tags/1", "/lines/0/sku", "/lines/*/seen", "/lines/1/lots/0"]).form(RECORD)
    assert form["tags"] == ["b", "a"]
    assert form["lines"] == [{"lots": ["y", "x"]}, {"sku": "B", "lots": []}]


def test_indices_count_in_the_record_as_it_was_read() -> None:
    document = [["a", "b", "c"], ["d", "e", "f"]]
    assert Canon(ignore=["/*/0", "/1/1"], unordered=["/*"]).form(document) == [["b", "c"], ["f"]]


def test_a_star_is_a_plain_name_in_an_object() -> None:
    assert Canon(ignore=["/*", "/0"]).form({"*": 1, "a": 2, "0": 3}) == {"a": 2}


def test_unordered_arrays_compare_as_multisets() -> None:
    canon = Canon(unordered=["/tags"])
    prints = {
        tags: canon.fingerprint({"tags": list(tags)}) for tags in [("a", "b"), ("b", "a"), ("a", "a", "b"), ("a",)]
    }
    assert prints["a", "b"] == prints["b", "a"]
    assert len(set(prints.values())) == 3


def test_unordered_arrays_may_mix_kinds_and_nest() -> None:
    canon = Canon(unordered=["/a", "/a/*"], ignore=["/a/*/seen"])
    one = {"a": [{"n": 1, "seen": 1}, [3, "3", None], True, {"n": 0, "seen": 9}]}
    other = {"a": [[None, "3", Decimal("3.0")], {"n": 0, "seen": 1}, True, {"seen": 2, "n": 1}]}
    assert canon.fingerprint(one) == canon.fingerprint(other)


def test_arrays_elsewhere_keep_their_order() -> None:
    canon = Canon(unordered=["/tags"])
    assert canon.fingerprint({"tags": {"x": [1, 2]}}) != canon.fingerprint({"tags": {"x": [2, 1]}})


def test_the_record_itself_is_never_changed_and_untouched_parts_are_shared() -> None:
    record = deepcopy(RECORD)
    canon = Canon(updated_at="/updated_at", ignore=["/lines/*/seen"], unordered=["/tags", "/lines/*/lots"])
    form = canon.form(record)
    assert record == RECORD
    assert form["tags"] == ["a", "a", "b"]
    assert form["address"] is record["address"]


@given(DOCUMENTS)
def test_rules_that_lead_nowhere_change_nothing(document: JSON) -> None:
    canon = Canon(updated_at="/updated_at/deep", ignore=["/long/*/name", "/7/8/9/none"], unordered=["/other/long"])
    assert identity(canon.form(document)) == identity(document)


@pytest.mark.parametrize("rules", [{"ignore": ["id"]}, {"unordered": ["/~"]}, {"updated_at": "updated_at"}])
def test_what_is_no_pointer_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be like"):
        Canon(**rules)
