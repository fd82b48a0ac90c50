"""The publications of one run: which are in flight, which wait, and which goes out next, over all its connections.

Six queues, in this order: *statuses*, messages about ourselves, which end with their connection; *suspects*, deliveries
that were in flight when the broker dropped a connection; those *accused* already; deliveries that *wait*; those
*doubted*, because they were not acknowledged on a connection that we left for that; and *repairs* of state.

A suspect is sent with nothing else in flight. If the broker drops the connection soon after, the suspect is accused;
the second time it is refused as the culprit. Endings with another reason (a DISCONNECT that blames no publication, a
timeout, another client with our id) accuse no delivery. A suspect goes out once the status that begins each connection
is acknowledged, an accused one only on a connection that has lasted for a while. So a broker that restarts again and
again convicts no delivery, and all others are delivered meanwhile. If the broker cannot be reached right after a drop,
it has gone down altogether: then it takes five drops to convict, not two.

Messages about ourselves that were in flight when the broker dropped a connection are sent alone too. One that costs two
connections is left out from then on, and reported: the deliveries must not wait for it.

A publication has failed when the broker acknowledges a later one first. To find that out, a status that the broker has
acknowledged is published again once the broker has been silent for a while; one place of its Receive Maximum is kept
for that. If that is not possible, the connection is left, and the unacknowledged deliveries come last on the next one,
in half of the window: if they are not acknowledged there either, they have failed. If a connection had no
acknowledgement at all, no delivery is to blame, and after the second such connection the sink waits.

If the broker does not take a state, its topic is cleared: no state is better than an old one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio
from msgspec.structs import replace

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import RecordId
from dockbell.sinks.mqtt.acknowledgements import Ack
from dockbell.sinks.mqtt.connection import Connection, Ending
from dockbell.sinks.mqtt.packets import Publication
from dockbell.sinks.mqtt.sending import (
    CULPRIT,
    Omissions,
    Parcel,
    Repairs,
    Sending,
    StatusMessage,
    StatusMessages,
    judge,
)

_SOON: Final = timedelta(seconds=5)
_LULL_LIMIT: Final = timedelta(seconds=1)
_LULL: Final = timedelta(seconds=0.05)
"""Longer than it takes to read the next deliveries and their states from the store."""
_PROVEN: Final = timedelta(seconds=2)
_UNANSWERED: Final = Outcome(OutcomeKind.FAILED, "not acknowledged on two connections")
_AGAIN: Final = timedelta(seconds=1)
_DRAIN_LIMIT: Final = timedelta(seconds=1)
# The guilt of a publication alone in flight: two drops convict it, or five after which the broker was gone too.
_GUILT_OF_DROP: Final = 5
_GUILT_OF_CRASH: Final = 2
_GUILTY: Final = 10
_SILENCES_MOST: Final = 2


class Flow:
    """The queues between the deliveries and the connection; at most ``window`` publications are in flight."""

    def __init__(self, window: int, omissions: Omissions) -> None:
        self.news = asyncio.Event()  # run_on() has something to do; anyio's cannot be cleared
        self.ended = asyncio.Event()  # no more deliveries will come
        self.has_delivered = False  # the broker has acknowledged a part of a delivery since this was last unset
        self.repairs = Repairs()
        self.status_messages = StatusMessages(omissions.report_status)
        self._omissions = omissions
        self._window = window
        self._statuses: deque[Sending] = deque()
        self._suspects: deque[Sending] = deque()
        self._accused: deque[Sending] = deque()
        self._waiting: deque[Sending] = deque()
        self._doubted: deque[Sending] = deque()
        self._repairing: deque[Sending] = deque()
        self._in_flight: dict[int, Sending] = {}
        self._is_alone = False
        self._sent = 0
        self._delivered = 0  # the highest number of a delivery that the broker has taken on this connection
        self._answered: Publication | None = None  # the first message about ourselves that it has taken
        self._probe = 0  # the packet id of the last publication that was sent to see whether the broker answers
        self._clear = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def is_done(self) -> bool:
        return self.ended.is_set() and not (self._statuses or self._in_flight or any(self._owed))

    @property
    def _owed(self) -> tuple[deque[Sending], ...]:
        return self._suspects, self._accused, self._waiting, self._doubted

    def add(
        self,
        settle: Callable[[Outcome], None],
        *publications: Publication,
        stated: RecordId | None = None,
        outcome: Outcome = DELIVERED,
    ) -> None:
        """Queue a delivery of one or more publications, which is settled when all of them are acknowledged.

        ``stated`` is the record whose state is among them, ``outcome`` that of the parts that are not published.
        """
        parcel = Parcel(len(publications), settle, outcome)
        self._waiting.extend(Sending(publication, parcel) for publication in publications)
        if stated is not None:
            self.repairs.overtake(stated)
        self.news.set()

    def publish_status(self, message: Publication | None, note: Callable[[Outcome], None] = lambda _: None) -> None:
        """Publish a message about ourselves before all else, on this connection only."""
        if message is None:
            return
        if obstacle := self.status_messages.find_obstacle(message):
            note(Outcome(OutcomeKind.REFUSED, obstacle))
            return
        self._statuses.append(
            Sending(message, StatusMessage(note), is_suspect=self.status_messages.is_suspect(message))
        )
        self.news.set()

    async def publish_and_wait(self, message: Publication) -> Outcome:
        """Publish a message about ourselves; return its outcome, or never if the connection is lost."""
        heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.publish_status(message, lambda outcome: None if heard.done() else heard.set_result(outcome))
        return await heard

    def end(self) -> None:
        self.ended.set()
        self.news.set()

    async def wait_until_clear(self) -> None:
        """Wait until the first messages of the connection are sent, and no delivery is a suspect."""
        while self._statuses or self._suspects or self._accused or self._is_alone:
            self._clear.clear()
            await self._clear.wait()

    async def wait_until_idle(self) -> None:
        """Wait until no delivery has waited or been in flight for a moment, but not for long."""
        with anyio.move_on_after(_LULL_LIMIT.total_seconds()):
            sent = -1
            while sent != self._sent:
                while self._is_busy or self._waiting:
                    self._idle.clear()
                    await self._idle.wait()
                sent = self._sent
                await anyio.sleep(_LULL.total_seconds())  # the states of the next deliveries may be on their way

    @property
    def _is_busy(self) -> bool:
        return len(self._in_flight) > self.repairs.in_flight

    async def run_on(self, connection: Connection) -> None:
        """Publish and settle until the connection is lost or worn, or everything is done."""
        proven = asyncio.get_running_loop().call_later(_PROVEN.total_seconds(), self.news.set)
        try:
            while True:
                self.news.clear()
                self._take_acks(connection)
                if connection.is_worn and not self.ended.is_set():
                    await self._drain(connection)
                    return
                self._publish(connection)
                if connection.lost or self.is_done:
                    return
                await self.news.wait()
        finally:
            proven.cancel()

    async def _drain(self, connection: Connection) -> None:
        """Wait for acknowledgements for a moment; the rest goes out again on the next connection."""
        with anyio.move_on_after(_DRAIN_LIMIT.total_seconds()):
            while self._in_flight and not connection.lost:
                await self.news.wait()
                self.news.clear()
                self._take_acks(connection)

    def _take_acks(self, connection: Connection) -> None:
        for ack in connection.take_acks():
            self._acknowledge(ack)

    def requeue(self, connection: Connection, *, is_up: bool) -> bool:
        """Queue the publications in flight on a lost connection for the next, and find suspects among them.

        ``is_up`` says that the broker can still be reached. Return whether it owed us an answer.
        """
        self._take_acks(connection)
        flights = list(self._in_flight.items())
        self._in_flight.clear()
        self._is_alone = False
        self._statuses.clear()
        self._repairing.clear()
        is_dropped = connection.ending is Ending.DROPPED
        culprit: Sending | None = None
        if (
            is_dropped
            and len(flights) == 1
            and not connection.is_subscribing
            and connection.waited(flights[0][0]) <= _SOON
        ):
            culprit = flights[0][1]
        for _, sending in flights:
            if is_dropped and isinstance(sending.owner, StatusMessage):
                self.status_messages.note_drop(sending.publication, is_culprit=is_up and sending is culprit)
        retry_after = None if connection.has_answered else _AGAIN
        silent = replace(_UNANSWERED, is_own=self._delivered > 0, retry_after=retry_after)
        for packet_id, sending in reversed(flights):
            if not isinstance(sending.owner, Parcel):
                continue
            if sending is culprit:
                sending.guilt += _GUILT_OF_DROP if is_up else _GUILT_OF_CRASH
            if connection.is_unanswered(packet_id):
                sending.silences += 1
                if sending.silences >= _SILENCES_MOST:
                    sending.owner.note(silent)
                else:
                    self._doubted.appendleft(sending)
            elif sending.guilt >= _GUILTY:
                sending.owner.note(CULPRIT)
            else:
                sending.is_suspect |= is_dropped
                lane = self._accused if sending.guilt else self._suspects if sending.is_suspect else self._waiting
                lane.appendleft(sending)
        self.repairs.interrupt(
            suspected=is_dropped and any(sending.owner is self.repairs for _, sending in flights),
            culprit=culprit.publication.topic if is_up and culprit and culprit.owner is self.repairs else "",
        )
        self._sent = self._delivered = self._probe = 0
        self._answered = None
        return bool(flights) or connection.is_subscribing

    def abandon(self, problem: str) -> None:
        for owner in dict.fromkeys(sending.owner for lane in self._owed for sending in lane):
            assert isinstance(owner, Parcel)
            owner.settle(Outcome(OutcomeKind.UNREACHABLE, problem))
        for lane in self._owed:
            lane.clear()

    def _publish(self, connection: Connection) -> None:
        answered = self._answered if connection.is_doubtful and self._probe not in self._in_flight else None
        # What the broker has acknowledged before shows whether it acknowledges anything now.
        if (
            answered
            and len(self._in_flight) < connection.quota
            and (number := connection.publish(answered)) is not None
        ):
            self._in_flight[number] = Sending(answered, StatusMessage(lambda _: None))
            self._probe = number
        most = min(self._window, connection.quota - (connection.quota > 1))
        while len(self._in_flight) < most and not connection.lost and (lane := self._find_lane(connection, most)):
            sending = lane[0]
            publication: Publication | None = sending.publication
            if obstacle := connection.find_obstacle(sending.publication):
                publication = self._find_substitute(sending, connection, obstacle)
            if publication is None:
                lane.popleft()
            elif (packet_id := connection.publish(publication)) is not None:
                self._sent += 1
                sending.number = self._sent
                self._in_flight[packet_id] = lane.popleft()
                self._is_alone = sending.is_suspect or (lane is self._repairing and self.repairs.must_be_alone)
        self._clear.set()
        if not (self._is_busy or self._waiting):
            self._idle.set()

    def _find_substitute(self, sending: Sending, connection: Connection, obstacle: str) -> Publication | None:
        """Return the substitute of a publication that the broker does not take; None: it is settled without one."""
        given = sending.publication
        if not given.retain or isinstance(sending.owner, StatusMessage):
            sending.owner.note(Outcome(OutcomeKind.UNFIT, obstacle))
            return None
        if connection.retains:  # else that was reported when the connection was made
            self._omissions.report_state(given.topic, obstacle)
        cleared = replace(given, payload=b"", content_type="")
        if not connection.find_obstacle(cleared):
            return cleared
        sending.owner.note(DELIVERED)
        return None

    def _find_lane(self, connection: Connection, most: int) -> deque[Sending] | None:
        """Return the queue of the next publication; None or an empty queue when nothing may be sent now."""
        if self._is_alone and self._in_flight:
            return None
        if self._statuses:
            return None if self._statuses[0].is_suspect and self._in_flight else self._statuses
        if tried := self._suspects or (self._accused and connection.age >= _PROVEN and self._accused):
            return None if self._in_flight else tried
        return self._waiting or self._find_doubted(most) or self._find_repair(most)

    def _find_doubted(self, most: int) -> deque[Sending] | None:
        in_flight = sum(sending.silences > 0 for sending in self._in_flight.values())
        return self._doubted if in_flight < max(1, most // 2) else None

    def _find_repair(self, most: int) -> deque[Sending] | None:
        if self.ended.is_set() or self.repairs.in_flight >= self._most_repairs(most):
            return None
        if (state := self.repairs.take()) is not None:
            self._repairing.append(Sending(state, self.repairs))
        return self._repairing

    def _most_repairs(self, most: int) -> int:
        """Return how many repairs may be in flight: half the window, but only one beside other publications."""
        if self.repairs.must_be_alone:
            return 0 if self._in_flight else 1
        return 1 if self._is_busy else max(1, most // 2)

    def _acknowledge(self, ack: Ack) -> None:
        sending = self._in_flight.pop(ack.packet_id)
        if not self._in_flight:
            self._is_alone = False
        outcome = judge(ack)
        if ack.code is None:
            outcome = replace(outcome, is_own=sending.number < self._delivered)
            if isinstance(sending.owner, StatusMessage):
                self.status_messages.note_silence(sending.publication)
            elif sending.owner is self.repairs:
                self.repairs.leave_out(sending.publication.topic)
        elif isinstance(sending.owner, Parcel):
            self.has_delivered = True
            if outcome is DELIVERED:
                self._delivered = max(self._delivered, sending.number)
        elif isinstance(sending.owner, StatusMessage):
            self.status_messages.acquit(sending.publication)
            if self._answered is None and outcome is DELIVERED:
                self._answered = sending.publication
        sending.owner.note(outcome)
