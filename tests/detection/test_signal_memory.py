from __future__ import annotations

from datetime import timedelta

import pytest

from dockbell.core.comparing.embedded import EmbeddedDiff, Said
from dockbell.core.comparing.page_diff import Finding, Note, PageDiff
from dockbell.detection.signal_memory import SignalMemory

SAID = Said(b"before", b"after", 5)
NO_TIME = timedelta(0)


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def show(*notes: Note) -> PageDiff:
    return PageDiff(dates={"a": 1, "b": 1}, notes=list(notes))


@pytest.fixture
def memory() -> SignalMemory:
    return SignalMemory(at(0))


def test_a_page_that_was_committed_since_the_request_was_shown(memory: SignalMemory) -> None:
    memory.show({"a": 1}, at(100), at(0))
    assert memory.was_shown(at(100), "a", NO_TIME)
    assert not memory.was_shown(at(101), "a", NO_TIME)
    assert not memory.was_shown(at(99), "b", NO_TIME)


def test_what_was_shown_within_a_window_before_counts_too(memory: SignalMemory) -> None:
    memory.show({"a": 1}, at(100), at(0))
    memory.take_said(EmbeddedDiff(said={"b": SAID}), at(100))
    for key in "ab":
        assert memory.was_shown(at(160), key, at(60))
        assert not memory.was_shown(at(161), key, at(60))
    assert not memory.was_shown(at(160), "b", NO_TIME)


def test_nothing_is_known_of_the_time_before_it_remembers() -> None:
    memory = SignalMemory(at(100))
    assert memory.was_shown(at(130), "a", at(60))
    assert not memory.was_shown(at(160), "a", at(60))
    assert not memory.was_shown(at(130), "a", NO_TIME)


def test_what_is_not_needed_any_more_is_forgotten(memory: SignalMemory) -> None:
    for second in range(100):
        memory.show({"a": 1}, at(second), at(second - 10))
    assert len(memory._pages) == 11


@pytest.mark.parametrize("finding", [Finding.UPDATED, Finding.HELD])
def test_a_list_that_shows_what_the_signal_replaced_contradicts_it(memory: SignalMemory, finding: Finding) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}), at(1))
    note = Note("a", finding, 5, b"before")
    assert memory.check(show(note), is_copy=True) == (0, "")  # a cache's answer says nothing
    assert memory.check(show(note), is_copy=False) == (0, "the list has shown a as it was before the signal changed it")
    assert memory.check(show(note), is_copy=False) == (0, "")


@pytest.mark.parametrize(
    "note", [Note("a", Finding.UPDATED, 6, b"before"), Note("a", Finding.UPDATED, 5, b"third"), None]
)
def test_a_list_that_shows_the_same_or_something_later_does_not(memory: SignalMemory, note: Note | None) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}), at(1))
    assert memory.check(show(*filter(None, [note])), is_copy=False) == (0, "")


def test_of_what_the_signal_shows_older_again_nothing_is_concluded(memory: SignalMemory) -> None:
    memory.take_said(EmbeddedDiff(said={"a": SAID}), at(1))
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
    memory.take_said(EmbeddedDiff(said={"a": SAID}, equal={"b": b"after"}), at(1))
    assert memory.check(show(), is_copy=False) == (0, "")


def test_a_record_counts_once_with_each_content(memory: SignalMemory) -> None:
    assert memory.count_fresh({"a": b"1", "b": b"1"}) == 2
    assert memory.count_fresh({"a": b"1", "b": b"2"}) == 1
