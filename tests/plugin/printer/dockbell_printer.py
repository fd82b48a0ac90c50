"""A sink for line printers that listen on TCP, as they stand on packing tables.

The printer begins with ``READY``. After that each line that it gets is a CloudEvent, and is answered by one line:
``OK`` once it is on paper, ``NO`` and why where it never will be, anything else where it may be later. Where a PIN is
set the printer wants ``PIN 1234`` first, and answers it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, Final, Literal

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream
from pydantic import Field

from dockbell.config import Interval, Secret, SinkSettings
from dockbell.core.model import DELIVERED, Delivery, Outcome, OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.telemetry import SinkConnected, Telemetry

_LINE_MOST: Final = 1000
_LOST: Final = (OSError, anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError)


class PrinterSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "printer"``."""

    type: Literal["printer"]
    host: str
    port: int = Field(default=9100, ge=1, le=65535)
    pin: Secret | None = None
    timeout: Interval = timedelta(seconds=10)


class PrinterSink:
    """Prints each event on one line, one after the other."""

    Settings: ClassVar = PrinterSettings
    keeps_state = False
    window = 1

    def __init__(self, name: str, settings: PrinterSettings, telemetry: Telemetry) -> None:
        self.name = name
        self._settings = settings
        self._telemetry = telemetry
        self._printer: _Printer | None = None

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        """Print each delivery once; when to try again is not for the sink to decide."""
        try:
            async for delivery in deliveries:
                settle(delivery, await self._print(delivery))
        finally:
            await self._hang_up()

    async def probe(self) -> str:
        """Connect, and print nothing.

        Raises:
            SinkUnavailable: Nobody answers, or not as a printer does.
            SinkRejected: The PIN is not accepted.
        """
        try:
            with anyio.fail_after(self._settings.timeout.total_seconds()):
                printer = await self._connect()
            await printer.stream.aclose()
        except _LOST as error:
            raise SinkUnavailable(f"{self._place}: {_explain(error)}") from error
        return f"{self._place} is ready"

    async def _print(self, delivery: Delivery) -> Outcome:
        try:
            with anyio.fail_after(self._settings.timeout.total_seconds()):
                if self._printer is None:
                    self._printer = await self._connect()
                    self._telemetry.emit(SinkConnected(self.name, self._place))
                answer, _, reason = (await self._printer.ask(delivery.event.body)).partition(" ")
        except (*_LOST, SinkRejected) as error:
            # Whether it is on paper nobody knows, where the connection broke: it is printed again then.
            kind = OutcomeKind.UNREACHABLE if self._printer is None else OutcomeKind.FAILED
            await self._hang_up()
            return Outcome(kind, _explain(error))
        if answer == "OK":
            return DELIVERED
        return Outcome(OutcomeKind.REFUSED if answer == "NO" else OutcomeKind.FAILED, reason)

    async def _connect(self) -> _Printer:
        printer = _Printer(await anyio.connect_tcp(self._settings.host, self._settings.port))
        try:
            await self._greet(printer)
        except BaseException:
            await anyio.aclose_forcefully(printer.stream)
            raise
        return printer

    async def _greet(self, printer: _Printer) -> None:
        greeting = await printer.hear()
        if greeting != "READY":
            raise ConnectionError(f"not a printer, it says {greeting[:20]!r}")
        pin = self._settings.pin
        if pin is not None and await printer.ask(f"PIN {pin.reveal()}".encode()) != "OK":
            raise SinkRejected(f"{self._place}: the pin is not accepted; set another in [sinks.{self.name}]")

    async def _hang_up(self) -> None:
        if self._printer is not None:
            await anyio.aclose_forcefully(self._printer.stream)
            self._printer = None

    @property
    def _place(self) -> str:
        return f"{self._settings.host}:{self._settings.port}"


class _Printer:
    """A connection."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._answers = BufferedByteReceiveStream(stream)

    async def ask(self, line: bytes) -> str:
        await self.stream.send(line + b"\n")
        return await self.hear()

    async def hear(self) -> str:
        return (await self._answers.receive_until(b"\n", _LINE_MOST)).decode(errors="replace")


def _explain(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error).lower() or "connection lost"
