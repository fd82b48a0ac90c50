from __future__ import annotations

import random
from copy import deepcopy
from decimal import Decimal
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockbell.core import pointer
from dockbell.core.diff import Difference, Operation, apply, compare_leaves, diff, touched
from dockbell.core.document import DEPTH_MAX, encode
from dockbell.core.model import JSON
from dockbell.core.pointer import MISSING

# Few names and few values, so that two documents have much in common.
NAMES = st.sampled_from(["a", "b", "", "/", "~", "~1", "a/b", "0", "-", "é", "😀"])
SCALARS = st.sampled_from([None, True, False, 0, 1, Decimal("1.0"), Decimal("0.5"), "", "1", "é", 2**70])
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=30
)


def assert_leads(before: JSON, after: JSON) -> None:
    """Assert that the difference, applied by us and by jsonpatch, makes the one document of the other."""
    kept = deepcopy((before, after))
    patch = diff(before, after)
    assert encode(apply(before, patch)) == encode(after)
    assert encode(jsonpatch.apply_patch(before, patch)) == encode(after)
    assert bool(patch) is (encode(before) != encode(after))
    assert encode([before, after]) == encode(list(kept))


@settings(max_examples=300)
@given(DOCUMENTS, DOCUMENTS)
def test_the_difference_of_any_two_documents_leads_from_one_to_the_other(before: JSON, after: JSON) -> None:
    assert_leads(before, after)


@pytest.mark.slow
def test_a_few_edits_anywhere_in_a_record_are_found() -> None:
    seeded = random.Random(7)
    for _ in range(2000):
        before = grow(seeded, 4)
        after = deepcopy(before)
        for _ in range(seeded.randint(0, 4)):
            edit(seeded, after)
        assert_leads(before, after)


def grow(seeded: random.Random, depth: int) -> JSON:
    kind = seeded.choice("oas") if depth < 4 else "o"
    if depth == 0 or kind == "s":
        return seeded.choice([None, True, 1, Decimal("1.0"), Decimal("-2.50"), "x", "é~/", 10**30])
    if kind == "a":
        return [grow(seeded, depth - 1) for _ in range(seeded.randint(0, 6))]
    return {name: grow(seeded, depth - 1) for name in seeded.sample(["a", "b", "", "/", "~0", "ü", "-", "0"], 5)}


def edit(seeded: random.Random, document: JSON) -> None:
    """Change one place of an object or array."""
    places = list(document) if isinstance(document, dict) else list(range(len(document)))
    if not places:
        return
    place = seeded.choice(places)
    if isinstance(document[place], dict | list) and seeded.random() < 0.7:
        edit(seeded, document[place])
    elif (what := seeded.choice(["remove", "replace", "add"])) == "remove":
        del document[place]
    elif what == "replace" or isinstance(document, dict):
        document[place] = grow(seeded, 1)
    else:
        document.insert(place, grow(seeded, 1))


