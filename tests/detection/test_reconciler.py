"""Passes over one feed: when they are made, what they find, and what is not there any more."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from dockbell.admin.commands import purge_record
from dockbell.admin.reasons import list_reasons
from dockbell.admin.status import load_status
from dockbell.app.next_time import next_time
from dockbell.config import FeedSettings
from dockbell.core.comparing import known_pages
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Page, RunKind
from dockbell.core.moment import format_moment
from dockbell.detection.guarded import run_guarded
from dockbell.errors import CursorExpired, PageUnreadable, SchemaMismatch, SourceError, SourceUnavailable
from dockbell.ports import Checkpoint, Failing
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.telemetry import RunEnded, StoreWrittenAside
from tests.fakes import FakeSource
from tests.rig import SHIPMENTS, CountedAlarm, CountedCommits, Rig, open_rig, open_stock, run_until_quiet
from tests.stores.pages import complete


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path) as rig:
        yield rig


@pytest.fixture
async def shipments(rig: Rig) -> Rig:
    """Return a rig whose records can be asked for one by one, read whole once."""
    rig.feed = SHIPMENTS
    rig.restart()
    await rig.read_whole()
    return rig


def fail(_: object) -> None:
    """Answer nothing of use."""
    raise SourceUnavailable("HTTP 503")


def hide_b(page: Page) -> Page:
    """Leave a record out that is there."""
    return replace(page, records=tuple(raw for raw in page.records if b'"b"' not in raw))


def make_repeat(count: int = 1) -> Callable[[Page], Page]:
    """Return what shows some records of the first page on the last page again, as pages do that shift."""
    first: list[bytes] = []

    def repeat(page: Page) -> Page:
        if page.next_cursor is None:
            return replace(page, records=(*first, *page.records))
        first[:] = page.records[:count]
        return page

    return repeat


# Absence -------------------------------------------------------------------------------------------------------------


async def test_a_record_is_deleted_when_two_complete_passes_did_not_show_it(rig: Rig) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    assert await rig.events() == []
    assert await rig.delay() == 120
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1"]
    (deleted,) = await rig.bodies()
    assert (deleted["reason"], deleted["before"]["id"], deleted["after"]) == ("absent", "b", None)
    assert deleted["changed_between"] == ["2026-11-21T12:00:15.000Z", "2026-11-21T12:02:30.000Z"]
    assert await rig.delay() == 86_400


async def test_a_record_is_missed_by_the_pass_after_the_one_that_met_a_new_one(rig: Rig) -> None:
    """The two show equally many records of those that were stored before them."""
    await rig.read_whole()
    await rig.read_whole()
    rig.source.put("f")
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    await rig.read_whole(after=120)
    assert await rig.events() == ["f created 1", "b deleted 1"]


async def test_a_second_pass_that_comes_too_soon_confirms_nothing(rig: Rig) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    await rig.read_whole(after=60)
    assert await rig.events() == []


async def test_a_record_that_comes_back_before_the_second_pass_was_never_away(rig: Rig) -> None:
    await rig.read_whole()
    record = rig.source.records.pop("b")
    await rig.read_whole()
    rig.source.records["b"] = record
    await rig.read_whole(after=120)
    del rig.source.records["b"]
    await rig.read_whole(after=120)
    assert await rig.events() == []


async def test_a_deleted_record_that_returns_is_restored(rig: Rig) -> None:
    await rig.read_whole()
    record = rig.source.records.pop("b")
    await rig.read_whole()
    await rig.read_whole(after=120)
    rig.source.records["b"] = record
    await rig.read_whole(after=60)
    assert await rig.events() == ["b deleted 1", "b restored 2"]


async def test_what_is_held_of_a_deleted_record_is_forgotten_when_it_is_not_shown_again(rig: Rig) -> None:
    await rig.read_whole()
    record = rig.source.records.pop("b")
    await rig.read_whole()
    await rig.read_whole(after=120)
    rig.source.records["b"] = record
    await rig.read_whole(after=5)
    assert (await rig.tracked.state()).holds == 1
    del rig.source.records["b"]
    await rig.read_whole(after=5)
    assert (await rig.tracked.state()).holds == 0
    assert await rig.events() == ["b deleted 1"]


async def test_a_deleted_record_that_returns_at_once_as_it_was_is_held(rig: Rig) -> None:
    await rig.read_whole()
    record = rig.source.records.pop("b")
    await rig.read_whole()
    await rig.read_whole(after=120)
    rig.source.records["b"] = record
    await rig.read_whole()
    assert await rig.events() == ["b deleted 1"]
    assert (await rig.tracked.state()).holds == 1
    await rig.read_whole(after=60)
    assert await rig.events() == ["b deleted 1", "b restored 2"]


async def test_a_record_that_only_a_poll_showed_during_a_pass_is_not_suspected(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(100)
    rig.source.put("f")
    await rig.poll()
    await rig.poll()
    seen = SeenRows(await rig.store.feed(rig.feed).last_row())
    rig.source.put("b", status="packed")
    with rig.tracked.sightings.watch(seen):
        await rig.poll()
    assert [row for row, *_ in (await rig.store.feed(rig.feed).find_absent(seen)).rows] == [1, 3, 4, 5]


@pytest.fixture
async def many(rig: Rig) -> Rig:
    """Return a rig of 125 records, one page, read whole once, of which one is repeated from then on."""
    rig.source.page_size = 100
    for number in range(120):
        rig.source.put(f"n{number}")
    await rig.read_whole()
    rig.spoil(make_repeat())
    return rig


async def read_until_deleted(rig: Rig, most: int = 8) -> int:
    """Make passes until something is deleted; return how many it took, 0 for too many."""
    for number in range(1, most + 1):
        await rig.read_whole(after=120)
        if await rig.events():
            return number
    return 0


async def test_a_record_may_slip_past_for_each_that_is_shown_twice_so_that_more_passes_must_miss_it(many: Rig) -> None:
    del many.source.records["n9"]
    assert await read_until_deleted(many) == 5


async def test_more_records_than_are_shown_twice_have_not_all_slipped_past(many: Rig) -> None:
    del many.source.records["n9"], many.source.records["n8"]
    assert await read_until_deleted(many) == 2
    assert len(await many.events()) == 2


async def test_passes_that_show_many_records_twice_delete_nothing_until_one_does_not(rig: Rig) -> None:
    await rig.read_whole()
    steady = rig.spoil(make_repeat())
    del rig.source.records["b"]
    assert await read_until_deleted(rig) == 0
    assert await rig.delay() == 120 << 7
    steady()
    assert await read_until_deleted(rig) == 1


async def test_a_pass_that_shows_many_records_twice_deletes_what_is_not_found_when_it_is_asked_for(
    shipments: Rig,
) -> None:
    shipments.spoil(make_repeat())
    del shipments.source.records["b"]
    await shipments.read_whole()
    await shipments.inquire()
    assert [body["reason"] for body in await shipments.bodies()] == ["not_found"]


async def test_passes_that_confirm_nothing_are_made_less_and_less_often(rig: Rig) -> None:
    async def read_pauses() -> list[float]:
        pauses = []
        for _ in range(4):
            await rig.read_whole(after=120)
            pauses.append(await rig.delay())
        return pauses

    rig.restart(reconcile="30m")
    await rig.read_whole()
    record = rig.source.records.pop("b")
    steady = rig.spoil(make_repeat())
    assert await read_pauses() == [120, 240, 480, 960]
    steady()
    rig.source.records["b"] = record
    assert await read_pauses() == [1800] * 4
    del rig.source.records["b"]
    rig.spoil(make_repeat())
    assert (await read_pauses())[:2] == [120, 240]
    assert await read_pauses() == [1800] * 4  # and never later than by the configuration


async def test_a_reading_that_is_held_makes_the_next_pass_come_soon(rig: Rig) -> None:
    await rig.read_whole()
    old = dict(rig.source.records)
    rig.clock.pass_(20)
    rig.source.put("a", status="packed")
    await rig.poll()
    current, rig.source.records = rig.source.records, old
    await rig.read_whole()
    assert await rig.delay() == 120
    assert (await rig.statements("reconciled"))[-1]["verdict"] == "doubtful"
    rig.source.records = current
    await rig.read_whole(after=120)
    assert await rig.delay() == 86_400


@pytest.mark.parametrize("lost", [SourceUnavailable("truncated"), SchemaMismatch("no records"), OSError("reset")])
async def test_a_pass_that_dies_confirms_and_suspects_nothing(rig: Rig, lost: Exception) -> None:
    def fail(request: int) -> None:
        if request == asked + 2:
            raise lost

    await rig.read_whole()
    asked = len(rig.source.asked)
    rig.source.before_page = fail
    await run_guarded(rig.tracked, rig.read_whole, pause=False)
    rig.source.before_page = lambda _: None
    await rig.read_whole(after=300)
    assert await rig.events() == []
    assert (await rig.tracked.state()).confirm_at is None


async def test_the_pass_that_proves_the_key_deletes_nothing(rig: Rig) -> None:
    def crash(request: int) -> None:
        if request == 2:
            raise KeyboardInterrupt

    rig.feed = SHIPMENTS
    rig.restart()
    rig.source.before_page = crash
    with pytest.raises(KeyboardInterrupt):
        await rig.read_whole()
    rig.source.before_page = lambda _: None
    rig.restart()
    del rig.source.records["b"]
    await rig.read_whole()
    assert await rig.events() == []
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1"]


async def test_a_crash_before_the_end_of_a_pass_is_stored_loses_and_invents_no_deletion(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the pass suspected stays so."""

    async def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    rig.restart(reconcile="10m")
    await rig.read_whole()
    del rig.source.records["b"]
    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "close_pass", crash)
        with pytest.raises(KeyboardInterrupt):
            await rig.read_whole(after=600)
    assert await rig.events() == []
    rig.restart()
    assert await rig.delay() <= 0
    await rig.read_whole()
    assert await rig.events() == []
    assert await rig.delay() == 120
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1"]
    assert len(await rig.statements("reconciled")) == 3


