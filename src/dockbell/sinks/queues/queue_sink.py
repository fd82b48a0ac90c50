"""What sinks for queues have in common: several publications under way, one connection, opened anew after a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import ClassVar, Final, Generic, TypeVar

import anyio

from dockbell.core.model import DELIVERED, Delivery, Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkError, SinkRejected, SinkUnavailable
from dockbell.ports import Deliveries, Settle
from dockbell.telemetry import SinkConnected, Telemetry

_C = TypeVar("_C")

_CLOSE_LIMIT: Final = timedelta(seconds=2)


class QueueSink(ABC, Generic[_C]):
    """Publishes each event, and settles it when the server has confirmed it.

    No two deliveries at hand are of one record, so publications side by side keep the order of each record.

    Attributes:
        library: What it needs, and the extra of dockbell that brings it.
        place: The server's host and port, which may be shown.
    """

    keeps_state = False
    library: ClassVar[tuple[str, str]]

    def __init__(self, name: str, telemetry: Telemetry, *, place: str, window: int, timeout: timedelta) -> None:
        self.name = name
        self.window = window
        self.place = place
        self._telemetry = telemetry
        self._timeout = timeout
        self._connection: _C | None = None
        self._connecting = anyio.Lock()
        self._is_told = False
        module, extra = self.library
        if find_spec(module) is None:
            raise ConfigError(f"[sinks.{name}]: {module} is not installed; pip install 'dockbell[{extra}]'")

    async def run(self, deliveries: Deliveries, settle: Settle) -> None:
        """Publish each delivery once, as many at a time as the window allows."""
        try:
            async with anyio.create_task_group() as group:
                for _ in range(self.window):
                    group.start_soon(self._work, deliveries, settle)
        finally:
            await self._lose(self._connection)

    async def probe(self) -> str:
        """Connect, and return what answers.

        Raises:
            SinkUnavailable: No server answers.
            SinkRejected: The server refuses us.
        """
        connection: _C | None = None
        try:
            with anyio.fail_after(self._timeout.total_seconds()):
                connection = await self._open()
                return f"{self.place} answers as {await self._describe(connection)}"
        except TimeoutError:
            raise SinkUnavailable(f"{self.place}: {self._timed_out}") from None
        except SinkError:
            raise
        except Exception as error:  # noqa: BLE001  # as of an attempt
            kind = SinkRejected if self._refuses_us(error) else SinkUnavailable
            raise kind(f"{self.place}: {self._judge(error).reason}") from None
        finally:
            await self._discard(connection)

    @abstractmethod
    async def _open(self) -> _C:
        """Return a connection that the server has accepted; any exception says that there is none."""

    @abstractmethod
    async def _close(self, connection: _C) -> None:
        """Close a connection, whatever state it is in."""

    def _is_open(self, connection: _C) -> bool:
        """Return whether a connection can be used; one that the server has ended in a reply is not used again."""
        del connection
        return True

    @abstractmethod
    async def _publish(self, connection: _C, delivery: Delivery) -> None:
        """Return when the server has confirmed an event; any exception says that it has not."""

    @abstractmethod
    async def _describe(self, connection: _C) -> str:
        """Return which server answers, ``Redis 7.0.15``."""

    @abstractmethod
    def _judge(self, error: Exception) -> Outcome:
        """Return what an exception means for an event; UNREACHABLE ends the connection."""

    @abstractmethod
    def _refuses_us(self, error: Exception) -> bool:
        """Return whether an operator must act: the server does not accept our credentials."""

    async def _work(self, deliveries: Deliveries, settle: Settle) -> None:
        async for delivery in deliveries:
            settle(delivery, await self._attempt(delivery))

    async def _attempt(self, delivery: Delivery) -> Outcome:
        connection: _C | None = None
        try:
            with anyio.fail_after(self._timeout.total_seconds()):
                connection = await self._connect()
                await self._publish(connection, delivery)
        except TimeoutError:
            # On the next connection the server cannot confirm late what a later attempt waits for.
            await self._lose(connection)
            return Outcome(OutcomeKind.UNREACHABLE if connection is None else OutcomeKind.FAILED, self._timed_out)
        except Exception as error:  # noqa: BLE001  # libraries raise many kinds; each is an outcome of this event
            outcome = self._judge(error)
            if outcome.kind is OutcomeKind.UNREACHABLE:
                await self._lose(connection)
            return outcome
        if not self._is_told:
            self._is_told = True
            self._telemetry.emit(SinkConnected(self.name, self.place))
        return DELIVERED

    @property
    def _timed_out(self) -> str:
        return f"timed out after {self._timeout.total_seconds():g} s"

    async def _connect(self) -> _C:
        async with self._connecting:
            if self._connection is not None and not self._is_open(self._connection):
                await self._lose(self._connection)
            if self._connection is None:
                self._connection = await self._open()
            return self._connection

    async def _lose(self, connection: _C | None) -> None:
        """Close a connection that is of no use any more, unless that was done."""
        if connection is not None and connection is self._connection:
            self._connection, self._is_told = None, False
            await self._discard(connection)

    async def _discard(self, connection: _C | None) -> None:
        if connection is not None:
            await end(partial(self._close, connection))


async def end(close: Callable[[], Awaitable[object]]) -> None:
    """Close a connection, whatever becomes of that, within seconds and also while this task is cancelled."""
    with anyio.move_on_after(_CLOSE_LIMIT.total_seconds(), shield=True), suppress(Exception):
        await close()
