"""Responses in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response


def json_response(
    body: object, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response whose body is JSON."""
    return Response(msgspec.json.encode(body), status, headers, "application/json")
