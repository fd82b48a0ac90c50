"""One read for all that ask within a second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Generic, TypeVar

import anyio

KEPT: Final = timedelta(seconds=1)
"""How long a result is returned without another read."""

_T = TypeVar("_T")


class _Result(Generic[_T]):
    """What one read has found, once ``done`` is set."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.ended_at = 0.0
        self.value: _T
        self.error: Exception | None = None

    def is_old(self) -> bool:
        return self.done.is_set() and anyio.current_time() - self.ended_at >= KEPT.total_seconds()


class SharedRead(Generic[_T]):
    """Reads on demand while :meth:`run` does, at most one read at a time.

    A caller of :meth:`ask` may be cancelled at any time, also while the read itself cannot be.
    """

    def __init__(self, read: Callable[[], Awaitable[_T]]) -> None:
        self._read = read
        self._asked = anyio.Event()
        self._last: _Result[_T] | None = None

    async def ask(self) -> _T:
        """Return the result of the last second, or of a new read; raise what the read raised."""
        if self._last is None or self._last.is_old():
            self._last = _Result()
            self._asked.set()
        result = self._last
        await result.done.wait()
        if result.error is not None:
            raise result.error
        return result.value

    async def run(self) -> None:
        """Read whenever it is asked for, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            result = self._last
            assert result is not None, "ask has set it"
            try:
                result.value = await self._read()
            except Exception as error:  # noqa: BLE001  # ask raises it
                result.error = error
            result.ended_at = anyio.current_time()
            result.done.set()
