"""``GET /healthz``: whether the daemon is alive. ``GET /readyz``: whether it does its work, and if not, why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.reasons import Reason, find_reasons
from dockbell.admin.status import Status
from dockbell.web import params
from dockbell.web.responses import json_response

_PATIENCE: Final = timedelta(seconds=5)


class Health:
    """The endpoints.

    Args:
        load: Returns the status after the writer of the store has answered; raises why the store cannot be written. It
            must be cheap, because any client may ask as often as it likes.
        is_open: No token is configured, so that all clients may read everything.
    """

    def __init__(self, load: Callable[[], Awaitable[Status]], *, is_open: bool) -> None:
        self._load = load
        self._is_open = is_open

    async def answer_alive(self, request: Request) -> Response:
        """Answer that the event loop runs; asks neither the store nor a receiver, which might hang."""
        params.read_query(request)
        return json_response({"status": "ok"})

    async def answer_ready(self, request: Request) -> Response:
        """Answer whether the daemon does its work: 503 with the reasons, or with their number for unknown clients.

        Reasons that only wait for an operator, as dead letters do, do not count.
        """
        params.read_query(request)
        reasons = [str(reason) for reason in await self._find_hindrances()]
        may_read = self._is_open or params.read_principal(request).is_known
        shown: object = reasons if may_read else len(reasons)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return json_response({"status": "not ready" if reasons else "ready", "reasons": shown}, status)

    async def _find_hindrances(self) -> Sequence[Reason]:
        try:
            with anyio.fail_after(_PATIENCE.total_seconds()):
                return [reason for reason in find_reasons(await self._load()) if reason.hinders]
        except TimeoutError:
            words = f"does not answer within {_PATIENCE.total_seconds():.0f} s; look at its disk"
        except Exception as error:  # noqa: BLE001  # whatever it is, it hinders, and is no fault of this answer
            words = str(error).removeprefix("store: ")
        return [Reason("store", "", words, hinders=True)]
