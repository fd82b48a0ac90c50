"""The limits of one connection."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES_MOST: Final = 16_384
_HEAD_SECONDS: Final = 10


class Connection(H11Protocol):
    """Gives a client some seconds to say what it asks for; uvicorn gives it all the time in the world."""

    _hanging_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._mind_the_head()

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        super().data_received(data)
        self._mind_the_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        super().connection_lost(exc)
        self._stop_minding()

    def _mind_the_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_minding()
        elif self._hanging_up is None and not self.transport.is_closing():
            self._hanging_up = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_minding(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None
