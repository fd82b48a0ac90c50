"""MQTT 5: events as they happen, the latest state of each record retained, and a status with a will."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from pydantic import AfterValidator, Field, model_validator

from dockbell.config import ConfigPath, Duration, Secret, SinkSettings
from dockbell.core.model import DELIVERED, Delivery, Fate, Outcome
from dockbell.core.moment import format_moment
from dockbell.core.publishing.topic import FEED_FIELDS, check_topic, render_topic
from dockbell.core.running.backoff import delay
from dockbell.errors import ConfigError, SinkError
from dockbell.network import make_trust, split_url
from dockbell.sinks.wire import Ack, Login, Publication, Wire, dial
from dockbell.telemetry import SinkConnected, SinkFails, Telemetry

EVENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
STATE_TYPE: Final = "application/json"

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_BACKOFF_FIRST: Final = timedelta(seconds=1)
_BACKOFF_MOST: Final = timedelta(seconds=15)
_GOODBYE_LIMIT: Final = timedelta(seconds=3)
_FAILURES_FROM: Final = 0x80
# Not authorized, topic name invalid, packet too large, payload format invalid: so it will be whenever it is sent.
_REFUSALS: Final = frozenset({0x87, 0x90, 0x95, 0x99})
_SEVERITY: Final = (Fate.DELIVERED, Fate.FAILED, Fate.REFUSED)


def _check_url(url: str) -> str:
    parts = split_url(url, schemes=_PORTS, example='"mqtts://broker.example.com:8883"')
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password; use the keys username and password")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must end with the host and port")
    return url


def _check_state_topic(template: str) -> str:
    return template and check_topic(template, fields=("source", "resource", "key"), required=("key",))


def _check_feed_topic(template: str) -> str:
    return check_topic(template, fields=FEED_FIELDS)


def _check_status_topic(topic: str) -> str:
    return topic and check_topic(topic, fields=())


class MqttSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "mqtt"``."""

    type: Literal["mqtt"]
    url: Annotated[str, AfterValidator(_check_url)]
    username: str | None = None
    password: Secret | None = None
    ca_file: ConfigPath | None = None
    cert_file: ConfigPath | None = None
    key_file: ConfigPath | None = None
    client_id: str | None = Field(default=None, min_length=1)
    keepalive: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=18))] = timedelta(seconds=30)
    topic: Annotated[str, AfterValidator(check_topic)] = "dockbell/event/{source}/{resource}/{key}/{change}"
    feed_topic: Annotated[str, AfterValidator(_check_feed_topic)] = "dockbell/feed/{source}/{resource}/{change}"
    state_topic: Annotated[str, AfterValidator(_check_state_topic)] = "dockbell/state/{source}/{resource}/{key}"
    status_topic: Annotated[str, AfterValidator(_check_status_topic)] = "dockbell/status"
    expiry: Annotated[Duration, Field(ge=timedelta(seconds=1))] | None = None
    in_flight: int = Field(default=20, ge=1, le=1000)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.password is not None and self.username is None:
            raise ValueError("password needs a username")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")
        if (self.ca_file or self.cert_file) and not self.url.startswith("mqtts:"):
            raise ValueError('ca_file and cert_file need a url that begins with "mqtts:"')
        return self

    def aside(self) -> Self:
        """Return settings for a short second connection: one as the daemon's client would throw the daemon's out."""
        return self.model_copy(update={"client_id": f"dockbell-{secrets.token_hex(4)}", "status_topic": ""})


