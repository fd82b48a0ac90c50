from __future__ import annotations

import copy
import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.canon import Canon
from dockbell.core.reading.rereading import Rereading, compare_readings
from dockbell.core.reading.shape import Shape

SHAPE = Shape(("/id",), "/at")
UNDATED = Shape(("/id",))

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=15,
)


def compare(earlier: Any, later: Any, shape: Shape = UNDATED) -> Rereading:
    """Return what differs between two readings of one record with these contents."""
    return compare_readings([{"id": 1, "is": earlier}], [{"id": 1, "is": later}], shape)


def test_records_that_came_back_alike_are_still() -> None:
    records = [{"id": 2, "at": 1, "tags": ["a"]}, {"id": 1, "at": 1, "tags": []}]
    assert compare_readings(records, copy.deepcopy(records), SHAPE) == Rereading(2, 0, 2, same_order=True)


def test_the_order_of_members_and_the_form_of_numbers_are_no_difference() -> None:
    found = compare({"a": 1, "b": Decimal("2.50")}, {"b": Decimal("2.5"), "a": Decimal("1.0")})
    assert found.still == 1


@pytest.mark.parametrize(("earlier", "later"), [(1, "1"), (1, True), (None, 0), ("", None), (Decimal("1e9"), "1E+9")])
def test_kinds_of_values_are_told_apart(earlier: Any, later: Any) -> None:
    assert compare(earlier, later).restless == {"/is": 1}


def test_an_absurd_number_does_no_harm() -> None:
    assert compare(Decimal("1e999999999"), Decimal("-1e-999999999")).restless == {"/is": 1}


def test_records_whose_timestamp_moved_say_nothing() -> None:
    found = compare_readings([{"id": 1, "at": 1, "x": 1}], [{"id": 1, "at": 2, "x": 2}], SHAPE)
    assert found == Rereading(1, 1, 0, same_order=True)


def test_a_member_that_moves_alone_is_restless_also_when_it_comes_or_goes() -> None:
    found = compare({"seen": 1, "gone": 1, "same": 0}, {"seen": 2, "new": 1, "same": 0})
    assert found.restless == {"/is/gone": 1, "/is/new": 1, "/is/seen": 1}


@pytest.mark.parametrize(
    ("earlier", "later", "shuffled"),
    [
        (["a", "b", "b"], ["b", "a", "b"], ["/is"]),
        ([{"t": [1, 2]}, {"t": [3]}], [{"t": [2, 1]}, {"t": [3]}], ["/is/*/t"]),
        ([{"t": [1, 2]}, {"t": [3]}], [{"t": [3]}, {"t": [2, 1]}], ["/is", "/is/*/t"]),
        ({"a/b": [1, 2]}, {"a/b": [2, 1]}, ["/is/a~1b"]),
        ([[1, 2], [1, 2]], [[2, 1], [1, 2]], ["/is/*"]),
    ],
)
def test_an_array_with_the_same_in_another_order_is_named(earlier: Any, later: Any, shuffled: list[str]) -> None:
    found = compare(earlier, later)
    assert [*found.shuffled] == shuffled
    assert not found.restless


def test_an_array_that_became_longer_is_content() -> None:
    found = compare(["a"], ["a", "a"])
    assert (found.shuffled, found.restless) == ({}, {"/is": 1})


def test_the_order_of_the_records_in_both_readings_is_compared() -> None:
    earlier = [{"id": 1}, {"id": 2}, {"id": 3}]
    assert compare_readings(earlier, [{"id": 4}, {"id": 1}, {"id": 3}], UNDATED).same_order
    assert not compare_readings(earlier, [{"id": 3}, {"id": 1}], UNDATED).same_order


def test_records_without_a_key_are_left_out() -> None:
    assert compare_readings([{"id": 1}, {}], [{"id": 1}, {}], UNDATED).compared == 1


@pytest.mark.parametrize(
    ("count", "of", "is_volatile"), [(2, 2, False), (3, 3, True), (3, 15, True), (3, 16, False), (40, 200, True)]
)
def test_a_member_is_volatile_when_it_moves_in_a_fifth_of_the_records_and_in_three(
    count: int, of: int, *, is_volatile: bool
) -> None:
    earlier = [{"id": number, "seen": 0} for number in range(of)]
    later = [{"id": number, "seen": int(number < count)} for number in range(of)]
    assert compare_readings(earlier, later, UNDATED).volatile() == ["/seen"] * is_volatile


@given(documents, st.randoms(use_true_random=False))
def test_unordered_as_found_makes_a_shuffled_record_equal_again(document: Any, random: Random) -> None:
    """What is found goes into ``unordered``, and must then do what it is there for."""

    def shuffle(value: Any) -> Any:
        if isinstance(value, list):
            return random.sample([shuffle(each) for each in value], len(value))
        return {name: shuffle(value[name]) for name in value} if isinstance(value, dict) else value

    earlier, later = {"id": 1, "is": document}, {"id": 1, "is": shuffle(document)}
    found = compare_readings([earlier], [later], UNDATED)
    assert not found.restless
    canon = Canon(unordered=[*found.shuffled])
    assert canon.fingerprint(earlier) == canon.fingerprint(later), json.dumps(found.shuffled)


@given(documents, documents)
def test_ignoring_what_was_found_makes_any_two_readings_equal(one: Any, other: Any) -> None:
    found = compare(one, other)
    canon = Canon(ignore=[*found.restless], unordered=[*found.shuffled])
    assert canon.fingerprint({"id": 1, "is": one}) == canon.fingerprint({"id": 1, "is": other})
