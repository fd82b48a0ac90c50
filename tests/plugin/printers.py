"""A line printer, as far as a computer can tell, that can be out of paper, stuck, or unplugged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dockbell.testing import Arrival
from tests.sinks.conforming import Moods

PIN = "4711"


class PrinterReceiver(Moods):
    """Prints what it is sent, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self._pin = PIN

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"type": "printer", "host": "127.0.0.1", "port": self.port, "pin": PIN, "timeout": "500ms"}

    async def reject(self) -> None:
        self._pin = "something else"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"READY\n")
        while True:
            line = await reader.readuntil(b"\n")
            await self._answering.wait()
            if reader.at_eof():  # who sent this has hung up
                return
            writer.write(self._answer(line).encode() + b"\n")

    def _answer(self, line: bytes) -> str:
        if line.startswith(b"PIN "):
            return "OK" if line == f"PIN {self._pin}\n".encode() else "NO wrong pin"
        arrival = Arrival.read(line)
        flight = self.arrivals.begin(arrival.feed, arrival.key)
        flight.answer()
        if arrival.key in self._refused:
            return "NO this cannot be printed"
        if arrival.key in self._failing:
            return "WAIT out of paper"
        self.arrivals.take(arrival)
        return "OK"
