"""An event loop in which minutes pass in no time."""

from __future__ import annotations

import asyncio
import selectors


class _Skipping(selectors.DefaultSelector):
    """Does not wait for what is due, but lets that much time have passed."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.elapsed += max(timeout, 0)
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves on only while all wait, whatever the speed of the machine."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the seconds since the loop began."""
        return self._skipping.elapsed
