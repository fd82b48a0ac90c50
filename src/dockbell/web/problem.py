"""Errors as responses: Problem Details, RFC 9457."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dockbell.core.model import JSON

_MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """A request that is answered with a problem.

    Attributes:
        status: The HTTP status.
        kind: The last part of the problem's ``type``, ``urn:dockbell:problem:…``.
        detail: *subject: fact, got value; remedy*.
    """

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        detail: str,
        *,
        members: Mapping[str, JSON] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self._members = members or {}
        self._headers = headers or {}

    def response(self) -> Response:
        """Return it as an answer."""
        body = {
            "type": f"urn:dockbell:problem:{self.kind}",
            "title": self.status.phrase,
            "status": self.status,
            "detail": self.detail,
            **self._members,
        }
        return Response(msgspec.json.encode(body), self.status, self._headers, _MEDIA_TYPE)


async def answer_problem(_: Request, error: Exception) -> Response:
    """Answer with the problem that was raised."""
    assert isinstance(error, Problem)
    return error.response()


async def answer_unrouted(request: Request, error: Exception) -> Response:
    """Answer a request for a path without a route."""
    assert isinstance(error, HTTPException)
    places = "/feeds/{source}/{resource}, /state/{source}/{resource}, and /openapi.json describes all others"
    detail = f"{request.url.path}: there is nothing; there are {places}"
    return Problem(HTTPStatus(error.status_code), "unknown-place", detail).response()


async def answer_store_error(_: Request, error: Exception) -> Response:
    """Answer a request that the store cannot serve now."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "store", str(error), headers={"Retry-After": "5"}).response()


async def answer_fault(_: Request, error: Exception) -> Response:
    """Answer a request that met an unexpected error; the error itself goes to the log."""
    detail = f"dockbell met an error of its own, {type(error).__name__}; its log has more"
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "fault", detail).response()
