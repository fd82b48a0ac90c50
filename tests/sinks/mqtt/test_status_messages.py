from __future__ import annotations

import pytest

from dockbell.sinks.mqtt import status_messages
from dockbell.sinks.mqtt.publication import Publication
from dockbell.sinks.mqtt.status_messages import StatusMessages

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
    monkeypatch.setattr(status_messages, "_clock", clock)
    return clock


@pytest.mark.usefixtures("clock")
def test_what_was_in_flight_at_a_drop_is_suspected_until_it_is_answered() -> None:
    told: list[str] = []
    ours = StatusMessages(lambda topic, _: told.append(topic))
    for _ in range(5):
        ours.note_drop(STATUS, is_culprit=False)
    assert ours.is_suspect(STATUS)
    assert not ours.is_left_out(STATUS)
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
    assert not ours.is_left_out(NONCE)
    for _ in range(2):
        ours.note_drop(SENTINEL, is_culprit=True)
        ours.acquit(NONCE)
    assert ours.is_left_out(SENTINEL)
    assert not ours.is_left_out(NONCE)
    assert told == ["positions"]


def test_a_word_is_tried_again_after_an_hour(clock: Clock) -> None:
    told: list[str] = []
    ours = StatusMessages(lambda topic, _: told.append(topic))
    for _ in range(2):
        ours.note_drop(STATUS, is_culprit=True)
    clock.time += 3599
    assert ours.is_left_out(STATUS)
    clock.time += 2
    assert not ours.is_left_out(STATUS)
    ours.note_drop(STATUS, is_culprit=True)
    assert ours.is_left_out(STATUS)
    assert told == ["status", "status"]
    clock.time += 3601
    ours.acquit(STATUS)
    ours.note_drop(STATUS, is_culprit=True)
    assert not ours.is_left_out(STATUS)
