from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.sinks.mqtt.acknowledgements import FIRST_ID, LAST_ID, Ack, Acknowledgements
from dockbell.sinks.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Answer


@dataclass
class Clock:
    seconds: float = 0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def acknowledgements(clock: Clock) -> Acknowledgements:
    return Acknowledgements(clock)


def test_a_puback_settles_what_was_sent_with_qos_1(acknowledgements: Acknowledgements) -> None:
    first, second = acknowledgements.expect(1), acknowledgements.expect(1)
    assert not acknowledgements.take_in(Answer(PUBACK, second, 0x10))
    assert not acknowledgements.take_in(Answer(PUBACK, first, 0x87))
    assert acknowledgements.take() == [Ack(second, 0x10, ""), Ack(first, 0x87, "not authorized (0x87)")]
    assert acknowledgements.take() == []


def test_qos_2_takes_a_pubrec_a_pubrel_and_a_pubcomp(acknowledgements: Acknowledgements) -> None:
    packet_id = acknowledgements.expect(2)
    assert acknowledgements.take_in(Answer(PUBREC, packet_id, 0))
    assert not acknowledgements.take_in(Answer(PUBREC, packet_id, 0)), "it was released"
    assert not acknowledgements.has_come
    assert not acknowledgements.take_in(Answer(PUBCOMP, packet_id, 0))
    assert acknowledgements.take() == [Ack(packet_id, 0, "")]


def test_a_pubrec_that_refuses_is_the_last_answer(acknowledgements: Acknowledgements) -> None:
    packet_id = acknowledgements.expect(2)
    assert not acknowledgements.take_in(Answer(PUBREC, packet_id, 0x97))
    assert acknowledgements.take() == [Ack(packet_id, 0x97, "quota exceeded (0x97)")]


def test_qos_0_is_settled_once_it_is_written(acknowledgements: Acknowledgements) -> None:
    packet_id = acknowledgements.expect(0)
    assert not acknowledgements.take_in(Answer(PUBACK, packet_id, 0))
    assert acknowledgements.take() == []
    acknowledgements.confirm_written()
    acknowledgements.confirm_written()
    assert acknowledgements.take() == [Ack(packet_id, 0, "")]
    assert not acknowledgements.has_come, "the broker has said nothing"


def test_what_later_ones_have_overtaken_for_long_is_given_up_and_keeps_its_packet_id(
    acknowledgements: Acknowledgements, clock: Clock
) -> None:
    skipped = acknowledgements.expect(1)
    clock.seconds = 1
    later = acknowledgements.expect(1)
    acknowledgements.take_in(Answer(PUBACK, later, 0))
    acknowledgements.take()
    clock.seconds = 10
    acknowledgements.give_up_overtaken()
    assert not acknowledgements.has_news
    clock.seconds = 10.1
    acknowledgements.give_up_overtaken()
    reason = "not acknowledged within 10 s, but later publications were"
    assert (acknowledgements.take(), acknowledgements.given_up) == ([Ack(skipped, None, reason)], 1)
    acknowledgements._last_id = LAST_ID
    assert acknowledgements.expect(1) == later, "the first is in use"
    acknowledgements.take_in(Answer(PUBACK, skipped, 0))
    assert (acknowledgements.has_news, acknowledgements.take(), acknowledgements.given_up) == (True, [], 0)


def test_a_broker_that_acknowledges_nothing_is_doubtful_and_then_silent(
    acknowledgements: Acknowledgements, clock: Clock
) -> None:
    acknowledgements.expect(1)
    for seconds, doubtful, silent in [(5, False, False), (5.1, True, False), (30, True, False), (30.1, True, True)]:
        clock.seconds = seconds
        acknowledgements.give_up_overtaken()
        assert (acknowledgements.is_doubtful, acknowledgements.is_silent) == (doubtful, silent)
    assert acknowledgements.take() == []


@dataclass
class Model:
    """What is owed to whom, told by the simplest means."""

    steps: dict[int, list[int]] = field(default_factory=dict)
    settled: list[tuple[int, int]] = field(default_factory=list)

    def answer(self, kind: int, packet_id: int, code: int) -> None:
        steps = self.steps.get(packet_id)
        if steps and steps[0] == kind:
            steps.pop(0)
            if code >= 0x80 or not steps:
                del self.steps[packet_id]
                self.settled.append((packet_id, code))


STEPS = {1: [PUBACK], 2: [PUBREC, PUBCOMP]}
SENT = st.tuples(st.just("send"), st.sampled_from([1, 2]), st.just(0), st.just(0))
ANSWERED = st.tuples(
    st.just("answer"),
    st.sampled_from([PUBACK, PUBREC, PUBCOMP]),
    st.integers(FIRST_ID, FIRST_ID + 5),
    st.sampled_from([0, 0x10, 0x87]),
)


@given(st.lists(SENT | ANSWERED, max_size=60))
def test_each_publication_is_settled_once_by_its_own_answers(acts: list[tuple[str, int, int, int]]) -> None:
    acknowledgements, model = Acknowledgements(Clock()), Model()
    for what, kind, packet_id, code in acts:
        if what == "send":
            sent = acknowledgements.expect(kind)
            assert sent not in model.steps, "in use"
            model.steps[sent] = list(STEPS[kind])
            if sent == FIRST_ID + 5:
                acknowledgements._last_id = LAST_ID  # so that packet ids are used again
        else:
            released = acknowledgements.take_in(Answer(kind, packet_id, code))
            waits = model.steps.get(packet_id, [])
            assert released == (kind == PUBREC and code < 0x80 and waits[:1] == [PUBREC])
            model.answer(kind, packet_id, code)
    assert [(ack.packet_id, ack.code) for ack in acknowledgements.take()] == model.settled
