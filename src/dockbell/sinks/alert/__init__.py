"""Messages to people: mail, chats and push services, each by its Apprise URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Annotated, ClassVar, Final, Literal

import anyio

from dockbell.config import Interval, Secret, SinkSettings
from dockbell.config.tables import OfferedName
from dockbell.config.values import OneOrMore
from dockbell.core.model import DELIVERED, NOTICES, Delivery, Event, NoticeKind, Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.ports import Deliveries, Settle
from dockbell.sinks.alert.sender import Sender
from dockbell.sinks.alert.text import Text, write_text
from dockbell.telemetry import Telemetry

_clock: Final = anyio.current_time
_IDLE: Final = 30.0
"""Seconds without a message after which the process that sends them ends."""
_INCIDENTS: Final = (NoticeKind.GAP, NoticeKind.DIED)
"""Each of these is over when it is told, so that the next is another."""
_HELP: Final = "see docs/how-to/alerts.md"
_SERVICE: Final = re.compile(r"[a-z][a-z0-9+_-]*://\S")


class AlertSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "alert"``."""

    type: Literal["alert"]
    resources: Annotated[tuple[OfferedName, ...], *OneOrMore] | None = ("notices",)
    url: Secret
    repeat: Interval = timedelta(hours=1)
    timeout: Interval = timedelta(seconds=20)


@dataclass(slots=True)
class _Sent:
    """The last message about an alert that is not over."""

    at: float
    held_back: int = 0  # how many notices came since, of which no message was sent


class AlertSink:
    """Sends each event as a message, one after the other.

    Of an alert that is not over, one message is sent in ``repeat``; the next says how many notices came meanwhile.
    """

    Settings: ClassVar = AlertSettings
    keeps_state = False
    window = 1

    def __init__(self, name: str, settings: AlertSettings, telemetry: Telemetry) -> None:  # noqa: ARG002  # as all
        self.name = name
        self._settings = settings
        self._sent: dict[str, _Sent] = {}
        self._sender = Sender(settings.url, settings.timeout.total_seconds())
        if find_spec("apprise") is None:
            raise ConfigError(f"[sinks.{name}]: Apprise is not installed; pip install 'dockbell[alert]'")
        if not _SERVICE.match(settings.url.reveal()):
            raise ConfigError(
                f'[sinks.{name}] url: must begin with a service, such as "mailto://" or "slack://"; {_HELP}'
            )

    async def run(self, deliveries: Deliveries, settle: Settle) -> None:
        try:
            while True:
                with anyio.move_on_after(_IDLE) as waiting:
                    delivery = await deliveries.receive()
                if waiting.cancelled_caught:
                    await self._sender.aclose()
                    delivery = await deliveries.receive()
                settle(delivery, await self._attempt(delivery))
        except anyio.EndOfStream:
            pass
        finally:
            await self._sender.aclose()

    async def probe(self) -> str:
        """Connect to the service, if Apprise says where it is: only a message shows whether it takes them."""
        sender = Sender(self._settings.url, self._settings.timeout.total_seconds())
        try:
            answer = await sender.send(Text("", "", "info"))
        finally:
            await sender.aclose()
        if not answer.is_reached:
            raise SinkUnavailable(f"{answer.service or 'url'}: {answer.reason}")
        if not answer.service:
            raise SinkRejected(f"url: {answer.reason}; {_HELP}")
        return f'messages go to {answer.service}; "dockbell test {self.name}" sends one'

    async def _attempt(self, delivery: Delivery) -> Outcome:
        event, now = delivery.event, _clock()
        if event.feed != NOTICES or delivery.replayed:
            return await self._send(event)
        sent, is_over = self._sent.get(event.key), event.change == NoticeKind.RECOVERED
        if (
            sent is not None
            and not is_over
            and event.change not in _INCIDENTS
            and now - sent.at < self._settings.repeat.total_seconds()
        ):
            sent.held_back += 1
            return DELIVERED
        outcome = await self._send(event, repeated=0 if sent is None or is_over else sent.held_back)
        if outcome is DELIVERED:
            self._sent.pop(event.key, None)
            if not is_over:
                self._sent[event.key] = _Sent(now)
        return outcome

    async def _send(self, event: Event, *, repeated: int = 0) -> Outcome:
        answer = await self._sender.send(write_text(event, repeated=repeated))
        if answer.is_sent:
            return DELIVERED
        return Outcome(OutcomeKind.FAILED if answer.is_reached else OutcomeKind.UNREACHABLE, answer.reason)
