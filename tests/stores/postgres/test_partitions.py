"""The outbox by days: where events go, what is dropped with a day and what is not, and what holds across days."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.model import Change, Event, Statement
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Settlement
from dockbell.core.reading.shape import Shape
from dockbell.errors import LeaseLost, StoreUnavailable
from dockbell.stores.postgres import PostgresStore
from tests.fakes import NOON, Clock
from tests.stores.pages import COMPOSE, FEED, OTHER, commit
from tests.stores.standings import read, write

DAYS = "SELECT tableoid :: regclass :: text, sequence FROM events ORDER BY sequence"
WEEK = timedelta(days=7)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(postgres_url: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    """Return a store with two feeds, of which nothing is recorded yet."""
    store = await PostgresStore.open(postgres_url, now=clock, epoch="epoch")
    for feed in (FEED, OTHER):
        await store.feed(feed).open()
        await store.feed(feed).save_shape(Shape(("/id",), None, None), proven=True)
    yield store
    await store.aclose()


async def record(store: PostgresStore, clock: Clock, days: int) -> None:
    """Record an event a day; the janitor makes the days ahead as it does each ten minutes."""
    state = await store.feed(FEED).open()
    for day in range(days):
        await store.retention.prune_events(clock() - WEEK, ["erp"])
        await commit(store, state, {"id": "abc"[day % 3], "x": day})
        clock.pass_(86400)


async def kept(store: PostgresStore) -> list[int]:
    return [event.sequence for event in await store.read_events(FEED, 0, 100)]


def list_days(url: str) -> list[str]:
    found = read(url, "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' ORDER BY relname")
    return [str(name) for (name,) in found]


# Days ahead ----------------------------------------------------------------------------------------------------------


async def test_today_and_the_days_to_come_have_a_partition_from_the_beginning_on(
    postgres_url: str, store: PostgresStore
) -> None:
    days = [f"events_{NOON + timedelta(days=day):%Y%m%d}" for day in range(3)]
    assert list_days(postgres_url) == [*days, "events_default"]


async def test_events_lie_in_the_day_on_which_they_were_recorded(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    await record(store, clock, 3)
    days = [f"events_{NOON + timedelta(days=day):%Y%m%d}" for day in range(3)]
    assert read(postgres_url, DAYS) == list(zip(days, [1, 2, 3], strict=True))


async def test_events_for_whose_day_there_is_no_partition_are_recorded_and_move_when_it_is_made(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    state = await store.feed(FEED).open()
    clock.pass_(10 * 86400)
    await commit(store, state, {"id": "a"}, {"id": "b"})
    assert read(postgres_url, DAYS) == [("events_default", 1), ("events_default", 2)]
    await store.retention.prune_events(clock() - WEEK, [])
    day = f"events_{clock():%Y%m%d}"
    assert read(postgres_url, DAYS) == [(day, 1), (day, 2)]
    assert await kept(store) == [1, 2]


async def test_a_backup_that_is_being_made_holds_up_neither_a_start_nor_events(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    state = await store.feed(FEED).open()
    clock.pass_(10 * 86400)
    with closing(psycopg.connect(postgres_url)) as dumping:
        dumping.execute("LOCK TABLE events, events_default IN ACCESS SHARE MODE")
        await store.retention.prune_events(clock() - WEEK, [])
        await commit(store, state, {"id": "a"})
        assert read(postgres_url, DAYS) == [("events_default", 1)]


async def test_where_events_are_kept_for_long_partitions_are_wider(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    for _ in range(60):
        clock.pass_(86400)
        await store.retention.prune_events(clock() - timedelta(days=365), [])
    assert len(list_days(postgres_url)) <= 3 + 1 + 3


async def test_a_clock_that_is_set_back_gets_the_days_that_it_shows(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "a"})
    clock.pass_(-5 * 86400)
    await store.retention.prune_events(clock() - WEEK, [])
    await commit(store, state, {"id": "b"})
    days = [f"events_{NOON + timedelta(days=day):%Y%m%d}" for day in (0, -5)]
    assert read(postgres_url, DAYS) == list(zip(days, [1, 2], strict=True))
    assert await kept(store) == [1, 2]


# Days that are over --------------------------------------------------------------------------------------------------


async def test_a_day_is_dropped_when_all_of_it_is_older_than_events_are_kept(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    await record(store, clock, 7)
    clock.pass_(11 * 3600)  # the first event is older than a week, but others of its day may not be
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 0
    clock.pass_(3600)
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 1
    assert await kept(store) == [2, 3, 4, 5, 6, 7]
    assert f"events_{NOON:%Y%m%d}" not in list_days(postgres_url)
    assert (await store.find_extents())[FEED].pruned == 1
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 0


async def test_events_that_are_kept_for_hours_are_deleted_one_by_one(store: PostgresStore, clock: Clock) -> None:
    state = await store.feed(FEED).open()
    for hour in range(4):
        await commit(store, state, {"id": "a", "x": hour})
        clock.pass_(3600)
    assert await store.retention.prune_events(clock() - timedelta(hours=2, minutes=30), []) == 2
    assert await kept(store) == [3, 4]


async def test_what_is_owed_of_a_day_that_is_dropped_is_kept_and_goes_when_it_is_settled(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    await store.sink("erp").enroll("beginning")
    await record(store, clock, 20)
    owed = {(FEED, "a"): Blocked(FEED, "a", 4, 1, NOON)}
    dead = [DeadLetter(FEED, "b", 2, 1, NOON, "HTTP 422")]
    await store.sink("erp").settle(Settlement({FEED: 9}, owed, set(), dead))
    write(postgres_url, "INSERT INTO replays (sink, feed, sequence, key) VALUES ('erp', 1, 3, 'c')")
    entries = read(postgres_url, "SELECT entry, id FROM events WHERE sequence IN (2, 3, 4, 7) ORDER BY sequence")
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 5
    assert await kept(store) == [2, 3, 4, 7, *range(10, 21)]
    assert (
        read(postgres_url, "SELECT entry, id FROM events WHERE sequence IN (2, 3, 4, 7) ORDER BY sequence") == entries
    )
    assert {table for table, sequence in read(postgres_url, DAYS) if int(str(sequence)) < 14} == {"events_default"}
    await store.sink("erp").settle(Settlement({FEED: 20}, {}, {(FEED, "a")}, [], revived=dead))
    write(postgres_url, "DELETE FROM replays")
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 8
    assert await kept(store) == list(range(14, 21))


async def test_a_day_of_which_much_is_owed_stays_and_what_is_settled_of_it_goes(
    postgres_url: str, store: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.stores.postgres.partitions._MOVED_MOST", 1)
    await store.sink("erp").enroll("beginning")
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": key} for key in "abcd"))
    await store.sink("erp").settle(Settlement({FEED: 2}))
    clock.pass_(9 * 86400)
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 2
    assert read(postgres_url, DAYS) == [(f"events_{NOON:%Y%m%d}", 3), (f"events_{NOON:%Y%m%d}", 4)]
    await store.sink("erp").settle(Settlement({FEED: 3}))
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 1
    assert read(postgres_url, DAYS) == [("events_default", 4)]


@pytest.mark.parametrize(("sequence", "is_lost"), [(1, True), (4, True), (5, False)])
async def test_a_sink_that_left_and_comes_back_is_told_what_it_lost_with_a_day(
    store: PostgresStore, clock: Clock, sequence: int, *, is_lost: bool
) -> None:
    await store.sink("erp").enroll("beginning")
    state = await store.feed(FEED).open()
    for number in range(4):
        await commit(store, state, {"id": "a", "x": number})
    entry = {(FEED, "a"): Blocked(FEED, "a", sequence, 1, NOON)}
    await store.sink("erp").settle(Settlement({FEED: 4}, entry))
    clock.pass_(9 * 86400)
    assert await store.retention.prune_events(clock() - WEEK, ["other"]) == 4
    assert await store.sink("erp").enroll("now") == ([FEED] if is_lost else [])


async def test_a_sink_that_is_behind_is_not_taken_for_one_that_lost_events(store: PostgresStore, clock: Clock) -> None:
    await store.sink("erp").enroll("beginning")
    await record(store, clock, 9)
    await store.sink("erp").settle(Settlement({FEED: 1}))
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 1
    assert await store.sink("erp").enroll("now") == []
    assert (await kept(store))[0] == 2


async def test_a_day_that_another_session_reads_is_dropped_the_next_time(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    await record(store, clock, 9)
    with closing(psycopg.connect(postgres_url)) as dumping:
        dumping.execute("LOCK TABLE events IN ACCESS SHARE MODE")
        assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 1  # its events go one by one
        assert f"events_{NOON + timedelta(days=1):%Y%m%d}" in list_days(postgres_url)
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 0
    assert f"events_{NOON + timedelta(days=1):%Y%m%d}" not in list_days(postgres_url)
    assert await kept(store) == [3, 4, 5, 6, 7, 8, 9]


# Across days ---------------------------------------------------------------------------------------------------------


async def test_no_number_and_no_id_is_used_twice_across_days_and_after_their_pruning(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    await record(store, clock, 5)
    ids = {str(each) for (each,) in read(postgres_url, "SELECT id FROM events")}
    clock.pass_(30 * 86400)
    assert await store.retention.prune_events(clock() - WEEK, ["erp"]) == 5
    await record(store, clock, 2)
    assert await kept(store) == [6, 7]
    assert not ids & {str(each) for (each,) in read(postgres_url, "SELECT id FROM events")}
    assert read(postgres_url, "SELECT entry FROM events ORDER BY sequence") == [(6,), (7,)]


async def test_a_page_whose_lost_commit_comes_after_all_is_not_stored_again_on_the_next_day(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    """Its numbers were read before; the unique index of the next day knows nothing of this one's."""
    await record(store, clock, 1)
    state = await store.feed(FEED).open()

    def compose(item: Change | Statement, sequence: int) -> Sequence[Event]:
        """Let the commit that was taken for lost come now: after the numbers were read."""
        write(postgres_url, "UPDATE feeds SET sequence = sequence + 1 WHERE id = 1")
        return COMPOSE(item, sequence)

    with pytest.raises(StoreUnavailable, match="that seemed lost had succeeded; nothing was stored again"):
        await commit(store, state, {"id": "z"}, compose=compose)
    assert await kept(store) == [1]
    await commit(store, state, {"id": "z"})
    assert await kept(store) == [1, 3]


async def test_whoever_has_lost_a_feed_adds_no_event_on_the_next_day_either(
    postgres_url: str, store: PostgresStore, clock: Clock
) -> None:
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "a"})
    write(postgres_url, "UPDATE feeds SET token = token + 1 WHERE id = 1")
    clock.pass_(86400)
    with pytest.raises(LeaseLost):
        await commit(store, state, {"id": "b"})
    assert await kept(store) == [1]


async def test_a_purge_empties_the_events_of_all_days(store: PostgresStore, clock: Clock) -> None:
    await record(store, clock, 4)
    purged = await store.privacy.purge(FEED, "a", partial(purge, FEED), COMPOSE)
    assert purged.events == 2
    assert all(b'"x"' not in event.body for event in await store.read_events(FEED, 0, 100, key="a"))