# Keys that are not proven --------------------------------------------------------------------------------------------


async def test_an_empty_pass_proves_no_key_and_the_next_comes_soon(rig: Rig) -> None:
    rig.source.records.clear()
    pauses = []
    for _ in range(4):
        await rig.read_whole()
        pauses.append(await rig.delay())
    assert (pauses, (await rig.tracked.state()).proven) == ([120] * 4, False)
    rig.source.put("a")
    await rig.read_whole()
    assert (await rig.delay(), (await rig.tracked.state()).proven) == (86_400, True)


async def test_a_learned_key_that_a_few_records_share_keeps_the_feed_mute_and_says_why(rig: Rig) -> None:
    rig.name_by_code()
    rig.source.records["twin"] = rig.source.records["a"] | {"status": "twin"}
    pauses = []
    for _ in range(3):
        rig.clock.pass_(15)
        await run_guarded(rig.tracked, rig.reconciler.run_once, pause=False)
        pauses.append(await rig.delay())
    assert pauses == [120, 240, 480]
    state = await rig.tracked.state()
    assert (state.passes, state.proven) == (3, False)
    assert state.problem == (
        'resource "packages": 1 of 6 records came twice with different content under one key, so /code does not'
        " tell them apart; set key in [resources.packages]"
    )
    for run_once in (rig.poller.run_once, rig.poller.trail_once):
        assert await run_once() is None
        await run_guarded(rig.tracked, run_once, pause=False)
    assert (await rig.tracked.state()).problem == state.problem
    del rig.source.records["twin"]
    await run_guarded(rig.tracked, rig.reconciler.run_once, pause=False)
    state = await rig.tracked.state()
    assert (state.proven, state.problem, await rig.events()) == (True, "", [])
    assert await rig.delay() == 86_400


async def test_a_key_that_stands_for_many_records_ends_the_pass(tmp_path: Path) -> None:
    async with open_stock(tmp_path) as rig:
        for site in "xy":
            for number in range(6):
                rig.source.records[f"{site}{number}"] = {"code": f"s{number}", "site": site}
        with pytest.raises(SchemaMismatch, match="6 of 12 records came twice"):
            await rig.read_whole()
        assert (await rig.tracked.reload()).passes == 0


# Beside bad records --------------------------------------------------------------------------------------------------


@pytest.fixture
async def flawed(rig: Rig) -> Rig:
    """Return a rig with 25 records and one that has no key, read whole twice."""
    for number in range(20):
        rig.source.put(f"n{number}", status="open")
    rig.source.records["bad"] = {"status": "lost"}
    for _ in range(2):
        await rig.read_whole(after=120)
    return rig


async def test_a_bad_record_without_a_key_does_not_keep_others_from_being_deleted(flawed: Rig) -> None:
    del flawed.source.records["b"]
    await flawed.read_whole()
    await flawed.read_whole(after=120)
    assert await flawed.events() == ["b deleted 1"]
    said = (await flawed.statements("reconciled"))[-1]
    assert (said["verdict"], said["quarantined"], said["deleted"]) == ("doubtful", 1, 1)
    assert (await flawed.tracked.reload()).quarantined == 1


async def test_a_record_that_may_have_turned_bad_is_not_deleted(flawed: Rig) -> None:
    record = flawed.source.records["b"]
    flawed.source.records["b"] = {"status": "lost too"}
    for _ in range(8):
        await flawed.read_whole(after=120)
    assert await flawed.events() == []
    flawed.source.records["b"] = record
    await flawed.read_whole(after=120)
    del flawed.source.records["c"]
    for _ in range(2):
        await flawed.read_whole(after=120)
    assert await flawed.events() == ["c deleted 1"]


@pytest.mark.parametrize("mended", [False, True])
async def test_a_record_that_turned_bad_is_none_of_those_that_were(flawed: Rig, *, mended: bool) -> None:
    """Neither one that looks like the first, nor one that came when the first went."""
    flawed.source.records["b"] = {"status": "other" if mended else "lost"}
    if mended:
        del flawed.source.records["bad"]
    for _ in range(8):
        await flawed.read_whole(after=120)
    assert await flawed.events() == []


async def test_only_what_vanished_together_with_a_new_bad_record_waits_for_it(flawed: Rig) -> None:
    del flawed.source.records["a"]
    flawed.source.records["b"] = {"status": "lost too"}
    for _ in range(4):
        await flawed.read_whole(after=120)
    assert await flawed.events() == []
    del flawed.source.records["c"]
    for _ in range(2):
        await flawed.read_whole(after=120)
    assert await flawed.events() == ["c deleted 1"]


async def test_what_no_pass_meets_any_more_leaves_the_quarantine(flawed: Rig) -> None:
    flawed.source.records["worse"] = {"status": "worse"}
    await flawed.read_whole()
    assert (await flawed.tracked.reload()).quarantined == 2
    del flawed.source.records["bad"]
    await flawed.read_whole()
    assert (await flawed.tracked.reload()).quarantined == 1


async def test_a_shipment_beside_a_new_bad_record_is_gone_when_it_is_not_found(shipments: Rig) -> None:
    del shipments.source.records["b"]
    shipments.source.records["bad"] = {"status": "lost"}
    await shipments.read_whole()
    await shipments.inquire()
    assert await shipments.events() == ["b deleted 1"]


# Shipments can be asked for ------------------------------------------------------------------------------------------


