from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockbell.core.reading.embedding import PAIRS
from dockbell.core.reading.movements import Movements

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LINK = "/item_id /id"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


class Lists:
    """Two lists whose pages are seen."""

    def __init__(self) -> None:
        self.movements = Movements(PAIRS[0])
        self.poll(0)

    def poll(self, seconds: float, *items: Any) -> list[tuple[bool, bool]]:
        """Poll items that have moved; return what is judged then, by the link of ids."""
        for item in items:
            self.movements.move({"id": item}, at(seconds))
        judged = self.movements.read(at(seconds), at(seconds - 60))
        return [(each.is_changed, each.moved[LINK]) for each in judged]

    def pass_(self, since: float, until: float, item: Any, *, is_changed: bool = True) -> None:
        self.movements.expect({"id": f"stk{item}", "item_id": item}, at(since), at(until), is_changed=is_changed)


@pytest.fixture
def lists() -> Lists:
    return Lists()


def test_a_carrier_that_was_seen_to_move_has_moved(lists: Lists) -> None:
    lists.poll(50, "a")
    lists.pass_(10, 60, "a")
    assert lists.poll(70) == [(True, True)]


def test_a_carrier_that_the_next_poll_shows_has_moved(lists: Lists) -> None:
    lists.pass_(10, 60, "a")
    assert lists.poll(70, "a") == [(True, True)]


def test_nothing_is_judged_before_the_carrier_was_polled_beyond_the_change(lists: Lists) -> None:
    lists.pass_(10, 60, "a")
    assert lists.poll(59) == lists.poll(64) == []
    assert lists.poll(65) == [(True, False)]
    assert lists.poll(80) == []


@pytest.mark.parametrize(("polled", "is_ahead"), [(9, False), (20, True), (55, True), (56, False), (62, False)])
def test_a_carrier_was_polled_ahead_of_the_list_where_what_it_embeds_was_asked_for_before(
    lists: Lists, polled: float, is_ahead: bool
) -> None:
    lists.poll(polled, "a")
    lists.pass_(10, 60, "a")
    (judged,) = lists.movements.read(at(70), at(10))
    assert judged.is_ahead is is_ahead


def test_a_carrier_that_moved_before_has_not_moved_with_the_change(lists: Lists) -> None:
    lists.poll(9, "a")
    lists.pass_(10, 60, "a")
    assert lists.poll(70) == [(True, False)]


def test_a_poll_of_a_later_window_judges_nothing(lists: Lists) -> None:
    lists.pass_(10, 60, "a")
    assert lists.movements.read(at(70), at(65)) == []
    assert lists.poll(71) == [(True, False)]


def test_changes_from_before_the_first_poll_are_not_judged() -> None:
    lists = Lists()
    lists.pass_(-10, 20, "a")
    assert lists.poll(70) == []


def test_a_record_at_rest_says_nothing_where_another_one_of_its_carrier_changed(lists: Lists) -> None:
    lists.pass_(10, 60, "a")
    lists.pass_(10, 61, "a", is_changed=False)
    lists.pass_(10, 61, "b", is_changed=False)
    assert lists.poll(70, "a", "b") == [(True, True), (False, True)]


def test_numbers_and_their_texts_name_one_carrier(lists: Lists) -> None:
    lists.pass_(10, 60, 7)
    assert lists.poll(70, "7") == [(True, True)]


def test_no_more_is_needed_of_records_at_rest_while_hundreds_of_them_wait_to_be_judged(lists: Lists) -> None:
    for item in range(200):
        assert not lists.movements.has_enough_idle
        lists.pass_(10, 60, f"changed {item}")
        lists.pass_(10, 60, item, is_changed=False)
    assert lists.movements.has_enough_idle
    assert len(lists.poll(70)) == 400
    assert not lists.movements.has_enough_idle


def test_what_a_late_poll_goes_back_to_is_judged(lists: Lists) -> None:
    lists.pass_(10, 60, "a")
    lists.movements.move({"id": "a"}, at(8000))
    (judged,) = lists.movements.read(at(8000), at(60))
    assert judged.moved[LINK]


def test_what_no_poll_goes_back_to_is_given_up(lists: Lists) -> None:
    for item in range(200):
        lists.pass_(10, 60, item, is_changed=False)
    hours = 2 * 3600
    assert lists.movements.read(at(60 + hours), at(hours)) == []
    assert lists.movements.has_enough_idle
    assert lists.movements.read(at(61 + hours), at(hours)) == []
    assert not lists.movements.has_enough_idle


def test_what_is_remembered_stays_in_bounds(lists: Lists) -> None:
    for turn in range(5):
        for item in range(20_000):
            lists.movements.move({"id": f"{turn} {item}"}, at(turn))
        lists.poll(turn)
    assert len(lists.movements._moved) < 50_000
