"""The key string: one text that identifies a record in its feed, in topics, URLs, events and commands.

Each component is written as text, with ``% / + # $ ,``, spaces and whatever an MQTT topic may not hold (section 1.5.4
of MQTT 5: controls and non-characters) percent-encoded; components are joined by commas. One key has one string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypedDict
from urllib.parse import unquote

import msgspec

from dockbell.core import pointer
from dockbell.core.model import JSON, Key

_NONCHARACTERS: Final = "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
_UNSAFE: Final = re.compile(rf"[%/+#$, \x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NONCHARACTERS}]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_LINES: Final = re.compile(r"[A-Za-z0-9_-]+(?:\n[A-Za-z0-9_-]+)*")
_KINDS: Final = {type(None): "null", str: "an empty string", bool: "a boolean", list: "an array", dict: "an object"}


class KeyMissing(ValueError):
    """A record has no usable value at ``pointer``, where its key should stand."""

    def __init__(self, tokens: pointer.Tokens, got: str) -> None:
        self.pointer = pointer.join(tokens)
        super().__init__(f"key {self.pointer}: must be a non-empty string or an integer, got {got}")


def encode(components: Sequence[JSON]) -> str:
    """Return the key string of components, strings or integers; raises ValueError for half a surrogate pair."""
    text = ",".join([_UNSAFE.sub(_escape, str(component)) for component in components])
    # As a part of a URL these two would be taken for a step in the path.
    return "%2E" * len(text) if text in (".", "..") else text


def _escape(match: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in match[0].encode()])


def decode(text: str) -> tuple[str, ...]:
    """Return the components of a key string; raises ValueError where it is not written as :func:`encode` writes it."""
    try:
        components = tuple(unquote(part, errors="strict") for part in text.split(","))
        canonical = encode(components)
    except UnicodeError as error:
        raise ValueError(f"key {text!r}: is not percent-encoded UTF-8") from error
    if canonical != text:
        raise ValueError(f"key {text!r}: is not a key string; write {canonical!r}")
    return components


def key_of(document: JSON, pointers: Sequence[pointer.Tokens]) -> Key:
    """Return the key of a record; raises :class:`KeyMissing` where a part is no integer and no text, or empty."""
    # Nearly always, and three times as fast.
    if len(pointers) == 1 and len(pointers[0]) == 1 and type(document) is dict:
        value = document.get(pointers[0][0])
        if type(value) is str and _PLAIN.fullmatch(value):
            return Key(value, value)
    values = [_component(document, tokens) for tokens in pointers]
    return Key(encode(values), values if len(values) > 1 else values[0])


def are_plain(texts: Sequence[str]) -> bool:
    """Return whether each text is certainly its own key string; raises TypeError where one is no text."""
    lines = "\n".join(texts)
    return not texts or (lines.count("\n") == len(texts) - 1 and _PLAIN_LINES.fullmatch(lines) is not None)


def find_keys(records: Iterable[JSON], pointers: Sequence[pointer.Tokens]) -> Iterator[tuple[JSON, Key]]:
    """Yield records with their keys, in order; those without one are left out."""
    for record in records:
        with suppress(KeyMissing):
            yield record, key_of(record, pointers)


def head_decoder(*places: pointer.Tokens | None) -> msgspec.json.Decoder[dict[str, JSON]]:
    """Return a decoder of the members that these pointers begin with; it skips all others without building them."""
    return _decoder_of(frozenset(tokens[0] for tokens in places if tokens))


@lru_cache(maxsize=256)
def _decoder_of(members: frozenset[str]) -> msgspec.json.Decoder[dict[str, JSON]]:
    """Return one decoder for all feeds whose records have these members: each has a class of its own, of kilobytes."""
    make_dict: Any = TypedDict  # its members are known at run time only
    return msgspec.json.Decoder(make_dict("head", dict.fromkeys(members, Any), total=False))


def _component(document: JSON, tokens: pointer.Tokens) -> str | int:
    value = pointer.resolve(document, tokens)
    if type(value) is int or (type(value) is str and value):
        return value
    got = "nothing" if value is pointer.MISSING else _KINDS.get(type(value), "a fraction")
    raise KeyMissing(tokens, got)
