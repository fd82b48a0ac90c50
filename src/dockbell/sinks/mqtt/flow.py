"""What one run has taken and not settled, over as many connections as it takes, and what goes out next.

Six lanes, in this order: *words* about ourselves, which die with their connection; *suspects*, deliveries that were in
flight when the broker dropped a connection; those *accused* already; deliveries that *wait*; those *doubted*, because a
connection was left when nothing was acknowledged any more; and *repairs* of state.

A suspect is sent with nothing else in flight. One that loses the connection like this, soon after it was sent, is
accused; the second time it is refused as the culprit. The innocent are safe, whatever else ends connections. Whoever
stops, hangs or takes over with a reason accuses nobody. A suspect goes out when the status that each connection begins
with is acknowledged, an accused one only on a connection that has lasted for a while: neither a broker that goes down
again and again nor another client with our id lets it come to that, and meanwhile all others are delivered. A broker
that nobody can connect to right after has gone down altogether: it takes more than twice to blame one event for that.

Words that were in flight when the broker dropped a connection are sent alone too. What costs two connections like this
is left out from then on, and told: the rest must not wait for it.

What is not acknowledged has failed when something that was sent later was. To find that out, a word that the broker has
acknowledged is said again once the broker has been silent for a while; the last place in its Receive Maximum is kept
for that. Where nothing could be said the connection is left, and what was not acknowledged comes last on the next one,
in half of the window: not acknowledged there either, it has failed. Where nothing at all was acknowledged nobody is to
blame, and after the second such connection the sink waits.

Instead of a state that the broker does not take it retains none: absent is better than old.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import Place
from dockbell.sinks.mqtt.connection import Ack, Connection, Ending
from dockbell.sinks.mqtt.omissions import Omissions
from dockbell.sinks.mqtt.publication import Publication
from dockbell.sinks.mqtt.repairs import Repairs
from dockbell.sinks.mqtt.sending import Parcel, Sending, StatusMessage, judge
from dockbell.sinks.mqtt.status_messages import FORBIDDEN, StatusMessages

_SOON: Final = timedelta(seconds=5)
_LULL_LIMIT: Final = timedelta(seconds=1)
_PROVEN: Final = timedelta(seconds=2)
_CULPRIT: Final = Outcome(OutcomeKind.REFUSED, f"{FORBIDDEN}, with nothing else in flight")
_UNANSWERED: Final = Outcome(OutcomeKind.FAILED, "not acknowledged on two connections")
_AGAIN: Final = timedelta(seconds=1)
_DRAIN_LIMIT: Final = timedelta(seconds=1)
# How much a drop speaks against what was alone in flight: twice is enough, or five times where the broker was gone too.
_GUILT_OF_DROP: Final = 5
_GUILT_OF_CRASH: Final = 2
_GUILTY: Final = 10
_SILENCES_MOST: Final = 2


class Flow:
    """Everything between what was handed over and the wire; see the module's text.

    Args:
        window: The most publications in flight.
        omissions: Told what is left out.

    Attributes:
        news: There is something to do for :meth:`run_on`.
        ended: No more deliveries will come.
        has_delivered: The broker has acknowledged a part of a delivery since this was last unset.
        repairs: The lowest lane.
        words: Which words may be said.
    """

    def __init__(self, window: int, omissions: Omissions) -> None:
        self.news = asyncio.Event()  # anyio's cannot be cleared
        self.ended = asyncio.Event()
        self.has_delivered = False
        self.repairs = Repairs()
        self.words = StatusMessages(omissions.tell_word)
        self._omissions = omissions
        self._window = window
        self._words: deque[Sending] = deque()
        self._suspects: deque[Sending] = deque()
        self._accused: deque[Sending] = deque()
        self._waiting: deque[Sending] = deque()
        self._doubted: deque[Sending] = deque()
        self._repairing: deque[Sending] = deque()
        self._in_flight: dict[int, Sending] = {}
        self._is_alone = False
        self._sent = 0
        self._delivered = 0
        """The number of the last that was sent of the deliveries that the broker has taken on this connection."""
        self._answered: Publication | None = None
        """The first word that it has taken."""
        self._probe = 0
        """The packet id of the last publication that was sent to hear whether the broker answers."""
        self._calm = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether nothing is owed, and nothing will come."""
        return self.ended.is_set() and not (self._words or self._in_flight or any(self._owed))

    @property
    def _owed(self) -> tuple[deque[Sending], ...]:
        return self._suspects, self._accused, self._waiting, self._doubted

    def add(
        self,
        settle: Callable[[Outcome], None],
        *publications: Publication,
        stated: Place | None = None,
        outcome: Outcome = DELIVERED,
    ) -> None:
        """Take a delivery, to be settled when all of it is acknowledged.

        Args:
            settle: Called then.
            publications: What is published, one or more.
            stated: Whose state is among them.
            outcome: What is known already of the rest of it.
        """
        parcel = Parcel(len(publications), settle, outcome)
        for publication in publications:
            self._waiting.append(Sending(publication, parcel))
        if stated is not None:
            self.repairs.overtake(stated)
        self.news.set()

    def tell(self, word: Publication | None, note: Callable[[Outcome], None] = lambda _: None) -> None:
        """Publish something about ourselves before all else, on this connection only."""
        if word is None:
            return
        if objection := self.words.objection(word):
            note(Outcome(OutcomeKind.REFUSED, objection))
            return
        self._words.append(Sending(word, StatusMessage(note), is_suspect=self.words.is_suspect(word)))
        self.news.set()

    async def say(self, word: Publication) -> Outcome:
        """Publish something about ourselves; return what came of it, unless the connection is lost."""
        heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.tell(word, lambda outcome: None if heard.done() else heard.set_result(outcome))
        return await heard

    def end(self) -> None:
        """Note that no more deliveries will come."""
        self.ended.set()
        self.news.set()

    async def calm(self) -> None:
        """Wait until what the connection begins with is sent, and nobody is under suspicion."""
        while self._words or self._suspects or self._accused or self._is_alone:
            self._calm.clear()
            await self._calm.wait()

    async def lull(self) -> None:
        """Wait until no delivery waits or is in flight, but not for long."""
        with anyio.move_on_after(_LULL_LIMIT.total_seconds()):
            while self._is_busy or self._waiting:
                self._idle.clear()
                await self._idle.wait()

    @property
    def _is_busy(self) -> bool:
        return len(self._in_flight) > self.repairs.in_flight

    async def run_on(self, connection: Connection) -> None:
        """Publish and settle until the wire is lost or worn, or everything is done."""
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
        """Wait for what is being acknowledged; the rest goes out again on the next connection."""
        with anyio.move_on_after(_DRAIN_LIMIT.total_seconds()):
            while self._in_flight and not connection.lost:
                await self.news.wait()
                self.news.clear()
                self._take_acks(connection)

    def _take_acks(self, connection: Connection) -> None:
        for ack in connection.take_acks():
            self._acknowledge(ack)

    def recall(self, connection: Connection, *, is_up: bool) -> bool:
        """Let what was in flight on a connection that is gone wait for the next, and say who may be to blame.

        Args:
            connection: The connection.
            is_up: Somebody still listens where the broker is.

        Returns:
            Whether the broker was asked for anything that it had not answered.
        """
        self._take_acks(connection)
        flights = list(self._in_flight.items())
        self._in_flight.clear()
        self._is_alone = False
        self._words.clear()
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
                self.words.note_drop(sending.publication, is_culprit=is_up and sending is culprit)
        silent = _UNANSWERED
        silent = replace(silent, is_own=self._delivered > 0, retry_after=None if connection.has_answered else _AGAIN)
        for packet_id, sending in reversed(flights):
            if not isinstance(sending.owner, Parcel):
                continue
            if sending is culprit:
                sending.guilt += _GUILT_OF_DROP if is_up else _GUILT_OF_CRASH
            if connection.is_unanswered(packet_id):
                self._doubt(sending, silent)
            else:
                self._take_back(sending, is_dropped=is_dropped)
        self.repairs.interrupt(
            suspected=is_dropped and any(sending.owner is self.repairs for _, sending in flights),
            culprit=culprit.publication.topic if is_up and culprit and culprit.owner is self.repairs else "",
        )
        self._sent = self._delivered = self._probe = 0
        self._answered = None
        return bool(flights) or connection.is_subscribing

    def _doubt(self, sending: Sending, silent: Outcome) -> None:
        sending.silences += 1
        if sending.silences >= _SILENCES_MOST:
            sending.owner.note(silent)
        else:
            self._doubted.appendleft(sending)

    def _take_back(self, sending: Sending, *, is_dropped: bool) -> None:
        if sending.guilt >= _GUILTY:
            sending.owner.note(_CULPRIT)
            return
        sending.is_suspect |= is_dropped
        lane = self._accused if sending.guilt else self._suspects if sending.is_suspect else self._waiting
        lane.appendleft(sending)

    def abandon(self, problem: str) -> None:
        """Settle all that waits: nobody was there to judge it."""
        for owner in dict.fromkeys(sending.owner for lane in self._owed for sending in lane):
            assert isinstance(owner, Parcel)
            owner.settle(Outcome(OutcomeKind.UNREACHABLE, problem))
        for lane in self._owed:
            lane.clear()

    def _publish(self, connection: Connection) -> None:
        if connection.is_doubtful and self._probe not in self._in_flight and len(self._in_flight) < connection.quota:
            self._send_probe(connection)
        most = min(self._window, connection.quota - (connection.quota > 1))
        while len(self._in_flight) < most and not connection.lost and (lane := self._find_lane(connection, most)):
            sending = lane[0]
            publication: Publication | None = sending.publication
            if objection := connection.objection(sending.publication):
                publication = self._find_substitute(sending, connection, objection)
            if publication is None:
                lane.popleft()
            elif (packet_id := connection.publish(publication)) is not None:
                self._sent += 1
                sending.number = self._sent
                self._in_flight[packet_id] = lane.popleft()
                self._is_alone = sending.is_suspect or (lane is self._repairing and self.repairs.must_be_alone)
        self._calm.set()
        if not (self._is_busy or self._waiting):
            self._idle.set()

    def _send_probe(self, connection: Connection) -> None:
        """Publish something that the broker has acknowledged before, to hear whether it acknowledges anything now."""
        if self._answered is not None and (packet_id := connection.publish(self._answered)) is not None:
            self._in_flight[packet_id] = Sending(self._answered, StatusMessage(lambda _: None))
            self._probe = packet_id

    def _find_substitute(self, sending: Sending, connection: Connection, objection: str) -> Publication | None:
        """Return what to send instead of what the broker does not take; None where that is nothing: it is settled."""
        given = sending.publication
        if not given.retain or isinstance(sending.owner, StatusMessage):
            sending.owner.note(Outcome(OutcomeKind.UNFIT, objection))
            return None
        if connection.retains:  # else it was told when the connection was made
            self._omissions.tell_state(given.topic, objection)
        cleared = replace(given, payload=b"", content_type="")
        if not connection.objection(cleared):
            return cleared
        sending.owner.note(DELIVERED)
        return None

    def _find_lane(self, connection: Connection, most: int) -> deque[Sending] | None:
        """Return where the next comes from; None or an empty lane when nothing may be sent now."""
        if self._is_alone and self._in_flight:
            return None
        if self._words:
            return None if self._words[0].is_suspect and self._in_flight else self._words
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
        """Return how many repairs may be in flight: half the window, a single one beside anything else."""
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
            self._note_silence(sending)
        elif isinstance(sending.owner, Parcel):
            self.has_delivered = True
            if outcome is DELIVERED:
                self._delivered = max(self._delivered, sending.number)
        elif isinstance(sending.owner, StatusMessage):
            self.words.acquit(sending.publication)
            if self._answered is None and outcome is DELIVERED:
                self._answered = sending.publication
        sending.owner.note(outcome)

    def _note_silence(self, sending: Sending) -> None:
        """Remember what the broker is silent about of what is no delivery."""
        if isinstance(sending.owner, StatusMessage):
            self.words.note_silence(sending.publication)
        elif sending.owner is self.repairs:
            self.repairs.leave_out(sending.publication.topic)
