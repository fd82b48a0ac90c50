"""Which publications of one connection wait for which answer of the broker, since when, and when it will not come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from dockbell.sinks.mqtt.packets import FAILURES_FROM, PUBACK, PUBCOMP, PUBREC, Answer, describe_answer

ANSWER_LIMIT: Final = timedelta(seconds=30)
OVERTAKEN_LIMIT: Final = timedelta(seconds=10)
"""A broker acknowledges in the order of arrival (MQTT 5.0, 4.6): after so long, it skips an older one."""
DOUBT_AFTER: Final = timedelta(seconds=5)
FIRST_ID: Final = 0x8000
LAST_ID: Final = 0xFFFF
"""Packet ids of publications; paho numbers its subscriptions from 1, and would need years to come here."""
_FIRST_ANSWERS: Final = (0, PUBACK, PUBREC)
"""What answers a publication first, by its quality of service."""


class Ack(NamedTuple):
    """A PUBACK or PUBCOMP, or with QoS 0 that it is written.

    With the code None it is the end of waiting for one: later publications were acknowledged long ago. ``reason``
    explains that, and the codes from 0x80 on, ``not authorized (0x87)``; it is empty for the others.
    """

    packet_id: int
    code: int | None
    reason: str


class Acknowledgements:
    """``clock`` returns seconds since some origin; it only goes forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.has_come = False  # the broker has acknowledged something
        self.has_news = False  # something was acknowledged or given up, or is no longer given up
        self._clock = clock
        self._last_id = LAST_ID
        self._awaited: dict[int, int] = {}  # the kind of answer that each packet id in use waits for; 0 with QoS 0
        self._sent: dict[int, float] = {}  # when each publication in flight was sent, in that order
        self._unwritten: list[int] = []  # publications of QoS 0
        self._given_up: set[int] = set()
        self._newest = float("-inf")  # when the last of those was sent that were acknowledged
        self._acks: list[Ack] = []

    @property
    def given_up(self) -> int:
        """How many publications were given up whose answers have not come since; their packet ids are in use."""
        return len(self._given_up)

    @property
    def is_doubtful(self) -> bool:
        """Whether one has been in flight for long, and no later one was acknowledged either."""
        oldest = next(iter(self._sent.values()), None)
        return oldest is not None and oldest >= self._newest and self._is_over(oldest, DOUBT_AFTER)

    @property
    def is_silent(self) -> bool:
        """Whether one has been in flight for so long that nothing on the connection will be acknowledged any more."""
        oldest = next(iter(self._sent.values()), None)
        return oldest is not None and oldest >= self._newest and self._is_over(oldest, ANSWER_LIMIT)

    def sent_at(self, packet_id: int) -> float:
        return self._sent[packet_id]

    def expect(self, qos: int) -> int:
        """Return the packet id of a publication that is sent now; with QoS 0 it is ours alone."""
        packet_id = self._last_id
        while True:  # those in flight and given up are a few thousand at most
            packet_id = packet_id + 1 if packet_id < LAST_ID else FIRST_ID
            if packet_id not in self._awaited:
                break
        self._last_id = packet_id
        self._awaited[packet_id], self._sent[packet_id] = _FIRST_ANSWERS[qos], self._clock()
        if not qos:
            self._unwritten.append(packet_id)
        return packet_id

    def take_in(self, answer: Answer) -> bool:
        """Take in an answer; return whether a PUBREL is to follow. One that nothing waits for is passed over."""
        kind, packet_id, code = answer
        if self._awaited.get(packet_id) != kind:
            return False
        is_failure = code >= FAILURES_FROM
        if kind == PUBREC and not is_failure:
            self._awaited[packet_id] = PUBCOMP
            return True
        self.has_come = True
        self._settle(Ack(packet_id, code, describe_answer(code) if is_failure else ""))
        return False

    def confirm_written(self) -> None:
        """Acknowledge the publications of QoS 0: all is written."""
        unwritten, self._unwritten = self._unwritten, []
        for packet_id in unwritten:
            self._settle(Ack(packet_id, 0, ""))

    def give_up_overtaken(self) -> None:
        """Give up publications although their packet ids stay in use: a late answer must settle nothing else."""
        limit = f"{OVERTAKEN_LIMIT.total_seconds():g} s"
        for packet_id, sent_at in list(self._sent.items()):
            if sent_at >= self._newest or not self._is_over(sent_at, OVERTAKEN_LIMIT):
                break
            del self._sent[packet_id]
            self._given_up.add(packet_id)
            self.has_news = True
            self._acks.append(Ack(packet_id, None, f"not acknowledged within {limit}, but later publications were"))

    def take(self) -> list[Ack]:
        """Return what was acknowledged since it was asked for last."""
        acks, self._acks, self.has_news = self._acks, [], False
        return acks

    def _settle(self, ack: Ack) -> None:
        del self._awaited[ack.packet_id]
        self.has_news = True
        if ack.packet_id in self._given_up:
            self._given_up.discard(ack.packet_id)
        else:
            self._newest = max(self._newest, self._sent.pop(ack.packet_id))
            self._acks.append(ack)

    def _is_over(self, since: float, limit: timedelta) -> bool:
        return self._clock() - since > limit.total_seconds()
