from __future__ import annotations

import pytest

from dockbell.core.comparing.embedded import EmbeddedDiff, Said
from dockbell.core.comparing.page_diff import Finding, Note, PageDiff
from dockbell.detection.signal_memory import SignalMemory

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
    assert memory.check(show(note), is_copy=True) == (0, "")  # a cache's answer says nothing
    assert memory.check(show(note), is_copy=False) == (0, "the list has shown a otherwise than the signal")
    assert memory.check(show(note), is_copy=False) == (0, "")


@pytest.mark.parametrize(
    "note", [Note("a", Finding.UPDATED, 6, b"before"), Note("a", Finding.UPDATED, 6, b"third"), None]
)
def test_a_list_that_shows_the_same_or_something_later_does_not(memory: SignalMemory, note: Note | None) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(*filter(None, [note])), is_copy=False) == (0, "")


def test_a_list_that_shows_something_else_under_the_same_timestamp_contradicts_it(memory: SignalMemory) -> None:
    reason = "the list has shown a otherwise than the signal"
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 5, b"third")), is_copy=False) == (0, reason)
    memory.take_tried(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 5, b"third")), is_copy=False) == (0, reason)


def test_of_what_the_signal_shows_older_again_nothing_is_concluded(memory: SignalMemory) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}))
    memory.take_tried(EmbeddedDiff(stale=["a"]))
    assert memory.check(show(Note("a", Finding.HELD, 5, b"before")), is_copy=False) == (0, "")


def test_what_is_tried_is_confirmed_or_contradicted_by_the_list(memory: SignalMemory) -> None:
    memory.take_tried(EmbeddedDiff(said={"a": SAID, "c": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 5, b"after")), is_copy=False) == (1, "")
    memory.take_tried(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(Note("a", Finding.UPDATED, 6, b"third")), is_copy=False) == (0, "")
    memory.take_tried(EmbeddedDiff(said={"a": SAID}))
    assert memory.check(show(), is_copy=False) == (0, "the list has shown a otherwise than the signal")


def test_what_was_tried_and_is_stored_since_contradicts_nothing(memory: SignalMemory) -> None:
    memory.take_tried(EmbeddedDiff(said={"a": SAID, "b": SAID}))
    memory.take_said(EmbeddedDiff(said={"a": SAID}, equal={"b": b"after"}))
    assert memory.check(show(), is_copy=False) == (0, "")


def test_a_record_counts_once_with_each_content(memory: SignalMemory) -> None:
    assert memory.count_fresh({"a": b"1", "b": b"1"}) == 2
    assert memory.count_fresh({"a": b"1", "b": b"2"}) == 1
