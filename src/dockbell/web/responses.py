"""Responses in JSON, errors as Problem Details (RFC 9457), and the headers of every response."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Send

from dockbell.admin.as_json import Model
from dockbell.core.model import JSON
from dockbell.errors import StoreError


def json_response(body: Model, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


class ProblemModel(msgspec.Struct):
    """The members of every problem; some kinds have more."""

    type: Annotated[str, msgspec.Meta(pattern="^urn:dockbell:problem:[a-z-]+$")]
    title: str
    status: int
    detail: Annotated[str, msgspec.Meta(description="*subject: fact, got value; remedy*")]


ProblemModel.__name__ = "Problem"  # in OpenAPI, of which clients are generated


class Problem(Exception):
    """A request that is answered with a problem.

    Attributes:
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
        self._members = dict(members or {})
        self._headers = headers or {}

    def response(self) -> Response:
        body = ProblemModel(f"urn:dockbell:problem:{self.kind}", self.status.phrase, self.status, self.detail)
        text = msgspec.json.encode(msgspec.structs.asdict(body) | self._members)
        return Response(text, self.status, self._headers, "application/problem+json")


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer a request that raised an error; one that is not foreseen goes to the log as well."""
    match error:
        case Problem():
            problem = error
        case HTTPException():  # no route has the path
            places = "/feeds/{source}/{resource} and /state/{source}/{resource}; /openapi.json describes all paths"
            detail = f"{request.url.path}: does not exist; try {places}"
            problem = Problem(HTTPStatus(error.status_code), "not-found", detail)
        case StoreError():
            problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "store", str(error), headers={"Retry-After": "5"})
        case _:
            detail = f"dockbell: internal error, got {type(error).__name__}; its log has more"
            problem = Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", detail)
    return problem.response()


_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    b" base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script';"
    b" trusted-types 'none'"
)
HEADERS: Final = {
    b"cache-control": b"no-store",
    b"content-security-policy": _POLICY,
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}


def with_headers(send: Send) -> Send:
    """Return a ``send`` that adds the headers which a response does not set itself."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(each for each in HEADERS.items() if each[0] not in own)]
        await send(message)

    return send_with_headers
