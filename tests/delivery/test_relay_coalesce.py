"""With ``coalesce``, of the changes of a record that wait, only the last is delivered."""

from __future__ import annotations

from functools import partial

from dockbell.config import Expression
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import DELIVERED, ClockSource, Page, Via
from dockbell.core.publishing.event import NamedEvent
from dockbell.ports import Store
from tests.fakes import NOON, Clock, FakeSink
from tests.relaying import (
    FAILED,
    FEED,
    STOCK,
    UNREACHABLE,
    change,
    change_keys,
    drain,
    make_composer,
    relaying,
    state_gap,
    until,
)


async def test_of_a_backlog_the_last_change_of_each_record_is_delivered_in_the_order_of_these(store: Store) -> None:
    await change_keys(store, "abcabcab")
    sink = FakeSink()
    assert await drain(store, sink, coalesce=True)
    assert sink.sequences == [6, 7, 8]
    assert (await store.sink("screen").load_queue())[0][FEED] == 8


async def test_without_it_every_change_is_delivered(store: Store) -> None:
    await change_keys(store, "aaa")
    sink = FakeSink()
    assert await drain(store, sink)
    assert sink.sequences == [1, 2, 3]


async def test_a_backlog_longer_than_what_is_read_at_once_is_looked_through(store: Store) -> None:
    await change(store, *({"id": str(number), "n": 0} for number in range(1500)))
    await change(store, *({"id": str(number), "n": 1} for number in range(1500)))
    sink = FakeSink(window=50)
    assert await drain(store, sink, coalesce=True)
    assert sorted(sink.sequences) == list(range(1501, 3001))


async def test_changes_that_come_while_nothing_waits_are_all_delivered(store: Store) -> None:
    sink = FakeSink()
    async with relaying(store, sink, coalesce=True):
        for count in range(1, 4):
            await change(store, {"id": "a", "n": count})
            await until(partial(_has, sink, count))
    assert sink.sequences == [1, 2, 3]


def _has(sink: FakeSink, count: int) -> bool:
    return len(sink.got) == count


async def test_statements_and_named_events_are_never_left_out(store: Store) -> None:
    composer = make_composer(named=[NamedEvent("low", Expression("after.n < 10"))])
    for n in (3, 2):
        detector = ChangeDetector(FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())
        page = Page((b'{"id":"a","n":%d}' % n,), None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
        await store.feed(FEED).open()
        detect = partial(detector.detect, page, ReadContext(Via.POLL, NOON))
        await store.feed(FEED).commit_page(detect, composer, via=Via.POLL)
    await state_gap(store)
    await state_gap(store)
    sink = FakeSink()
    assert await drain(store, sink, coalesce=True)
    told = [(each.event.sequence, each.event.type.removeprefix("dockbell.")) for each in sink.got]
    assert sorted(told) == [
        (2, "shipment.low"),
        (3, "shipment.updated"),
        (4, "shipment.low"),
        (5, "feed.gap"),
        (6, "feed.gap"),
    ]


async def test_a_change_that_the_filters_hold_back_replaces_none(store: Store) -> None:
    for n in (1, 2, 9):
        await change(store, {"id": "a", "n": n})
    sink = FakeSink()
    assert await drain(store, sink, coalesce=True, where="after.n < 5")
    assert sink.sequences == [2]


async def test_for_a_sink_that_keeps_states_a_change_that_is_held_back_replaces_none(store: Store) -> None:
    for n in (1, 2, 9):
        await change(store, {"id": "a", "n": n})
    sink = FakeSink(keeps_state=True)
    assert await drain(store, sink, coalesce=True, where="after.n < 5")
    assert [(each.event.sequence, each.state_only, each.state) for each in sink.got] == [
        (2, False, b'{"id": "a", "n": 9}'),
        (3, True, b'{"id": "a", "n": 9}'),
    ]


async def test_records_of_other_feeds_replace_none(store: Store) -> None:
    await change(store, {"id": "a", "n": 1})
    await change(store, {"id": "a", "n": 1}, feed=STOCK)
    sink = FakeSink()
    assert await drain(store, sink, coalesce=True)
    assert len(sink.got) == 2


async def test_after_an_outage_the_last_change_of_each_record_is_delivered(store: Store) -> None:
    await change_keys(store, "ab")
    clock = Clock()
    down = FakeSink(answer=lambda _: UNREACHABLE)
    await drain(store, down, clock, coalesce=True)
    await change_keys(store, "abaab")  # the first two as they were
    clock.pass_(60)
    sink = FakeSink()
    assert await drain(store, sink, clock, coalesce=True)
    assert sorted(sink.sequences) == [4, 5]
    assert (await store.sink("screen").load_queue())[1] == []


async def test_a_change_that_failed_is_not_tried_again_once_there_is_a_later_one(store: Store) -> None:
    await change_keys(store, "ab")
    clock = Clock()
    refusing = FakeSink(answer=lambda delivery: FAILED if delivery.event.key == "a" else DELIVERED)
    await drain(store, refusing, clock, coalesce=True)
    await change_keys(store, "aaa")  # the first as it was
    clock.pass_(5)
    sink = FakeSink()
    assert await drain(store, sink, clock, coalesce=True)
    assert [(delivery.event.sequence, delivery.attempt) for delivery in sink.got] == [(4, 1)]
