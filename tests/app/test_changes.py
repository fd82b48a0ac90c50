from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dockbell.app.changes import Difference, compare

RECIPES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2))


@given(RECIPES, RECIPES)
def test_ending_and_beginning_lead_from_what_there_is_to_what_is_wanted(
    there: dict[str, int], wanted: dict[str, int]
) -> None:
    found = compare(there, wanted)
    left = {name: recipe for name, recipe in there.items() if name not in found.ending}
    assert left | {name: wanted[name] for name in found.beginning} == wanted
    assert set(left) == set(found.kept)


@given(RECIPES)
def test_what_is_as_it_is_wanted_is_left_alone(recipes: dict[str, int]) -> None:
    assert compare(recipes, dict(recipes)) == Difference(kept=tuple(recipes))


def test_of_very_many_the_first_are_told() -> None:
    told = compare({}, dict.fromkeys(range(1023))).describe("feed")
    assert told[19:] == ["feed 19 added", "1,003 more feeds added"]


def test_it_is_told_in_words() -> None:
    found = compare({"erp": 1, "shop": 1, "floor": 1}, {"erp": 2, "floor": 1, "screen": 1})
    assert found.describe("sink") == ["sink screen added", "sink erp changed", "sink shop removed"]