class MqttSink:
    """Publishes to one broker over one connection, which it renews as often as need be.

    Raises:
        ConfigError: The password is missing, or a file cannot be used.
    """

    Settings: ClassVar = MqttSettings

    def __init__(self, name: str, settings: MqttSettings, telemetry: Telemetry) -> None:
        self.name = name
        self.window = settings.in_flight
        self.keeps_state = bool(settings.state_topic)
        self._settings = settings
        self._telemetry = telemetry
        self._trust: ssl.SSLContext | None = None
        if settings.url.startswith("mqtts:"):
            self._trust = make_trust(
                f"[sinks.{name}]", ca_file=settings.ca_file, cert_file=settings.cert_file, key_file=settings.key_file
            )
        self._make_login(settings)

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        """Publish each delivery until the broker has acknowledged it, over as many connections as it takes.

        It takes deliveries while there is no connection too, else it would not see the end of the stream. After that
        it dials no more than once; what is owed then was judged by nobody.
        """
        flow = _Flow()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take, deliveries, settle, flow)
            await self._keep_connected(flow)

    async def probe(self) -> str:
        """Connect beside the daemon's connection, and say what the broker grants.

        Raises:
            SinkUnavailable: Nobody answers, or not in MQTT 5.
            SinkRejected: The broker refuses us, or we its certificate.
        """
        try:
            wire = await dial(self._make_login(self._settings.aside()), lambda: None)
        except SinkError as error:
            raise type(error)(f"{self._place}: {error}") from error
        wire.disconnect()
        return self._describe(wire)

    async def _take(
        self,
        deliveries: MemoryObjectReceiveStream[Delivery],
        settle: Callable[[Delivery, Outcome], None],
        flow: _Flow,
    ) -> None:
        with suppress(anyio.EndOfStream):
            while True:
                delivery = await deliveries.receive()
                with suppress(anyio.WouldBlock):
                    while True:  # all that is there: one turn of the event loop for each would halve the rate
                        self._accept(delivery, settle, flow)
                        delivery = deliveries.receive_nowait()
        flow.end()

    def _accept(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None], flow: _Flow) -> None:
        try:
            publications = self._publications(delivery)
        except ValueError as error:
            settle(delivery, Outcome(Fate.REFUSED, str(error)))
        else:
            flow.add(_Parcel(len(publications), partial(settle, delivery)), *publications)

    def _publications(self, delivery: Delivery) -> list[Publication]:
        settings, event = self._settings, delivery.event
        topic = render_topic(settings.topic if event.key else settings.feed_topic, event)
        publications = [Publication(topic, event.body, EVENT_TYPE, expiry=settings.expiry)]
        if self.keeps_state and event.key and not delivery.replayed:
            topic, state = render_topic(settings.state_topic, event), delivery.state
            publications.append(Publication(topic, state or b"", STATE_TYPE if state else "", retain=True))
        return publications

    async def _keep_connected(self, flow: _Flow) -> None:
        while not flow.is_done:
            problem = f"{self._place}: {await self._connect_once(flow)}"
            if flow.ended.is_set():
                flow.abandon(problem)
                return
            flow.failures += 1
            pause = delay(flow.failures, base=_BACKOFF_FIRST, cap=_BACKOFF_MOST, jitter=random.random())  # noqa: S311
            self._telemetry.emit(SinkFails(self.name, problem, pause))
            with anyio.move_on_after(pause.total_seconds()):
                await flow.ended.wait()

    async def _connect_once(self, flow: _Flow) -> str:
        """Use one connection for as long as it lasts; return why it ended."""
        born_at = datetime.now(UTC)
        try:
            wire = await dial(self._make_login(self._settings, self._status(online=False, at=born_at)), flow.news.set)
        except (SinkError, ConfigError) as error:
            return str(error)
        try:
            self._telemetry.emit(SinkConnected(self.name, self._describe(wire)))
            flow.tell(self._status(online=True, at=born_at))
            await flow.run_on(wire)
            if not wire.lost:
                with anyio.move_on_after(_GOODBYE_LIMIT.total_seconds()):
                    flow.tell(self._status(online=False, at=datetime.now(UTC)))
                    await flow.run_on(wire)
                    wire.disconnect()
            return wire.lost
        finally:
            wire.close()
            flow.recall()

    def _make_login(self, settings: MqttSettings, will: Publication | None = None) -> Login:
        url = urlsplit(settings.url)
        return Login(
            host=url.hostname or "",
            port=url.port or _PORTS[url.scheme],
            client_id=settings.client_id or f"dockbell-{self.name}",
            keepalive=settings.keepalive,
            trust=self._trust,
            username=settings.username,
            password=settings.password.reveal() if settings.password else None,
            will=will,
        )

    def _status(self, *, online: bool, at: datetime) -> Publication | None:
        if not self._settings.status_topic:
            return None
        payload = json.dumps({"online": online, "timestamp": format_moment(at)}).encode()
        return Publication(self._settings.status_topic, payload, STATE_TYPE, retain=True)

    @property
    def _place(self) -> str:
        return urlsplit(self._settings.url).netloc

    def _describe(self, wire: Wire) -> str:
        return f"{self._place}, MQTT 5, {min(self.window, wire.receive_maximum)} in flight"


