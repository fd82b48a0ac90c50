from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockbell.core.comparing.embedded import EmbeddedDiff, Said
from dockbell.core.comparing.page_diff import Finding, Note, PageDiff
from dockbell.detection.signal_memory import SignalMemory

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SAID = Said(b"before", b"after", 5)


def show(*notes: Note) -> PageDiff:
    return PageDiff(dates={"a": 1, "b": 1}, notes=list(notes))


@pytest.fixture
def memory() -> SignalMemory:
    return SignalMemory()


@pytest.mark.parametrize("finding", [Finding.UPDATED, Finding.HELD])
def test_a_list_that_shows_what_the_signal_replaced_contradicts_it(memory: SignalMemory, finding: Finding) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    note = Note("a", finding, 5, b"before")
    assert memory.check(show(note)) == (0, "the list shows a differently from the signal")
    assert memory.check(show(note)) == (0, "")


@pytest.mark.parametrize(
    "note", [Note("a", Finding.UPDATED, 6, b"before"), Note("a", Finding.UPDATED, 6, b"third"), None]
)
def test_a_list_that_shows_the_same_or_something_later_does_not(memory: SignalMemory, note: Note | None) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(*filter(None, [note]))) == (0, "")


def test_a_list_that_shows_something_else_under_the_same_timestamp_contradicts_it(memory: SignalMemory) -> None:
    reason = "the list shows a differently from the signal"
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 5, b"third"))) == (0, reason)
    memory.take_tried(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 5, b"third"))) == (0, reason)


def test_of_what_the_signal_shows_older_again_nothing_is_concluded(memory: SignalMemory) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    memory.take_tried(EmbeddedDiff(stale=["a"]))
    assert memory.check(show(Note("a", Finding.HELD, 5, b"before"))) == (0, "")


def test_what_is_tried_is_confirmed_or_contradicted_by_the_list(memory: SignalMemory) -> None:
    memory.take_tried(EmbeddedDiff(said={"a": SAID, "c": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 5, b"after"))) == (1, "")
    memory.take_tried(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 6, b"third"))) == (0, "")
    memory.take_tried(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show()) == (0, "the list shows a differently from the signal")


def test_what_was_tried_and_is_stored_since_contradicts_nothing(memory: SignalMemory) -> None:
    memory.take_tried(EmbeddedDiff(said={"a": SAID, "b": SAID}))
    memory.take_said(EmbeddedDiff(said={"a": SAID}, equal={"b": b"after"}))
    assert memory.check(show()) == (0, "")


def test_a_record_counts_once_with_each_content(memory: SignalMemory) -> None:
    assert memory.count_fresh({"a": b"1", "b": b"1"}) == 2
    assert memory.count_fresh({"a": b"1", "b": b"2"}) == 1


def tell_and_pass(memory: SignalMemory, number: int, *, is_shown: bool = False, is_telling: bool = True) -> str:
    """Let the signal speak of a record, and a pass end some minutes later."""
    key = "a" if is_shown else f"gone{number}"
    memory.take_said(EmbeddedDiff(said={key: SAID}))
    memory.begin_pass()
    memory.begin_pass(is_telling=is_telling)
    memory.check(show())
    return memory.end_pass(NOON + number * timedelta(minutes=10))


def test_a_list_that_does_not_show_what_the_signal_speaks_of_contradicts_it(memory: SignalMemory) -> None:
    said = [tell_and_pass(memory, number) for number in range(5)]
    assert said == ["", "", "", "", "the list did not show 5 records that the signal reported"]


def test_one_that_was_deleted_now_and_then_contradicts_nothing(memory: SignalMemory) -> None:
    assert [tell_and_pass(memory, 2 * number) for number in range(9)] == [""] * 9


@pytest.mark.parametrize("shows", [{"is_shown": True}, {"is_telling": False}])
def test_what_a_pass_shows_or_may_show_too_old_contradicts_nothing(memory: SignalMemory, shows: dict[str, Any]) -> None:
    assert [tell_and_pass(memory, number, **shows) for number in range(9)] == [""] * 9


def test_what_is_said_while_a_pass_is_under_way_is_left_to_the_next(memory: SignalMemory) -> None:
    for number in range(9):
        memory.begin_pass()
        memory.take_said(EmbeddedDiff(said={f"gone{number}": SAID}))
        memory.check(show())
        assert memory.end_pass(NOON) == ""
        memory.begin_pass()
        memory.check(PageDiff(dates={f"gone{number}": 1}))
        assert memory.end_pass(NOON) == ""
