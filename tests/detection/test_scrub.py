"""What is never stored: it is taken out of readings, and out of what was stored before that was said."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from dockbell.core.model import ChangeKind, Page
from dockbell.detection.detail_fetcher import DetailFetcher
from dockbell.errors import SchemaMismatch
from dockbell.stores.handles.feed_store import SqlFeedStore
from dockbell.telemetry import FeedCleaned
from tests.rig import SHIPMENTS, Rig, open_rig

MAIL: Final = "canary-mail@example.com"
PHONE: Final = "canary-phone-0049"
DROP: Final = {"drop": ("/recipient/email", "/packages/*/phone")}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Return a rig whose records hold personal data, read whole once."""
    async with open_rig(tmp_path) as rig:
        for key in "abcde":
            put(rig, key, "open")
        await rig.read_whole()
        yield rig


def put(rig: Rig, key: str, status: str, mail: str = MAIL) -> None:
    packages = [{"n": 1, "phone": PHONE}]
    rig.source.put(key, status=status, recipient={"name": "N", "email": mail}, packages=packages)


def find(rig: Rig) -> list[str]:
    """Return which of the canaries are in the files of the store."""
    files = [path.read_bytes() for path in rig.store.path.parent.glob("dockbell.db*")]
    return [canary for canary in (MAIL, PHONE) if any(canary.encode() in text for text in files)]


def rows(rig: Rig, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(rig.store.path)) as connection:
        return connection.execute(statement).fetchall()


# What is read --------------------------------------------------------------------------------------------------------


async def test_what_is_dropped_from_the_start_reaches_no_file(tmp_path: Path) -> None:
    async with open_rig(tmp_path, **DROP, first_pass="emit", confirm_after="1s", stale_window="0s") as rig:
        for key in "abcde":
            put(rig, key, "open")
        await rig.read_whole()
        put(rig, "b", "packed", "new" + MAIL)
        put(rig, "f", "open")
        del rig.source.records["c"]
        await rig.poll()
        await rig.read_whole()
        await rig.read_whole()
        assert [each for each in await rig.events() if "snapshot" not in each] == [
            "b updated 1",
            "f created 1",
            "c deleted 1",
        ]
        (update,) = [data for data in await rig.bodies() if data["change"] == "updated"]
        assert update["after"]["recipient"] == {"name": "N"}
        assert [op["path"] for op in update["patch"]] == ["/status", "/updated_at"]
        assert find(rig) == []
        assert (await rig.tracked.state()).cleaning == ()


async def test_a_change_of_what_is_dropped_is_none(tmp_path: Path) -> None:
    async with open_rig(tmp_path, **DROP) as rig:
        put(rig, "a", "open")
        await rig.read_whole()
        put(rig, "a", "open", "other" + MAIL)
        await rig.poll()
        assert await rig.events() == []


async def test_a_detail_comes_without_what_is_dropped(tmp_path: Path) -> None:
    async with open_rig(tmp_path, **DROP, detail=("packages",)) as rig:
        rig.feed = SHIPMENTS
        rig.restart()
        put(rig, "a", "open")
        await rig.read_whole()
        put(rig, "a", "packed")
        await rig.poll()
        await DetailFetcher(rig.tracked).run_once()
        (update,) = await rig.bodies()
        assert update["after"]["packages"] == [{"n": 1}]
        assert find(rig) == []


async def test_a_record_that_cannot_be_read_is_in_quarantine_without_its_text(tmp_path: Path) -> None:
    bad = [f'{{"id":"{key}","recipient":{{"\\ud800":1,"email":"{MAIL}"}}}}'.encode() for key in "yz"]

    def spoil(page: Page) -> Page:
        return replace(page, records=(*page.records, *bad))

    async with open_rig(tmp_path, **DROP) as rig:
        rig.spoil(spoil)
        for _ in range(2):
            await rig.read_whole()
            assert (await rig.tracked.state()).quarantined == len(bad)
        assert find(rig) == []
        stored = b"".join(digest + body for digest, body in rows(rig, "SELECT digest, body FROM quarantine"))
        for raw in bad:
            plain = blake2b(raw, digest_size=16)
            assert plain.digest() not in stored, "whoever guesses the record could tell"
            assert plain.hexdigest().encode() not in stored