async def test_an_absent_shipment_is_gone_when_it_is_not_found_twice(shipments: Rig) -> None:
    del shipments.source.records["b"]
    await shipments.read_whole()
    assert shipments.source.asked_alone == ["e", "b"]  # e, which was just listed, is found
    assert await shipments.delay() == 120
    await shipments.inquire(after=59)
    assert (len(shipments.source.asked_alone), await shipments.events()) == (2, [])
    await shipments.inquire(after=1)
    (deleted,) = await shipments.bodies()
    assert (deleted["key"], deleted["change"], deleted["reason"]) == ("b", "deleted", "not_found")
    assert deleted["changed_between"] == ["2026-11-21T12:00:15.000Z", "2026-11-21T12:00:30.000Z"]
    assert await shipments.delay() == 86_400 - 60  # nothing is left for a second pass


@pytest.mark.parametrize("lag", [5, 30])
async def test_a_replica_that_lags_by_seconds_deletes_nothing_that_was_just_created(shipments: Rig, lag: float) -> None:
    """Poll, pass and request are answered by replicas: all but the first do not know the record yet."""
    shipments.source.put("f", status="open")
    await shipments.poll()
    assert await shipments.events() == ["f created 1"]
    record = shipments.source.records.pop("f")
    await shipments.read_whole(after=1)
    assert shipments.source.asked_alone == ["e", "f"]
    await shipments.inquire(after=lag)
    shipments.source.records["f"] = record
    await shipments.inquire(after=60)
    await shipments.read_whole(after=60)
    assert await shipments.events() == ["f created 1"]


async def test_that_a_record_was_not_found_once_outlives_a_restart(shipments: Rig) -> None:
    del shipments.source.records["b"]
    await shipments.read_whole()
    shipments.restart()
    await shipments.read_whole(after=60)
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()] == [("b", "not_found")]


async def test_a_record_that_was_shown_meanwhile_must_be_missing_anew(shipments: Rig) -> None:
    del shipments.source.records["b"]
    await shipments.read_whole()
    shipments.source.put("b", status="packed")
    await shipments.poll()
    del shipments.source.records["b"]
    await shipments.inquire()
    await shipments.read_whole(after=0)
    assert await shipments.events() == ["b updated 1"]
    await shipments.inquire()
    assert await shipments.events() == ["b updated 1", "b deleted 2"]


async def test_a_second_pass_within_the_stale_window_confirms_nothing(rig: Rig) -> None:
    rig.restart(confirm_after="10s", stale_window="60s")
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    await rig.read_whole(after=59)
    assert await rig.events() == []
    await rig.read_whole(after=1)
    assert await rig.events() == ["b deleted 1"]


async def test_a_second_pass_that_a_cache_answers_confirms_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    read_page = rig.source.read_page

    async def read_cached(resource: str, **request: Any) -> Page:
        return replace(await read_page(resource, **request), age=timedelta(seconds=250))

    with monkeypatch.context() as patch:
        patch.setattr(rig.source, "read_page", read_cached)
        await rig.read_whole(after=200)
    assert await rig.events() == []
    await rig.read_whole(after=60)
    assert await rig.events() == ["b deleted 1"]


async def test_an_absent_shipment_that_is_purged_meanwhile_is_asked_for_no_more(shipments: Rig) -> None:
    find_absent = shipments.store.feed(shipments.feed).find_absent

    async def purge_then(*args: Any) -> Any:
        absentees = await find_absent(*args)
        await purge_record(shipments.store, shipments.feed, "b", name="acme")
        return absentees

    shipments.store.feed(shipments.feed).find_absent = purge_then  # type: ignore[method-assign, assignment]
    for key in "bc":
        del shipments.source.records[key]
    assert await shipments.read_whole() == ""
    await shipments.inquire()
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()] == [("b", "purged"), ("c", "not_found")]


async def test_a_record_that_vanishes_while_the_pass_goes_on_did_so_before_its_last_answer(shipments: Rig) -> None:
    def vanish(request: int) -> None:
        if request == asked + 2:
            shipments.clock.pass_(30)

    asked = len(shipments.source.asked)
    del shipments.source.records["b"]
    shipments.source.before_page = vanish
    await shipments.read_whole()
    await shipments.inquire()
    (deleted,) = await shipments.bodies()
    assert deleted["changed_between"][1] == "2026-11-21T12:01:00.000Z"


async def test_an_absent_shipment_that_is_there_when_asked_for_is_spared_and_not_counted(shipments: Rig) -> None:
    shipments.spoil(hide_b)
    for _ in range(3):
        await shipments.read_whole(after=300)
    assert await shipments.events() == []
    assert [said["deleted"] for said in await shipments.statements("reconciled")] == [0] * 4
    verdicts = [said["verdict"] for said in await shipments.statements("reconciled")]
    assert verdicts == ["equal", "doubtful", "equal", "equal"]
    assert await shipments.delay() == 86_400


async def test_a_shipment_that_only_a_lagging_replica_still_finds_is_deleted(shipments: Rig) -> None:
    kept = shipments.source.records["b"]
    read_shipment = shipments.source.read_shipment

    async def find_late(shipment_id: str, **request: Any) -> bytes | None:
        return json.dumps(kept).encode() if shipment_id == "b" else await read_shipment(shipment_id, **request)

    del shipments.source.records["b"]
    shipments.source.read_shipment = find_late  # type: ignore[method-assign]
    await shipments.read_whole()
    await shipments.inquire(after=5)
    shipments.source.read_shipment = read_shipment  # type: ignore[method-assign]
    assert await shipments.events() == []
    await shipments.read_whole(after=120)
    assert await shipments.events() == ["b deleted 1"]


async def test_not_found_is_not_believed_where_nothing_is_found(
    shipments: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_nothing(shipment_id: str, **_: Any) -> None:
        shipments.source.asked_alone.append(shipment_id)

    monkeypatch.setattr(shipments.source, "read_shipment", find_nothing)
    del shipments.source.records["b"]
    await shipments.read_whole()
    assert (shipments.source.asked_alone, await shipments.events()) == (["e"], [])
    assert await shipments.delay() == 120
    await shipments.read_whole(after=120)
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()] == [("b", "absent")]


async def test_what_could_not_be_asked_for_waits_for_the_second_pass(shipments: Rig) -> None:
    shipments.source.before_alone = fail
    del shipments.source.records["b"]
    await shipments.read_whole()
    assert await shipments.events() == []
    await shipments.read_whole(after=120)
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()] == [("b", "absent")]


@pytest.mark.parametrize(
    "answer", [b'{"error": "not found"}', b'{"id": "c"}', SchemaMismatch("no object"), PageUnreadable("HTML")]
)
async def test_an_answer_that_does_not_tell_neither_deletes_nor_spares(
    shipments: Rig, monkeypatch: pytest.MonkeyPatch, answer: bytes | SourceError
) -> None:
    read_shipment = shipments.source.read_shipment

    async def mumble(shipment_id: str, **request: Any) -> bytes | None:
        found = await read_shipment(shipment_id, **request)
        if shipment_id != "b":
            return found
        if isinstance(answer, SourceError):
            raise answer
        return answer

    monkeypatch.setattr(shipments.source, "read_shipment", mumble)
    for key in "bc":
        del shipments.source.records[key]
    await shipments.read_whole()
    await shipments.inquire()
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()] == [("c", "not_found")]
    assert await shipments.delay() == 60
    await shipments.read_whole(after=60)
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()][1:] == [("b", "absent")]


async def test_the_control_is_asked_for_again_after_a_minute(shipments: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 100_000, 70))
    monkeypatch.setattr("dockbell.detection.absence_check.anyio.current_time", lambda: float(next(seconds)))
    for key in "ab":
        del shipments.source.records[key]
    await shipments.read_whole()
    assert shipments.source.asked_alone == ["e", "a", "e", "b"]


@pytest.fixture
async def crowd(rig: Rig) -> Rig:
    """Return a rig of 3,000 shipments and five, read whole once."""
    rig.feed = SHIPMENTS
    rig.source.page_size = 200
    for number in range(3000):
        rig.source.put(f"n{number}")
    rig.restart()
    await rig.read_whole()
    return rig


