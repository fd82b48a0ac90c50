from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dockbell.admin import replaying
from dockbell.admin.replaying import (
    FeedReplay,
    Replayed,
    Replaying,
    Retried,
    discard_dead,
    find_sinks_with_dead,
    forget_replays,
    read_keys,
    read_span,
    read_time,
    retry_dead,
)
from dockbell.config import SinkSettings
from dockbell.core.model import Feed
from dockbell.ports import Selection
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from tests.fakes import NOON, Clock
from tests.stores.pages import FEED, OTHER, commit
from tests.stores.standings import block, kill, read, stand, waiting, write

MINUTE = timedelta(minutes=1)
ALL = Selection()
NONE = Feed("main", "items")


@dataclass
class Rig:
    """A store with twenty-five events of five keys, of which a sink has settled twenty; and a command store at it."""

    path: Path
    command_store: SqliteCommandStore
    told: list[tuple[int, int, int]] = field(default_factory=list)

    async def replay(self, selection: Selection = ALL, *, dry: bool = False, **settings: Any) -> Replayed:
        sink = SinkSettings(type="stdout", **settings)
        reaches = await self.command_store.load_reaches("erp", sink.start)
        run = Replaying(self.command_store, "erp", sink, reaches, selection)
        return await run.run(NOON, lambda *counts: self.told.append(counts), dry=dry)

    def waiting(self) -> list[int]:
        return [sequence for _, sequence in waiting(self.path, "erp")]


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(replaying, "_AT_ONCE", 4)
    monkeypatch.setattr(replaying, "_LOOK_AT_ONCE", 6)
    monkeypatch.setattr(replaying, "_WRITE_AT_ONCE", 3)
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "a.db", now=clock)
    state = await store.feed(FEED).open()
    await store.feed(OTHER).open()
    for number in range(25):
        clock.time = NOON + number * MINUTE
        await commit(store, state, {"id": "abcde"[number % 5], "number": number})
    await store.aclose()
    stand(store.path, "erp", 20, origin=8)
    command_store = await SqliteCommandStore.open(store.path)
    yield Rig(store.path, command_store)
    await command_store.aclose()


# What is asked for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "span"),
    [("5", (5, 5)), ("5-10", (5, 10)), ("5-", (5, None)), ("-10", (None, 10)), ("5-5", (5, 5)), ("00042", (42, 42))],
)
def test_sequences_are_one_or_a_range(text: str, span: tuple[int | None, int | None]) -> None:
    assert read_span(text) == span


@pytest.mark.parametrize("text", ["", "-", "x", "5-x", "5--6", "9" * 19, "1.5"])
def test_what_is_no_sequence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'^must be a sequence or a range such as "5-10", got "'):
        read_span(text)


def test_a_range_must_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match=r'^must not end before it begins, got "7-6"$'):
        read_span("7-6")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", NOON - timedelta(hours=2)),
        ("1d12h", NOON - timedelta(hours=36)),
        ("2026-11-21T11:30", NOON - timedelta(minutes=30)),
        ("2026-11-21 12:30:00+01:00", NOON - timedelta(minutes=30)),
        ("2026-11-21T11:30:00.5Z", NOON - timedelta(seconds=1799.5)),
        ("2026-11-21", NOON - timedelta(hours=12)),
    ],
)
def test_a_time_is_a_date_or_how_long_ago_it_was(text: str, moment: datetime) -> None:
    assert read_time(text, NOON) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2 hours", "-2h", "99999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'^must be a time such as "2026-11-21T02:30" or "2h" for two hours ago, got '):
        read_time(text, NOON)


def test_a_key_is_understood_as_it_is_in_events_and_as_the_api_writes_it() -> None:
    assert read_keys(["shp_1", "a/b", "shp_1"]) == ("shp_1", "a%2Fb")


# Replays -------------------------------------------------------------------------------------------------------------


async def test_all_that_is_settled_is_sent_again_in_order_and_what_is_owed_is_not(rig: Rig) -> None:
    replayed = await rig.replay()
    assert replayed.feeds == [FeedReplay(FEED, chosen=20, owed=5), FeedReplay(OTHER)]
    assert (replayed.chosen, replayed.problems) == (20, [])
    assert rig.waiting() == list(range(1, 21))
    assert [event.sequence for event in replayed.sample] == [1, 2, 3, 4, 5]