async def test_what_was_learned_to_tell_records_apart_cannot_be_dropped(rig: Rig) -> None:
    rig.restart(drop=("/id",))
    with pytest.raises(SchemaMismatch, match=r'/id identifies or dates the records, got drop = \["/id"\]; remove it'):
        await rig.poll()


# What is stored ------------------------------------------------------------------------------------------------------


async def test_what_was_stored_before_is_cleaned_without_an_event(rig: Rig) -> None:
    put(rig, "b", "packed", "old" + MAIL)
    await rig.poll()
    assert find(rig) == [MAIL, PHONE]
    written = await rig.events()
    rig.restart(**DROP)
    assert set((await rig.tracked.state()).cleaning) == set(DROP["drop"])
    assert await rig.delay() == 0
    await rig.read_whole()
    assert find(rig) == []
    assert await rig.events() == written
    assert await rig.statements("rebaselined") == []
    (cleaned,) = [fact for fact in rig.ear.facts if isinstance(fact, FeedCleaned)]
    assert str(cleaned) == "main/packages: /packages/*/phone, /recipient/email dropped from 5 records and 1 event"
    state = await rig.tracked.state()
    assert (state.cleaning, set(state.dropped)) == ((), set(DROP["drop"]))
    (update,) = await rig.bodies()
    assert update["before"]["recipient"] == update["after"]["recipient"] == {"name": "N"}
    assert [op["path"] for op in update["patch"]] == ["/status", "/updated_at"]
    await rig.read_whole()
    notes = rows(rig, "SELECT finding FROM notes")
    assert notes == [("UPDATED",)]  # cleaned records look as they come from now on


async def test_a_change_that_comes_before_the_cleaning_has_a_clean_record_before_it(rig: Rig) -> None:
    rig.restart(**DROP)
    put(rig, "b", "packed", "old" + MAIL)
    await rig.poll()
    (update,) = await rig.bodies()
    assert update["before"]["recipient"] == {"name": "N"}
    assert [op["path"] for op in update["patch"]] == ["/status", "/updated_at"]
    await rig.read_whole()
    assert await rig.events() == ["b updated 1"]


async def test_a_cleaning_goes_on_where_it_was_interrupted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    put(rig, "b", "packed")
    await rig.poll()
    monkeypatch.setattr("dockbell.detection.scrub._AT_ONCE", 2)
    looked: list[int] = []
    clean = SqlFeedStore.clean

    async def clean_some(store: SqlFeedStore, *args: Any) -> tuple[int, int] | None:
        if len(looked) == 2:
            raise OSError("the power is gone")
        found = await clean(store, *args)
        looked.append(sum(found or ()))
        return found

    monkeypatch.setattr(SqlFeedStore, "clean", clean_some)
    rig.restart(**DROP)
    with pytest.raises(OSError, match="power"):
        await rig.read_whole()
    assert looked == [2, 2]
    assert json.loads(rows(rig, "SELECT cleaning FROM feeds")[0][0])["place"] > 0
    looked.append(0)
    rig.restart()
    await rig.read_whole()
    assert looked == [2, 2, 0, 1, 0, 1, 0, 0, 0]
    assert find(rig) == []


