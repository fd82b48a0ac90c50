from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.drift import (
    Decision,
    Difference,
    Drift,
    extend_drift,
    is_reformatted,
    is_structural,
    outline,
)
from dockbell.core.diff import diff

ADDED: list[dict[str, Any]] = [{"op": "add", "path": "/bin", "value": None}]
REMOVED = [{"op": "remove", "path": "/bin"}]
REPLACED = [{"op": "replace", "path": "/available", "value": 4}]
RECORD = {"available": 3}


def differences(*patches: list[dict[str, Any]]) -> list[Difference]:
    return [(patch, RECORD) for patch in patches]


def compare(before: dict[str, Any], after: dict[str, Any]) -> Difference:
    return diff(before, after), before


@pytest.mark.parametrize(
    ("count", "page", "found"),
    [
        (12, 12, True),
        (10, 33, True),
        (10, 34, False),  # less than 30 %
        (9, 12, False),  # less than ten records, and not all
        (9, 9, True),
        (2, 2, True),
        (1, 1, False),  # one record is no more than one record
        (0, 12, False),
    ],
)
def test_drift_is_what_a_third_of_a_page_differs_by(count: int, page: int, *, found: bool) -> None:
    assert extend_drift(None, differences(*[ADDED] * count), page) == (Drift(frozenset({"/bin"})) if found else None)


@pytest.mark.parametrize("patch", [REPLACED, ADDED + REPLACED, [{"op": "add", "path": "/tags/0", "value": "x"}], []])
def test_other_values_and_other_elements_of_arrays_are_never_drift(patch: list[dict[str, Any]]) -> None:
    assert extend_drift(None, differences(*[patch] * 100), 100) is None


def test_the_most_common_difference_is_the_drift() -> None:
    both: list[dict[str, Any]] = [*ADDED, {"op": "add", "path": "/lot", "value": 1}]
    assert extend_drift(None, differences(*[ADDED] * 30, *[both] * 70), 100) == Drift(frozenset({"/bin", "/lot"}))


def test_members_of_the_elements_of_arrays_are_the_same_member_in_all() -> None:
    one, three = ({"lines": [{"sku": 1}] * count} for count in (1, 3))
    deployed = [compare(each, {"lines": [{"sku": 1, "lot": None}] * len(each["lines"])}) for each in (one, three)]
    assert [outline(patch) for patch, _ in deployed] == [frozenset({"/lines/*/lot"})] * 2
    assert all(is_structural(*each) for each in deployed)
    assert extend_drift(None, deployed, 2) == Drift(frozenset({"/lines/*/lot"}))


@pytest.mark.parametrize(
    ("patch", "covered"),
    [(ADDED, True), (REMOVED, True), (ADDED + REPLACED, False), (REPLACED, False), ([], False)],
)
def test_a_difference_is_drift_when_it_is_nothing_else(patch: list[dict[str, Any]], *, covered: bool) -> None:
    drift = Drift(frozenset({"/bin", "/lot"}))
    assert drift.covers(patch, RECORD) is covered
    assert drift.decision is Decision.HOLD


def test_drift_is_extended_by_what_more_of_it_a_page_shows_and_is_held_then() -> None:
    lot = [{"op": "add", "path": "/lot", "value": 1}]
    known = Drift(frozenset({"/bin"}), Decision.ABSORB)
    each_other = differences(*[ADDED] * 20, *[lot] * 20)
    assert extend_drift(known, differences(*[ADDED] * 12), 12) is known
    assert extend_drift(known, differences(*[lot] * 2), 12) is known
    assert extend_drift(known, each_other, 40) == Drift(frozenset({"/bin", "/lot"}))
    assert extend_drift(None, each_other, 40) == Drift(frozenset({"/bin", "/lot"}))
    assert extend_drift(None, differences(*[REPLACED] * 20), 20) is None


def test_another_value_under_a_path_that_came_is_a_change() -> None:
    assert not Drift(frozenset({"/bin"})).covers([{"op": "replace", "path": "/bin", "value": 1}], {"bin": 2})


