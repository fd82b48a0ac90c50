"""The client of NATS, which closes also where its last words cannot be sent."""

from __future__ import annotations

from nats.aio.client import Client


class JetStreamClient(Client):
    async def _close(self, status: int, do_cbs: bool = True) -> None:  # as the library calls it
        """Close; where what waits cannot be sent any more, close the connection all the same.

        The library sends it first. On a broken connection that fails within a task of its own, whose error nothing
        retrieves, and the socket stays open.
        """
        try:
            await super()._close(status, do_cbs)
        except OSError:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # of the library
