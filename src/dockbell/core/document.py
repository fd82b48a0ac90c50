"""JSON documents: how one is read exactly, and the one way to write each value, so that equal values look alike.

What the strict parser refuses can be *cut* into its parts, so that one unsound value does not cost its neighbours.
Services write JSON whose structure is sound and one value of which is not: text that was cut in the middle of an emoji
(half a surrogate pair), ``NaN``, a raw control character, bytes that are no UTF-8, a number such as ``01``, or nesting
without end. Texts, scalars and brackets can be told apart all the same. The structure is checked in full: after a stray
quotation mark, or in text that ends early, each part would be a guess, so such text is refused as a whole. This is slow
beside a strict parser.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Final

import msgspec

from dockbell.core.model import JSON

DEPTH_MAX: Final = 200
"""Records may nest this deep; a fifth of the interpreter's limit, so that whatever was decoded can also be compared."""

_TOO_DEEP: Final = f"not usable JSON: nested more than {DEPTH_MAX} deep"
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_DIGITS_MAX: Final = 4300  # and the sign: msgspec reads no longer integer, what is longer can only have been a Decimal
_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)


def decode(raw: bytes) -> JSON:
    """Return the value of a JSON text: integers exact, other numbers :class:`~decimal.Decimal`.

    Raises:
        ValueError: It is malformed, not UTF-8, deeper than :data:`DEPTH_MAX`, or holds NaN or a number beyond all use.
    """
    try:
        document = _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    except InvalidOperation as error:
        raise ValueError("not usable JSON: a number has an exponent of more than 18 digits") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    # Counting brackets is cheap and settles it for nearly every record.
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _is_deep(document):
        raise ValueError(_TOO_DEEP)
    return document


def _is_deep(document: JSON) -> bool:
    level = [document]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for value in level
            for child in (value.values() if type(value) is dict else value)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


def _write_number(number: Decimal) -> int | msgspec.Raw:
    """Return the one way to write a number: digits where an equal integer would have them, else scientific."""
    exact = number.normalize(_EXACT)
    if not exact:
        return 0
    text = str(exact)
    if exact.as_tuple().exponent >= 0:  # type: ignore[operator]  # it is finite
        text = f"{exact:f}" if exact.adjusted() + (exact < 0) < _DIGITS_MAX else f"{exact:E}"
    return msgspec.Raw(text.encode())


encode: Final = msgspec.json.Encoder(order="deterministic", decimal_format=_write_number).encode
"""Return the canonical encoding: JSON with sorted members, equal exactly for values that are equal as JSON."""


_BLANKS: Final = b" \t\r\n"
_STRING: Final = rb'"(?:[^"\\]|\\.)*+"'
_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*+(?:(?P<text>" + _STRING + rb')|(?P<mark>[\[\]{},:])|(?P<scalar>[^ \t\r\n"\[\]{},:]++))', re.DOTALL
)
_NAME: Final = re.compile(rb"[ \t\r\n]*+(" + _STRING + rb")[ \t\r\n]*+:", re.DOTALL)
_TEXT: Final = msgspec.json.Decoder(str)
_DEPTH_MOST: Final = 4
"""So deep the parts of an unsound value are read one by one: keys and timestamps stand no deeper."""

_CLOSES: Final = {b"]": b"["[0], b"}": b"{"[0]}
_ENDED: Final = "ended"
_VALUE: Final[dict[str | bytes, str]] = {"text": _ENDED, "scalar": _ENDED, b"[": "first element", b"{": "first name"}
_FOLLOWING: Final[dict[str, dict[str | bytes, str]]] = {
    "value": _VALUE,
    "first element": _VALUE | {b"]": _ENDED},
    "first name": {"text": "colon", b"}": _ENDED},
    "name": {"text": "colon"},
    "colon": {b":": "value"},
}
"""What may stand where, and what is expected after it; after a value that depends on what it stands in."""
_AFTER_VALUE: Final[dict[int, dict[str | bytes, str]]] = {
    b"["[0]: {b",": "value", b"]": _ENDED},
    b"{"[0]: {b",": "name", b"}": _ENDED},
}


class NotWhole(ValueError):
    """The text is cut short, its structure is not that of the JSON asked for, or a name in it cannot be read."""


def cut_members(text: bytes) -> list[tuple[str, bytes]]:
    """Return the members of an object, each value as it is written; raises :class:`NotWhole`."""
    members = []
    for part in _cut(text, b"{"):
        name = _NAME.match(part)
        assert name is not None  # the structure was checked
        try:
            members.append((_TEXT.decode(name[1]), part[name.end() :].strip(_BLANKS)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotWhole(f"the name of a member cannot be read: {error}") from error
    return members


def cut_elements(text: bytes) -> list[bytes]:
    """Return the elements of an array, each as it is written; raises :class:`NotWhole`."""
    return [part.strip(_BLANKS) for part in _cut(text, b"[")]


def salvage(text: bytes) -> JSON:
    """Return what can be read of an unsound value, None for the rest: it tells whose text it is, and is not stored."""
    return _salvage(text, _DEPTH_MOST)


def _salvage(text: bytes, depth: int) -> JSON:
    try:
        return decode(text)
    except ValueError:
        if not depth or not text.startswith((b"{", b"[")):
            return None
    try:
        if text.startswith(b"{"):
            return {name: _salvage(value, depth - 1) for name, value in cut_members(text)}
        return [_salvage(element, depth - 1) for element in cut_elements(text)]
    except NotWhole:
        return None


def _cut(text: bytes, bracket: bytes) -> list[bytes]:
    """Return what stands between the commas of an object or array, whose structure is checked at every depth."""
    opened = bytearray()
    parts: list[bytes] = []
    expected, begins, ends = "value", 0, 0
    for token in _TOKEN.finditer(text):
        kind = token[token.lastgroup] if token.lastgroup == "mark" else token.lastgroup
        assert kind is not None
        allowed = _FOLLOWING[expected] if expected != _ENDED else _AFTER_VALUE[opened[-1]] if opened else {}
        if token.start() != ends or kind not in allowed or not (opened or kind == bracket):
            raise NotWhole(f"its structure is invalid (byte {ends})")
        expected, ends = allowed[kind], token.end()
        if kind in (b"[", b"{"):
            opened += kind
            begins = begins or ends
        elif len(opened) == 1 and kind in (b",", b"]", b"}"):
            parts.append(text[begins : ends - 1])
            begins = ends
        if kind in _CLOSES:
            opened.pop()
    if expected != _ENDED or opened or text[ends:].strip(_BLANKS):
        raise NotWhole("it ends before its last bracket is closed")
    return parts if parts != [b""] and (len(parts) > 1 or parts[0].strip(_BLANKS)) else []
