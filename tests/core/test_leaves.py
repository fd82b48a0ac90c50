from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core import pointer
from dockbell.core.diff import diff
from dockbell.core.leaves import Difference, compare
from dockbell.core.pointer import MISSING

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("a~/é", max_size=2)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3)
)


def told(before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    return [(each.path, each.op, each.before, each.after) for each in compare(before, after)]


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
    for each in compare(before, after):
        tokens = pointer.parse(each.path)
        if each.op != "add":
            assert _is(pointer.resolve(before, tokens), each.before)
        if each.op != "remove":
            assert _is(pointer.resolve(after, tokens), each.after)


@given(values, values)
def test_what_came_or_went_is_a_leaf(before: Any, after: Any) -> None:
    for each in compare(before, after):
        value = each.after if each.op == "add" else each.before
        assert each.op == "replace" or not isinstance(value, dict | list) or not value


@given(values)
def test_a_document_that_comes_is_told_by_all_its_leaves(document: Any) -> None:
    added, removed = list(compare(MISSING, document)), list(compare(document, MISSING))
    assert [Difference(each.path, "add", after=each.before) for each in removed] == added
    assert len({each.path for each in added}) == len(added) > 0


def _is(one: Any, other: Any) -> bool:
    return one is not MISSING and diff(one, other) == []
