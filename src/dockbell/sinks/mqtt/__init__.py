"""MQTT: events as they happen, the latest state of each record retained, and a status with a will.

- ``connecting``: opens connections, in the version that the broker speaks, and when to try again. ``connection``: one
  connection. ``acknowledgements``: what its publications wait for. ``packet_socket``: its socket, shared with paho.
  ``packets``: what goes over it.
- ``flow``: what is owed, and which message makes a broker drop connections. ``sending``: one publication on its way,
  and which a broker does not take.
- ``retained_repair``, ``sweeper``: keep what the broker retains equal to the store.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import ClassVar, Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from msgspec.structs import replace

from dockbell._version import __version__
from dockbell.core.model import DELIVERED, Delivery, Feed, Outcome, OutcomeKind
from dockbell.core.moment import format_moment
from dockbell.core.publishing.topic import MAX_BYTES, check_topic, render_topic
from dockbell.errors import ConfigError, SinkError
from dockbell.net.network import make_trust
from dockbell.ports import Deliveries, RetainedState, Settle
from dockbell.sinks.mqtt.connecting import End, Login, Negotiation, ReconnectBackoff, answers
from dockbell.sinks.mqtt.connection import Connection, Ending
from dockbell.sinks.mqtt.flow import Flow
from dockbell.sinks.mqtt.packets import EVENT_TYPE, STATE_TYPE, Protocol, Publication, RetainRefused
from dockbell.sinks.mqtt.retained_repair import RetainedRepair
from dockbell.sinks.mqtt.sending import Omissions
from dockbell.sinks.mqtt.settings import PORTS, TLS_SCHEMES, WEB_SOCKET_SCHEMES, MqttSettings
from dockbell.telemetry import SinkConnected, SinkFails, Telemetry

__all__ = ["MqttSettings", "MqttSink"]

_GOODBYE_LIMIT: Final = timedelta(seconds=3)


class MqttSink:
    """Publishes to one broker over one connection at a time; ConfigError where a secret or a file cannot be used.

    No two sinks that share a broker may have one ``client_id``.
    """

    Settings: ClassVar = MqttSettings

    def __init__(self, name: str, settings: MqttSettings, telemetry: Telemetry) -> None:
        self.name = name
        self.window = settings.in_flight
        self.keeps_state = bool(settings.state_topic)
        self._settings = settings
        self._telemetry = telemetry
        self._place = urlsplit(settings.url).netloc
        self._client_id = settings.client_id or f"dockbell-{name}"
        self._status_topic = self._own_topic(settings.status_topic)
        self._positions_topic = self._own_topic(settings.positions_topic)
        self._discovery = self._make_discovery()
        keys = {self._status_topic: "status_topic", self._positions_topic: "positions_topic"}
        if self._discovery is not None:
            keys[self._discovery.topic] = "discovery_prefix"
        self._omissions = Omissions(name, telemetry, keys)
        self._negotiation = Negotiation(settings.protocol)
        self._retained_repair: RetainedRepair | None = None
        self._make_login()

    def attach(self, retained_state: RetainedState) -> None:
        if self.keeps_state and self._positions_topic:
            self._retained_repair = RetainedRepair(
                retained_state,
                self._settings,
                topic=self._positions_topic,
                client_id=self._client_id,
                render=self._state_publication,
                name=self.name,
                telemetry=self._telemetry,
            )

    async def run(self, deliveries: Deliveries, settle: Settle) -> None:
        """Publish each delivery until the broker has acknowledged it, over as many connections as it takes.

        It takes deliveries without a connection too: otherwise it would not see the end of the stream. After the end it
        connects at most once, and not at all where another client has its id; what is left is settled as unreachable.
        """
        flow = Flow(self.window, self._omissions)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take, deliveries, settle, flow)
            await self._keep_connected(flow)

    async def probe(self) -> str:
        """Connect beside the daemon's connection, and return what the broker grants, for people; or SinkError."""
        login = await to_thread.run_sync(self._make_login)
        try:
            login = dataclasses.replace(login, client_id=self._settings.aside().client_id or "")
            connection = await self._negotiation.connect(login, lambda: None)
        except SinkError as error:
            raise type(error)(f"{self._place}: {error}") from error
        await connection.disconnect()
        return self._describe(connection)

    async def _take(self, deliveries: Deliveries, settle: Settle, flow: Flow) -> None:
        with suppress(anyio.EndOfStream):
            while True:
                delivery = await deliveries.receive()
                with suppress(anyio.WouldBlock):
                    while True:  # all waiting ones: one turn of the event loop for each would halve the rate
                        self._accept(delivery, settle, flow)
                        delivery = deliveries.receive_nowait()
        flow.end()

    def _accept(self, delivery: Delivery, settle: Settle, flow: Flow) -> None:
        event, settings = delivery.event, self._settings
        has_state = self.keeps_state and event.is_of_record and not delivery.replayed
        publications, outcome = [], DELIVERED
        if not delivery.state_only:
            try:
                topic = render_topic(settings.topic if event.is_of_record else settings.feed_topic, event)
            except ValueError as error:
                outcome = Outcome(OutcomeKind.UNFIT, str(error))
            else:
                publications.append(
                    Publication(
                        topic,
                        event.body,
                        EVENT_TYPE,
                        expiry=settings.expiry,
                        replayed=delivery.replayed,
                        qos=settings.qos,
                    )
                )
        if has_state:
            try:
                publications.append(self._state_publication(event.feed, event.key, delivery.state))
            except ValueError as error:
                self._omissions.report_state(f"{event.feed}/{event.key}", str(error))
        if publications:
            stated = (event.feed, event.key) if has_state else None
            flow.add(partial(settle, delivery), *publications, stated=stated, outcome=outcome)
        else:
            settle(delivery, outcome)

    def _state_publication(self, feed: Feed, key: str, state: bytes | None) -> Publication:
        topic = self._settings.state_topic.format(source=feed.source, resource=feed.resource, key=key)
        if (size := len(topic.encode())) > MAX_BYTES:
            raise ValueError(f"topic: has {size} bytes, MQTT allows {MAX_BYTES}")
        return Publication(topic, state or b"", STATE_TYPE if state else "", retain=True)

    async def _keep_connected(self, flow: Flow) -> None:
        backoff, is_renewed = ReconnectBackoff(), False
        while is_renewed or not flow.is_done:  # the last connection says goodbye
            end = await self._connect_once(flow, is_renewed=is_renewed)
            is_renewed = end is None
            if end is None:
                continue
            problem = f"{self._place}: {end.reason}"
            if flow.ended.is_set():
                flow.abandon(problem)
                return
            pause = backoff.pause(end, random.random())  # noqa: S311  # spreads those that failed together
            if backoff.is_contested:
                is_told = end.ending is Ending.TAKEN_OVER
                others = "another client uses" if is_told else "repeatedly; maybe another client uses"
                problem += f', {others} client_id "{self._client_id}"; give each client its own'
            self._telemetry.emit(SinkFails(self.name, problem, pause))
            with anyio.move_on_after(pause.total_seconds()):
                await flow.ended.wait()
            if backoff.is_contested and flow.ended.is_set():
                flow.abandon(problem)  # to connect now would throw the other client out

    async def _connect_once(self, flow: Flow, *, is_renewed: bool) -> End | None:
        """Use one connection for as long as it lasts; None where a new one is to replace it at once."""
        flow.has_delivered = False
        born_at = datetime.now(UTC)
        try:
            will = self._status(online=False, at=born_at)
            if will is not None and flow.status_messages.find_obstacle(will):
                will = None
            # Files are read each time: passwords and certificates may change while the daemon runs.
            login = await to_thread.run_sync(self._make_login, will)
            connection = await self._connect(login, flow)
        except (SinkError, ConfigError) as error:
            return End(str(error))
        is_up = False
        try:
            if not is_renewed:
                self._telemetry.emit(SinkConnected(self.name, self._describe(connection)))
            flow.publish_status(self._status(online=True, at=born_at, retain=connection.retains))
            if self._discovery is not None and not is_renewed:
                flow.publish_status(replace(self._discovery, retain=connection.retains))
            await self._use(connection, flow, is_renewed=is_renewed)
            if not connection.lost and not flow.is_done:
                await connection.disconnect()  # with DISCONNECT, so that the broker does not publish the will
                return None
            if not connection.lost:
                await self._publish_goodbye(connection, flow)
            is_up = connection.ending is not Ending.DROPPED or await answers(login)
        finally:
            connection.close()
            is_owed = flow.requeue(connection, is_up=is_up)
            if self._retained_repair is not None:
                self._retained_repair.note_end(connection)
        return End(
            connection.lost, connection.ending, connection.age, flow.has_delivered, blameless=is_up and not is_owed
        )

    async def _connect(self, login: Login, flow: Flow) -> Connection:
        """Connect; if the broker refuses a retained will, connect with one that is not retained."""
        try:
            return await self._negotiation.connect(login, flow.news.set)
        except RetainRefused:
            if login.will is None:
                raise
            login = dataclasses.replace(login, will=replace(login.will, retain=False))
            return await self._negotiation.connect(login, flow.news.set)

    async def _use(self, connection: Connection, flow: Flow, *, is_renewed: bool) -> None:
        async with anyio.create_task_group() as tasks:
            if self._retained_repair is not None and connection.retains:
                tasks.start_soon(partial(self._retained_repair.run, connection, flow, is_renewed=is_renewed))
            await flow.run_on(connection)
            tasks.cancel_scope.cancel()

    async def _publish_goodbye(self, connection: Connection, flow: Flow) -> None:
        with anyio.move_on_after(_GOODBYE_LIMIT.total_seconds()):
            if self._retained_repair is not None and connection.retains:
                flow.publish_status(await self._retained_repair.write())
            flow.publish_status(self._status(online=False, at=datetime.now(UTC), retain=connection.retains))
            await flow.run_on(connection)
            await connection.disconnect()

    def _make_login(self, will: Publication | None = None) -> Login:
        settings, url, trust = self._settings, urlsplit(self._settings.url), None
        if url.scheme in TLS_SCHEMES:
            files = {"ca_file": settings.ca_file, "cert_file": settings.cert_file, "key_file": settings.key_file}
            trust = make_trust(f"[sinks.{self.name}]", **files)
        return Login(
            host=url.hostname or "",
            port=url.port or PORTS[url.scheme],
            client_id=self._client_id,
            keepalive=settings.keepalive,
            trust=trust,
            username=settings.username,
            password=settings.password.reveal() if settings.password else None,
            will=will,
            path=(url.path if url.path.strip("/") else "/mqtt") if url.scheme in WEB_SOCKET_SCHEMES else None,
        )

    def _own_topic(self, template: str) -> str:
        topic = template.replace("{client_id}", self._client_id)
        try:
            return topic and check_topic(topic, fields=())
        except ValueError as error:
            raise ConfigError(f"[sinks.{self.name}]: client_id is part of a topic, which {error}") from error

    def _status(self, *, online: bool, at: datetime, retain: bool = True) -> Publication | None:
        if not self._status_topic:
            return None
        payload = json.dumps({"online": online, "timestamp": format_moment(at)}).encode()
        return Publication(self._status_topic, payload, STATE_TYPE, retain=retain)

    def _make_discovery(self) -> Publication | None:
        """Return what lets Home Assistant show the status, https://www.home-assistant.io/integrations/mqtt/."""
        if self._settings.discovery_prefix is None:
            return None
        name = re.sub("[^a-zA-Z0-9_-]", "_", self._client_id)
        about = {"name": "dockbell", "sw_version": __version__}
        sensor = {
            "name": f"{self.name} connected",
            "unique_id": name,
            "device_class": "connectivity",
            "entity_category": "diagnostic",
            "state_topic": self._status_topic,
            "value_template": "{{ 'ON' if value_json.online else 'OFF' }}",
            "json_attributes_topic": self._status_topic,
            "device": {"identifiers": [name], **about},
            "origin": about,
        }
        topic = f"{self._settings.discovery_prefix}/binary_sensor/{name}/config"
        return Publication(topic, json.dumps(sensor).encode(), STATE_TYPE, retain=True)

    def _describe(self, connection: Connection) -> str:
        version = f"MQTT {connection.protocol}"
        if urlsplit(self._settings.url).scheme in WEB_SOCKET_SCHEMES:
            version += " over WebSockets"
        if connection.qos_maximum < self._settings.qos:
            version += (
                f", QoS {connection.qos_maximum} instead of {self._settings.qos}, which the broker does not support"
            )
        if connection.protocol is Protocol.V3:
            version += " without reason codes: publications that the broker's rules deny count as delivered"
        blank = (
            ""
            if connection.retains
            else "; the broker retains nothing: no states, and the status only for connected subscribers"
        )
        return f"{self._place}, {version}, {min(self.window, connection.receive_maximum)} in flight{blank}"
