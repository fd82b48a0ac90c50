"""A process that begins other processes, warm ones, which change records and deliver until they are killed.

It is told by lines on standard input what each of them shall do, and answers with its process id, then with how it
ended. To fork takes a few milliseconds where to start Python takes half a second.
"""

from __future__ import annotations

import json
import os
import random
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from dockbell.config import SinkSettings
from dockbell.core.publishing.settlement import Settlement
from dockbell.delivery import relay
from dockbell.delivery.relay import Relay
from dockbell.ports import Sink
from dockbell.sinks import load_sink_type
from dockbell.telemetry import Telemetry
from dockbell.testing import Outbox, open_outbox

SINK: Final = "tried"
ROOT: Final = Path(__file__).parents[2]
_SAVE_EVERY: Final = timedelta(seconds=0.02)
"""A fiftieth of what it is in earnest, and so are these lives: a kill meets a saving as often."""


@dataclass(frozen=True, slots=True)
class Life:
    """What one process shall do.

    Attributes:
        folder: Where its store is.
        settings: The table ``[sinks.tried]``.
        seed: Of what it does by chance; also the first version of the records that it changes.
        finishes: Changes nothing, and ends when all is delivered.
    """

    folder: str
    settings: dict[str, Any]
    seed: int
    finishes: bool = False


class Nursery:
    """Begins processes, and tells of their end."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self._answers = BufferedByteReceiveStream(process.stdout)
        self._orders = process.stdin

    async def begin(self, life: Life) -> int:
        """Begin a process; return its id."""
        order = {name: getattr(life, name) for name in Life.__slots__}
        await self._orders.send(json.dumps(order).encode() + b"\n")
        return int(await self._answers.receive_until(b"\n", 100))

    async def end(self) -> int:
        """Return how it ended: an exit code, or the signal's number below zero."""
        return int(await self._answers.receive_until(b"\n", 100))


@asynccontextmanager
async def open_nursery() -> AsyncIterator[Nursery]:
    """Start the process that begins the others."""
    command = [sys.executable, "-m", "tests.acceptance.killed"]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        yield Nursery(process)
        assert process.stdin is not None
        await process.stdin.aclose()
        assert await process.wait() == 0


def read_safe_at(folder: Path, since: float) -> float:
    """Return when the last saving but one of a process began, by the monotonic clock in seconds; else its beginning.

    What was settled before is saved: whatever has held up a position at one saving does not at the next.
    """
    mark = folder / "saved"
    moments: list[float] = [moment for (moment,) in struct.iter_unpack("d", mark.read_bytes())] if mark.exists() else []
    return max([since, *moments[-2:-1]])


def make_sink(settings: Mapping[str, Any]) -> tuple[Sink, SinkSettings]:
    """Return a sink, not connected, and its settings."""
    sink_type = load_sink_type(settings["type"])
    checked = sink_type.Settings.model_validate(settings)
    return sink_type(SINK, checked, Telemetry()), checked


async def live(life: Life, sink: Sink, settings: SinkSettings) -> None:
    """Change records and deliver, for ever or until all is delivered."""
    relay._CHECKPOINT_EVERY = _SAVE_EVERY  # type: ignore[misc]  # final in earnest
    folder = Path(life.folder)
    mark = os.open(folder / "saved", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with open_outbox(folder, SINK) as outbox:
        sink_store = outbox.store.sink(SINK)
        save = sink_store.settle

        async def save_and_mark(settlement: Settlement) -> None:
            since = monotonic()
            await save(settlement)
            os.write(mark, struct.pack("d", since))

        sink_store.settle = save_and_mark  # type: ignore[method-assign]
        agent = Relay(sink, settings, store=outbox.store, telemetry=Telemetry(), now=partial(datetime.now, UTC))
        if life.finishes:
            assert await agent.drain(timedelta(seconds=20))
            return
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run)
            await change_for_ever(outbox, life.seed)


async def change_for_ever(outbox: Outbox, seed: int) -> None:
    """Change a few records at a time."""
    chance, version = random.Random(seed), seed * 10_000
    while True:
        version += 1
        keys = chance.sample([f"key_{number}" for number in range(12)], chance.randint(1, 4))
        await outbox.change(*keys, first=version)
        await anyio.sleep(chance.uniform(0, 0.004))


def main() -> None:
    """Begin a process for each line."""
    sink: tuple[Sink, SinkSettings] | None = None
    for line in sys.stdin:
        life = Life(**json.loads(line))
        sink = sink or make_sink(life.settings)  # it reads certificates, which takes long; all get copies of it
        child = os.fork()
        if not child:
            code = 1
            try:
                anyio.run(live, life, *sink)
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
