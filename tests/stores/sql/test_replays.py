"""What an operator decides about a sink, as it is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from dockbell.core.model import Feed
from dockbell.core.moment import to_micros
from dockbell.core.publishing.settlement import Settlement
from dockbell.ports import Extent, Hurried, Offered, Reach, Selection
from dockbell.stores.handles.command_store import SqlCommandStore
from tests.fakes import NOON, Clock
from tests.stores.pages import FEED, OTHER, commit
from tests.stores.places import Place, open_command_store, open_read_store, open_store
from tests.stores.standings import block, kill, read, stand, waiting, write

MINUTE = timedelta(minutes=1)
ALL = Selection()


@dataclass
class Rig:
    """A store with six events of three keys, a minute apart; and a command store at it."""

    path: Place
    command_store: SqlCommandStore
    reach: Reach = Reach(Extent(0, 6), 0, 6)  # noqa: RUF009  # frozen

    async def choose(self, selection: Selection = ALL, *, within: tuple[int, int] = (0, 6), limit: int = 9) -> str:
        """Return the sequences of the candidates, those that are owed in brackets, those that wait marked."""
        found = await self.command_store.read_candidates("erp", FEED, self.reach, selection, within=within, limit=limit)
        words = [f"{each.event.sequence}{'w' if each.is_waiting else ''}" for each in found]
        return " ".join(f"({word})" if each.is_owed else word for word, each in zip(words, found, strict=True))

    def blocked(self) -> list[tuple[object, ...]]:
        return read(self.path, "SELECT key, sequence, attempts, due, held FROM blocked ORDER BY key")

    def letters(self) -> list[object]:
        return [sequence for (sequence,) in read(self.path, "SELECT sequence FROM dead_letters ORDER BY sequence")]


@pytest.fixture
async def rig(place: Place) -> AsyncIterator[Rig]:
    clock = Clock()
    store = await open_store(place, now=clock)
    state = await store.feed(FEED).open()
    await store.feed(OTHER).open()
    for number, key in enumerate("abcaba"):
        clock.time = NOON + number * MINUTE
        await commit(store, state, {"id": key, "number": number})
    await store.aclose()
    command_store = await open_command_store(place)
    yield Rig(place, command_store)
    await command_store.aclose()


# Reaches -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "begins"), [("now", 6), ("state", 6), ("beginning", 0)])
async def test_a_sink_that_is_new_would_begin_where_it_is_told_to(rig: Rig, start: str, begins: int) -> None:
    reaches = await rig.command_store.load_reaches("erp", start)  # type: ignore[arg-type]
    assert reaches == {FEED: Reach(Extent(0, 6), begins, begins), OTHER: Reach(Extent(0, 0), 0, 0)}


async def test_a_sink_stands_where_it_has_come_and_takes_all_of_a_feed_that_is_new(rig: Rig) -> None:
    stand(rig.path, "erp", 4, origin=2)
    write(rig.path, "UPDATE feeds SET pruned = 1 WHERE resource = 'shipments'")
    write(rig.path, "UPDATE feeds SET sequence = 9 WHERE resource = 'stock'")
    reaches = await rig.command_store.load_reaches("erp", "now")
    assert reaches == {FEED: Reach(Extent(1, 6), 2, 4), OTHER: Reach(Extent(0, 9), 0, 0)}


# Candidates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (ALL, "1 2 3 4 5 6"),
        (Selection(keys=("a",)), "1 4 6"),
        (Selection(keys=("b", "c")), "2 3 5"),
        (Selection(since=NOON + MINUTE), "2 3 4 5 6"),
        (Selection(until=NOON + MINUTE), "1"),
        (Selection(since=NOON + MINUTE, until=NOON + 4 * MINUTE, keys=("a", "b")), "2 4"),
        (Selection(failed=True), "3 5"),
        (Selection(never_sent=True), "1 2"),
        (Selection(never_sent=True, failed=True), "1 2 3 5"),
        (Selection(never_sent=True, keys=("b",)), "2"),
    ],
)
async def test_events_are_chosen_by_what_every_part_of_a_selection_says(
    rig: Rig, selection: Selection, chosen: str
) -> None:
    kill(rig.path, "erp", "c", 3)
    kill(rig.path, "erp", "b", 5)
    kill(rig.path, "another", "a", 4)
    rig.reach = Reach(Extent(0, 6), 2, 6)
    assert await rig.choose(selection) == chosen


async def test_events_are_chosen_by_their_ids(rig: Rig) -> None:
    found = await rig.command_store.read_candidates("erp", FEED, rig.reach, ALL, within=(0, 6), limit=9)
    ids = tuple(each.event.id for each in found)
    assert await rig.choose(Selection(ids=(ids[4], ids[1], "evt_none"))) == "2 5"


async def test_events_are_read_in_portions(rig: Rig) -> None:
    assert await rig.choose(within=(1, 5), limit=3) == "2 3 4"
    assert await rig.choose(within=(4, 5), limit=3) == "5"


async def test_what_the_sink_will_be_offered_anyway_is_owed(rig: Rig) -> None:
    stand(rig.path, "erp", 5)
    block(rig.path, "erp", "a", 4)
    rig.reach = Reach(Extent(0, 6), 0, 5)
    assert await rig.choose() == "1 2 3 (4) 5 (6)"


async def test_a_dead_letter_is_not_owed_even_where_its_key_is_on_hold_for_it(rig: Rig) -> None:
    block(rig.path, "erp", "a", 4, held=True)
    kill(rig.path, "erp", "a", 4)
    assert await rig.choose() == "1 2 3 4 5 (6)"


async def test_what_waits_already_is_marked(rig: Rig) -> None:
    await rig.command_store.offer("erp", FEED, [(2, "b")], NOON)
    await rig.command_store.offer("another", FEED, [(3, "c")], NOON)
    assert await rig.choose() == "1 2w 3 4 5 6"


# Offering ------------------------------------------------------------------------------------------------------------


async def test_a_replay_waits_for_each_event_once_and_no_dead_letter_is_left(rig: Rig) -> None:
    kill(rig.path, "erp", "b", 2)
    kill(rig.path, "erp", "c", 3)
    kill(rig.path, "another", "b", 2)
    assert await rig.command_store.offer("erp", FEED, [(2, "b"), (1, "a")], NOON) == Offered(entered=2)
    assert await rig.command_store.offer("erp", FEED, [(1, "a"), (4, "a")], NOON) == Offered(entered=2)
    assert waiting(rig.path, "erp") == [("main/shipments", 2), ("main/shipments", 1), ("main/shipments", 4)]
    assert read(rig.path, "SELECT sink, sequence FROM dead_letters ORDER BY sink") == [("another", 2), ("erp", 3)]


async def test_an_event_that_is_offered_again_before_its_delivery_was_saved_waits_for_another(rig: Rig) -> None:
    store = await open_store(rig.path, now=Clock())
    await rig.command_store.offer("erp", FEED, [(2, "b")], NOON)
    (delivered,) = await store.sink("erp").load_replays(NOON, 9)
    await rig.command_store.offer("erp", FEED, [(2, "b")], NOON)
    await store.sink("erp").settle(Settlement(replayed=[delivered.id]))
    await store.aclose()
    assert waiting(rig.path, "erp") == [("main/shipments", 2)]


async def test_a_key_on_hold_goes_on_with_its_dead_letter_instead(rig: Rig) -> None:
    block(rig.path, "erp", "a", 4, held=True)
    kill(rig.path, "erp", "a", 4)
    kill(rig.path, "erp", "a", 1)
    assert await rig.command_store.offer("erp", FEED, [(1, "a"), (4, "a")], NOON + MINUTE) == Offered(
        entered=1, released=1
    )
    assert rig.blocked() == [("a", 4, 0, to_micros(NOON + MINUTE), 0)]
    assert waiting(rig.path, "erp") == [("main/shipments", 1)]
    assert rig.letters() == []


async def test_a_key_that_waits_for_its_next_attempt_keeps_its_attempts(rig: Rig) -> None:
    block(rig.path, "erp", "b", 5)
    kill(rig.path, "erp", "b", 2)
    await rig.command_store.offer("erp", FEED, [(2, "b")], NOON + MINUTE)
    assert rig.blocked() == [("b", 5, 3, to_micros(NOON), 0)]


@pytest.mark.parametrize("key", ["b", "gone"])
async def test_a_dead_letter_whose_event_is_not_kept_stays(rig: Rig, key: str) -> None:
    kill(rig.path, "erp", key, 7)
    assert await rig.command_store.offer("erp", FEED, [(7, key)], NOON) == Offered(missing=1)
    assert rig.letters() == [7]
    assert waiting(rig.path, "erp") == []


async def test_a_dead_letter_of_another_key_than_the_event_of_its_number_is_not_that_event(rig: Rig) -> None:
    kill(rig.path, "erp", "z", 3)
    assert await rig.command_store.offer("erp", FEED, [(3, "z")], NOON) == Offered(missing=1)
    assert await rig.command_store.offer("erp", FEED, [(3, "c")], NOON) == Offered(entered=1)
    assert rig.letters() == [3]


async def test_records_that_a_sink_was_told_of_have_the_number_of_its_origin(rig: Rig) -> None:
    stand(rig.path, "erp", 6, origin=3)
    for key in ("b", "z"):
        kill(rig.path, "erp", key, 3)
    found = await rig.command_store.read_dead("erp", ALL, 9)
    assert [(each.letter.key, each.type) for each in found] == [
        ("b", "dockbell.shipment.snapshot"),
        ("z", "dockbell.shipment.snapshot"),
    ]
    assert await rig.command_store.read_dead("erp", ALL, 9, found[0]) == found[1:]
    assert await rig.command_store.offer("erp", FEED, [(3, "b"), (3, "z")], NOON) == Offered(entered=2)
    assert read(rig.path, "SELECT sequence, key FROM replays ORDER BY key") == [(3, "b"), (3, "z")]
    assert rig.letters() == []


async def test_events_of_a_feed_that_nobody_knows_are_missing(rig: Rig) -> None:
    assert await rig.command_store.offer("erp", Feed("main", "none"), [(1, "a")], NOON) == Offered(missing=1)


async def test_replays_of_one_sink_are_forgotten_in_portions(rig: Rig) -> None:
    await rig.command_store.offer("erp", FEED, [(1, "a"), (2, "b"), (3, "c")], NOON)
    await rig.command_store.offer("another", FEED, [(1, "a")], NOON)
    assert [await rig.command_store.forget_replays("erp", 2) for _ in range(3)] == [2, 1, 0]
    assert waiting(rig.path, "another") == [("main/shipments", 1)]


# Dead letters --------------------------------------------------------------------------------------------------------


def bury_some(path: Place) -> None:
    for sink, key, sequence, error in (("erp", "a", 1, "x"), ("erp", "a", 4, "x"), ("erp", "b", 2, "y")):
        kill(path, sink, key, sequence, error=error)
    kill(path, "another", "c", 3, error="x")
    kill(path, "erp", "q", 9, feed=OTHER, error="x")
    block(path, "erp", "a", 4, held=True)
    block(path, "erp", "b", 5)


async def find(rig: Rig, sink: str | None, selection: Selection = ALL) -> list[str]:
    found = await rig.command_store.read_dead(sink, selection, 9)
    return [f"{each.sink} {each.letter.key}{each.letter.sequence}" for each in found]


async def test_dead_letters_are_listed_with_what_their_event_is_and_what_they_hold(rig: Rig) -> None:
    bury_some(rig.path)
    found = await rig.command_store.read_dead(None, ALL, 9)
    assert [(each.sink, each.letter.sequence, each.type, each.holds) for each in found] == [
        ("another", 3, "dockbell.shipment.created", False),
        ("erp", 1, "dockbell.shipment.created", False),
        ("erp", 2, "dockbell.shipment.created", False),
        ("erp", 4, "dockbell.shipment.updated", True),
        ("erp", 9, "", False),
    ]
    letter = found[0].letter
    assert (letter.feed, letter.key, letter.attempts, letter.died_at, letter.error) == (FEED, "c", 1, NOON, "x")


@pytest.mark.parametrize(
    ("sink", "selection", "found"),
    [
        ("erp", ALL, ["erp a1", "erp b2", "erp a4", "erp q9"]),
        ("none", ALL, []),
        ("erp", Selection(feeds=(OTHER,)), ["erp q9"]),
        (None, Selection(feeds=(OTHER, FEED), keys=("c", "q")), ["another c3", "erp q9"]),
        (None, Selection(first=2, last=3), ["another c3", "erp b2"]),
        ("erp", Selection(first=4), ["erp a4", "erp q9"]),
    ],
)
async def test_dead_letters_are_narrowed_down(
    rig: Rig, sink: str | None, selection: Selection, found: Sequence[str]
) -> None:
    bury_some(rig.path)
    assert await find(rig, sink, selection) == found
    assert sum(group.letters for group in await rig.command_store.count_dead(sink, selection)) == len(found)


async def test_dead_letters_are_read_in_portions_over_all_feeds_and_sinks(rig: Rig) -> None:
    bury_some(rig.path)
    everything = await rig.command_store.read_dead(None, ALL, 9)
    for place, each in enumerate(everything):
        assert await rig.command_store.read_dead(None, ALL, 2, each) == everything[place + 1 : place + 3]


async def test_dead_letters_are_counted_by_sink_feed_and_error(rig: Rig) -> None:
    bury_some(rig.path)
    write(rig.path, "UPDATE dead_letters SET died_at = died_at + 60000000 WHERE sequence = 4")
    found = await rig.command_store.count_dead(None, ALL)
    assert [(each.sink, each.feed, each.error, each.letters, each.keys) for each in found] == [
        ("another", FEED, "x", 1, 1),
        ("erp", FEED, "x", 2, 1),
        ("erp", FEED, "y", 1, 1),
        ("erp", OTHER, "x", 1, 1),
    ]
    assert (found[1].first_at, found[1].last_at) == (NOON, NOON + MINUTE)


async def test_what_is_discarded_is_gone_and_a_key_on_hold_goes_on_behind_it(rig: Rig) -> None:
    bury_some(rig.path)
    assert await rig.command_store.discard("erp", FEED, [(1, "a"), (4, "a")], NOON + MINUTE) == 1
    assert await find(rig, None) == ["another c3", "erp b2", "erp q9"]
    assert rig.blocked() == [("a", 5, 0, to_micros(NOON + MINUTE), 0), ("b", 5, 3, to_micros(NOON), 0)]
    assert waiting(rig.path, "erp") == []


# Pauses --------------------------------------------------------------------------------------------------------------


async def test_a_sink_is_paused_once_and_keeps_the_first_reason(rig: Rig) -> None:
    assert await rig.command_store.pause("erp", "HTTP 410", NOON)
    assert not await rig.command_store.pause("erp", "moving house", NOON + MINUTE)
    assert read(rig.path, "SELECT * FROM pauses") == [("erp", to_micros(NOON), "HTTP 410")]
    assert await rig.command_store.resume("erp", NOON)
    assert not await rig.command_store.resume("erp", NOON)


async def test_what_waits_for_its_next_attempt_is_due_at_once_when_the_sink_is_hurried(rig: Rig) -> None:
    block(rig.path, "erp", "a", 4)
    block(rig.path, "erp", "b", 5, held=True)
    block(rig.path, "another", "a", 4)
    await rig.command_store.offer("erp", FEED, [(3, "c")], NOON)
    write(rig.path, "UPDATE replays SET due = ?", to_micros(NOON + MINUTE))
    write(rig.path, "UPDATE blocked SET due = ?", to_micros(NOON + MINUTE))
    assert await rig.command_store.hurry("erp", NOON) == Hurried(keys=1, replays=1)
    assert read(rig.path, "SELECT sink, key FROM blocked WHERE due <= ?", to_micros(NOON)) == [("erp", "a")]
    assert read(rig.path, "SELECT count(*) FROM replays WHERE due <= ?", to_micros(NOON)) == [(1,)]


async def test_a_sink_that_is_resumed_is_hurried_too(rig: Rig) -> None:
    block(rig.path, "erp", "a", 4)
    write(rig.path, "UPDATE blocked SET due = ?", to_micros(NOON + MINUTE))
    await rig.command_store.pause("erp", "HTTP 410", NOON)
    await rig.command_store.resume("erp", NOON)
    assert read(rig.path, "SELECT count(*) FROM blocked WHERE due <= ?", to_micros(NOON)) == [(1,)]
    assert read(rig.path, "SELECT * FROM pauses") == []


async def test_what_an_operator_decided_shows_at_the_sink_even_before_it_begins(rig: Rig) -> None:
    stand(rig.path, "erp", 5)
    block(rig.path, "erp", "a", 4, held=True)
    block(rig.path, "erp", "b", 5)
    await rig.command_store.offer("floor", FEED, [(1, "a"), (2, "b")], NOON)
    await rig.command_store.pause("shop", "HTTP 410", NOON)
    read_store = await open_read_store(rig.path)
    states = {state.name: state for state in await read_store.load_sinks()}
    await read_store.aclose()
    assert {name: (state.held, state.replays, state.paused) for name, state in states.items()} == {
        "erp": (1, 0, ""),
        "floor": (0, 2, ""),
        "shop": (0, 0, "HTTP 410"),
    }
    assert states["shop"].paused_at == NOON
