from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.admin import trial
from dockbell.admin.trial import try_sink
from dockbell.core.model import DELIVERED, Delivery, Outcome, OutcomeKind
from dockbell.core.publishing.event import test_event as make_test_event
from tests.fakes import NOON, FakeSink

EVENT = make_test_event("acme", "erp", NOON, "nonce")


@pytest.mark.parametrize("outcome", [DELIVERED, Outcome(OutcomeKind.REFUSED, "HTTP 400")])
async def test_one_event_is_attempted_once_and_its_outcome_returned(outcome: Outcome) -> None:
    sink = FakeSink(answer=lambda _: outcome)
    assert await try_sink(sink, EVENT) == outcome
    assert sink.got == [Delivery(EVENT)]


class Mute(FakeSink):
    """Never comes to an end."""

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        await anyio.sleep_forever()


async def test_a_sink_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PATIENCE", trial._PATIENCE / 10_000)
    assert (await try_sink(Mute(), EVENT)).kind is OutcomeKind.UNREACHABLE
