from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.canon import Canon
from dockbell.core.diff import diff, touched
from dockbell.core.document import decode
from dockbell.core.model import JSON
from tests.core.test_document import DOCUMENTS, identity


def print_of(raw: str, **rules: Any) -> bytes:
    return Canon(**rules).fingerprint(decode(raw.encode()))


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


NAMES = st.sampled_from(["a", "b/~", "c"])
OBJECTS = st.recursive(
    st.integers(0, 1) | st.just("a"),
    lambda values: st.dictionaries(NAMES, values, max_size=3) | st.lists(values, max_size=2),
    max_leaves=6,
)
PLACES = st.sampled_from(["/a", "/b~1~0", "/a/b~1~0", "/c/*", ""])


@given(
    st.dictionaries(NAMES, OBJECTS, max_size=3),
    st.dictionaries(NAMES, OBJECTS, max_size=3),
    st.lists(PLACES, max_size=2),
    st.lists(PLACES, max_size=1),
)
def test_the_places_at_which_the_forms_differ_are_told_from_those_at_which_the_objects_do(
    one: dict[str, JSON], other: dict[str, JSON], ignore: list[str], unordered: list[str]
) -> None:
    canon = Canon(ignore=ignore, unordered=unordered)
    found = canon.sift(touched(diff(one, other)))
    assert found is None or found == touched(diff(canon.form(one), canon.form(other)))


def test_only_the_forms_tell_where_parts_are_left_out_or_an_order() -> None:
    assert Canon(updated_at="/at", ignore=["/a", "/a/b"]).sift(["/a/b", "/at", "/b~1/0"]) == ["/b~1/0"]
    for canon in (Canon(ignore=["/a/b"]), Canon(unordered=["/a"]), Canon(ignore=["/at"], unordered=["/a/c"])):
        assert canon.sift(["/at", "/a/0"]) is None
    assert Canon(updated_at="/at", unordered=["/a"]).sift(["/at", "/b"]) == ["/b"]


@pytest.mark.parametrize("rules", [{"ignore": ["id"]}, {"unordered": ["/~"]}, {"updated_at": "updated_at"}])
def test_what_is_no_pointer_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be like"):
        Canon(**rules)