async def test_a_dry_run_finds_the_same_and_writes_nothing(rig: Rig) -> None:
    dry = await rig.replay(dry=True)
    assert rig.waiting() == []
    assert dry == await rig.replay()


async def test_what_is_repeated_is_not_entered_twice(rig: Rig) -> None:
    await rig.replay(Selection(keys=("a",)))
    assert rig.waiting() == [1, 6, 11, 16]
    replayed = await rig.replay(Selection(first=1, last=7))
    assert replayed.feeds == [FeedReplay(FEED, chosen=5, waiting=2), FeedReplay(OTHER)]
    assert rig.waiting() == [11, 16, 1, 2, 3, 4, 5, 6, 7]


async def test_the_filters_of_the_sink_hold_back_what_it_would_not_have_got(rig: Rig) -> None:
    replayed = await rig.replay(changes=("created",), where="key != 'b'")
    assert replayed.feeds[0] == FeedReplay(FEED, chosen=4, filtered=21)
    assert rig.waiting() == [1, 3, 4, 5]


async def test_feeds_that_the_sink_does_not_want_are_left_out(rig: Rig) -> None:
    assert (await rig.replay(resources=("stock",))).feeds == [FeedReplay(OTHER)]
    sink = SinkSettings(type="stdout", resources=("stock",))
    reaches = await rig.command_store.load_reaches("erp", "now")
    run = Replaying(rig.command_store, "erp", sink, reaches, Selection(feeds=(FEED, OTHER)))
    assert (run.feeds, run.unwanted) == ([OTHER], [FEED])


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(feeds=(FEED,), first=3, last=5), [3, 4, 5]),
        (Selection(last=2), [1, 2]),
        (Selection(first=19), [19, 20]),
        (Selection(since=NOON + 17 * MINUTE), [18, 19, 20]),
        (Selection(never_sent=True), [1, 2, 3, 4, 5, 6, 7, 8]),
        (Selection(never_sent=True, first=7), [7, 8]),
        (Selection(failed=True), [12, 17]),
        (Selection(failed=True, never_sent=True, first=8), [8, 12, 17]),
    ],
)
async def test_events_are_chosen_across_portions(rig: Rig, selection: Selection, chosen: list[int]) -> None:
    kill(rig.path, "erp", "b", 12)
    kill(rig.path, "erp", "b", 17)
    await rig.replay(selection)
    assert rig.waiting() == chosen


async def test_a_sink_that_is_new_was_never_sent_anything_unless_it_begins_at_the_beginning(rig: Rig) -> None:
    write(rig.path, "DELETE FROM positions")
    assert (await rig.replay(Selection(never_sent=True), dry=True)).chosen == 25
    replayed = await rig.replay(start="beginning")
    assert replayed.feeds[0] == FeedReplay(FEED, owed=25)


async def test_dead_letters_that_are_sent_again_are_dead_no_longer_and_outlive_what_is_pruned(rig: Rig) -> None:
    kill(rig.path, "erp", "a", 1)
    write(rig.path, "UPDATE feeds SET pruned = 5")
    write(rig.path, "DELETE FROM events WHERE sequence BETWEEN 2 AND 5")
    assert (await rig.replay(Selection(failed=True))).chosen == 1
    assert await find_sinks_with_dead(rig.command_store) == []
    assert (await rig.replay(dry=True)).chosen == 15


async def test_what_was_asked_for_and_is_not_there_is_a_problem(rig: Rig) -> None:
    write(rig.path, "UPDATE feeds SET pruned = 5")
    replayed = await rig.replay(Selection(feeds=(FEED, NONE), ids=("evt_b", "evt_a"), first=5, last=26))
    assert replayed.problems == [
        "event evt_a: is not among the kept events of these feeds",
        "event evt_b: is not among the kept events of these feeds",
        "feed main/shipments: events up to 5 are no longer kept",
        "feed main/shipments: its last event is 25",
        "feed main/items: was never read",
    ]


