from __future__ import annotations

from bisect import bisect_left
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.table import Row, Table

ITEMS = RESOURCES["items"]
numbers = st.integers(0, 9)


def make(number: int, stamp: int, status: str, sku: str) -> Row:
    return Row(number, f"itm_{number + 1}", stamp, status, (sku, None), b"{}")


rows = st.builds(make, numbers, st.integers(0, 5), st.sampled_from(ITEMS.statuses), st.sampled_from("ab"))


class TableAgainstRecount(RuleBasedStateMachine):
    """Whatever is put and dropped, each index says what counting the rows anew says."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(ITEMS)

    @rule(row=rows)
    def put(self, row: Row) -> None:
        self.table.put(row)

    @rule(number=numbers)
    def drop(self, number: int) -> None:
        self.table.drop(number)

    @invariant()
    def indexes_are_true(self) -> None:
        anew = Table(ITEMS, self.table.rows.values())
        for status in (None, *ITEMS.statuses):
            for changed in (False, True):
                places = self.table.places(changed=changed, status=status)
                assert places == anew.places(changed=changed, status=status) == sorted(places)
                terms = self.table.places(changed=changed, status=status, terms={"sku": "a"})
                assert terms == [place for place in places if self.table.rows[place[-1]].terms[0] == "a"]
        for sku in "ab":
            assert self.table.linked("sku", sku) == anew.linked("sku", sku)


TestTableAgainstRecount = TableAgainstRecount.TestCase


@given(st.lists(rows, unique_by=lambda row: row.number))
def test_a_time_is_found_before_the_first_change_at_it(given_rows: list[Row]) -> None:
    places = Table(ITEMS, given_rows).places(changed=True)
    found = [place[-1] for place in places[bisect_left(places, (3,)) :]]
    assert sorted(found) == sorted(row.number for row in given_rows if row.stamp >= 3)


def test_a_record_is_found_only_by_its_exact_id() -> None:
    table = Table(ITEMS, [make(6, 1, "active", "a")])
    assert table.find("itm_7") is not None
    for identity in ("itm_8", "itm_07", "7", "itm_", "itm_\u0667", "shp_7", "itm_-7", "itm_" + "9" * 5000):
        assert table.find(identity) is None


@given(st.lists(rows, unique_by=lambda row: row.number), st.dictionaries(numbers, st.none() | st.integers(0, 5)))
def test_many_writes_at_a_time_are_as_one_after_the_other(
    given_rows: list[Row], changes: dict[int, int | None]
) -> None:
    writes = {
        number: None if stamp is None else make(number, stamp, "active", "a") for number, stamp in changes.items()
    }
    one, many = Table(ITEMS, given_rows), Table(ITEMS, given_rows)
    one.write(writes)
    with patch("dockbell.sandbox.table._REBUILD_FROM", 0):
        many.write(writes)
    assert one.rows == many.rows
    for changed in (False, True):
        assert one.places(changed=changed) == many.places(changed=changed)
    assert one.linked("sku", "a") == many.linked("sku", "a")


def test_an_integer_is_an_id_without_its_prefix() -> None:
    table = Table(ITEMS, [make(6, 1, "active", "a")])
    assert table.find(7) == table.find("itm_7") == make(6, 1, "active", "a")
    assert table.find(6) is None
