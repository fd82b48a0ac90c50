from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dockbell.core.model import ClockSource, Page
from dockbell.sources.etag_cache import AGE_MOST, SIZE_MOST, EtagCache

NOON = timedelta(hours=12)
MOMENT = datetime(2026, 11, 21, tzinfo=UTC)


def page_of(*records: bytes) -> Page:
    return Page(records, "next", "stock", MOMENT, ClockSource.DATE, MOMENT, MOMENT)


def test_a_page_is_recalled_under_what_was_asked_for() -> None:
    pages = EtagCache()
    pages.remember("/v1/stock?limit=200", '"1"', page_of(b"{}"), NOON)

    assert pages.recall("/v1/stock?limit=200", NOON) == ('"1"', page_of(b"{}"))
    assert pages.recall("/v1/stock?limit=100", NOON) is None


def test_a_page_that_was_read_again_takes_the_place_of_the_one_before() -> None:
    pages = EtagCache()
    big = page_of(bytes(SIZE_MOST * 2 // 3))
    pages.remember("a", '"1"', big, NOON)
    pages.remember("a", '"2"', big, NOON)

    assert pages.recall("a", NOON) == ('"2"', big)

    pages.remember("a", None, page_of(), NOON)
    assert pages.recall("a", NOON) is None
    pages.remember("b", '"3"', big, NOON)
    assert pages.recall("b", NOON) is not None


def test_an_etag_that_no_header_should_carry_is_not_kept() -> None:
    pages = EtagCache()
    for etag in ("", "x" * 1000, "é"):
        pages.remember("a", etag, page_of(), NOON)
        assert pages.recall("a", NOON) is None


def test_what_does_not_fit_is_not_remembered_and_what_is_there_stays() -> None:
    pages = EtagCache()
    for name in "abcdef":
        pages.remember(name, '"1"', page_of(bytes(SIZE_MOST // 4)), NOON)

    assert [name for name in "abcdef" if pages.recall(name, NOON)] == ["a", "b", "c"]


def test_many_small_records_count_with_what_they_take_beside_their_text() -> None:
    pages = EtagCache()
    pages.remember("a", '"1"', page_of(*[b"{}"] * (SIZE_MOST // 60)), NOON)

    assert pages.recall("a", NOON) is None


def test_an_etag_is_believed_for_an_hour_and_makes_room_then() -> None:
    pages = EtagCache()
    pages.remember("a", '"1"', page_of(bytes(SIZE_MOST // 2)), NOON)

    assert pages.recall("a", NOON + AGE_MOST) is not None
    assert pages.recall("a", NOON + AGE_MOST + timedelta(seconds=1)) is None

    later = NOON + 2 * AGE_MOST
    pages.remember("b", '"1"', page_of(bytes(SIZE_MOST * 2 // 3)), later)
    assert pages.recall("b", later) is not None


def test_everything_can_be_forgotten() -> None:
    pages = EtagCache()
    pages.remember("a", '"1"', page_of(bytes(SIZE_MOST * 2 // 3)), NOON)
    pages.clear()
    assert pages.recall("a", NOON) is None

    pages.remember("b", '"1"', page_of(bytes(SIZE_MOST * 2 // 3)), NOON)
    assert pages.recall("b", NOON) is not None
