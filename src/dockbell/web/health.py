"""``GET /healthz``: whether the daemon is alive. ``GET /readyz``: whether it does its work, and if not, why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.status import Reason, Status, find_reasons
from dockbell.web import question

_PATIENCE: Final = timedelta(seconds=5)


class Health:
    """The endpoints.

    Args:
        load: Returns how everything stands, once what writes to the store has answered; raises why nothing can be
            written. Whoever asks is answered so, and may ask as often as they like: it must cost little.
        is_open: Whoever asks may read everything: there is no token.
    """

    def __init__(self, load: Callable[[], Awaitable[Status]], *, is_open: bool) -> None:
        self._load = load
        self._is_open = is_open

    async def answer_alive(self, request: Request) -> Response:
        """Answer at all: the loop runs. Nothing is asked of anybody who might hang."""
        question.read_parameters(request)
        return _answer(HTTPStatus.OK, {"status": "ok"})

    async def answer_ready(self, request: Request) -> Response:
        """Answer whether the work is done: 503 with what hinders it, or how much does where the caller is unknown.

        What merely waits for an operator, dead letters for one, hinders nothing.
        """
        question.read_parameters(request)
        reasons = [str(reason) for reason in await self._find_hindrances()]
        may_read = self._is_open or question.read_caller(request).is_known
        shown: object = reasons if may_read else len(reasons)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _answer(status, {"status": "not ready" if reasons else "ready", "reasons": shown})

    async def _find_hindrances(self) -> Sequence[Reason]:
        try:
            with anyio.fail_after(_PATIENCE.total_seconds()):
                return [reason for reason in find_reasons(await self._load()) if reason.hinders]
        except TimeoutError:
            words = f"does not answer within {_PATIENCE.total_seconds():.0f} s; look at its disk"
        except Exception as error:  # noqa: BLE001  # whatever it is, it hinders, and is no fault of this answer
            words = str(error).removeprefix("store: ")
        return [Reason("store", "", words, hinders=True)]


def _answer(status: HTTPStatus, body: object) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