async def test_hundreds_of_deleted_shipments_are_gone_when_a_second_pass_confirms_it(crowd: Rig) -> None:
    for number in range(300):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole()
    assert len(crowd.source.asked_alone) == 21  # a sample, and a control
    assert (await crowd.events(), await crowd.delay()) == ([], 120)
    await crowd.read_whole(after=120)
    assert len(await crowd.events()) == 300
    assert {body["reason"] for body in await crowd.bodies()} == {"not_found", "absent"}
    assert len(crowd.source.asked_alone) < 50
    assert await crowd.delay() == 86_400


async def test_all_that_are_absent_are_asked_for_beside_the_runs_without_a_second_pass(crowd: Rig) -> None:
    for number in range(200):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole()
    passes = len(await crowd.statements("reconciled"))
    await crowd.inquire(after=1)
    assert len(set(crowd.source.asked_alone)) == 201
    await crowd.inquire()
    assert [body["reason"] for body in await crowd.bodies()] == ["not_found"] * 200
    assert (len(await crowd.statements("reconciled")), await crowd.delay()) == (passes, 86_400 - 61)
    assert crowd.source.asked_alone.count("n7") == 2


async def test_asking_goes_on_where_no_answer_came(crowd: Rig) -> None:
    for number in range(100):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole()
    crowd.source.before_alone = fail
    assert await crowd.inquire(after=1)
    crowd.source.before_alone = lambda _: None
    assert not await crowd.inquire(after=30)
    assert not await crowd.inquire()
    assert len(await crowd.events()) == 100


async def test_the_agent_asks_when_a_pass_has_left_something_to_ask_for(crowd: Rig) -> None:
    for number in range(100):
        del crowd.source.records[f"n{number}"]
    are_all = anyio.Event()

    def count(_: str) -> None:
        if len(set(crowd.source.asked_alone)) == 101:
            are_all.set()

    crowd.source.before_alone = count
    async with anyio.create_task_group() as group:
        with crowd.reconciler.absence_check.task.working_in(group):
            await anyio.wait_all_tasks_blocked()
            await crowd.read_whole()
            with anyio.fail_after(20):
                await are_all.wait()
            group.cancel_scope.cancel()


async def test_an_absence_check_that_another_pass_has_overtaken_decides_nothing(crowd: Rig) -> None:
    for number in range(60):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole()
    ask = crowd.reconciler.absence_check.ask

    async def ask_and_pass(*request: Any) -> Any:
        crowd.reconciler.absence_check.ask = ask  # type: ignore[method-assign]
        answers = await ask(*request)
        await crowd.read_whole(after=0)
        return answers

    crowd.reconciler.absence_check.ask = ask_and_pass  # type: ignore[assignment,method-assign]
    assert not await crowd.inquire(after=1)
    await crowd.inquire(after=1)
    assert await crowd.events() == []
    await crowd.inquire()
    assert len(await crowd.events()) == 60


async def test_an_absence_check_that_breaks_is_told_and_begun_again(
    shipments: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_tried_again = anyio.Event()

    async def fail(_: object) -> None:
        if any("absence check" in text for text in shipments.ear.texts()):
            is_tried_again.set()
        raise ZeroDivisionError

    monkeypatch.setattr("dockbell.detection.absence_check._RETRY_SECONDS", 0.01)
    del shipments.source.records["b"]
    await shipments.read_whole()
    shipments.clock.pass_(60)
    with monkeypatch.context() as patch:
        patch.setattr(shipments.store.feed(shipments.feed), "find_missing", fail)
        async with anyio.create_task_group() as group:
            with shipments.reconciler.absence_check.task.working_in(group), anyio.fail_after(20):
                await is_tried_again.wait()
            group.cancel_scope.cancel()


# Lists that show only some of the records ----------------------------------------------------------------------------


def show_last(rig: Rig, count: int) -> None:
    """Let the list show only the last records from now on; each is found all the same."""
    records = rig.source.records
    rig.source.records = dict(list(records.items())[-count:])

    async def read_shipment(shipment_id: str, **_: Any) -> bytes | None:
        rig.source.asked_alone.append(shipment_id)
        record = records.get(shipment_id)
        return None if record is None else json.dumps(record).encode()

    rig.source.read_shipment = read_shipment  # type: ignore[method-assign]


async def test_shipments_that_leave_the_list_but_are_found_are_missed_no_more(crowd: Rig) -> None:
    show_last(crowd, 2900)
    await crowd.read_whole()
    await crowd.inquire(after=1)
    assert await crowd.delay() == 120 - 1
    await crowd.read_whole(after=120)
    await crowd.inquire(after=1)
    asked = len(crowd.source.asked_alone)
    assert await crowd.delay() == 86_400 - 1
    await crowd.read_whole(after=120)
    assert (await crowd.events(), len(crowd.source.asked_alone)) == ([], asked)
    assert (await crowd.statements("reconciled"))[-1]["verdict"] == "equal"


async def test_shipments_that_leave_the_list_in_masses_do_not_jam_the_breaker(crowd: Rig) -> None:
    show_last(crowd, 500)
    await crowd.read_whole()
    await crowd.inquire(after=1)
    assert (await crowd.statements("held"), (await crowd.tracked.state()).held) == ([], 0)
    await crowd.read_whole(after=120)
    await crowd.inquire(after=1)
    await crowd.read_whole(after=120)
    assert (await crowd.statements("reconciled"))[-1]["verdict"] == "equal"
    key = next(iter(crowd.source.records))
    del crowd.source.records[key]
    crowd.source.read_shipment = FakeSource.read_shipment.__get__(crowd.source)  # type: ignore[method-assign]
    await crowd.read_whole(after=86_400)
    await crowd.inquire()
    assert await crowd.events() == [f"{key} deleted 1"]


async def test_where_the_list_shows_only_some_records_a_second_pass_alone_confirms_nothing(crowd: Rig) -> None:
    show_last(crowd, 2990)
    await crowd.read_whole()
    await crowd.inquire(after=1)
    find = crowd.source.read_shipment
    show_last(crowd, 2800)
    crowd.source.read_shipment = find  # type: ignore[method-assign]
    for _ in range(2):
        await crowd.read_whole(after=120)
    assert await crowd.events() == []
    await crowd.inquire(after=1)
    assert (await crowd.events(), await crowd.delay()) == ([], 86_400 - 1)


async def test_a_shipment_that_is_listed_again_is_missed_again(shipments: Rig) -> None:
    show = shipments.spoil(hide_b)
    await shipments.read_whole()
    show()
    await shipments.read_whole()
    del shipments.source.records["b"]
    await shipments.read_whole()
    await shipments.inquire()
    assert await shipments.events() == ["b deleted 1"]


async def test_what_was_deleted_among_many_that_left_the_list_is_held_when_all_are_asked_for(crowd: Rig) -> None:
    show_last(crowd, 1500)
    kept = crowd.source.read_shipment

    async def find_odd(shipment_id: str, **_: Any) -> bytes | None:
        is_deleted = shipment_id[1:] and int(shipment_id[1:]) < 700
        return None if is_deleted else await kept(shipment_id)

    crowd.source.read_shipment = find_odd  # type: ignore[method-assign]
    await crowd.read_whole()
    await crowd.inquire(after=1)
    assert await crowd.statements("held") == []
    await crowd.read_whole(after=120)
    await crowd.inquire(after=1)
    await crowd.read_whole(after=120)
    (said,) = await crowd.statements("held")
    assert said["count"] == 700
    assert await crowd.events() == []


async def test_a_shipment_that_is_there_when_asked_for_is_spared_however_many_passes_missed_it(shipments: Rig) -> None:
    shipments.source.before_alone = fail
    shipments.spoil(hide_b)
    await shipments.read_whole()
    shipments.source.before_alone = lambda _: None
    await shipments.read_whole(after=120)
    assert await shipments.events() == []
    assert await shipments.delay() == 86_400


async def test_a_deletion_that_waits_for_a_detail_is_still_to_be_confirmed(rig: Rig) -> None:
    rig.feed = SHIPMENTS
    rig.restart(detail=("lines",))
    await rig.read_whole()
    rig.source.put("b", status="packed")
    await rig.poll()
    del rig.source.records["b"]
    await rig.read_whole()
    said = (await rig.statements("reconciled"))[-1]
    assert (said["deleted"], said["verdict"]) == (0, "doubtful")
    assert await rig.delay() == 120
    await complete(rig.store, await rig.tracked.state(), 2, None)
    await rig.read_whole(after=120)
    assert await rig.events() == ["b updated 1", "b deleted 2"]
    assert await rig.delay() == 86_400


async def test_under_a_query_a_shipment_that_is_there_has_left_once_a_second_pass_confirms_it(shipments: Rig) -> None:
    shipments.restart(query={"status": "open"}, key="/id")
    await shipments.read_whole()
    shipments.source.records["b"]["status"] = "closed"
    del shipments.source.records["c"]
    await shipments.read_whole()
    await shipments.inquire()
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()] == [("c", "not_found")]
    await shipments.read_whole(after=60)
    assert [(body["key"], body["reason"]) for body in await shipments.bodies()][1:] == [("b", "left")]


