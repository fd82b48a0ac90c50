from __future__ import annotations

import anyio
import pytest

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import RecordId
from dockbell.sinks.mqtt import sending
from dockbell.sinks.mqtt.packets import Publication
from dockbell.sinks.mqtt.sending import Omissions, Repairs, StatusMessages
from dockbell.telemetry import SinkOmits
from tests.sinks.conftest import Facts
from tests.sinks.mqtt.conftest import FEED

# Repairs: no older state overwrites a newer one ----------------------------------------------------------------------


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


# What is left out ----------------------------------------------------------------------------------------------------


STATUS, SENTINEL = Publication("status", b"1", retain=True), Publication("positions", b"1", retain=True)
NONCE = Publication("positions", b"2")


class Clock:
    """A clock to be set."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sending, "_clock", clock)
    return clock


@pytest.mark.usefixtures("clock")
def test_what_was_in_flight_at_a_drop_is_suspected_until_it_is_answered() -> None:
    told: list[str] = []
    ours = StatusMessages(lambda topic, _: told.append(topic))
    for _ in range(5):
        ours.note_drop(STATUS, is_culprit=False)
    assert ours.is_suspect(STATUS)
    assert not ours.find_obstacle(STATUS)
    assert not ours.is_suspect(SENTINEL)
    ours.acquit(STATUS)
    assert not ours.is_suspect(STATUS)
    assert not told


@pytest.mark.usefixtures("clock")
def test_two_drops_in_a_row_leave_a_word_out_by_its_topic_and_whether_it_is_retained() -> None:
    told: list[str] = []
    ours = StatusMessages(lambda topic, _: told.append(topic))
    for _ in range(3):
        ours.note_drop(NONCE, is_culprit=True)
        ours.acquit(NONCE)
    assert not ours.find_obstacle(NONCE)
    for _ in range(2):
        ours.note_drop(SENTINEL, is_culprit=True)
        ours.acquit(NONCE)
    assert ours.find_obstacle(SENTINEL)
    assert not ours.find_obstacle(NONCE)
    assert told == ["positions"]


def test_a_word_is_tried_again_after_an_hour(clock: Clock) -> None:
    told: list[str] = []
    ours = StatusMessages(lambda topic, _: told.append(topic))
    for _ in range(2):
        ours.note_drop(STATUS, is_culprit=True)
    clock.time += 3599
    assert ours.find_obstacle(STATUS)
    clock.time += 2
    assert not ours.find_obstacle(STATUS)
    ours.note_drop(STATUS, is_culprit=True)
    assert ours.find_obstacle(STATUS)
    assert told == ["status", "status"]
    clock.time += 3601
    ours.acquit(STATUS)
    ours.note_drop(STATUS, is_culprit=True)
    assert not ours.find_obstacle(STATUS)


def test_many_states_are_told_in_a_count_and_each_only_once() -> None:
    facts = Facts()
    reports = Omissions("floor", facts.telemetry, {})
    for number in range(100_000):
        reports.report_state(f"t/{number}", "too large")
        reports.report_state("t/0", "too large")
    told = facts.of(SinkOmits)
    assert told[:2] == [
        "sink floor: publishes nothing to t/0, too large",
        "sink floor: publishes nothing to t/1, too large",
    ]
    assert told[15:18] == [
        "sink floor: publishes nothing to t/15, too large",
        "sink floor: publishes nothing to t/31, too large, like 31 others",
        "sink floor: publishes nothing to t/63, too large, like 63 others",
    ]
    assert told[-1] == "sink floor: publishes nothing to t/16383, too large, like 16383 others"


def test_a_long_topic_is_cut() -> None:
    facts = Facts()
    Omissions("floor", facts.telemetry, {}).report_state("x" * 60_000, "too large")
    assert len(facts.of(SinkOmits)[0]) < 300