async def test_a_cleaning_goes_on_until_no_trace_is_left(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.stores.sqlite.wiping._PATIENCE", 20)
    rig.restart(**DROP)
    with closing(sqlite3.connect(rig.store.path, isolation_level=None)) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT * FROM records").fetchall()
        began = time.monotonic()
        await rig.read_whole()
        assert time.monotonic() - began < 10, "the others wait meanwhile to write"
        assert set((await rig.tracked.state()).cleaning) == set(DROP["drop"])
        assert find(rig) == [MAIL, PHONE]
        pauses = [await rig.delay()]
        for _ in range(2):
            await rig.read_whole()
            pauses.append(await rig.delay())
        assert pauses == [120, 240, 480]
        backup.execute("COMMIT")
    await rig.read_whole()
    assert find(rig) == []
    assert ((await rig.tracked.state()).cleaning, await rig.delay()) == ((), 86_400)
    problems = [fact.problem for fact in rig.ear.facts if isinstance(fact, FeedCleaned)]
    assert problems == ["the write-ahead log of the store cannot be emptied while a process reads it"] * 3 + [""]


async def test_a_store_too_large_for_a_daemon_is_clean_once_nobody_waits_for_it(rig: Rig) -> None:
    rig.restart(**DROP)
    rig.reconciler.rewrite_most = 4096
    await rig.read_whole()
    assert set((await rig.tracked.state()).cleaning) == set(DROP["drop"])
    rig.restart()
    rig.reconciler.rewrite_most = None
    assert await rig.delay() == 0
    await rig.read_whole()
    assert (await rig.tracked.state()).cleaning == ()
    (first, second) = [fact for fact in rig.ear.facts if isinstance(fact, FeedCleaned)]
    assert "too much to rewrite unless the daemon is stopped" in str(first)
    assert second.problem == ""


async def test_what_is_no_longer_dropped_comes_back_without_events(rig: Rig) -> None:
    rig.restart(**DROP)
    await rig.read_whole()
    rig.restart(drop=("/packages/*/phone",))
    await rig.read_whole()
    assert find(rig) == [MAIL]
    assert await rig.events() == []
    assert [each["parts"] for each in await rig.statements("rebaselined")] == [["drop"]]
    rig.restart(**DROP)  # it may be stored by now
    assert (await rig.tracked.state()).cleaning == ("/recipient/email",)
    await rig.read_whole()
    assert find(rig) == []
    assert await rig.events() == []


async def test_what_was_ignored_may_be_dropped_and_ignored_again(rig: Rig) -> None:
    rig.restart(ignore=DROP["drop"])
    await rig.read_whole()
    for settings in ({"ignore": (), **DROP}, {"ignore": DROP["drop"], "drop": ()}):
        rig.restart(**settings)
        await rig.read_whole()
    assert await rig.statements("rebaselined") == []
    assert await rig.events() == []


async def test_tombstones_and_held_readings_are_cleaned_too(tmp_path: Path) -> None:
    async with open_rig(tmp_path, confirm_after="1s") as rig:
        for key in "abc":
            put(rig, key, "open")
        await rig.read_whole()
        old = dict(rig.source.records["a"])
        put(rig, "a", "packed")
        del rig.source.records["b"]
        await rig.poll()
        await rig.read_whole()
        rig.clock.pass_(61)
        await rig.read_whole()
        assert "b deleted 1" in await rig.events()
        rig.source.records["a"] = old | {"updated_at": "2026-11-21T11:00:00Z"}
        await rig.read_whole()
        assert rows(rig, "SELECT count(*) FROM holds") == [(1,)]
        rig.restart(**DROP)
        await rig.read_whole()
        assert find(rig) == []
        assert {data["change"] for data in await rig.bodies()} == {ChangeKind.UPDATED, ChangeKind.DELETED}


async def test_who_keeps_copies_of_records_reads_them_again_once_they_are_clean(rig: Rig) -> None:
    before = (await rig.store.find_extents())[rig.feed].baselines
    rig.restart(**DROP)
    await rig.read_whole()
    assert (await rig.store.find_extents())[rig.feed].baselines == before + 1
    rig.restart()
    await rig.read_whole()
    assert (await rig.store.find_extents())[rig.feed].baselines == before + 1