async def test_under_a_query_a_shipment_that_only_slipped_past_a_pass_has_not_left(shipments: Rig) -> None:
    shipments.restart(query={"status": "open"}, key="/id")
    await shipments.read_whole()
    show = shipments.spoil(hide_b)
    await shipments.read_whole()
    show()
    await shipments.read_whole(after=120)
    assert await shipments.events() == []


# The breaker ---------------------------------------------------------------------------------------------------------


async def test_deletions_of_most_of_a_feed_are_held(rig: Rig) -> None:
    await rig.read_whole()
    kept = rig.source.records
    rig.source.records = {"a": kept["a"]}
    await rig.read_whole()
    await rig.read_whole(after=600)
    assert await rig.events() == []
    assert (await rig.tracked.state()).held == 4
    (statement,) = await rig.statements("held")
    assert (statement["reason"], statement["count"]) == ("deletions", 4)
    rig.source.records = kept
    await rig.read_whole()
    assert (await rig.tracked.state()).held == 0


async def test_an_empty_pass_deletes_nothing(rig: Rig) -> None:
    await rig.read_whole()
    rig.source.records = {}
    for _ in range(3):
        await rig.read_whole(after=600)
    assert await rig.events() == []


async def test_held_deletions_are_stated_once(shipments: Rig) -> None:
    shipments.source.records = {"a": shipments.source.records["a"]}
    for _ in range(3):
        await shipments.read_whole(after=600)
    assert len(await shipments.statements("held")) == 1
    assert [said["verdict"] for said in await shipments.statements("reconciled")][1:] == ["doubtful"] * 3


async def test_the_deletions_of_a_day_count_together(rig: Rig) -> None:
    for number in range(45):
        rig.source.put(f"n{number}")
    await rig.read_whole()
    for numbers in (range(20), range(20, 21)):
        for number in numbers:
            del rig.source.records[f"n{number}"]
        await rig.read_whole(after=600)
        await rig.read_whole(after=120)
    assert len(await rig.events()) == 20
    assert (await rig.tracked.state()).held == 1
    await rig.read_whole(after=86_400)
    assert len(await rig.events()) == 21


async def test_an_approved_pass_deletes_what_is_absent_again(rig: Rig) -> None:
    await rig.read_whole()
    kept = dict(rig.source.records)
    rig.source.records = {"a": kept["a"]}
    await rig.read_whole(after=600)
    rig.source.records["b"] = kept["b"]
    rig.clock.pass_(60)
    await rig.reconciler.reconcile(approve=True)
    assert await rig.events() == ["c deleted 1", "d deleted 1", "e deleted 1"]
    assert (await rig.tracked.state()).held == 0
    assert await rig.delay() == 86_400


async def test_what_an_operator_approved_does_not_hold_later_deletions_of_the_day(crowd: Rig) -> None:
    for number in range(1000):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole()
    crowd.clock.pass_(60)
    await crowd.reconciler.reconcile(approve=True)
    crowd.restart()
    for number in range(1000, 1010):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole(after=600)
    await crowd.read_whole(after=600)
    assert (await crowd.tracked.state()).held == 0
    assert len([event for event in await crowd.events() if " deleted " in event]) == 1010


async def test_an_approved_pass_asks_for_each_shipment_where_one_of_them_is_there(rig: Rig) -> None:
    rig.feed = SHIPMENTS
    rig.source.page_size = 200
    for number in range(150):
        rig.source.put(f"n{number}")
    rig.restart()
    await rig.read_whole()
    for number in range(120):
        del rig.source.records[f"n{number}"]
    rig.spoil(hide_b)
    await rig.read_whole()
    await rig.inquire(after=1)
    rig.clock.pass_(60)
    run = await rig.reconciler.reconcile(approve=True)
    assert run.tally.deleted == 120
    assert Counter(body["reason"] for body in await rig.bodies()) == {"not_found": 120}
    assert "b deleted 1" not in await rig.events()


async def test_an_approved_pass_does_not_ask_for_each_where_none_of_a_sample_is_there(crowd: Rig) -> None:
    for number in range(1000):
        del crowd.source.records[f"n{number}"]
    await crowd.read_whole()
    assert (await crowd.tracked.state()).held == 1000
    crowd.clock.pass_(60)
    run = await crowd.reconciler.reconcile(approve=True)
    assert (run.tally.deleted, len(crowd.source.asked_alone)) == (1000, 41)


# Known pages ---------------------------------------------------------------------------------------------------------


async def test_pages_that_are_stored_as_they_come_are_not_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.source.page_size = 20
        for number in range(55):
            rig.source.put(f"n{number}")
        await rig.read_whole()
        counted = CountedCommits(rig, monkeypatch)
        compared = []
        for _ in range(3):
            await rig.read_whole(after=300)
            compared.append(counted.take())
        rig.source.put("n30", content="new")
        for _ in range(3):
            await rig.read_whole(after=300)
            compared.append(counted.take())
        assert compared == [3, 3, 0, 2, 0, 0]
        del rig.source.records["n30"]
        for _ in range(3):
            await rig.read_whole(after=300)
        assert await rig.events() == ["n30 updated 1", "n30 deleted 2"]
        rig.source.put("n30", content="new")
        await rig.read_whole(after=300)
        assert (await rig.events())[2:] == ["n30 restored 3"]


async def test_a_page_of_a_moment_ago_is_compared_where_its_records_have_changed_since(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.source.put("a", content=1)
        before = dict(rig.source.records)
        for _ in range(3):
            await rig.read_whole(after=300)
        rig.source.put("a", content=2)
        await rig.read_whole(after=300)
        rig.source.records = before  # a lagging replica answers as before
        await rig.read_whole(after=5)
        assert await rig.events() == ["a updated 1"]


async def change_aside(rig: Rig, folder: Path, column: str) -> None:
    """Pass until the pages of a list are known, and let another program change its records."""
    rig.source.put("a")
    for _ in range(3):
        await rig.read_whole(after=300)
    with closing(sqlite3.connect(folder / "dockbell.db")) as connection, connection:
        connection.execute(f"UPDATE records SET {column} = zeroblob(16)")  # noqa: S608  # the name of a column


async def test_what_another_program_writes_to_the_store_is_found_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1)
    async with open_stock(tmp_path, key="/id") as rig:
        await change_aside(rig, tmp_path, "raw_hash")
        await rig.read_whole(after=300)
        monkeypatch.undo()
        told = [str(fact) for fact in rig.ear.facts if isinstance(fact, StoreWrittenAside)]
        assert told == ["main/stock: another program has changed records in the store; let only dockbell write to it"]
        counted = CountedCommits(rig, monkeypatch)
        for _ in range(3):
            await rig.read_whole(after=300)
        assert counted.take() == 3
        assert await rig.events() == []


