"""One event through one sink, to see whether and how it is taken."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.model import Delivery, Event, Outcome, OutcomeKind
from dockbell.ports import Sink

_PATIENCE: Final = timedelta(minutes=2)


async def try_sink(sink: Sink, event: Event) -> Outcome:
    """Deliver an event in a single attempt, beside whatever a daemon delivers; return what came of it."""
    outcomes: list[Outcome] = []
    send, receive = anyio.create_memory_object_stream[Delivery](1)
    send.send_nowait(Delivery(event))
    send.close()  # the one delivery is still received; a sink that sees the end goes on trying no longer
    with receive, anyio.move_on_after(_PATIENCE.total_seconds()):
        await sink.run(receive, lambda _, outcome: outcomes.append(outcome))
    return (
        outcomes[0]
        if outcomes
        else Outcome(OutcomeKind.UNREACHABLE, f"no outcome within {_PATIENCE.total_seconds():g} s")
    )
