"""What the API says in words, made fit for a log line."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dockbell.core.model import JSON
from dockbell.core.reading.response import Response

WHERE_WORDS_ARE: Final = ("message", "detail", "error_description", "title", "error", "errors", "code")
"""The members in which APIs explain an error, the likeliest first."""

_ANY: Final = msgspec.json.Decoder()
_MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)
_DEPTH: Final = 3
_LONGEST: Final = 200
_QUERY: Final = re.compile(r"\?\S+")


def excerpt(response: Response) -> str:
    """Return what the API itself says about an error, ready to follow a fact: ``, "no such status"``; often empty."""
    try:
        words = find_words(_ANY.decode(response.body))
    except _MALFORMED:
        is_text = response.headers.get("content-type", "").lower().startswith("text/plain")
        words = response.body.decode(errors="replace") if is_text else ""
    return quote(words)


def quote(words: str) -> str:
    """Return words ready to follow a fact: ``, "no such status"``; empty for none."""
    return f', "{cleaned}"' if (cleaned := clean(words)) else ""


def find_words(value: JSON, depth: int = _DEPTH) -> str:
    """Return the first text where an error is explained, at most ``depth`` levels down; empty where there is none."""
    if isinstance(value, str):
        return value
    if depth and isinstance(value, list):
        return find_words(value[0], depth - 1) if value else ""
    if depth and isinstance(value, dict):
        return next(filter(None, (find_words(value.get(name), depth - 1) for name in WHERE_WORDS_ARE)), "")
    return ""


def clean(words: str) -> str:
    """Return foreign words fit for a log line: short, on one line, nothing unprintable, no query strings."""
    printable = "".join(letter if letter.isprintable() else " " for letter in words[: 10 * _LONGEST])
    line = " ".join(_QUERY.sub("?…", printable).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
