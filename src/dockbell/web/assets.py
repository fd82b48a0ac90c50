"""``GET /page/{file}`` and the page itself: the files of ``page/``, read and compressed once."""

from __future__ import annotations

import gzip
from hashlib import blake2b
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from dockbell.config.values import show
from dockbell.web.responses import Problem

_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


_GZIP: Final = "gzip"
_PLAIN: Final = ""


class Assets:
    def __init__(self) -> None:
        self._files = {
            each.name: (_encode(each.read_bytes()), media_type)
            for each in (files("dockbell.web") / "page").iterdir()
            if (media_type := _MEDIA_TYPES.get(f".{each.name.rpartition('.')[2]}"))
        }

    async def answer(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in self._files:
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-file", f"file {show(name)}: is not part of the status page")
        return self._give(request, name)

    def answer_page(self, request: Request) -> Response:
        return self._give(request, "index.html")

    def _give(self, request: Request, name: str) -> Response:
        encoded, media_type = self._files[name]
        accepted = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
        encoding = _GZIP if _GZIP in accepted else _PLAIN  # with a weight, as scripts write it: not worth a parser
        content, tag = encoded[encoding]
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if encoding:
            headers["Content-Encoding"] = encoding
        known = request.headers.get("if-none-match", "")
        if tag in [each.strip().removeprefix("W/") for each in known.split(",")]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(content, headers=headers, media_type=media_type)


def _encode(content: bytes) -> dict[str, tuple[bytes, str]]:
    """Return a file in each encoding that is offered, with its entity tag."""
    encoded = {_PLAIN: content, _GZIP: gzip.compress(content, mtime=0)}
    return {name: (each, f'"{blake2b(each, digest_size=16).hexdigest()}"') for name, each in encoded.items()}
