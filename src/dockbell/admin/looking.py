"""One look for all who ask at about the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Generic, TypeVar

import anyio

KEPT: Final = timedelta(seconds=1)
"""What was found is answered for so long."""

_T = TypeVar("_T")


class _Finding(Generic[_T]):
    """What one look has found, once it is done."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.ended_at = 0.0
        self.found: _T
        self.error: Exception | None = None

    def is_old(self) -> bool:
        return self.done.is_set() and anyio.current_time() - self.ended_at >= KEPT.total_seconds()


class Outlook(Generic[_T]):
    """Looks while :meth:`run` does, and at most once at a time, however many ask.

    Who asks may give up at any time, also where the look itself cannot be cut short.

    Args:
        look: Looks.
    """

    def __init__(self, look: Callable[[], Awaitable[_T]]) -> None:
        self._look = look
        self._asked = anyio.Event()
        self._last: _Finding[_T] | None = None

    async def ask(self) -> _T:
        """Return what was found within the last second, or is found now.

        Raises:
            Exception: Whatever the look raised.
        """
        if self._last is None or self._last.is_old():
            self._last = _Finding()
            self._asked.set()
        finding = self._last
        await finding.done.wait()
        if finding.error is not None:
            raise finding.error
        return finding.found

    async def run(self) -> None:
        """Look whenever somebody asks, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            finding = self._last
            assert finding is not None, "somebody has asked"
            try:
                finding.found = await self._look()
            except Exception as error:  # noqa: BLE001  # they are told who asked
                finding.error = error
            finding.ended_at = anyio.current_time()
            finding.done.set()