# Values in another form ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-21T02:30:00Z", "2026-11-21T02:30:00+00:00"),
        ("2026-11-21T02:30:00Z", "2026-11-21T03:30:00.000+01:00"),
        ("2026-11-21T02:30:00Z", 1795228200),
        (1795228200, 1795228200000),
        ("1.50", "1.5"),
        ("1.50", Decimal("1.5")),
        (Decimal("0.0"), "0"),
        (7, "7"),
        (-7, " -7 "),
        ("Shipped", "SHIPPED"),
        ("Main St. 1 ", "Main St. 1"),
    ],
)
def test_a_value_in_another_form_is_the_same_in_both_directions(one: Any, other: Any) -> None:
    assert is_reformatted(one, other)
    assert is_reformatted(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-21T02:30:00Z", "2026-11-21T02:30:00+01:00"),
        ("2026-11-21T02:30:00.123Z", "2026-11-21T02:30:00Z"),
        ("1.50", "1.51"),
        (7, "8"),
        ("007", "7"),
        ("1e3", "1000"),
        ("open", "shipped"),
        ("Main St. 1", "MainSt. 1"),
        (1, True),
        ("true", True),
        (None, ""),
        (0, None),
        ({"code": 7}, 7),
        ([7], "7"),
        ([], {}),
        ("nan", "0"),
        ("", 0),
    ],
)
def test_everything_else_stays_a_change_in_both_directions(one: Any, other: Any) -> None:
    assert not is_reformatted(one, other)
    assert not is_reformatted(other, one)


values = st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text()


@given(values, values)
def test_whether_two_values_mean_the_same_does_not_depend_on_their_order(one: Any, other: Any) -> None:
    assert is_reformatted(one, other) == is_reformatted(other, one)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.datetimes(timezones=st.just(UTC)))
def test_numbers_and_moments_as_text_mean_the_same(number: Decimal, moment: datetime) -> None:
    assert is_reformatted(number, f"{number:f}")
    assert is_reformatted(moment.isoformat(), moment.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat())


def test_a_text_of_digits_without_end_is_no_number() -> None:
    assert not is_reformatted("1" * 200_000, 1)


def test_a_difference_may_add_members_and_write_others_in_another_form() -> None:
    before = {"id": 7, "lines": [{"price": "1.50", "tags": ["A"]}], "available": 3}
    after = {"id": "7", "lines": [{"price": Decimal("1.5"), "tags": ["a"], "lot": None}], "available": 3}
    patch = diff(before, after)
    assert is_structural(patch, before)
    assert not is_structural(diff(before, after | {"available": 4}), before)
    assert outline(patch) == frozenset({"/id", "/lines/*/price", "/lines/*/tags/*", "/lines/*/lot"})


def test_a_whole_record_that_became_another_value_is_a_change() -> None:
    assert not is_structural([{"op": "add", "path": "", "value": {}}], {"id": 7})
    assert not is_structural([{"op": "replace", "path": "/away", "value": 7}], {"id": 7})


def a_shipment(*dates: str, zone: str = "Z") -> dict[str, Any]:
    return dict.fromkeys(dates, f"2026-11-21T02:30:00{zone}")


def test_records_that_have_different_ones_of_the_reformatted_values_drift_together() -> None:
    """None of the four sets is that of more than 30 % of the page."""
    kinds = [("created",), ("created", "packed"), ("created", "packed", "sent"), ("created", "sent")]
    page = [compare(a_shipment(*dates), a_shipment(*dates, zone="+00:00")) for dates in kinds * 10]
    assert extend_drift(None, page, 40) == Drift(frozenset({"/created", "/packed", "/sent"}))


def test_one_record_that_has_more_of_the_reformatted_values_extends_the_drift() -> None:
    known = Drift(frozenset({"/created"}), Decision.ABSORB)
    one, other = (compare(a_shipment(*dates), a_shipment(*dates, zone="+00:00")) for dates in (["sent"], ["created"]))
    both = compare(a_shipment("sent", "created"), a_shipment("sent", "created", zone="+00:00"))
    assert extend_drift(known, [one, other], 40) is known
    assert extend_drift(known, [both], 40) == Drift(frozenset({"/created", "/sent"}))


def test_members_that_came_with_the_reformatted_values_drift_with_them() -> None:
    kinds = [("created",), ("created", "packed"), ("created", "packed", "sent"), ("created", "sent")]
    page = [compare(a_shipment(*dates), a_shipment(*dates, zone="+00:00") | {"bin": None}) for dates in kinds * 10]
    assert extend_drift(None, page, 40) == Drift(frozenset({"/created", "/packed", "/sent", "/bin"}))


def test_a_member_that_few_records_lost_is_no_drift_because_others_drift() -> None:
    deployed = [compare(a_shipment("created"), a_shipment("created", zone="+00:00")) for _ in range(39)]
    lost = compare(a_shipment("created") | {"note": "x"}, a_shipment("created", zone="+00:00"))
    assert extend_drift(None, [*deployed, lost], 40) == Drift(frozenset({"/created"}))