@dataclass(slots=True, eq=False)
class _Parcel:
    """What is published together, and settled when the last of it is acknowledged."""

    unacknowledged: int
    settle: Callable[[Outcome], None] | None
    """None for a status: nobody waits for it, and the next connection has its own."""
    outcome: Outcome = DELIVERED

    def note(self, outcome: Outcome) -> None:
        self.outcome = max(self.outcome, outcome, key=lambda each: _SEVERITY.index(each.fate))
        self.unacknowledged -= 1
        if not self.unacknowledged and self.settle is not None:
            self.settle(self.outcome)


class _Flow:
    """What one run has taken and not settled: it waits, or is in flight on a connection; it outlives connections."""

    def __init__(self) -> None:
        self.news = asyncio.Event()  # anyio's cannot be cleared
        self.ended = asyncio.Event()
        self.failures = 0
        """How many connections have ended since one acknowledged a delivery."""
        self._waiting: deque[tuple[_Parcel, Publication]] = deque()
        self._in_flight: dict[int, tuple[_Parcel, Publication]] = {}

    @property
    def is_done(self) -> bool:
        """Whether nothing is owed, and nothing will come."""
        return self.ended.is_set() and not self._waiting and not self._in_flight

    def add(self, parcel: _Parcel, *publications: Publication) -> None:
        self._waiting.extend((parcel, publication) for publication in publications)
        self.news.set()

    def tell(self, status: Publication | None) -> None:
        """Publish a status before all else."""
        if status is not None:
            self._waiting.appendleft((_Parcel(1, None), status))

    def end(self) -> None:
        self.ended.set()
        self.news.set()

    async def run_on(self, wire: Wire) -> None:
        """Publish and settle until the wire is lost, or everything is done."""
        while True:
            self.news.clear()
            for ack in wire.take_acks():
                self._acknowledge(ack)
            self._publish(wire)
            if wire.lost or self.is_done:
                return
            await self.news.wait()

    def recall(self) -> None:
        """Let what was in flight on a connection that is gone wait for the next, in its order."""
        self._waiting.extendleft(reversed(self._in_flight.values()))
        self._in_flight.clear()
        self._waiting = deque(each for each in self._waiting if each[0].settle is not None)

    def abandon(self, problem: str) -> None:
        """Settle all that waits: nobody was there to judge it."""
        for parcel in dict.fromkeys(parcel for parcel, _ in self._waiting):
            assert parcel.settle is not None
            parcel.settle(Outcome(Fate.UNREACHABLE, problem))
        self._waiting.clear()

    def _publish(self, wire: Wire) -> None:
        while self._waiting and wire.room > 0 and not wire.lost:
            parcel, publication = self._waiting[0]
            if not wire.fits(publication):
                self._waiting.popleft()
                parcel.note(Outcome(Fate.REFUSED, f"larger than the broker takes ({wire.packet_maximum} bytes)"))
            elif (packet_id := wire.publish(publication)) is not None:
                self._in_flight[packet_id] = self._waiting.popleft()

    def _acknowledge(self, ack: Ack) -> None:
        parcel, _ = self._in_flight.pop(ack.packet_id)
        if parcel.settle is not None:
            self.failures = 0
        parcel.note(judge(ack))


def judge(ack: Ack) -> Outcome:
    """Return what a PUBACK says of a publication."""
    if ack.code < _FAILURES_FROM:
        return DELIVERED
    return Outcome(Fate.REFUSED if ack.code in _REFUSALS else Fate.FAILED, ack.reason)
