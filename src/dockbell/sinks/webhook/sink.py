"""The sink: lanes that attempt one delivery at a time each, and what came of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import ClassVar, Final

import anyio
import httpcore
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.core.publishing.signature import sign
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.net.network import explain, find_cause, make_trust
from dockbell.ports import Bell
from dockbell.sinks.webhook.answer import judge
from dockbell.sinks.webhook.credentials import Headers, make_headers, reveal_keys
from dockbell.sinks.webhook.lane import Lane
from dockbell.sinks.webhook.secret_reload import Renewable
from dockbell.sinks.webhook.settings import Way, WebhookSettings
from dockbell.sinks.webhook.ssrf_guard import AddressRefused, Dialler, to_core
from dockbell.telemetry import Fact, SinkConnected, Telemetry

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"

_BODY_CAP: Final = 4096
_BODY_LIMIT: Final = timedelta(seconds=1)
_CONNECT_LIMIT: Final = timedelta(seconds=5)
_LOOK_EVERY: Final = timedelta(seconds=2)
_LOOK_PAUSE: Final = timedelta(seconds=1)
_UNWELCOME: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_UNREACHED: Final = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError, ssl.SSLError)
_BROKEN: Final = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError)


class WebhookSink:
    """Delivers to one URL; each lane is one connection with one request at a time.

    Raises:
        ConfigError: A secret, a header or a file cannot be used.
    """

    Settings: ClassVar = WebhookSettings
    keeps_state = False

    def __init__(self, name: str, settings: WebhookSettings, telemetry: Telemetry) -> None:
        self.name = name
        self.window = settings.lanes
        self._telemetry = telemetry
        self._timeout = settings.timeout
        self._dead_on = frozenset(settings.dead_on)
        self._dialler = Dialler(settings.rules)
        places = (settings.url, settings.proxy)
        self._way = Renewable(name, "url or proxy", partial(settings.find_way, name), places)
        self._keys = Renewable(name, "secret", partial(reveal_keys, name, settings.secret), settings.secret)
        self._headers = Renewable(
            name,
            "headers or bearer",
            partial(make_headers, name, settings),
            (*settings.headers.values(), settings.bearer),
        )
        files = {"ca_file": settings.ca_file, "cert_file": settings.cert_file, "key_file": settings.key_file}
        self._trust = Renewable(name, "certificates", partial(make_trust, f"[sinks.{name}]", **files), files.values())
        self._unwelcome = Bell()
        self._answered = False
        # TCP and TLS get a third of the time each, at most: a host that is silent is unreachable, not slow.
        self._extensions = {"timeout": {"connect": min(_CONNECT_LIMIT, self._timeout / 3).total_seconds()}}

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        """Post each delivery once, as many at a time as there are lanes."""
        async with anyio.create_task_group() as watching:
            if any(each.can_change for each in (self._way, self._keys, self._headers, self._trust)):
                watching.start_soon(self._watch)
            async with anyio.create_task_group() as lanes:
                for _ in range(self.window):
                    lanes.start_soon(self._run_lane, deliveries, settle)
            watching.cancel_scope.cancel()

    async def probe(self) -> str:
        """Ask the URL for its OPTIONS; any answer in HTTP will do.

        Raises:
            SinkUnavailable: Nobody answers, or not in HTTP.
            SinkRejected: Its certificate is not accepted, or ours by it; its address must not be dialled.
        """
        way = self._way.current
        async with self._dialler.open_lane(self._trust.current, way.proxy) as lane:
            try:
                with anyio.fail_after(self._timeout.total_seconds()):
                    response = await lane.handle_async_request(self._request(way, "OPTIONS", [], b""))
                    await response.aclose()
            except TimeoutError:
                raise SinkUnavailable(f"{way.place}: {self._timed_out}") from None
            except (*_UNREACHED, *_BROKEN) as error:
                kind = SinkRejected if _is_permanent(find_cause(error)) else SinkUnavailable
                # From nothing: the words of some are the receiver's, which may have quoted our request.
                raise kind(f"{way.place}: {explain(error)}") from None
        return f"{way.place} answers OPTIONS with HTTP {response.status}"

    @property
    def _timed_out(self) -> str:
        return f"timed out after {self._timeout.total_seconds():g} s"

    async def _run_lane(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        async with aclosing(Lane(self._dialler)) as lane:
            async for delivery in deliveries:
                way = self._way.current
                outcome = await self._attempt(lane, way, delivery)
                self._notice(way, outcome)
                settle(delivery, outcome)

    async def _attempt(self, lane: Lane, way: Way, delivery: Delivery) -> Outcome:
        outcome: Outcome | None = None
        try:
            with anyio.fail_after(self._timeout.total_seconds()):
                request = self._request(way, "POST", self._sign(delivery), delivery.event.body)
                async with aclosing(await lane.send(request, self._trust.current, way.proxy)) as response:
                    outcome = self._judge(response)
                    await _drain(response)
        except TimeoutError:
            return outcome or Outcome(OutcomeKind.FAILED, self._timed_out)
        except _UNREACHED as error:
            # A refused address too: whoever it belongs to is not asked, so that no event may be lost to it.
            return outcome or Outcome(OutcomeKind.UNREACHABLE, explain(error))
        except _BROKEN as error:
            return outcome or Outcome(OutcomeKind.FAILED, explain(error))
        return outcome

    def _request(self, way: Way, method: str, headers: Headers, body: bytes) -> httpcore.Request:
        headers = [*self._headers.current, *headers]
        if not any(name == b"host" for name, _ in headers):
            headers.insert(0, (b"host", way.url.netloc))
        return httpcore.Request(method, to_core(way.url), headers=headers, content=body, extensions=self._extensions)

    def _sign(self, delivery: Delivery) -> Headers:
        event = delivery.event
        timestamp = int(time.time())
        headers = [
            (b"content-length", b"%d" % len(event.body)),
            (b"content-type", CONTENT_TYPE.encode()),
            (b"webhook-id", event.id.encode()),
            (b"webhook-timestamp", b"%d" % timestamp),
            (b"webhook-signature", sign(self._keys.current, event.id, timestamp, event.body).encode()),
        ]
        return [*headers, (b"dockbell-replay", b"true")] if delivery.replayed else headers

    def _judge(self, response: httpcore.Response) -> Outcome:
        if response.status in _UNWELCOME:
            self._unwelcome.ring()
        retry_after = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
        return judge(response.status, retry_after.decode("latin-1"), self._dead_on, datetime.now(UTC))

    def _notice(self, way: Way, outcome: Outcome) -> None:
        answers = outcome.kind is not OutcomeKind.UNREACHABLE
        if answers and not self._answered:
            self._telemetry.emit(SinkConnected(self.name, way.place))
        self._answered = answers

    async def _watch(self) -> None:
        """Renew what comes from outside, looked at every few seconds and closely when the receiver does not know us."""
        rings = self._unwelcome.rings
        while True:
            closely = False
            with anyio.move_on_after(_LOOK_EVERY.total_seconds()):
                rings = await self._unwelcome.wait(rings)
                closely = True
            for fact in await to_thread.run_sync(self._renew, closely, abandon_on_cancel=True):
                self._telemetry.emit(fact)
            await anyio.sleep(_LOOK_PAUSE.total_seconds())

    def _renew(self, closely: bool) -> list[Fact]:
        # Certificates are not made anew on suspicion: connections would be.
        known = [each.renew(closely=closely) for each in (self._way, self._keys, self._headers)]
        facts = (*known, self._trust.renew())
        return [fact for fact in facts if fact is not None]


async def _drain(response: httpcore.Response) -> None:
    """Read a short body, so that the connection can be used again; a long or slow one ends with its connection."""
    size = 0
    assert isinstance(response.stream, AsyncIterable)
    with anyio.move_on_after(_BODY_LIMIT.total_seconds()):
        async for chunk in response.stream:
            size += len(chunk)
            if size > _BODY_CAP:
                break


def _is_permanent(cause: BaseException) -> bool:
    """Return whether an operator must act, ours or the receiver's."""
    alerted = isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")  # the other side's word for a refusal
    return alerted or isinstance(cause, AddressRefused | ssl.SSLCertVerificationError)