async def test_what_another_program_writes_to_a_digest_is_found_at_the_end_of_a_pass(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        await change_aside(rig, tmp_path, "fingerprint")
        for _ in range(known_pages.PROBED):
            await rig.read_whole(after=300)
        assert len([fact for fact in rig.ear.facts if isinstance(fact, StoreWrittenAside)]) == 1


# Certificates --------------------------------------------------------------------------------------------------------


async def test_a_pass_states_what_it_has_shown(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(20)
    rig.source.put("f")
    await rig.poll()
    rig.source.records["a"]["status"] = "packed"  # no date says so, and no poll shows it
    record = rig.source.records.pop("b")
    await rig.read_whole(after=200)
    rig.clock.pass_(120)
    await rig.read_whole(after=0)
    rig.source.records["b"] = record
    await rig.read_whole(after=200)
    said = await rig.statements("reconciled")
    assert [each["verdict"] for each in said] == ["equal", "doubtful", "repaired", "repaired"]
    names = ("created", "updated", "deleted", "restored", "missed", "records", "pages")
    assert [[each[name] for name in names] for each in said] == [
        [0, 0, 0, 0, 0, 5, 2],
        [0, 1, 0, 0, 0, 5, 2],
        [0, 0, 1, 0, 0, 5, 2],
        [0, 0, 0, 1, 0, 6, 2],
    ]
    assert (said[1]["from"], said[1]["to"]) == ("2026-11-21T12:04:10.000Z",) * 2
    # Nothing was read for minutes before each of the later passes, so that a gap comes before each certificate.
    assert [each["through_sequence"] for each in said] == [0, 4, 7, 10]


async def test_passes_with_the_same_doubt_are_certified_once_a_minute(rig: Rig) -> None:
    """A small list is read every few seconds, and what waits may wait for hours."""
    await rig.read_whole()
    rig.clock.pass_(20)
    rig.source.put("a", status="packed")
    await rig.poll()
    rig.source.records["a"] = {**rig.source.records["a"], "status": "new", "updated_at": "2026-11-21T11:00:00Z"}
    for _ in range(5):
        await rig.read_whole(after=1)
    verdicts = [each["verdict"] for each in await rig.statements("reconciled")]
    assert verdicts == ["equal", "doubtful"]


async def test_a_certificate_counts_what_is_held_whichever_run_held_it(rig: Rig) -> None:
    await rig.read_whole()
    old = dict(rig.source.records["a"])
    rig.clock.pass_(20)
    rig.source.put("a", status="packed")
    await rig.poll()
    current, rig.source.records["a"] = rig.source.records["a"], old
    for number in range(3):
        rig.source.records["b"]["weight"] = number  # a pass that finds a change is certified, however soon
        await rig.read_whole(after=1)
    said = await rig.statements("reconciled")
    assert [(each["verdict"], each["held"]) for each in said[1:]] == [("doubtful", 1)] * 3
    rig.source.records["a"] = current
    await rig.read_whole(after=1)
    said = await rig.statements("reconciled")
    assert (said[-1]["verdict"], said[-1]["held"]) == ("equal", 0)


async def test_a_certificate_that_says_the_same_waits_for_a_minute(rig: Rig) -> None:
    for _ in range(3):
        await rig.read_whole(after=10)
    assert len(await rig.statements("reconciled")) == 1
    await rig.read_whole(after=60)
    assert len(await rig.statements("reconciled")) == 2
    await rig.reconciler.reconcile()
    assert len(await rig.statements("reconciled")) == 3


async def test_a_certificate_does_not_count_held_readings_that_end_with_the_pass(rig: Rig) -> None:
    await rig.read_whole()
    old = dict(rig.source.records["a"])
    rig.clock.pass_(20)
    rig.source.put("a", status="packed")
    await rig.poll()
    rig.source.records["a"] = old
    await rig.read_whole(after=1)
    del rig.source.records["a"]
    await rig.read_whole(after=1)
    assert (await rig.statements("reconciled"))[-1]["held"] == 0
    assert (await rig.tracked.reload()).holds == 0


async def test_the_digest_is_another_exactly_when_a_record_is_another(rig: Rig) -> None:
    async def read_digest() -> str:
        await rig.read_whole()
        return str((await rig.statements("reconciled"))[-1]["digest"])

    first = await read_digest()
    rig.source.put("c", status="open")  # only its timestamp moved
    assert [await read_digest(), await read_digest()] == [first, first]
    rig.source.put("a", status="packed")
    second = await read_digest()
    assert second != first
    rig.source.put("a", status="packed", weight=1)
    third = await read_digest()
    rig.source.put("a", status="packed", weight=1.0)
    assert third not in (first, second)
    assert await read_digest() == third


async def test_a_certificate_counts_what_polls_have_missed(rig: Rig) -> None:
    rig.source.page_size = 200
    await rig.read_whole()
    dated = format_moment(rig.clock())
    rig.clock.pass_(400)
    rig.source.put("z")
    await rig.poll()
    rig.source.records["f"] = {"id": "f", "updated_at": dated}
    await rig.read_whole()
    assert [said["missed"] for said in await rig.statements("reconciled")] == [0, 1]


async def test_a_feed_without_polls_states_the_gap_between_its_passes(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.source.put("a", available=1)
        await rig.read_whole(after=0)
        await rig.read_whole(after=960)
        assert await rig.statements("gap") == []
        rig.restart()
        await rig.read_whole(after=7200)
        (gap,) = await rig.statements("gap")
        assert (gap["reason"], gap["from"]) == ("down", "2026-11-21T12:16:00.000Z")


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_pass_that_goes_on_after_an_outage_states_the_gap_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    def fail(request: int) -> None:
        if request > asked + 1:
            raise SourceUnavailable("HTTP 503")

    monkeypatch.setattr("dockbell.detection.run._CHECKPOINT_PAGES", 1)
    async with open_stock(tmp_path, key="/id") as rig:
        for key in "abcdefg":
            rig.source.put(key, available=1)
        await rig.read_whole(after=0)
        asked = len(rig.source.asked)
        rig.source.before_page = fail
        assert await rig.read_whole(after=300)
        if restarts:
            rig.restart()
        rig.source.before_page = lambda _: None
        assert await rig.read_whole(after=2400) == ""
        (gap,) = await rig.statements("gap")
        assert (gap["from"], gap["to"]) == ("2026-11-21T12:00:00.000Z", "2026-11-21T12:45:00.000Z")


async def test_a_pass_that_was_interrupted_states_the_gap_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: int) -> None:
        if request > asked + 1:
            raise SourceUnavailable("HTTP 503")

    monkeypatch.setattr("dockbell.detection.run._CHECKPOINT_PAGES", 1)
    async with open_stock(tmp_path, key="/id") as rig:
        for key in "abcdefg":
            rig.source.put(key, available=1)
        await rig.read_whole(after=0)
        rig.restart()
        asked = len(rig.source.asked)
        rig.source.before_page = fail
        assert await rig.read_whole(after=7200)
        rig.restart()
        rig.source.before_page = lambda _: None
        assert await rig.read_whole(after=60) == ""
        (gap,) = await rig.statements("gap")
        assert (gap["from"], gap["to"]) == ("2026-11-21T12:00:00.000Z", "2026-11-21T14:00:00.000Z")


# When our clock is set ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [-3600, 3600])
@pytest.mark.parametrize("restarts", [False, True])
async def test_absences_are_confirmed_after_the_time_that_has_passed(rig: Rig, step: float, restarts: bool) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    rig.set_clock(step)
    if restarts:
        rig.restart()
    await rig.read_whole(after=60)
    assert await rig.events() == []
    await rig.read_whole(after=120)
    assert await rig.events() == ["b deleted 1"]


async def test_what_was_suspected_before_a_restart_is_confirmed_however_often_passes_are_made(rig: Rig) -> None:
    await rig.read_whole()
    del rig.source.records["b"]
    await rig.read_whole()
    rig.restart()
    for _ in range(2):
        await rig.read_whole(after=60)
    assert await rig.events() == ["b deleted 1"]


# When passes are made ------------------------------------------------------------------------------------------------


async def test_a_pass_that_failed_is_made_again_soon_but_not_at_once(rig: Rig) -> None:
    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    await rig.read_whole()
    rig.clock.pass_(86_400)
    rig.source.before_page = fail
    await rig.read_whole(after=0)
    assert await rig.delay() == 5


async def test_a_pass_that_always_ends_incomplete_is_made_less_and_less_often(rig: Rig) -> None:
    def turn(page: Page) -> Page:
        return replace(page, next_cursor="3")

    steady = rig.spoil(turn)
    pauses = []
    for _ in range(12):
        assert await rig.read_whole(after=0) == "the API returned the same cursor twice"
        pauses.append(await rig.delay())
    assert (pauses[:4], pauses[-1]) == ([5, 10, 20, 40], 3600)
    steady()
    await rig.read_whole()
    rig.spoil(turn)
    await rig.read_whole(after=86_400)
    assert await rig.delay() == 5


async def test_a_pass_that_a_page_always_stops_is_made_less_and_less_often_too(rig: Rig) -> None:
    def stop(number: int) -> None:
        if rig.source.asked[-1][0] is not None:
            raise SchemaMismatch("no array of records")

    rig.source.before_page = stop
    pauses = []
    for _ in range(12):
        with pytest.raises(SchemaMismatch):
            await rig.read_whole(after=0)
        pauses.append(await rig.delay())
    assert (pauses[:4], pauses[-1]) == ([5, 10, 20, 40], 3600)


async def test_passes_that_find_no_answer_after_a_checkpoint_do_not_wait_ever_longer(rig: Rig) -> None:
    rig.restart(key="/id")
    await interrupt(rig, 2)
    rig.source.before_page = fail
    for _ in range(8):
        await rig.read_whole(after=0)
    assert await rig.delay() == 5


async def test_a_pass_of_a_feed_that_is_read_often_is_repeated_within_its_interval(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.source.put("a", available=1)
        rig.source.records["bad"] = {"available": 2}
        for _ in range(12):
            await rig.read_whole(after=0)
        assert await rig.delay() == 300


async def test_passes_that_fail_are_counted_until_one_is_complete_whatever_polls_do(rig: Rig) -> None:
    def stop(_: int) -> None:
        if rig.source.asked[-1][0] is not None:
            raise SourceUnavailable("HTTP 500")

    await rig.read_whole()
    rig.source.before_page = stop
    for _ in range(4):
        await rig.read_whole(after=600)
    rig.source.before_page = lambda _: None
    await rig.poll()
    rig.restart()
    failing = (await rig.tracked.state()).failing
    until = rig.clock() - timedelta(seconds=15)
    assert failing == {RunKind.PASS: Failing(4, until - timedelta(seconds=3 * 600), until, "HTTP 500")}
    status = await load_status(
        await SqliteReadStore.open(rig.store.path),
        [FeedSettings("main", "packages", rig.tracked.settings)],
        {},
        at=rig.clock(),
        holder="us",
        next_time=next_time,
    )
    (reason,) = list_reasons(status)
    assert "4 failed in a row: HTTP 500; deletions" in reason
    await rig.read_whole()
    assert (await rig.tracked.state()).failing == {}


async def test_a_pass_that_ends_incomplete_leaves_what_polls_prove_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.read_whole()
    close_run = rig.store.feed(rig.feed).close_run

    async def close_late(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(rig.store.feed(rig.feed), "close_run", close_run)
        rig.source.before_page = lambda _: None
        await rig.poll()
        await close_run(*args, **kwargs)

    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    rig.source.records = {"a": rig.source.records["a"]}
    rig.source.before_page = fail
    monkeypatch.setattr(rig.store.feed(rig.feed), "close_run", close_late)
    await rig.read_whole()
    assert (await rig.tracked.reload()).progress.watermark == rig.clock()


async def test_after_a_restart_passes_are_due_as_if_nothing_had_been(rig: Rig) -> None:
    assert await rig.delay() == 0
    await rig.read_whole()
    rig.restart()
    rig.clock.pass_(1000)
    assert await rig.delay() == 85_400
    del rig.source.records["b"]
    await rig.read_whole()
    rig.restart()
    rig.clock.pass_(20)
    assert await rig.delay() == 100


async def test_a_clock_that_was_set_back_does_not_put_off_the_next_pass(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.step(-100_000)
    rig.restart()
    assert await rig.delay() == 86_400


def take(rig: Rig, seconds: float) -> None:
    """Let every pass take its time from now on: it has two pages, and the second comes late."""
    for key in "abcd":
        rig.source.put(key, available=1)
    asked = len(rig.source.asked)
    rig.source.before_page = lambda number: rig.clock.pass_(0 if (number - asked) % 2 else seconds)


async def test_intervals_count_from_the_start_of_a_pass_to_the_start_of_the_next(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.restart(every="72s")
        take(rig, 69)
        await rig.read_whole()
        assert await rig.delay() == 3
        rig.restart()  # nothing is left but what is stored
        assert await rig.delay() == 3


async def test_a_pass_that_takes_longer_than_its_interval_is_followed_by_the_next_at_once(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.restart(every="60s")
        take(rig, 69)
        await rig.read_whole()
        assert await rig.delay() <= 0
        rig.restart()
        assert await rig.delay() <= 0
        rig.source.before_page = fail
        await rig.read_whole()
        assert await rig.delay() == 5


async def test_a_pass_that_is_slower_than_its_schedule_is_told_to_be_late(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.restart(every="60s")
        take(rig, 40)
        for after in (0, 20, 29):
            await rig.read_whole(after=after)
        assert [fact.late for fact in rig.ear.facts if isinstance(fact, RunEnded)] == [None, False, True]


async def test_a_crontab_line_means_its_times_however_long_a_pass_takes(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.restart(every=None, cron="*/5 * * * *")
        take(rig, 360)
        await rig.read_whole(after=0)
        assert await rig.delay() == 240
        rig.clock.step(120)
        assert await rig.delay() == 120
        rig.restart()
        assert await rig.delay() == 120
        rig.source.before_page = lambda _: None
        alarm = CountedAlarm(1)
        await run_until_quiet(rig.reconciler.run, alarm)
        assert alarm.delays == [120, 120]


async def test_the_agent_looks_again_each_minute_at_our_clock_that_a_crontab_line_means(tmp_path: Path) -> None:
    async with open_stock(tmp_path, key="/id") as rig:
        rig.source.put("a", available=1)
        rig.restart(every=None, cron="30 * * * *")
        await rig.read_whole(after=0)
        alarm = CountedAlarm(2)
        await run_until_quiet(rig.reconciler.run, alarm)
        assert alarm.delays == [60, 60, 60]
        assert len(await rig.statements("reconciled")) == 1


async def test_the_agent_passes_when_a_pass_is_due_and_only_then(rig: Rig) -> None:
    alarm = CountedAlarm(2)
    await run_until_quiet(rig.reconciler.run, alarm)
    assert alarm.delays == [0, 86_400, 86_400]
    assert len(await rig.statements("reconciled")) == 1


# A pass that is interrupted ------------------------------------------------------------------------------------------


async def interrupt(rig: Rig, request: int, error: BaseException | None = None) -> None:
    """Begin a pass that ends before its answer to a request, a minute a page, so that each is saved."""
    asked = len(rig.source.asked)

    def go(number: int) -> None:
        rig.clock.pass_(40)
        if number == asked + request:
            raise error or KeyboardInterrupt

    rig.source.before_page = go
    if error is None:
        with pytest.raises(KeyboardInterrupt):
            await rig.read_whole()
        rig.restart()
    else:
        await rig.read_whole()
    rig.source.before_page = lambda _: None


@pytest.fixture
async def long(rig: Rig) -> Rig:
    """Return a rig of 15 records, five pages, read whole once."""
    for number in range(10):
        rig.source.put(f"n{number}")
    await rig.read_whole()
    rig.source.asked.clear()
    return rig


@pytest.mark.parametrize("error", [None, SourceUnavailable("HTTP 503")])
async def test_an_interrupted_pass_goes_on_where_it_was_safe(long: Rig, error: Exception | None) -> None:
    del long.source.records["b"]
    await interrupt(long, 4, error)
    asked = len(long.source.asked)
    await long.read_whole()
    assert [cursor for cursor, _, _ in long.source.asked[asked:]] == ["9", "12"]
    assert await long.events() == []
    said = (await long.statements("reconciled"))[-1]
    assert (said["pages"], said["records"], said["from"]) == (5, 14, "2026-11-21T12:01:10.000Z")
    assert await long.store.feed((await long.tracked.state()).feed).load_checkpoint() is None
    await long.read_whole(after=120)
    assert await long.events() == ["b deleted 1"]


async def test_the_second_pass_that_confirms_counts_from_where_it_really_began(long: Rig) -> None:
    del long.source.records["b"]
    await long.read_whole()
    await interrupt(long, 4)
    await long.read_whole(after=60)
    assert await long.events() == []


async def test_a_pass_that_goes_on_knows_what_it_had_shown_before(long: Rig) -> None:
    await interrupt(long, 4)
    long.source.put("a", status="packed")  # it stood on the first page, and now on the last one
    await long.read_whole()
    state = await long.tracked.state()
    assert state.full is not None
    assert (state.full.tally.repeated, state.full.records) == (1, 15)


async def test_one_key_on_both_sides_of_an_interruption_is_not_proven(rig: Rig) -> None:
    for number in range(10):
        rig.source.put(f"n{number}", status="open")
    rig.source.records["twin"] = rig.source.records["a"] | {"status": "twin"}
    await interrupt(rig, 4)
    with pytest.raises(SchemaMismatch, match="1 of 16 records came twice"):
        await rig.read_whole()
    assert rig.source.asked[-1][0] == "15"
    assert not (await rig.tracked.reload()).proven


async def test_a_pass_whose_cursor_died_with_the_process_begins_again(long: Rig) -> None:
    del long.source.records["n8"]
    await interrupt(long, 4)
    asked = len(long.source.asked)

    def expire(request: int) -> None:
        if request == asked + 1:
            raise CursorExpired("HTTP 410")

    long.source.before_page = expire
    assert await long.read_whole() == ""
    assert [cursor for cursor, _, _ in long.source.asked[asked:]] == ["9", None, "3", "6", "9", "12"]
    await long.read_whole(after=120)
    assert await long.events() == ["n8 deleted 1"]


async def test_a_pass_that_was_interrupted_long_ago_begins_anew(long: Rig) -> None:
    await interrupt(long, 4)
    asked = len(long.source.asked)
    await long.read_whole(after=3601)
    assert [cursor for cursor, _, _ in long.source.asked[asked:]] == [None, "3", "6", "9", "12"]


async def test_a_pass_that_comes_no_further_begins_anew(long: Rig) -> None:
    await interrupt(long, 4, SourceUnavailable("HTTP 503"))
    await interrupt(long, 1, SourceUnavailable("HTTP 503"))
    asked = len(long.source.asked)
    await long.read_whole()
    assert long.source.asked[asked][0] is None


async def test_a_checkpoint_of_another_version_is_not_used(long: Rig) -> None:
    state = await long.tracked.state()
    await long.store.feed(state.feed).save_checkpoint(Checkpoint("9", b"{}", SeenRows(15), SeenRows(15), long.clock()))
    assert await long.read_whole() == ""
    assert long.source.asked[0][0] is None


async def test_what_polls_showed_before_a_crash_is_not_missed_after_it(long: Rig) -> None:
    rig = long
    rig.source.put("n9")
    record = rig.source.records.pop("n9")
    asked = len(rig.source.asked)
    rig.clock.pass_(20)

    async def poll() -> None:
        rig.source.records = {"n9": record | {"updated_at": format_moment(rig.clock())}, **rig.source.records}
        await rig.poll(after=0)
        rig.source.records.pop("n9")

    rig.after_pages(lambda _: len(rig.source.asked) == asked + 2, poll)
    await interrupt(rig, 5)
    await rig.read_whole()
    assert (await rig.tracked.state()).confirm_at is None


# The first pass, published -------------------------------------------------------------------------------------------


async def test_the_first_pass_states_each_record_where_that_is_wanted(rig: Rig) -> None:
    rig.settings = {"first_pass": "emit"}
    rig.restart()
    await rig.read_whole()
    assert await rig.events() == [f"{key} snapshot 0" for key in "abcde"]


async def test_under_a_configured_key_each_record_is_stated_as_it_is_met(rig: Rig) -> None:
    def look(request: int) -> None:
        if request == 2:
            raise KeyboardInterrupt

    rig.restart(first_pass="emit", key="/id")
    rig.source.before_page = look
    with pytest.raises(KeyboardInterrupt):
        await rig.read_whole()
    assert await rig.events() == [f"{key} snapshot 0" for key in "abc"]
    rig.source.before_page = lambda _: None
    rig.restart()
    await rig.read_whole()
    assert await rig.events() == [f"{key} snapshot 0" for key in "abcde"]
    assert {body["via"] for body in await rig.bodies()} == {"first_pass"}


async def test_a_crash_in_the_middle_of_stating_them_states_none_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.detection.reconciler._EMITTED_AT_ONCE", 2)
    emit = rig.store.feed(rig.feed).emit_snapshots
    calls = 0

    async def emit_or_crash(*args: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return await emit(*args)

    rig.name_by_code()
    rig.restart(first_pass="emit")
    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "emit_snapshots", emit_or_crash)
        with pytest.raises(KeyboardInterrupt):
            await rig.read_whole()
    assert await rig.events() == ["a snapshot 0", "b snapshot 0"]
    rig.restart()
    await rig.read_whole()
    assert await rig.events() == [f"{key} snapshot 0" for key in "abcde"]
    rig.source.put("a", status="packed")
    await rig.poll()
    assert (await rig.events())[5:] == ["a updated 1"]


async def test_what_changes_after_a_crash_in_the_middle_of_stating_records_is_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stock(tmp_path, first_pass="emit") as rig:
        rig.name_by_code()
        for key in "abcd":
            rig.source.put(key, available=5)
        emit = rig.store.feed(rig.feed).emit_snapshots

        async def crash(detector: Any, compose: Any, limit: int) -> int:
            await emit(detector, compose, limit // 250)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(rig.store.feed(rig.feed), "emit_snapshots", crash)
            with pytest.raises(KeyboardInterrupt):
                await rig.read_whole()
        for key in "ae":
            rig.source.put(key, available=4)
        rig.restart()
        await rig.read_whole()
        expected = ["a snapshot 0", "b snapshot 0", "a updated 1", "c snapshot 0", "d snapshot 0", "e snapshot 0"]
        assert await rig.events() == expected


async def test_a_feed_that_is_read_differently_states_no_record_again(rig: Rig) -> None:
    rig.restart(first_pass="emit")
    await rig.read_whole()
    rig.restart(expand=("lines",))
    await rig.read_whole()
    assert len(await rig.events()) == 5
