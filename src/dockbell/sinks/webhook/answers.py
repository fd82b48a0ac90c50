"""What a receiver has answered, as it may be kept and shown: cut, without our secrets, its controls escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, quote

from dockbell.core.printable import escape_controls
from dockbell.sinks.webhook.settings import Headers, Target

SHOWN_MOST: Final = 500
"""So many characters of an answer are kept."""

_SECRET_LEAST: Final = 6
"""A shorter value is no secret, and would be found in any text."""
_REDACTED: Final = "[redacted]"
_SCHEMES: Final = ("Basic ", "Bearer ")


def find_secrets(target: Target, headers: Headers) -> list[str]:
    """Return what an answer may quote of our request that only the receiver is to know, the longest first.

    Each as it is, and as it stands in a URL, in HTML and in JSON.
    """
    path, query = target.url.path, target.url.query.decode()
    found = {path, query, f"{path}?{query}", *(value for _, value in parse_qsl(query))}
    for name, value in headers:
        if name not in (b"user-agent", b"host"):
            text = value.decode()
            found |= {text, *(text.removeprefix(scheme) for scheme in _SCHEMES)}
    secret = {each for each in found if len(each) >= _SECRET_LEAST}
    written = {write(each) for each in secret for write in (str, _quote, html.escape, _write_json)}
    return sorted(written, key=len, reverse=True)


def _quote(text: str) -> str:
    return quote(text, safe="")


def _write_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def show_answer(body: bytes, secrets: Sequence[str]) -> str:
    """Return the text of an answer as it may be kept; of the body perhaps only the beginning was read."""
    text = body.decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, _REDACTED)
    text = escape_controls(_hide_beginning(text.rstrip("\ufffd"), secrets).strip())
    return text if len(text) <= SHOWN_MOST else f"{text[: SHOWN_MOST - 1]}…"


def _hide_beginning(text: str, secrets: Sequence[str]) -> str:
    """Return a text without the beginning of a secret at its end, where it was cut."""
    for secret in secrets:
        place = text.find(secret[:_SECRET_LEAST], max(0, len(text) - len(secret)))
        while place >= 0:
            if secret.startswith(text[place:]):
                return text[:place] + _REDACTED
            place = text.find(secret[:_SECRET_LEAST], place + 1)
    return text
