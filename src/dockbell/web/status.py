"""``GET /status``, ``/why``, ``/healthz`` and ``/readyz``: how everything stands, in full and in one word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import unquote

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Count, Model, describe_status
from dockbell.admin.history_as_json import describe_history
from dockbell.admin.reasons import Reason, Weight, find_reasons
from dockbell.admin.status import Status
from dockbell.admin.why import find_history
from dockbell.config import Config
from dockbell.ports import ReadStore
from dockbell.web import params
from dockbell.web.responses import json_response

_PATIENCE: Final = timedelta(seconds=5)


class Alive(Model):
    status: Literal["ok"]


class Readiness(Model):
    status: Literal["ready", "not ready"]
    reasons: Count | list[str]


class Health(msgspec.Struct, frozen=True):
    load: Callable[[], Awaitable[Status]]
    """Returns the status after the writer of the store has answered; raises why the store cannot be written. It must be
    cheap, because any client may ask as often as it likes."""
    concerns: Callable[[Reason], bool]
    """Whether a reason is about this process: that the sources of another are not read does not hinder it."""
    is_open: bool  # no token is configured, so that all clients may read everything

    async def answer_alive(self, _: Request) -> Response:
        """Answer that the event loop runs; asks neither the store nor a receiver, which might hang."""
        return json_response(Alive("ok"))

    async def answer_ready(self, request: Request) -> Response:
        """Answer whether the daemon does its work: 503 with the reasons, or with their number for unknown clients.

        Reasons that only wait for an operator, as dead letters do, do not count.
        """
        reasons = [str(reason) for reason in await self._find_hindrances()]
        may_read = self.is_open or params.read_principal(request).is_known
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        shown = reasons if may_read else len(reasons)
        return json_response(Readiness("not ready" if reasons else "ready", shown), status)

    async def _find_hindrances(self) -> Sequence[Reason]:
        try:
            with anyio.fail_after(_PATIENCE.total_seconds()):
                return [
                    reason for reason in find_reasons(await self.load()) if reason.hinders and self.concerns(reason)
                ]
        except TimeoutError:
            words = f"does not answer within {_PATIENCE.total_seconds():.0f} s; look at its disk"
        except Exception as error:  # noqa: BLE001  # whatever it is, it hinders, and is no fault of this answer
            words = str(error).removeprefix("store: ")
        return [Reason("store", "", words, Weight.FAILING)]


class StatusEndpoints(msgspec.Struct, frozen=True):
    read_store: ReadStore
    config: Callable[[], Config]
    load: Callable[[], Awaitable[Status]]
    now: Callable[[], datetime]

    async def answer_status(self, _: Request) -> Response:
        return json_response(describe_status(await self.load()))

    async def answer_why(self, request: Request) -> Response:
        config = self.config()
        feed = params.read_configured_feed(request, config)
        given = unquote(request.path_params["key"])
        account = await find_history(
            self.read_store, feed, given, feeds=config.feeds(), sinks=config.sinks, at=self.now()
        )
        return json_response(describe_history(account, given))
