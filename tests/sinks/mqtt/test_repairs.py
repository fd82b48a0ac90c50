"""No older state overwrites a newer one."""

from __future__ import annotations

import anyio
import pytest

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import RecordId
from dockbell.sinks.mqtt.packets import Publication
from dockbell.sinks.mqtt.sending import Repairs
from tests.sinks.mqtt.conftest import FEED


def place(key: str) -> RecordId:
    return FEED, key


def states(*keys: str) -> dict[RecordId, Publication]:
    return {place(key): Publication(key, b"{}", retain=True) for key in keys}


class Offer:
    """States that are offered, and how many of them were taken up once all are settled."""

    def __init__(self, repairs: Repairs, *keys: str) -> None:
        self.count = -1
        self._repairs = repairs
        self._keys = keys

    async def run(self) -> None:
        self.count = await self._repairs.offer(states(*self._keys), lambda: None)


async def take_all(repairs: Repairs, *keys: str, outcome: Outcome = DELIVERED) -> tuple[list[str], int]:
    """Offer states and settle all of them; return which went out, and how many it were."""
    offer, taken = Offer(repairs, *keys), []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(offer.run)
            while offer.count < 0:
                await anyio.lowlevel.checkpoint()
                if (state := repairs.take()) is not None:
                    taken.append(state.topic)
                    repairs.note(outcome)
    return taken, offer.count


async def test_what_is_offered_goes_out_once_and_in_order() -> None:
    repairs = Repairs()
    repairs.watch()
    assert await take_all(repairs, "a", "b", "c") == (["a", "b", "c"], 3)
    assert repairs.take() is None


async def test_what_was_delivered_before_it_was_read_goes_out_all_the_same() -> None:
    repairs = Repairs()
    repairs.overtake(place("a"))
    repairs.watch()
    assert await take_all(repairs, "a", "b") == (["a", "b"], 2)


async def test_what_is_delivered_while_it_is_read_stays_away() -> None:
    repairs = Repairs()
    repairs.watch()
    repairs.overtake(place("a"))
    assert await take_all(repairs, "a", "b") == (["b"], 1)
    repairs.watch()
    assert await take_all(repairs, "a") == (["a"], 1)


async def test_what_is_delivered_while_it_waits_stays_away() -> None:
    repairs = Repairs()
    repairs.watch()
    offer = Offer(repairs, "a", "b")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(offer.run)
        await anyio.lowlevel.checkpoint()
        taken = repairs.take()
        repairs.overtake(place("a"))  # in flight already: the delivery comes after it
        repairs.overtake(place("b"))
        assert taken is not None
        assert (taken.topic, repairs.take()) == ("a", None)
        assert offer.count == -1
        repairs.note(DELIVERED)
    assert offer.count == 2


async def test_nothing_is_waited_for_when_all_of_it_was_overtaken() -> None:
    repairs = Repairs()
    repairs.watch()
    repairs.overtake(place("a"))
    assert await repairs.offer(states("a"), lambda: None) == 0
    repairs.watch()
    offer = Offer(repairs, "a")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(offer.run)
            await anyio.lowlevel.checkpoint()
            repairs.overtake(place("a"))
    assert offer.count == 1


@pytest.mark.parametrize(
    ("kind", "refused", "has_failed"),
    [
        (OutcomeKind.DELIVERED, 0, False),
        (OutcomeKind.FAILED, 0, True),
        (OutcomeKind.REFUSED, 2, False),
    ],
)
async def test_what_comes_of_them_is_counted(kind: OutcomeKind, refused: int, has_failed: bool) -> None:
    repairs = Repairs()
    repairs.watch()
    await take_all(repairs, "a", "b", outcome=Outcome(kind))
    assert (repairs.refused, repairs.has_failed, repairs.in_flight) == (refused, has_failed, 0)
    repairs.reset()
    assert (repairs.refused, repairs.has_failed) == (0, False)


async def test_one_that_twice_was_alone_when_the_connection_was_dropped_is_left_out() -> None:
    repairs = Repairs()
    repairs.interrupt(suspected=True, culprit="a")
    assert repairs.must_be_alone
    repairs.watch()
    assert await take_all(repairs, "a", "b") == (["a", "b"], 2)
    repairs.interrupt(suspected=True, culprit="a")
    repairs.reset()
    repairs.watch()
    assert await take_all(repairs, "a", "b") == (["b"], 1)
    assert repairs.refused == 1
