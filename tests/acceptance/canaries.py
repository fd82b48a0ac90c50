"""Where a text has a secret in it, in whatever form, and a server that says back all that it hears."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, cast
from urllib.parse import quote

_EDGE: Final = 4
"""Characters of a secret whose base64 depends on what stands beside them."""


def forms(secret: str) -> dict[str, str]:
    """Return the forms in which a secret may get out, by their names; base64 wherever in a longer text it stands."""
    percent = quote(secret, safe="")
    found = {"plain": secret, "percent": percent, "hex": secret.encode().hex(), "json": json.dumps(secret)[1:-1]}
    found["small percent"] = re.sub("%..", lambda match: match[0].lower(), percent)
    for offset in range(3):
        whole = base64.b64encode(b"." * offset + secret.encode()).decode()
        found[f"base64+{offset}"] = whole[_EDGE:-_EDGE]
    return found


def find(secret: str, text: str) -> list[str]:
    """Return the names of the forms in which a text has a secret in it."""
    return [name for name, form in forms(secret).items() if form in text]


TOKEN: Final = "canary-access-token-19"
"""What the mirror grants, a secret too."""


@dataclass
class Mirror:
    """Answers every request with one status, and with the whole request in the body, the reason and the headers.

    Below ``/granting`` it grants an access token, below ``/praising`` it tells of its error with a success, below
    ``/naming`` in the content type; ``/sending`` is a redirect to a host that is called like the key, and ``/babbling``
    is no HTTP.

    Attributes:
        status: With which.
        heard: All heads of requests.
        records: What it answers with to whoever reads a listing at its root.
        is_discreet: It says nothing back.
    """

    status: int = 401
    port: int = 0
    heard: list[str] = field(default_factory=list)
    records: list[dict[str, object]] = field(default_factory=list)
    is_discreet: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        mirror = cast("_Server", self.server).mirror
        self.rfile.read(int(self.headers.get("content-length", 0)))
        said = f"{self.requestline} {' '.join(f'{name}: {value}' for name, value in self.headers.items())}"
        mirror.heard.append(said)
        if mirror.is_discreet:
            said = "nothing"
        status = mirror.status
        words = f"\x1b[2J\x9b2J\u202e\n{said}"
        body: dict[str, object] = {"message": words, "error": {"detail": words}, "title": words}
        kind, host = "application/json", "elsewhere.example.com"
        match self.path.split("/")[1:2]:
            case ["v1"]:
                status, body = 200, {"records": mirror.records, "next_cursor": None}
            case ["praising"]:
                status = 200
            case ["granting"]:
                status, body = 200, body | {"access_token": TOKEN, "token_type": "Bearer"}
            case ["naming"]:
                status, kind = 200, said
            case ["sending"]:
                status, key = 302, self.headers.get("authorization", "").removeprefix("Bearer ")
                host = host if mirror.is_discreet else key
            case ["babbling"]:
                self.wfile.write(said.encode() + b"\r\n\r\n")
                self.close_connection = True
                return
        content = json.dumps(body).encode()
        self.send_response(status, "OK" if status == 200 else said)
        self.send_header("content-type", kind)
        self.send_header("location", f"https://{host}/?{quote(said)}")
        self.send_header("x-heard", said)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Answer all methods alike."""
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self._answer

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    mirror: Mirror

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that hang up."""


@contextmanager
def mirroring(mirror: Mirror) -> Iterator[Mirror]:
    """Answer while inside."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.mirror, mirror.port = mirror, server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
