"""Embedded records on their way from a poll of one feed to the store of another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from dockbell.core.model import Feed
from dockbell.core.reading.embedding import PAIRS
from dockbell.core.reading.signal_state import Phase, SignalState
from dockbell.detection.page_fetcher import Turn
from dockbell.detection.signal import Signal, find_signals
from dockbell.telemetry import AgentFails, SignalTold
from tests.fakes import EmbeddingSource
from tests.rig import STOCK, Rig, open_rig

ITEMS = Feed("main", "items")


class Shop:
    """Stock of five levels, and an item that embeds some of them."""

    def __init__(self, items: Rig, stock: Rig) -> None:
        assert isinstance(items.source, EmbeddingSource)
        self.items, self.stock, self.source = items, stock, items.source
        self.embedded: list[dict[str, Any]] = []
        self.source.embed = lambda record: record.update(stock=self.embedded)
        self.take_up()

    def take_up(self) -> None:
        """Begin anew with what is stored."""
        self.signal = Signal(PAIRS[0], self.items.tracked, self.stock.tracked)
        self.signal.attach()

    async def poll(self) -> None:
        """Poll items, which have moved with their stock."""
        self.items.source.put("i1")
        assert await self.items.poll(after=0) == ""

    async def poll_and_read(self) -> None:
        """Poll them, and commit the stock that they embed."""
        await self.poll()
        await self.signal.run_once()

    def show(self, key: str, after: float = 100, **fields: Any) -> None:
        """Let a level be changed, some seconds later, and shown with its item."""
        self.stock.clock.pass_(after)
        self.stock.source.put(key, **fields)
        self.embedded = [dict(self.stock.source.records[key])]

    async def vias(self) -> list[str]:
        return [body["via"] for body in await self.stock.bodies()]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_rig(tmp_path) as stock:
        stock.feed = STOCK
        stock.restart(reconcile=None, every="5m", signal="items")
        items = Rig(stock.store, stock.clock, EmbeddingSource(stock.clock), feed=ITEMS, ear=stock.ear)
        items.source.put("i1")
        for rig in (stock, items):
            await rig.read_whole()
        await stock.tracked.store.save_signal(SignalState(Phase.USED).to_json())
        shop = Shop(items, stock)
        await shop.signal.run_once()
        yield shop


async def test_an_embedded_change_is_an_event_of_its_own_feed(shop: Shop) -> None:
    shop.show("a", status="packed")
    await shop.poll_and_read()
    assert await shop.stock.events() == ["a updated 1"]
    assert await shop.vias() == ["signal"]
    await shop.stock.read_whole()
    assert await shop.stock.events() == ["a updated 1"]
    assert (shop.signal.state.found, shop.signal.state.phase) == (1, Phase.USED)


async def test_what_the_list_has_shown_since_the_request_is_left_alone(shop: Shop) -> None:
    shop.show("a", status="packed")

    async def change_again() -> None:
        shop.stock.source.put("a", status="shipped")
        await shop.stock.read_whole(after=1)

    shop.source.before_aside = change_again
    await shop.poll_and_read()
    assert await shop.vias() == ["pass"]
    assert json.loads((await shop.stock.store.read_states([(STOCK, "a")]))[STOCK, "a"] or b"")["status"] == "shipped"


async def test_what_is_embedded_waits_for_the_turn_of_its_feed(shop: Shop) -> None:
    shop.show("a", status="packed")
    await shop.poll()
    async with anyio.create_task_group() as group, Turn(shop.stock.tracked.turns):
        group.start_soon(shop.signal.run_once)
        await anyio.wait_all_tasks_blocked()
        assert await shop.stock.events() == []
        shop.stock.clock.pass_(1)
    assert await shop.stock.events() == ["a updated 1"]


async def test_what_has_waited_too_long_is_not_used(shop: Shop) -> None:
    shop.show("a", status="packed")
    await shop.poll()
    async with anyio.create_task_group() as group, Turn(shop.stock.tracked.turns):
        group.start_soon(shop.signal.run_once)
        await anyio.wait_all_tasks_blocked()
        shop.stock.clock.pass_(301)
    assert await shop.stock.events() == []


@pytest.mark.parametrize("state", [{"rebaselining": True}, {"passes": 0}, {"shape": None}, {"proven": False}])
async def test_nothing_is_asked_for_while_the_feed_is_in_doubt(shop: Shop, state: dict[str, Any]) -> None:
    shop.show("a", status="packed")
    known = await shop.stock.tracked.state()
    shop.stock.tracked._state = replace(known, **state)
    await shop.poll_and_read()
    shop.stock.tracked._state = known
    await shop.signal.run_once()
    assert shop.source.asides == []
    assert await shop.stock.events() == []


async def test_an_error_costs_the_reading_and_nothing_else(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    shop.show("a", status="packed")
    with monkeypatch.context() as patch:
        patch.setattr(shop.stock.tracked, "store_page", fail)
        await shop.poll_and_read()
    assert [fact.agent for fact in shop.stock.ear.facts if isinstance(fact, AgentFails)] == ["signal main/stock"]
    assert not shop.signal._queue
    shop.stock.clock.pass_(1)
    await shop.poll_and_read()
    assert await shop.stock.events() == ["a updated 1"]


async def test_what_is_never_stored_is_removed_from_embedded_records_too(shop: Shop) -> None:
    shop.signal.detach()
    shop.stock.restart(drop=["/person"])
    await shop.stock.read_whole()
    shop.take_up()
    await shop.signal.run_once()
    shop.show("a", status="packed", person="Ada")
    await shop.poll_and_read()
    (body,) = await shop.stock.bodies()
    assert body["via"] == "signal"
    assert "person" not in body["after"]


async def test_a_list_that_takes_it_back_drops_the_signal_and_says_so(shop: Shop) -> None:
    before = dict(shop.stock.source.records["a"])
    shop.show("a", status="packed")
    await shop.poll_and_read()
    shop.stock.source.records["a"] = before
    await shop.stock.read_whole()
    assert shop.signal.state.phase is Phase.DROPPED
    assert list_told(shop)[-1].endswith("the list shows a differently from the signal")
    await shop.signal.run_once()
    assert SignalState.from_json((await shop.stock.tracked.reload()).signal).phase is Phase.DROPPED
    shop.stock.clock.pass_(timedelta(days=1).total_seconds())
    await shop.signal.run_once()
    assert shop.signal.state == SignalState(Phase.TRYING)  # it is configured


async def resume(shop: Shop, state: SignalState) -> None:
    """Begin anew with a state, of a signal that is used where it is measured to be one."""
    shop.signal.detach()
    shop.stock.restart(signal="auto")
    await shop.stock.tracked.store.save_signal(state.to_json())
    shop.take_up()
    await shop.signal.run_once()
    await shop.items.poll()
    await shop.stock.read_whole()


def list_told(shop: Shop) -> list[str]:
    return [str(fact) for fact in shop.stock.ear.facts if isinstance(fact, SignalTold)]


async def test_that_it_is_measured_anew_is_told(shop: Shop) -> None:
    await resume(shop, SignalState(Phase.USED, missed=49))
    shop.show("a", status="packed")
    await shop.poll_and_read()
    assert await shop.vias() == ["signal"]
    assert shop.signal.state == SignalState()
    assert list_told(shop)[-1].endswith("no signal: 50 changes are needed to tell")


@pytest.mark.parametrize("waiting", [199, 200])
async def test_while_hundreds_at_rest_wait_to_be_judged_only_changes_are_measured(shop: Shop, waiting: int) -> None:
    for key, record in shop.stock.source.records.items():
        record["item_id"] = f"item of {key}"
    await shop.stock.read_whole()
    await resume(shop, SignalState())
    await shop.items.poll(60)
    now = shop.stock.tracked.clocks.now()
    for _ in range(waiting):
        shop.signal._movements.expect({"item_id": "i9"}, now, now, is_changed=False)
    shop.show("a", status="packed")
    await shop.stock.read_whole()
    for _ in range(2):
        await shop.items.poll(60)
    best = shop.signal.state.best
    assert (best.changes, best.idle) == (1, 200)


@pytest.mark.parametrize(
    ("phase", "is_bumped", "counts"),
    [
        (Phase.USED, True, (0, 0, 1)),
        (Phase.USED, False, (0, 1, 0)),
        (Phase.TRYING, True, (0, 0, 1)),
        (Phase.TRYING, False, (0, 0, 1)),
    ],
)
async def test_what_the_list_shows_first_is_counted(
    shop: Shop, phase: Phase, is_bumped: bool, counts: tuple[int, int, int]
) -> None:
    shop.stock.source.records["a"]["item_id"] = "i1"
    await shop.stock.read_whole()
    await resume(shop, SignalState(phase))
    shop.show("a", status="packed")
    shop.embedded = []
    if is_bumped:
        await shop.poll_and_read()
    await shop.stock.read_whole()
    for _ in range(2):
        await shop.items.poll(60)
    state = shop.signal.state
    assert (state.found, state.missed, state.late) == counts


async def test_a_signal_that_is_tried_in_vain_is_dropped(shop: Shop) -> None:
    shop.stock.source.records["a"]["item_id"] = "i1"
    await shop.stock.read_whole()
    await resume(shop, SignalState(Phase.TRYING, late=199))
    shop.show("a", status="packed")
    await shop.stock.read_whole()
    for _ in range(2):
        await shop.items.poll(60)
    assert shop.signal.state.phase is Phase.DROPPED
    assert list_told(shop)[-1].endswith("items embed stock no sooner than their own list shows them")


async def test_what_the_operator_has_embedded_is_not_asked_for_beside_the_polls(shop: Shop) -> None:
    shop.signal.detach()
    shop.items.restart(expand=["stock"])
    shop.take_up()
    await shop.signal.run_once()
    shop.show("a", status="packed")
    await shop.poll_and_read()
    assert shop.source.asides == []
    assert await shop.vias() == ["signal"]


async def test_that_it_is_dropped_is_stored_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []
    is_saved = anyio.Event()

    async def save(text: str) -> None:
        saved.append(text)
        is_saved.set()

    before = dict(shop.stock.source.records["a"])
    shop.show("a", status="packed")
    await shop.poll_and_read()
    shop.stock.source.records["a"] = before
    monkeypatch.setattr(shop.stock.tracked.store, "save_signal", save)
    async with anyio.create_task_group() as group:
        group.start_soon(shop.signal.run)
        await anyio.wait_all_tasks_blocked()
        await shop.stock.read_whole()
        with anyio.fail_after(5):  # long before the signal would look by itself
            await is_saved.wait()
        group.cancel_scope.cancel()
    assert SignalState.from_json(saved[-1]).phase is Phase.DROPPED


async def test_what_a_reading_comes_to_says_nothing_of_a_signal_that_was_dropped_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_page = shop.stock.tracked.store_page

    async def store_and_drop(*args: Any) -> object:
        committed = await store_page(*args)
        shop.signal._drop("items?expand=stock is refused")
        return committed

    shop.show("a", status="packed")
    monkeypatch.setattr(shop.stock.tracked, "store_page", store_and_drop)
    await shop.poll_and_read()
    assert await shop.stock.events() == ["a updated 1"]
    assert (shop.signal.state.phase, shop.signal.state.found) == (Phase.DROPPED, 0)


async def test_a_signal_needs_both_feeds_and_the_will_to_use_it(shop: Shop) -> None:
    items, stock = shop.items.tracked, shop.stock.tracked
    assert [signal.pair for signal in find_signals({"items": items, "stock": stock})] == [PAIRS[0]]
    assert list(find_signals({"items": items})) == list(find_signals({"stock": stock})) == []
    shop.stock.restart(signal="off")
    assert list(find_signals({"items": items, "stock": shop.stock.tracked})) == []
