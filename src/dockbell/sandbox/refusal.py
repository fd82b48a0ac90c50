"""Every error of the API: one exception, one body."""

from __future__ import annotations

import json
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from starlette.responses import Response


class Refusal(Exception):
    """The request is not answered as asked; the caller must act, or wait.

    Attributes:
        status: The HTTP status.
        code: One word for programs.
        text: One sentence for people.
        parameter: The query parameter at fault, where there is one.
        headers: To send along.
    """

    def __init__(
        self, status: int, code: str, text: str, *, parameter: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.parameter = parameter
        self.headers = headers

    def response(self) -> Response:
        """Return the answer: ``{"error": {"code", "message", "parameter"}}``."""
        error = {"code": self.code, "message": self.text}
        if self.parameter is not None:
            error["parameter"] = self.parameter
        return Response(json.dumps({"error": error}), self.status, self.headers, "application/json")


def suggest(given: str, known: tuple[str, ...]) -> str:
    """Return ``; did you mean …?`` where a known word is close, otherwise which words there are."""
    close = get_close_matches(given, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; accepted here: {', '.join(known) or 'none'}"


_NOT_FOUND: Final = "there is no shipment with this id"
_PAGE: Final = "<!DOCTYPE html><html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>"
UNKNOWN: Final[dict[str, Callable[[], Response]]] = {
    "json": Refusal(404, "not_found", _NOT_FOUND).response,
    "html": lambda: Response(_PAGE, 404, media_type="text/html"),
    "empty": lambda: Response(status_code=404),
    "410": Refusal(410, "gone", _NOT_FOUND).response,
    "null": lambda: Response("null", media_type="application/json"),
}
"""The answers for a shipment that does not exist."""
