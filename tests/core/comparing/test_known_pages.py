from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing import known_pages
from dockbell.core.comparing.known_pages import BYTES_MOST, PROBED, KnownPages, digest_of
from dockbell.core.comparing.page_diff import Finding, Note, PageDiff


def shows(*rows: int, is_known: bool = True) -> PageDiff:
    dates = {f"k{row}": row * 1000 if row % 2 else None for row in rows}
    return PageDiff(seen=list(rows), dates=dates, is_known=is_known)


def learn(pages: KnownPages, digest: bytes, *rows: int) -> None:
    assert pages.take(digest, shows(*rows), pages.version)


def find_rows(pages: KnownPages, digest: bytes) -> Sequence[int] | None:
    known = pages.recall(digest)
    return None if known is None else known.seen


RECORDS = st.lists(st.sampled_from([b'{"id":1}', b'{"id":2}', b"{}", b"{ }"]), max_size=4)


@given(RECORDS, RECORDS)
def test_pages_have_one_digest_exactly_when_their_records_are_the_same(one: list[bytes], other: list[bytes]) -> None:
    assert (digest_of(one) == digest_of(other)) == (one == other)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, unique=True))
def test_a_known_page_comes_to_the_same_again(rows: list[int]) -> None:
    pages = KnownPages()
    learn(pages, b"one", *rows)
    known = pages.recall(b"one")
    assert known is not None
    assert sorted(known.seen) == sorted(rows)
    assert list(known.dates.items()) == list(shows(*rows).dates.items())
    assert known.is_known
    assert known.is_idle
    assert pages.recall(b"two") is None


def test_a_page_that_is_not_as_stored_or_shows_nothing_is_not_known() -> None:
    pages = KnownPages()
    assert pages.take(b"one", shows(1, is_known=False), pages.version)
    assert pages.take(b"empty", shows(), pages.version)
    assert (pages.recall(b"one"), pages.recall(b"empty")) == (None, None)


@given(
    st.lists(st.sets(st.integers(1, 30), min_size=1), min_size=1, max_size=8),
    st.lists(st.sets(st.integers(1, 30)), max_size=4),
)
def test_pages_that_show_a_row_which_was_written_are_forgotten(shown: list[set[int]], written: list[set[int]]) -> None:
    pages = KnownPages()
    for number, rows in enumerate(shown):
        learn(pages, bytes([number]), *rows)
    for rows in written:
        pages.forget(rows)
    for number, rows in enumerate(shown):
        is_known = rows.isdisjoint(set().union(*written))
        assert find_rows(pages, bytes([number])) == (sorted(rows) if is_known else None)


def test_what_was_compared_before_something_was_written_is_not_taken_for_known() -> None:
    pages = KnownPages()
    version = pages.version
    pages.forget([7])
    assert pages.take(b"one", shows(1), version)
    assert pages.recall(b"one") is None
    pages.clear()
    learn(pages, b"one", 1)
    assert find_rows(pages, b"one") == [1]


def test_what_a_whole_pass_did_not_show_is_forgotten() -> None:
    pages = KnownPages()
    learn(pages, b"one", 1)
    learn(pages, b"two", 2)
    pages.end_pass()
    assert find_rows(pages, b"one") == [1]
    pages.end_pass()
    assert (find_rows(pages, b"one"), find_rows(pages, b"two")) == ([1], None)


def test_what_the_last_three_polls_did_not_show_is_forgotten() -> None:
    pages = KnownPages()
    learn(pages, b"one", 1)
    learn(pages, b"two", 2)
    for _ in range(3):
        pages.begin_poll()
        assert find_rows(pages, b"one") == [1]
    pages.begin_poll()
    assert (find_rows(pages, b"one"), find_rows(pages, b"two")) == ([1], None)


def test_they_take_no_more_room_than_they_may() -> None:
    pages = KnownPages()
    for number in range(5000):
        learn(pages, number.to_bytes(2), *range(200 * number, 200 * number + 200))
    known = sum(pages.recall(number.to_bytes(2)) is not None for number in range(5000))
    assert BYTES_MOST // 10_000 < known < BYTES_MOST // 4_000
    pages.end_pass()
    pages.end_pass()
    learn(pages, b"new", 1)
    assert find_rows(pages, b"new") == [1]


def test_now_and_then_a_known_page_is_compared_all_the_same() -> None:
    pages = KnownPages()
    learn(pages, b"one", 1)
    for _ in range(10):  # whatever else is recalled between
        learn(pages, b"one", 1)
        learn(pages, b"two", 2)
        for _ in range(PROBED // 2):
            assert find_rows(pages, b"two") == [2]
            assert find_rows(pages, b"one") == [1]
        assert any(pages.recall(b"one") is None for _ in range(PROBED // 2))


CHANGED = PageDiff(seen=[1, 2], notes=[Note("k1", Finding.QUIET)])


@pytest.mark.parametrize("found", [shows(1, 2, is_known=False), shows(1, 3), CHANGED])
def test_where_something_else_has_written_to_the_store_no_page_is_known_any_more(
    found: PageDiff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1)
    pages = KnownPages()
    learn(pages, b"one", 1, 2)
    learn(pages, b"two", 3)
    version = pages.version
    assert pages.recall(b"one") is None
    if not found.is_idle:
        pages.forget([1])
    assert not pages.take(b"one", found, version)
    monkeypatch.undo()
    learn(pages, b"two", 3)
    assert pages.recall(b"two") is None


def test_a_probe_whose_page_could_not_be_committed_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 2)
    pages = KnownPages()
    learn(pages, b"one", 1)
    while pages.recall(b"one") is not None:
        pass
    pages.clear()  # as after a commit that failed
    assert pages.recall(b"one") is None
    assert pages.take(b"one", shows(1, is_known=False), pages.version)
    assert pages.is_trusted
