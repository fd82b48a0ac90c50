"""Saves what a delivery queue has settled, one checkpoint after the other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import anyio

from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.settlement import Settlement
from dockbell.ports import SinkStore

_SLACK: Final = 0.1
"""By this share the ring may be longer than it is to be: it is trimmed in portions."""


class Checkpoints:
    """Saves the settlements of one sink in order, and keeps the ring of attempts as long as it is to be."""

    def __init__(
        self,
        store: SinkStore,
        now: Callable[[], datetime],
        on_saved: Callable[[Settlement], None],
        *,
        keep_attempts: int = 0,
    ) -> None:
        self._store = store
        self._now = now
        self._on_saved = on_saved
        self._keep_attempts = keep_attempts
        self._untrimmed = keep_attempts + 1  # the process before may have ended before it has trimmed
        self._saving = anyio.Lock()
        self._unsaved: Settlement | None = None
        """The settlement that could not be saved: no later position may pass what is in it."""

    async def save(self, queue: DeliveryQueue) -> None:
        """Save what the queue has settled since the last checkpoint; nothing while an earlier one is not saved."""
        async with self._saving:
            if self._unsaved is not None:
                return
            settlement = queue.checkpoint(self._now())
            if settlement:
                self._unsaved = settlement  # if the store fails, the next session begins with retry()
                await self._save(settlement)

    async def retry(self) -> None:
        """Save what could not be saved.

        Nothing may be sent before: otherwise the sink would get the same events at each attempt.
        """
        if self._unsaved is not None:
            await self._save(self._unsaved)

    async def _save(self, settlement: Settlement) -> None:
        await self._store.settle(settlement)
        self._unsaved = None
        self._on_saved(settlement)
        self._untrimmed += len(settlement.attempts)
        if self._untrimmed > self._keep_attempts * _SLACK:
            self._untrimmed = 0
            await self._store.trim_attempts(self._keep_attempts)
