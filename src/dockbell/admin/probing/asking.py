"""A small number of requests, counted: what a probe asks, and when it stops asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn, Protocol

from msgspec.structs import replace

from dockbell.core.model import Allowance
from dockbell.core.reading.request import Request
from dockbell.core.reading.response import Response, check_status, read_allowance
from dockbell.errors import RateLimited, SourceRefused, SourceUnavailable

_NOT_MODIFIED: Final = 304
_UNAUTHORIZED: Final = 401
_LIMITED: Final = 429
_BROKEN: Final = 500


class Line(Protocol):
    """One API account, asked without retries or judgement: one call is one request."""

    async def ask(self, request: Request) -> Response:
        """Return the answer whatever its status.

        Raises:
            SourceRefused: There is no key to ask with.
            SourceUnavailable: No complete answer came.
        """
        ...


class NoMore(Exception):
    """Nothing more may or can be asked of this account; the text says why."""


class Asker:
    """Asks over a line, at most so often, and stops where going on would be rude or in vain.

    Args:
        requests: The most requests to send, retries counted.
        share: How much of the key's budget may be used; the rest is left to its other users.
        tell: Is told how many requests were sent, before each.

    Attributes:
        answers: Every complete answer, without its body, in order.
        stopped: Why nothing more is asked; empty while it is.
        failed: Whether it stopped because the API does not answer or does not accept the key.
    """

    def __init__(
        self, line: Line, *, requests: int, share: float, tell: Callable[[int], None] = lambda _: None
    ) -> None:
        self._line = line
        self._requests = requests
        self._share = share
        self._tell = tell
        self._allowance: Allowance | None = None
        self.sent = 0
        self.answers: list[Response] = []
        self.stopped = ""
        self.failed = False

    async def ask(self, request: Request) -> Response:
        """Return a successful answer, or one with status 304; what passes by itself is asked once more.

        Raises:
            NoMore: The key is not accepted, the API does not answer, or no request is left.
            SourceError: This answer is no success; others may be.
        """
        try:
            response = await self.look(request)
        except SourceUnavailable:
            response = await self.look(request)
        if response.status >= _BROKEN:
            response = await self.look(request)
        if response.status != _NOT_MODIFIED:
            check_status(request, response)
        return response

    async def look(self, request: Request) -> Response:
        """Return the answer to one request, whatever its status.

        Raises:
            NoMore: The key is not accepted, the API does not answer, or no request is left.
            SourceUnavailable: No complete answer came, though earlier ones did.
        """
        self._admit()
        self.sent += 1
        self._tell(self.sent)
        try:
            response = await self._line.ask(request)
        except SourceUnavailable as error:
            if not self.answers and self.sent > 1:
                self._stop(str(error), failed=True)
            raise
        except SourceRefused as error:
            self._stop(str(error), failed=True)
        self.answers.append(replace(response, body=b""))
        self._allowance = read_allowance(response) or self._allowance
        if response.status in {_UNAUTHORIZED, _LIMITED}:
            try:
                check_status(request, response)
            except (SourceRefused, RateLimited) as error:
                self._stop(str(error), failed=True)
        return response

    def _admit(self) -> None:
        if self.stopped:
            raise NoMore(self.stopped)
        if self.sent >= self._requests:
            self._stop(f"all {self._requests} requests are used; allow more with --requests")
        left = self._allowance
        if left is not None and left.remaining <= left.limit - int(left.limit * self._share):
            self._stop(
                f"{left.remaining} of {left.limit} requests are left in this window, for the key's other users; "
                f"probe again in {left.resets_in.total_seconds():.0f} s"
            )

    def _stop(self, reason: str, *, failed: bool = False) -> NoReturn:
        self.stopped, self.failed = reason, failed
        raise NoMore(reason)
