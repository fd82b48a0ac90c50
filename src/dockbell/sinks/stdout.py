"""Standard output: each event one line of JSON."""

from __future__ import annotations

import os
import sys
from typing import ClassVar, Literal

from anyio import to_thread

from dockbell.config import SinkSettings
from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.printable import escape_json
from dockbell.errors import SinkUnavailable
from dockbell.net.network import explain
from dockbell.ports import Deliveries, Settle
from dockbell.telemetry import Telemetry


class StdoutSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "stdout"``."""

    type: Literal["stdout"]


class StdoutSink:
    """Writes events as JSON lines, one after the other; a reader that pauses does not hold up the event loop."""

    Settings: ClassVar = StdoutSettings
    keeps_state = False
    window = 100

    def __init__(self, name: str, settings: StdoutSettings, telemetry: Telemetry) -> None:  # noqa: ARG002  # as all
        self.name = name

    async def run(self, deliveries: Deliveries, settle: Settle) -> None:
        async for delivery in deliveries:
            settle(delivery, await to_thread.run_sync(_write_event, delivery.event.body, abandon_on_cancel=True))

    async def probe(self) -> str:
        """Look whether standard output is open; SinkUnavailable where it is closed."""
        try:
            os.fstat(sys.stdout.fileno())
        except OSError as error:
            raise SinkUnavailable(f"standard output: {explain(error)}") from error
        return "standard output is open"


def _write_event(body: bytes) -> Outcome:
    try:
        # Not through sys.stdout: its buffer would keep the rest after a closed pipe, and fail again at exit.
        file = sys.stdout.fileno()
        if os.isatty(file):  # which would obey what others have written into a record
            body = escape_json(body.decode(errors="replace")).encode()
        rest = memoryview(body + b"\n")
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError as error:
        return Outcome(OutcomeKind.UNREACHABLE, f"standard output: {explain(error)}")
    return DELIVERED