async def test_an_event_that_is_found_is_no_problem_even_where_it_is_owed(rig: Rig) -> None:
    (found,) = read(rig.path, "SELECT id FROM events WHERE sequence = 25")
    replayed = await rig.replay(Selection(ids=(str(found[0]),)))
    assert (replayed.problems, replayed.feeds[0]) == ([], FeedReplay(FEED, owed=1))


async def test_it_is_told_how_far_it_is(rig: Rig) -> None:
    await rig.replay(Selection(keys=("a",), last=20))
    assert rig.told == [(6, 20, 2), (12, 20, 3), (18, 20, 4), (20, 20, 4)]
    rig.told.clear()
    await rig.replay(Selection(first=11, last=20))
    assert rig.told == [(4, 10, 3), (8, 10, 6), (10, 10, 8)]


async def test_replays_that_wait_are_forgotten(rig: Rig) -> None:
    await rig.replay()
    assert await forget_replays(rig.command_store, "erp") == 20
    assert rig.waiting() == []


# Dead letters --------------------------------------------------------------------------------------------------------


async def test_dead_letters_are_retried_in_portions_and_keys_on_hold_go_on(rig: Rig) -> None:
    for sequence in range(1, 11):
        kill(rig.path, "erp", "eabcd"[sequence % 5], sequence)
    kill(rig.path, "erp", "gone", 11)
    kill(rig.path, "erp", "x", 9, feed=OTHER)
    kill(rig.path, "another", "a", 1)
    block(rig.path, "erp", "c", 8, held=True)
    sink = SinkSettings(type="stdout")
    assert await retry_dead(rig.command_store, "erp", sink, ALL, NOON) == Retried(entered=9, released=1, missing=2)
    assert rig.waiting() == [1, 2, 3, 4, 5, 6, 7, 9, 10]
    left = read(rig.path, "SELECT sink, sequence FROM dead_letters ORDER BY sink, feed, sequence")
    assert left == [("another", 1), ("erp", 11), ("erp", 9)]
    assert await find_sinks_with_dead(rig.command_store) == ["another", "erp"]


@pytest.mark.parametrize(
    ("settings", "selection", "filtered", "sent"),
    [
        ({"where": "key != 'b'"}, ALL, 2, [1, 3, 4, 5, 6, 8, 9, 10]),
        ({"where": "after.none"}, ALL, 10, []),
        ({"resources": ("stock",)}, ALL, 10, []),
        ({"changes": ("created",)}, Selection((FEED,), keys=("a", "b"), first=2, last=8), 2, [2]),
    ],
)
async def test_dead_letters_that_the_filters_hold_back_by_now_stay(
    rig: Rig, settings: Mapping[str, Any], selection: Selection, filtered: int, sent: list[int]
) -> None:
    for sequence in range(1, 11):
        kill(rig.path, "erp", "eabcd"[sequence % 5], sequence)
    came = await retry_dead(rig.command_store, "erp", SinkSettings(type="stdout", **settings), selection, NOON)
    assert (came.filtered, rig.waiting()) == (filtered, sent)


async def test_a_filter_that_may_take_long_is_judged_all_the_same(rig: Rig) -> None:
    store = await SqliteStore.open(rig.path, now=Clock())
    state = await store.feed(FEED).open()
    for number in range(2):
        await commit(store, state, {"id": "z", "n": number, "tags": [f"tag-{each}" for each in range(600)]})
    await store.aclose()
    where = "has(before.tags) && after.tags.exists(t, !(t in before.tags))"
    replayed = await rig.replay(Selection(keys=("z",)), dry=True, where=where)
    assert [(each.chosen, each.owed, each.filtered) for each in replayed.feeds if each] == [(0, 0, 2)]


async def test_dead_letters_are_discarded_in_portions_and_keys_on_hold_go_on(rig: Rig) -> None:
    for sequence in range(1, 11):
        kill(rig.path, "erp", "eabcd"[sequence % 5], sequence)
    kill(rig.path, "erp", "gone", 11)
    block(rig.path, "erp", "c", 8, held=True)
    assert await discard_dead(rig.command_store, "erp", Selection(keys=("c", "gone")), NOON) == (3, 1)
    assert await discard_dead(rig.command_store, "erp", ALL, NOON) == (8, 0)
    assert read(rig.path, "SELECT sequence, held FROM blocked") == [(9, 0)]