def op(op: str, path: str, *value: JSON) -> Operation:
    return {"op": op, "path": path, **({"value": value[0]} if value else {})}


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"status": "new"}, {"status": "shipped"}, [op("replace", "/status", "shipped")]),
        ({"a": 1}, {}, [op("remove", "/a")]),
        ({}, {"a": None}, [op("add", "/a", None)]),
        ({"a": 1}, {"a": None}, [op("replace", "/a", None)]),
        ({"a": None}, {}, [op("remove", "/a")]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, [op("replace", "/a/b/1/c", 3)]),
        ({"a/b": 1, "": 1}, {"a/b": 2, "": 2}, [op("replace", "/a~1b", 2), op("replace", "/", 2)]),
        ({"m~n": 1, "ü": {"": 1}}, {"ü": {}}, [op("remove", "/m~0n"), op("remove", "/ü/")]),
        ({"a": [1]}, {"a": {"0": 1}}, [op("replace", "/a", {"0": 1})]),
        ({"a": {}}, {"a": []}, [op("replace", "/a", [])]),
        ([1, 2, 3], [1, 3], [op("remove", "/1")]),
        ([1, 3], [1, 2, 3], [op("add", "/1", 2)]),
        ([1], [1, 1], [op("add", "/1", 1)]),
        ([1, 1], [1], [op("remove", "/1")]),
        ([], [1, 2], [op("add", "/0", 1), op("add", "/1", 2)]),
        ([1, 2], [], [op("remove", "/1"), op("remove", "/0")]),
        ([1, 2, 9], [3, 9], [op("replace", "/0", 3), op("remove", "/1")]),
        ([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 3}, {"n": 4}], [op("replace", "/1/n", 3), op("add", "/2", {"n": 4})]),
        (1, [1], [op("replace", "", [1])]),
    ],
)
def test_the_difference_is_small_and_readable(before: JSON, after: JSON, patch: list[Operation]) -> None:
    assert diff(before, after) == patch


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (Decimal("1.0"), True), (1, "1"), (None, False)])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": {"b": [x]}}])
def test_values_of_other_types_differ_at_every_depth(one: JSON, other: JSON, wrap: Any) -> None:
    (operation,) = diff(wrap(one), wrap(other))
    assert operation["value"] is other
    (operation,) = diff(wrap(other), wrap(one))
    assert operation["value"] is one


@pytest.mark.parametrize(("one", "other"), [(1, Decimal("1.0")), (1000, Decimal("1e3")), (0, Decimal("-0.0"))])
def test_equal_numbers_do_not_differ_however_they_are_written(one: JSON, other: JSON) -> None:
    assert diff({"a": [one]}, {"a": [other]}) == []


def test_the_order_of_members_is_no_difference() -> None:
    assert diff({"a": 1, "b": [{"c": 1, "d": 2}]}, {"b": [{"d": 2, "c": 1}], "a": 1}) == []


