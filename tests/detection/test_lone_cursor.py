"""Lists whose cursor is refused beside the filters that gave it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dockbell.core.model import ClockSource, Page
from dockbell.core.reading.listing_profile import Beside
from dockbell.detection.lone_cursor import try_alone
from dockbell.errors import CursorExpired
from dockbell.telemetry import ListingChanged
from tests.fakes import NOON
from tests.rig import Rig, open_rig

WORDS = 'GET /v1/packages: HTTP 400, "cursor must be sent alone"'


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, key="/id", query={"status": "open"}) as rig:
        rig.source.page_size = 2
        yield rig


def refuse_company(rig: Rig, *, keeps: bool = True, takes_limit: bool = True) -> None:
    """Let the source take a cursor alone only; it keeps filters and limit in it, or forgets them."""
    read_page = rig.source.read_page
    given: dict[str, dict[str, Any]] = {}

    async def read_alone(resource: str, **request: Any) -> Page:
        filters = {name: request.get(name) for name in ("updated_since", "query", "expand")}
        if not takes_limit:
            filters["limit"] = request.get("limit")
        cursor = request.get("cursor")
        if cursor is not None:
            if any(filters.values()):
                raise CursorExpired(WORDS, is_refusal=True)
            number, _, cursor = cursor.rpartition(" ")
            request |= {"cursor": cursor} | (given[number] if keeps else {})
            filters = given[number]
        page = await read_page(resource, **request)
        if page.next_cursor is None:
            return page
        number = str(len(given))
        given[number] = filters
        return Page(
            **{name: getattr(page, name) for name in Page.__struct_fields__}
            | {"next_cursor": f"{number} {page.next_cursor}"}
        )

    rig.source.read_page = read_alone  # type: ignore[method-assign]


async def test_a_cursor_that_is_refused_beside_filters_is_sent_alone(rig: Rig) -> None:
    rig.source.put("x", status="closed")
    refuse_company(rig)
    assert await rig.read_whole() == ""
    assert sorted(row[0] for row in rows(rig)) == list("abcde")
    (told,) = [fact.words for fact in rig.ear.facts if isinstance(fact, ListingChanged)]
    assert told == "the API refuses a cursor with filters, and returns the same pages for the cursor alone"
    rig.restart()
    rig.source.asked.clear()
    assert await rig.read_whole() == ""
    assert len(rig.source.asked) == 3, "it is known after a restart"


@pytest.mark.parametrize("query", [{}, {"status": "open"}])
async def test_a_cursor_that_is_refused_beside_a_limit_is_sent_beside_nothing(
    tmp_path: Path, query: dict[str, str]
) -> None:
    async with open_rig(tmp_path, key="/id", query=query) as rig:
        rig.source.page_size = 2
        refuse_company(rig, takes_limit=False)
        assert await rig.read_whole() == ""
        assert sorted(row[0] for row in rows(rig)) == list("abcde")
        (told,) = [fact.words for fact in rig.ear.facts if isinstance(fact, ListingChanged)]
        assert told == "the API refuses a cursor with a limit, and returns the same pages for the cursor alone"
        rig.restart()
        rig.source.asked.clear()
        assert await rig.read_whole() == ""
        assert len(rig.source.asked) == 3, "it is known after a restart"
        for key in "abcd":
            rig.clock.pass_(1)
            rig.source.put(key, status="open", note=key)
        assert await rig.poll() == ""
        assert await rig.events() == [f"{key} updated 1" for key in "abcd"]


async def test_polls_go_on_by_the_cursor_alone_too(rig: Rig) -> None:
    refuse_company(rig)
    await rig.read_whole()
    for key in "abcd":
        rig.clock.pass_(1)
        rig.source.put(key, status="open", note=key)
    assert await rig.poll() == ""
    assert await rig.events() == [f"{key} updated 1" for key in "abcd"]


async def test_a_cursor_that_forgets_the_filters_is_not_sent_alone_and_the_apis_words_are_told(rig: Rig) -> None:
    rig.source.records = {
        "x": {"id": "x", "status": "closed", "updated_at": "2026-11-21T11:00:00Z"}
    } | rig.source.records
    refuse_company(rig, keeps=False)
    assert await rig.read_whole() == f"the API forgot the cursor: page 2: {WORDS}"
    assert [fact for fact in rig.ear.facts if isinstance(fact, ListingChanged)] == []
    rig.source.asked.clear()
    await rig.read_whole()
    assert len(rig.source.asked) == 2, "it is not tried again for a while"


async def test_a_page_of_a_cursor_alone_that_shows_what_is_older_ends_the_run(rig: Rig) -> None:
    for key in "fgh":
        rig.source.put(key, status="open")
    refuse_company(rig)
    await rig.read_whole()
    for _ in range(4):  # so that the watermark leaves the first records behind
        await rig.poll(300)
    del rig.source.read_page
    refuse_company(rig, keeps=False)
    for key in "fgh":
        rig.source.put(key, status="open", note=key)
    assert WORDS in await rig.poll()  # after the page that showed what is older, it is asked for with its filters again
    told = [fact.words for fact in rig.ear.facts if isinstance(fact, ListingChanged)]
    assert told[-1] == "for a cursor alone, the API returned a list without the filters"
    assert await rig.events() == ["f updated 1", "g updated 1"]


def rows(rig: Rig) -> list[tuple[Any, ...]]:
    return rig.store.engine.writer.execute("SELECT key FROM records").fetchall()


@pytest.mark.parametrize(
    ("alone", "whole", "first", "second"),
    [
        (None, "abcd", "ab", "cd"),
        ("cd", "a", "a", "b"),
        ("cd", "abcd", "abcd", "cd"),  # the limit is not heeded, so nothing can be compared
        ("cd", "abcd", "ab.", "cd"),
        ("cd", "abcd", "ab", ""),
        ("cd", "abcd", "ab", "ce"),
        ("cd", "abcd", "ax", "cd"),
    ],
)
async def test_a_cursor_alone_is_not_believed_unless_it_shows_the_same(
    alone: str | None, whole: str, first: str, second: str
) -> None:
    pages = [alone, whole, first, second]

    async def ask(cursor: str | None, limit: int, *, beside: Beside = Beside.FILTERS) -> Page:
        shown = pages.pop(0)
        if shown is None:
            raise CursorExpired(WORDS, is_refusal=True)
        records = tuple(letter.encode() for letter in shown.strip("."))
        following = None if shown.endswith(".") else "next"
        return Page(records, following, "packages", NOON, ClockSource.DATE, NOON, NOON)

    assert await try_alone(ask, "next", 200, [Beside.LIMIT]) is None
