"""Which deliveries go together in one request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.model import Delivery
from dockbell.ports import Deliveries

SIZE_MOST: Final = 1_000_000
"""Bytes of the events of a batch: many servers refuse a body of more than one or two megabytes."""


async def gather(deliveries: Deliveries, most: int, linger: timedelta) -> AsyncIterator[Sequence[Delivery]]:
    """Yield deliveries in batches of up to ``most``, each after waiting for ``linger`` unless it is full at once.

    No two deliveries at hand are of one record, so a batch has distinct keys. What is attempted again goes alone: an
    event that makes a receiver fail must not make others fail with it time and again. So does a replay, whose request
    has a header that says so.
    """
    held: Delivery | None = None
    while True:
        try:
            first = await deliveries.receive() if held is None else held
        except anyio.EndOfStream:
            return
        held, batch = None, [first]
        if _joins(first) and most > 1:
            held = _take(deliveries, batch, most)
            if linger and held is None and len(batch) < most:
                await anyio.sleep(linger.total_seconds())
                held = _take(deliveries, batch, most)
        yield batch


def _joins(delivery: Delivery) -> bool:
    return delivery.attempt == 1 and not delivery.replayed


def _take(deliveries: Deliveries, batch: list[Delivery], most: int) -> Delivery | None:
    """Add what is there to a batch; return the first that does not go with it."""
    size = sum(len(each.event.body) for each in batch)
    while len(batch) < most:
        try:
            delivery = deliveries.receive_nowait()
        except (anyio.WouldBlock, anyio.EndOfStream):
            return None
        size += len(delivery.event.body)
        if not _joins(delivery) or size > SIZE_MOST:
            return delivery
        batch.append(delivery)
    return None
