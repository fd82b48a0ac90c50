from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dockbell.demo.account import Account, Balance, Run
from tests.demo.events import at, record

CONFIRM_AFTER = timedelta(seconds=5)
FIRST = (-3, -2)
"""The first run, a pass."""


def strike(
    made: Sequence[tuple[float, Any]],
    told: Sequence[tuple[float, Any]] = (),
    runs: Sequence[tuple[float, float]] = (),
    *,
    start: Any = "a",
    passes: bool = False,
    held: bool = False,
    answered: float = -2.5,
) -> Balance:
    """Return the balance of one record: when it became what (None: gone), and which of that was told when."""
    account = Account(CONFIRM_AFTER)
    before = None if start is None else record(start, -1)
    when = {}
    for second, content in made:
        after = None if content is None else record(content, second)
        account.note_change("shipments", "shp_1", at(second), before, after)
        when[content] = second
        before = after
    for second, content in told:
        after = None if content is None else record(content, when.get(content, 99))
        account.note_event("shipments", "shp_1", at(second), after)
    account.note_answer("shipments", at(answered))
    for began, ended in runs:
        account.note_run("shipments", Run(at(began), at(ended), is_pass=passes))
    return account.close(at(100), {"shipments"} if held else ())


def test_a_change_with_an_event_has_arrived() -> None:
    assert strike([(1, "b")], [(2, "b")], [(1.5, 2)]) == Balance(made=1, arrived=1)


def test_a_change_is_on_its_way_until_a_reading_began_after_it() -> None:
    assert strike([(1, "b")], runs=[(0.9, 2)]) == Balance(made=1, underway=1)


def test_a_change_that_a_reading_had_to_show_is_lost() -> None:
    assert strike([(1, "b")], runs=[FIRST, (1.1, 2)]) == Balance(made=1, lost=1)


def test_a_change_before_the_first_answer_may_be_part_of_the_baseline() -> None:
    assert strike([(1, "b")], runs=[(0.9, 2), (3, 4)], answered=1.1) == Balance(made=1, overtaken=1)
    assert strike([(1, "b")], runs=[(0.9, 2), (3, 4)], answered=0.95) == Balance(made=1, lost=1)


def test_a_reading_that_ended_too_late_proves_nothing() -> None:
    assert strike([(1, "b")], runs=[(99, 101)]) == Balance(made=1, underway=1)


def test_a_change_that_changed_again_before_a_reading_is_overtaken() -> None:
    assert strike([(1, "b"), (2, "c")], [(4, "c")], [(3, 4)]) == Balance(made=2, arrived=1, overtaken=1)
    assert strike([(1, "b"), (2, "c")]) == Balance(made=2, overtaken=1, underway=1)


def test_a_change_that_a_reading_showed_before_the_next_is_lost_even_when_the_next_arrived() -> None:
    assert strike([(1, "b"), (5, "c")], [(7, "c")], [FIRST, (2, 3), (6, 7)]) == Balance(made=2, arrived=1, lost=1)


def test_a_change_back_to_what_was_told_needs_no_event() -> None:
    assert strike([(1, "b"), (2, "a")], runs=[(3, 4)]) == Balance(made=2, overtaken=2)


def test_a_record_that_came_and_went_between_readings_needs_no_event() -> None:
    assert strike([(1, "b"), (2, None)], runs=[(3, 4), (10, 11)], start=None, passes=True) == Balance(
        made=2, overtaken=2
    )


def test_an_event_without_a_change_is_invented() -> None:
    assert strike([(1, "b")], [(2, "b"), (3, "x")]) == Balance(made=1, arrived=1, invented=1)
    assert strike([(1, "b")], [(2, "b"), (3, "b")]) == Balance(made=1, arrived=1, invented=1)
    assert strike([], [(3, "x")]) == Balance(invented=1)


def test_a_deletion_is_due_at_the_second_pass_and_not_before() -> None:
    made = [(1, None)]
    assert strike(made, [(9, None)], [FIRST, (2, 3), (8.5, 9)], passes=True) == Balance(made=1, arrived=1)
    assert strike(made, runs=[FIRST, (2, 3)], passes=True) == Balance(made=1, underway=1)
    assert strike(made, runs=[FIRST, (2, 3), (7, 8)], passes=True) == Balance(made=1, underway=1)
    assert strike(made, runs=[FIRST, (2, 3), (8.5, 9)], passes=True) == Balance(made=1, lost=1)
    assert strike(made, runs=[FIRST, (2, 3), (8.5, 9)]) == Balance(made=1, underway=1), "polls show no deletion"


def test_a_deletion_before_the_first_pass_was_over_needs_no_event() -> None:
    assert strike([(1, None)], runs=[(0.5, 1.5), (2, 3), (9, 10)], passes=True) == Balance(made=1, overtaken=1)


def test_a_deletion_that_the_breaker_holds_is_not_lost() -> None:
    runs = [FIRST, (2, 3), (9, 10)]
    assert strike([(1, None)], runs=runs, passes=True, held=True) == Balance(made=1, held=1)


def test_a_deletion_that_was_not_made_is_invented() -> None:
    assert strike([(5, None)], [(4, None)]) == Balance(made=1, underway=1, invented=1)


def test_numbers_are_told_from_text_and_the_order_of_members_is_not() -> None:
    account = Account(CONFIRM_AFTER)
    account.note_change("stock", "s", at(1), None, {"n": 1, "m": [1, 2], "updated_at": "t"})
    account.note_event("stock", "s", at(2), {"m": [1, 2], "updated_at": "t", "n": 1})
    account.note_event("stock", "s", at(2), {"m": [1, 2], "updated_at": "t", "n": "1"})
    assert account.close(at(9)) == Balance(made=1, arrived=1, invented=1)


def test_the_time_of_the_last_deletion_is_known() -> None:
    account = Account(CONFIRM_AFTER)
    account.note_change("shipments", "shp_1", at(1), record("a", 0), None)
    account.note_change("shipments", "shp_1", at(2), None, record("a", 2))
    account.note_change("shipments", "shp_1", at(3), record("a", 2), None)
    assert account.deleted_at("shipments", "shp_1") == at(3)
    assert account.deleted_at("shipments", "shp_2") is None


contents = st.sampled_from([None, "a", "b", "c"])
seconds = st.floats(0, 90)


@given(
    st.lists(st.tuples(seconds, contents), max_size=6, unique_by=lambda each: each[0]),
    st.lists(st.tuples(seconds, contents), max_size=6),
    st.lists(st.tuples(seconds, seconds).map(sorted).map(tuple), max_size=6),
    st.booleans(),
)
def test_the_account_always_adds_up(
    made: list[tuple[float, Any]], told: list[tuple[float, Any]], runs: list[Any], passes: bool
) -> None:
    balance = strike(sorted(made, key=lambda each: each[0]), told, runs, passes=passes)
    fates = (balance.arrived, balance.overtaken, balance.underway, balance.held, balance.lost)
    assert balance.made == len(made) == sum(fates)
    assert balance.arrived + balance.invented == len(told)


def test_the_fates_of_several_records_add_up() -> None:
    account = Account(timedelta(seconds=5))
    for key in ("shp_1", "shp_2", "shp_3"):
        account.note_change("shipments", key, at(1), record("a", 0), record("b", 1))
    account.note_event("shipments", "shp_1", at(2), record("b", 1))
    account.note_event("shipments", "shp_4", at(2), record("c", 1))
    account.note_run("shipments", Run(at(3), at(4), is_pass=False))
    assert account.close(at(9)) == Balance(made=3, arrived=1, lost=2, invented=1)
