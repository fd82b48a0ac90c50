"""The headers of every response."""

from __future__ import annotations

from typing import Final

from starlette.types import Message, Send

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
