"""The guards of a run: lists that never end, pages that cannot be read, cursors that are forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import ClockSource, Page, RunKind
from dockbell.detection.reading import begin_run, read_run
from dockbell.detection.run import CURSOR_EXPIRED, Run
from dockbell.detection.run_checkpoint import make_checkpoint, resume
from dockbell.detection.run_summary import RunSummary
from dockbell.errors import CursorExpired, PageUnreadable, SourceUnavailable
from dockbell.ports import Checkpoint, Committed
from tests.fakes import NOON, expire_cursors
from tests.rig import Rig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as rig:
        yield rig


@pytest.mark.parametrize(
    ("turn", "anomaly"),
    [
        (lambda _: "3", "the API returned the same cursor twice"),
        (lambda cursor: str(int(cursor) % 6), "the API returned the same cursor twice"),
    ],
)
async def test_a_list_that_never_ends_is_left_and_named(
    rig: Rig, turn: Callable[[str], str], anomaly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_page = rig.source.read_page

    async def read_for_ever(resource: str, **request: Any) -> Any:
        page = await read_page(resource, **request)
        return replace(page, next_cursor=turn(page.next_cursor or "6"))

    monkeypatch.setattr(rig.source, "read_page", read_for_ever)
    assert await rig.read_whole() == anomaly


async def test_pages_that_come_again_in_turn_under_new_cursors_are_noticed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_page = rig.source.read_page

    async def read_in_turn(resource: str, **request: Any) -> Any:
        number = len(rig.source.asked)
        page = await read_page(resource, **request | {"cursor": "3" if number % 2 else None})
        return replace(page, next_cursor=f"new {number}")

    monkeypatch.setattr(rig.source, "read_page", read_in_turn)
    assert await rig.read_whole() == "the API returned the same page twice"


async def test_a_run_whose_cursor_was_forgotten_begins_again(rig: Rig) -> None:
    rig.source.before_page = expire_cursors
    assert await rig.read_whole() == ""
    assert [cursor for cursor, _, _ in rig.source.asked] == [None, "3", None, "3"]


async def test_a_run_whose_cursors_are_forgotten_again_and_again_ends_incomplete(rig: Rig) -> None:
    def expire(request: int) -> None:
        if request % 2 == 0:
            raise CursorExpired("HTTP 410")

    rig.source.before_page = expire
    assert await rig.read_whole() == f"{CURSOR_EXPIRED}: page 2: HTTP 410"
    assert len(rig.source.asked) == 6
    assert (await rig.tracked.state()).passes == 0


async def test_what_the_api_says_of_a_page_that_it_refuses_is_told_and_its_list_not_read_a_third_time(rig: Rig) -> None:
    words = 'GET /v1/packages: HTTP 400, "result window is too large"'

    def refuse(request: int) -> None:
        if rig.source.asked[-1][0] is not None:
            raise CursorExpired(words, is_refusal=True)

    rig.source.before_page = refuse
    assert await rig.read_whole() == f"{CURSOR_EXPIRED}: page 2: {words}"
    assert len(rig.source.asked) == 5, "two pages, the second once more by the cursor alone, and two pages"
    assert words in (await rig.tracked.state()).last_failure


# Pages that cannot be read -------------------------------------------------------------------------------------------


async def test_an_unreadable_first_page_makes_the_limit_of_the_whole_run_smaller(rig: Rig) -> None:
    rig.source.page_size = 200
    rig.source.put("x")
    rig.source.unreadable = {"c"}
    assert await rig.read_whole() == ""
    # Nothing of 200, 50 and 10; a alone; it is not the moment that is bad; so one by one to the end.
    assert rig.source.limits == [200, 50, 10, 1, 200, 1, 1, 1, 1, 1]
    assert (await rig.tracked.state()).passes == 1
    rig.source.unreadable = set()
    rig.source.limits.clear()
    await rig.read_whole()
    assert rig.source.limits == [200]


@pytest.fixture
async def long(rig: Rig) -> Rig:
    """Return a rig of 1,000 records, read whole once, whose cursors are page numbers; one page is too large."""
    rig.source.page_size, rig.source.is_numbered = 200, True
    for number in range(995):
        rig.source.put(f"n{number}", status="open")
    await rig.read_whole()
    rig.source.spoilt = lambda first, limit: first == 600 and limit == 200
    rig.source.limits.clear()
    return rig


async def test_no_record_is_gone_that_another_limit_in_the_middle_of_a_pass_skipped(long: Rig) -> None:
    assert await long.read_whole() == ""
    assert await long.read_whole(after=120) == ""
    assert await long.events() == []
    said = (await long.statements("reconciled"))[-1]
    assert (said["records"], said["verdict"]) == (1000, "equal")


async def test_a_pass_with_a_page_that_is_too_large_begins_again_with_one_limit_for_all_pages(long: Rig) -> None:
    await long.read_whole()
    # The part of the fourth page, once more the whole of it, on to the end of the list, and then all again.
    assert long.source.limits == [200, 200, 200, 200, 50, 200, 200, *[50] * 21]


async def test_the_limit_that_a_run_needed_is_remembered_and_the_largest_tried_again_now_and_then(long: Rig) -> None:
    pages = []
    for _ in range(8):
        await long.read_whole()
        pages.append((long.source.limits[0], len(long.source.limits)))
        long.source.limits.clear()
    assert pages == [(200, 28), (200, 28), (50, 21), (200, 28), (50, 21), (50, 21), (50, 21), (200, 28)]


async def test_no_change_is_missed_that_another_limit_in_the_middle_of_a_poll_skipped(long: Rig) -> None:
    long.source.spoilt = lambda _, __: False
    long.clock.pass_(600)
    long.source.put("a", status="packed")
    for _ in range(10):
        await long.poll()
    for number in range(700):
        long.source.put(f"n{number}", status="packed")
    long.source.spoilt = lambda first, limit: first == 200 and limit == 200
    for _ in range(10):
        assert await long.poll() == ""
    assert len(await long.events()) == 701


async def test_a_page_that_could_not_be_read_for_a_moment_leaves_the_run_its_limit(long: Rig) -> None:
    failed: list[bool] = []

    def fail_once(first: int, limit: int) -> bool:
        failed.append(first == 600 and not any(failed))
        return failed[-1]

    long.source.spoilt = fail_once
    assert await long.read_whole() == ""
    assert long.source.limits == [200, 200, 200, 200, 50, 200, 200, 200]
    said = (await long.statements("reconciled"))[-1]
    assert (said["records"], said["pages"], said["verdict"]) == (1000, 5, "equal")
    assert (await long.tracked.state()).full is not None
    assert said["digest"] == (await long.statements("reconciled"))[0]["digest"]


async def test_a_record_deep_in_the_list_that_cannot_be_read_alone_ends_the_pass_there(long: Rig) -> None:
    long.source.is_numbered = False
    long.source.spoilt = lambda first, limit: first <= 700 < first + limit
    del long.source.records["n3"]
    for _ in range(2):
        problem = await long.read_whole(after=120)
        assert problem.endswith("GET /v1/packages: too large")
        assert (await long.tracked.state()).confirm_at is None
    assert await long.events() == []


async def test_a_run_that_goes_on_uneven_and_fails_begins_anew(long: Rig) -> None:
    def fail(request: int) -> None:
        long.clock.pass_(40)
        if request == asked + 7:
            raise SourceUnavailable("HTTP 503")

    asked = len(long.source.asked)
    long.source.before_page = fail
    assert await long.read_whole() == "HTTP 503"
    assert await long.store.feed(long.feed).load_checkpoint() is None
    long.source.before_page = lambda _: None
    long.source.limits.clear()
    assert await long.read_whole() == ""
    assert long.source.limits == [50] * 21


async def test_a_record_that_cannot_be_read_alone_ends_the_run(rig: Rig) -> None:
    def spoil(_: int) -> None:
        raise PageUnreadable("GET /v1/packages: not JSON")

    await rig.read_whole()
    rig.source.before_page = spoil
    rig.source.limits.clear()
    del rig.source.records["b"]
    assert await rig.read_whole() == "page 1: GET /v1/packages: not JSON"
    assert rig.source.limits == [200, 50, 10, 1]
    assert (await rig.tracked.state()).confirm_at is None


async def test_another_trouble_is_no_reason_for_smaller_pages(rig: Rig) -> None:
    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    rig.source.before_page = fail
    assert await rig.read_whole() == "HTTP 503"
    assert rig.source.limits == [200]


# By itself -----------------------------------------------------------------------------------------------------------


def page(number: int, *, last: bool = False, records: tuple[bytes, ...] | None = None, seconds: float = 0) -> Page:
    at = NOON + timedelta(seconds=seconds)
    mine = (f"first {number}".encode(), f"last {number}".encode()) if records is None else records
    return Page(mine, None if last else str(number), "packages", at, ClockSource.DATE, at, at)


def skewed(page: Page, ahead: float) -> Page:
    """Return a page of a service whose clock is ahead of ours by so many seconds."""
    return replace(page, received_at=page.received_at - timedelta(seconds=ahead))


@dataclass
class Listing:
    """A listing that shows given pages one after the other; each comes to the same in the store.

    Attributes:
        asked: The cursor and the limit of each request.
    """

    pages: list[Page]
    committed: Committed = field(default_factory=lambda: Committed(PageDiff(), 0))
    asked: list[tuple[str | None, int]] = field(default_factory=list)

    @asynccontextmanager
    async def ask(self, cursor: str | None, limit: int) -> AsyncIterator[Page]:
        """Yield the next page."""
        self.asked.append((cursor, limit))
        yield self.pages[len(self.asked) - 1]


async def read(run: Run, listing: Listing | list[Page]) -> list[Checkpoint]:
    """Read a run to its end; return the checkpoints that were to be saved."""
    listing = listing if isinstance(listing, Listing) else Listing(listing)
    checkpoints = []

    async def save(now: datetime) -> None:
        checkpoints.append(make_checkpoint(run, now))

    async for shown in run.pages(listing.ask, save):
        run.take(shown, listing.committed)
    return checkpoints


def new_run(kind: RunKind = RunKind.PASS, *, level: int = 0) -> Run:
    return Run(RunSummary(kind, SeenRows(0), began_at=NOON), level=level)


async def test_a_few_empty_pages_with_a_cursor_are_passed_over() -> None:
    run = new_run()
    await read(run, [page(number, records=()) for number in range(10)] + [page(10, last=True)])
    assert (run.problem, run.summary.pages, run.summary.records) == ("", 11, 2)


async def test_empty_pages_without_end_are_left() -> None:
    run = new_run()
    await read(run, [page(number, records=()) for number in range(99)])
    assert (run.problem, run.summary.pages) == ("the API keeps returning empty pages", 11)


async def test_one_record_that_comes_again_and_again_is_the_same_page() -> None:
    run = new_run(RunKind.POLL)
    await read(run, [page(number, records=(b"only",)) for number in range(99)])
    assert (run.problem, run.summary.pages) == ("the API returned the same page twice", 12)


async def test_pages_of_one_record_may_show_one_again_that_has_moved() -> None:
    run = new_run()
    records = [b"a", b"b", b"b", b"c", b"b", b"d"] * 9
    shown = [(raw if number % 6 else b"%d" % number,) for number, raw in enumerate(records)]
    listing = [page(number, records=raw) for number, raw in enumerate(shown)]
    await read(run, [*listing, page(len(listing), last=True)])
    assert run.problem == ""


async def test_records_that_come_again_and_again_are_more_pages_than_plausible() -> None:
    run = new_run()
    seen = Committed(PageDiff(seen=list(range(1, 201))), 0, range(1, 201))
    await read(run, Listing([page(number) for number in range(99)], seen))
    assert run.problem == "the API returns too many pages: 2200 records came twice"


async def test_a_bad_record_makes_a_poll_incomplete_and_the_rest_is_read() -> None:
    run = new_run(RunKind.POLL)
    run.summary.bad.append("record 3 of the page: no /id")
    await read(run, [page(0), page(1, last=True)])
    assert (run.problem, run.summary.pages) == ("record 3 of the page: no /id", 2)


@pytest.mark.parametrize(("pages", "seconds", "saved"), [(99, 0, 0), (201, 0, 2), (10, 4, 1), (10, 3, 0)])
async def test_how_far_a_pass_has_come_is_saved_every_hundred_pages_or_thirty_seconds(
    pages: int, seconds: float, saved: int
) -> None:
    run = new_run()
    listing = [page(number, seconds=number * seconds) for number in range(pages)]
    checkpoints = await read(run, [*listing, page(pages, last=True, seconds=pages * seconds)])
    assert len(checkpoints) == saved


async def test_a_pass_goes_on_where_its_checkpoint_left_it() -> None:
    run = new_run(level=2)
    run.summary.tally = replace(run.summary.tally, created=3, missed=1)
    run.summary.newest = NOON
    checkpoints = await read(run, [page(number) for number in range(100)] + [page(100, last=True)])
    again, listing = resume(checkpoints[0]), Listing([page(100, last=True)])
    await read(again, listing)
    assert listing.asked == [("99", 10)]
    assert again.problem == run.problem
    for name in ("kind", "began_at", "asked_at", "pages", "records", "events", "tally", "newest"):
        assert getattr(again.summary, name) == getattr(run.summary, name), name


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
async def test_a_pass_knows_when_it_asked_by_our_clock_although_that_was_set_before_it_went_on(ahead: float) -> None:
    run = new_run()
    assert run.summary.sent_at is None
    checkpoints = await read(run, [page(number) for number in range(100)] + [page(100, last=True)])
    assert run.summary.sent_at == NOON
    again = resume(checkpoints[0])
    await read(again, [skewed(page(100, last=True, seconds=60), ahead)])
    assert again.summary.sent_at == NOON - timedelta(seconds=ahead)


async def test_a_pass_that_goes_on_knows_which_rows_it_showed_and_not_those_that_others_did() -> None:
    watched = SeenRows(9)
    watched.add([1, 2])
    run = Run(RunSummary(RunKind.PASS, SeenRows(9), began_at=NOON))
    pages = [page(number) for number in range(100)] + [page(100, last=True)]
    checkpoint = (await read(run, Listing(pages, Committed(PageDiff(seen=[1]), 0))))[0]
    again = resume(replace(checkpoint, seen=watched))
    before = again.summary.tally.repeated
    await read(again, Listing([page(100, last=True)], Committed(PageDiff(seen=[1, 2]), 0)))
    assert again.summary.tally.repeated == before + 1


@pytest.mark.parametrize("walk", [b"", b"[", b"{}", b'{"pages": "many"}'])
def test_a_checkpoint_that_cannot_be_read_is_refused(walk: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        resume(Checkpoint("7", walk, SeenRows(0), SeenRows(0), NOON))


async def test_the_checkpoint_of_a_dockbell_that_counts_other_things_is_refused() -> None:
    checkpoints = await read(new_run(), [page(number) for number in range(100)] + [page(100, last=True)])
    walk = checkpoints[0].run.replace(b'"silent"', b'"unheard_of"')
    with pytest.raises(ValueError, match="counts what this dockbell does not know"):
        resume(replace(checkpoints[0], run=walk))


async def test_the_last_record_of_a_run_is_one_that_can_be_read(rig: Rig) -> None:
    rig.restart(key="/id")
    rig.spoil(lambda page: replace(page, records=(*page.records, b'{"id": "z", "n": NaN}', b"[1]")))
    run = await begin_run(rig.tracked, RunKind.PASS)
    await read_run(rig.tracked, run)
    assert run.summary.last_record is not None
    assert rig.tracked.detector.identify(run.summary.last_record).text == "e"