def test_records_as_deep_as_can_be_read_are_compared() -> None:
    before: JSON = 1
    after: JSON = 2
    for _ in range(DEPTH_MAX // 2):
        before, after = {"a": [before]}, {"a": [after]}
    assert_leads(before, after)


def test_the_touched_pointers_are_sorted_and_stand_once() -> None:
    patch = [op("replace", "/b", 1), op("remove", "/a/1"), op("add", "/a/1", 2), op("add", "/a", [])]
    assert touched(patch) == ["/a", "/a/1", "/b"]
    assert touched([]) == []


# https://www.rfc-editor.org/rfc/rfc6902#appendix-A
@pytest.mark.parametrize(
    ("document", "operation", "result"),
    [
        ({"foo": "bar"}, op("add", "/baz", "qux"), {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, op("add", "/foo/1", "qux"), {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, op("remove", "/baz"), {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, op("remove", "/foo/1"), {"foo": ["bar", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, op("replace", "/baz", "boo"), {"baz": "boo", "foo": "bar"}),
        ({"foo": "bar"}, op("add", "/child", {"grandchild": {}}), {"foo": "bar", "child": {"grandchild": {}}}),
        ({"foo": "bar"}, op("add", "/baz", "qux") | {"xyz": 123}, {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar"]}, op("add", "/foo/-", ["abc", "def"]), {"foo": ["bar", ["abc", "def"]]}),
        ({"foo": "bar"}, op("add", "/foo", 1), {"foo": 1}),
        ({"foo": "bar"}, op("replace", "", [1]), [1]),
        ({"foo": "bar"}, op("add", "", None), None),
        ([1], op("replace", "/0", 2), [2]),
    ],
)
def test_a_patch_applies_as_the_rfc_says(document: JSON, operation: Operation, result: JSON) -> None:
    assert apply(document, [operation]) == result


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        ({"foo": "bar"}, op("add", "/baz/bat", "qux")),
        ({"foo": "bar"}, op("add", "/foo/0", "qux")),
        ({"foo": "bar"}, op("remove", "/baz")),
        ({"foo": "bar"}, op("replace", "/baz", 1)),
        ({"foo": "bar"}, op("remove", "")),
        ([1], op("add", "/2", 1)),
        ([1], op("add", "/01", 1)),
        ([1], op("add", "/x", 1)),
        ([1], op("remove", "/1")),
        ([1], op("remove", "/-")),
        ([1], op("replace", "/-", 1)),
        ({"foo": "bar"}, op("move", "/foo") | {"from": "/foo"}),
        ({"foo": "bar"}, op("test", "/foo", "bar")),
        ({"foo": "bar"}, op("test", "", {"foo": "bar"})),
    ],
)
def test_an_operation_that_does_not_fit_is_refused(document: JSON, operation: Operation) -> None:
    with pytest.raises(ValueError, match=f"^patch: cannot {operation['op']} at "):
        apply(document, [operation])


def test_neither_the_document_nor_the_patch_is_changed() -> None:
    document: JSON = {"a": [1]}
    patch = [op("add", "/b", {}), op("add", "/b/c", 1), op("add", "/a/0", 0)]
    assert apply(document, patch) == {"a": [0, 1], "b": {"c": 1}}
    assert document == {"a": [1]}
    assert patch[0]["value"] == {}


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("a~/é", max_size=2)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3)
)


def told(before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    return [(each.path, each.op, each.before, each.after) for each in compare_leaves(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 2}, [("/a", "replace", 1, 2)]),
        ({"a": 1}, {}, [("/a", "remove", 1, None)]),
        ({}, {"a": None}, [("/a", "add", None, None)]),
        (
            {},
            {"a": {"b": 1, "c": [2, {}]}},
            [("/a/b", "add", None, 1), ("/a/c/0", "add", None, 2), ("/a/c/1", "add", None, {})],
        ),
        ({"a": {"b": 1}}, {"a": 5}, [("/a", "replace", {"b": 1}, 5)]),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [("/a/1", "remove", 2, None)]),
        ({"a/b": {"~": 1}}, {}, [("/a~1b/~0", "remove", 1, None)]),
        (MISSING, {"a": 1, "b": []}, [("/a", "add", None, 1), ("/b", "add", None, [])]),
        ({"a": {"b": 1}}, MISSING, [("/a/b", "remove", 1, None)]),
        (MISSING, MISSING, []),
        (MISSING, 5, [("", "add", None, 5)]),
        (1, True, [("", "replace", 1, True)]),
    ],
)
def test_differences_are_told_leaf_by_leaf(before: Any, after: Any, expected: list[Any]) -> None:
    assert told(before, after) == expected


@given(values, values)
def test_they_are_told_where_there_are_any_and_only_there(before: Any, after: Any) -> None:
    assert bool(told(before, after)) == bool(diff(before, after))


@given(values, values)
def test_each_says_what_stands_there(before: Any, after: Any) -> None:
    for each in compare_leaves(before, after):
        tokens = pointer.parse(each.path)
        if each.op != "add":
            assert _is(pointer.resolve(before, tokens), each.before)
        if each.op != "remove":
            assert _is(pointer.resolve(after, tokens), each.after)


@given(values, values)
def test_what_came_or_went_is_a_leaf(before: Any, after: Any) -> None:
    for each in compare_leaves(before, after):
        value = each.after if each.op == "add" else each.before
        assert each.op == "replace" or not isinstance(value, dict | list) or not value


@given(values)
def test_a_document_that_comes_is_told_by_all_its_leaves(document: Any) -> None:
    added, removed = list(compare_leaves(MISSING, document)), list(compare_leaves(document, MISSING))
    assert [Difference(each.path, "add", after=each.before) for each in removed] == added
    assert len({each.path for each in added}) == len(added) > 0


def _is(one: Any, other: Any) -> bool:
    return one is not MISSING and diff(one, other) == []
