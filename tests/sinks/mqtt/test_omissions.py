from __future__ import annotations

import pytest

from dockbell.sinks.mqtt import sending
from dockbell.sinks.mqtt.packets import Publication
from dockbell.sinks.mqtt.sending import Omissions, StatusMessages
from dockbell.telemetry import SinkOmits
from tests.sinks.conftest import Facts

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
    assert told[:2] == ["sink floor: leaves out t/0, too large", "sink floor: leaves out t/1, too large"]
    assert told[15:18] == [
        "sink floor: leaves out t/15, too large",
        "sink floor: leaves out t/31, too large, as 31 others",
        "sink floor: leaves out t/63, too large, as 63 others",
    ]
    assert told[-1] == "sink floor: leaves out t/16383, too large, as 16383 others"


def test_a_long_topic_is_cut() -> None:
    facts = Facts()
    Omissions("floor", facts.telemetry, {}).report_state("x" * 60_000, "too large")
    assert len(facts.of(SinkOmits)[0]) < 300
