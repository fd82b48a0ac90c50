from __future__ import annotations

import time
from typing import Final

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockbell.condition.cost import Cost, find_cost

STEP: Final = 100e-9


def cost_of(text: str) -> Cost:
    cost = find_cost(text)
    assert cost is not None
    return cost


@pytest.mark.parametrize(
    ("text", "degree"),
    [
        ("after.status == 'shipped' && before.status != 'shipped'", 1),
        ("after == before", 1),
        ("'/status' in changed", 1),
        ("key.matches('^shp_[0-9]{3}$')", 1),
        ("after.tags.exists(t, t == 'x')", 1),
        ("after.lines.exists(l, l.tags.exists(t, t == 'x'))", 1),
        ("after.lines.map(l, l.n).all(n, n > 0)", 2),  # the library copies what was gathered, each time
        ("after.tags.filter(t, t != 'x').size() > 1", 2),
        ("after.tags.exists(t, !(t in before.tags))", 2),
        ("after.tags.exists(t, after.tags.exists(u, t == u))", 2),
        ("after.tags.exists(t, before.tags == [t])", 2),
        ("after.tags.exists(t, after.text.contains(t))", 2),
        ("after.tags.exists(t, (after.text + t).size() > 3)", 2),
        ("after.lines.exists(l, l.tags.exists(t, t in after.tags))", 2),
        ("after.lines.exists(l, l.tags.exists(t, t in l.others))", 2),
        ("after.tags.exists(t, t.matches(after.pattern))", 2),
        ("after.tags.exists(t, after.tags.exists(u, after.tags.exists(v, t == v)))", 3),
        ("after.tags.map(t, after.tags).all(x, x.all(y, y == 'a'))", 3),
    ],
)
def test_loops_within_loops_raise_the_degree_whatever_they_are_called(text: str, degree: int) -> None:
    cel.compile(text)
    assert cost_of(text).degree == degree


def test_what_cannot_be_understood_has_no_cost() -> None:
    assert find_cost("after.?status.orValue('x') == 'x'") is None
    assert find_cost("(" * 900 + "true" + ")" * 900) is None


def test_a_loop_over_what_the_expression_holds_itself_costs_the_same_of_any_record() -> None:
    assert cost_of("[1, 2, 3].all(x, [4, 5].all(y, x < y))").steps(0) < 1000
    assert cost_of("['x']" + ".map(a, a + a)" * 20 + ".size() == 1").steps(0) > 2**20


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        ("key.matches('^shp_[0-9]+$')", r"key.matches('^shp_\\d+$')"),
        ("key.matches('x{3}')", "key.matches('x{300}')"),
        ("key.matches('(x{3}){3}')", "key.matches('(x{30}){30}')"),
        ("key.matches('x')", "key.matches(after.x)"),
    ],
)
def test_a_pattern_costs_as_much_as_it_may_become(cheap: str, dear: str) -> None:
    assert 10 * cost_of(cheap).steps(10) < 11 * cost_of(dear).steps(10)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4).map(tuple), st.integers(0, 10**6), st.integers(0, 10**4))
def test_the_largest_size_is_the_last_that_stays_within_the_steps(
    coefficients: tuple[int, ...], steps: int, most: int
) -> None:
    cost = Cost(coefficients)
    largest = cost.find_largest(steps, most)
    assert largest == -1 or cost.steps(largest) <= steps
    assert largest == most or cost.steps(largest + 1) > steps


def _conditions() -> st.SearchStrategy[str]:
    """Conditions on lists that loop, look through, compare, copy and add, one within the other."""
    lists = st.sampled_from(["a.t", "b.t", "a['t']", "(a.t + b.t)", "a.t.filter(f, f != 'q')", "a.t.map(m, m + 'x')"])
    leaves = st.one_of(
        st.sampled_from(["true", "a.s == 'x'", "a.s.contains(b.s)", "a == b", "(a.s + b.s).size() > 3"]),
        lists.map("{}.size() > 0".format),
        st.tuples(lists, lists).map("{0[0]} == {0[1]}".format),
        lists.map("'q' in {}".format),
    )

    def widen(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        loops = st.tuples(lists, st.sampled_from(["all", "exists_one"]), st.sampled_from("xyz"), inner)
        return st.one_of(
            loops.map("{0[0]}.{0[1]}({0[2]}, {0[3]})".format),
            loops.map("{0[0]}.{0[1]}({0[2]}, {0[2]} != 'q' && {0[3]})".format),
            st.tuples(inner, inner).map("({0[0]} || {0[1]})".format),
            st.tuples(inner, inner).map("({0[0]} ? {0[1]} : true)".format),
        )

    return st.recursive(leaves, widen, max_leaves=4)


@settings(deadline=None, max_examples=60)
@given(_conditions(), st.integers(1, 60))
def test_no_condition_takes_longer_than_was_foretold(text: str, length: int) -> None:
    """With some leave for a machine that does something else meanwhile."""
    record = {"t": [f"tag-{number}" for number in range(length)], "s": "y" * length}
    size = 2 * (3 + length + 8 * length // 16 + length // 16)
    foretold = cost_of(text).steps(size) * STEP
    if foretold > 2:
        return
    program, best = cel.compile(text), float("inf")
    for _ in range(3):
        began_at = time.perf_counter()
        program.execute(cel.Context({"a": record, "b": record}))
        best = min(best, time.perf_counter() - began_at)
    assert best < foretold + 0.005
