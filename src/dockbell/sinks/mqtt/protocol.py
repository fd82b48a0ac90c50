"""Which version of MQTT to speak: 5, or 3.1.1 with a broker that does not support it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final, Literal

import anyio

from dockbell.errors import SinkError, SinkRejected
from dockbell.sinks.mqtt.connack import Protocol, VersionRefused, VersionUnclear
from dockbell.sinks.mqtt.connecting import Login, connect
from dockbell.sinks.mqtt.connection import Connection

_LOOK_AGAIN: Final = timedelta(hours=1)
"""How long a broker is taken for one of 3.1.1: it may be upgraded."""
_CLOSINGS_MOST: Final = 5
"""How often in a row a broker that has spoken 5 may not answer in it: it may be ill, or busy."""

_clock: Final = anyio.current_time


class Negotiation:
    """Connects in the version that the broker speaks, and remembers it."""

    def __init__(self, wanted: Literal["auto", "5", "3.1.1"]) -> None:
        self._wanted = None if wanted == "auto" else Protocol(wanted)
        self._old_until = float("-inf")
        self._has_spoken_5 = False
        self._closings = 0

    async def connect(self, login: Login, wake: Callable[[], None]) -> Connection:
        """Connect as :func:`dockbell.sinks.mqtt.connecting.connect` does, whatever version the login names.

        Raises:
            SinkUnavailable, SinkRejected: As that does.
        """
        if self._wanted is not None:
            return await connect(replace(login, protocol=self._wanted), wake)
        if _clock() < self._old_until:
            try:
                return await connect(replace(login, protocol=Protocol.V3), wake)
            except (VersionRefused, VersionUnclear):
                self._old_until = float("-inf")
                raise
        try:
            return await self._connect_5(login, wake)
        except (VersionRefused, VersionUnclear) as refusal:
            self._closings += 1
            if isinstance(refusal, VersionUnclear) and self._has_spoken_5 and self._closings < _CLOSINGS_MOST:
                raise
            return await self._connect_old(login, wake, refusal)

    async def _connect_5(self, login: Login, wake: Callable[[], None]) -> Connection:
        connection = await connect(replace(login, protocol=Protocol.V5), wake)
        self._has_spoken_5, self._closings = True, 0
        return connection

    async def _connect_old(
        self, login: Login, wake: Callable[[], None], refusal: VersionRefused | VersionUnclear
    ) -> Connection:
        """Connect in 3.1.1, once it is clear that the broker does not speak 5."""
        connection = await _connect_3(login, wake, refusal)
        if _is_doubtful(refusal):
            # It may have hung or been stopping, and this connection would last for weeks without reason codes.
            connection.disconnect()
            try:
                return await self._connect_5(login, wake)
            except (VersionRefused, VersionUnclear) as second:
                refusal = second
            connection = await _connect_3(login, wake, refusal)
        # A broker that closes the connection without an answer is tried with 5 every time.
        if not (isinstance(refusal, VersionUnclear) and refusal.is_closed):
            self._old_until = _clock() + _LOOK_AGAIN.total_seconds()
        return connection


def _is_doubtful(refusal: VersionRefused | VersionUnclear) -> bool:
    """Return whether the refusal may have another reason than the version."""
    return isinstance(refusal, VersionUnclear) and not refusal.is_answered


async def _connect_3(login: Login, wake: Callable[[], None], refusal: SinkError) -> Connection:
    """Connect in 3.1.1; where that fails too, raise the refusal of 5, which says more."""
    try:
        return await connect(replace(login, protocol=Protocol.V3), wake)
    except VersionRefused:
        raise refusal from None
    except SinkRejected:
        raise  # it speaks 3.1.1, and does not want us
    except SinkError:
        raise refusal from None
