"""The JSON of an answer, cut into members and elements without being decoded.

An answer that is not whole passes by itself or with a smaller page, so it is a :class:`PageUnreadable`. A value in it
that is no sound JSON does not keep the rest from being read: the lenient parser cuts the text by its structure alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dockbell.core.cutting import cut_elements, cut_members, salvage
from dockbell.core.model import JSON
from dockbell.core.reading.response import Response
from dockbell.core.reading.response_words import clean
from dockbell.errors import PageUnreadable, SchemaMismatch

UNSOUND_SIZE_MOST: Final = 512 * 1024
"""A longer answer that is no sound JSON is not cut into its records: a smaller page takes less time than that."""
MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What is raised for text that is no JSON, bytes that are no UTF-8, and brackets nested without end."""
Fields: TypeAlias = dict[str, msgspec.Raw]

_JSON_TYPE: Final = re.compile(r"(application|text)/([^;]*\+)?json\s*(;.*)?", re.IGNORECASE)
_OBJECT: Final = msgspec.json.Decoder(Fields)
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Parser(NamedTuple):
    """How an answer is taken apart.

    Attributes:
        object: Returns the members of an object.
        array: Returns the elements of an array of objects.
        value: Returns what a member says.
        is_strict: What is no sound JSON is refused.
    """

    object: Callable[[bytes | msgspec.Raw], Fields]
    array: Callable[[bytes | msgspec.Raw], list[msgspec.Raw]]
    value: Callable[[bytes | msgspec.Raw], JSON]
    is_strict: bool = False


def _cut_object(text: bytes | msgspec.Raw) -> Fields:
    members = cut_members(bytes(text))
    fields = {name: msgspec.Raw(value) for name, value in members}
    if len(fields) < len(members):
        raise ValueError("a member is given twice")
    return fields


def _cut_array(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    return list(map(msgspec.Raw, cut_elements(bytes(text))))


def _salvage_value(text: bytes | msgspec.Raw) -> JSON:
    return salvage(bytes(text))


STRICT: Final = Parser(_OBJECT.decode, _ARRAY.decode, _ANY.decode, is_strict=True)
LENIENT: Final = Parser(_cut_object, _cut_array, _salvage_value)


def read_object(subject: str, response: Response) -> bytes:
    """Return the JSON text of the one object that an answer holds; where a value in it is unsound, as it is.

    Raises:
        PageUnreadable: Not whole, or no JSON even in its structure.
        SchemaMismatch: Sound JSON, but no object.
    """
    body = json_text(subject, response)
    try:
        check_encoding(subject, body)
        decode_object(subject, body, STRICT)
    except PageUnreadable as error:
        if len(body) > UNSOUND_SIZE_MOST:
            raise
        try:
            decode_object(subject, body, LENIENT)
        except PageUnreadable:
            raise error from error.__cause__
    return body.strip()


def decode_object(subject: str, body: bytes, parser: Parser) -> Fields:
    """Return the members of the object that an answer holds.

    Raises:
        PageUnreadable: Not whole, or no JSON.
        SchemaMismatch: Sound JSON, but no object.
    """
    try:
        try:
            return parser.object(body)
        except msgspec.ValidationError as error:
            _RAW.decode(body)  # an array that is cut short is no sound JSON either
            raise SchemaMismatch(f"{subject}: the answer is no JSON object; check base_url") from error
    except MALFORMED as error:
        raise not_json(subject, error) from error


def json_text(subject: str, response: Response) -> bytes:
    """Return the text of an answer that calls itself JSON, or at least begins like an object, whatever it is called."""
    body = response.body.removeprefix(_BYTE_ORDER_MARK)  # RFC 8259, section 8.1: it may be ignored
    content_type = response.headers.get("content-type", "application/json")
    if not _JSON_TYPE.fullmatch(content_type.strip()) and not body.lstrip().startswith(b"{"):
        raise PageUnreadable(f"{subject}: the answer is not JSON, got content type {clean(content_type)!r}")
    return body


def check_encoding(subject: str, body: bytes) -> None:
    """Refuse an answer that is no UTF-8."""
    try:
        body.decode()  # slices are cut out of the text without a look at their encoding
    except UnicodeDecodeError as error:
        raise not_json(subject, error) from error


def not_json(subject: str, error: Exception) -> PageUnreadable:
    """Return the error of an answer that is no JSON."""
    return PageUnreadable(f"{subject}: the answer is not JSON, got {clean(str(error))}")


def has_room(text: bytes | msgspec.Raw, fields: Fields) -> bool:
    """Return whether an object's text is longer than its members, so that one of them may stand twice in it.

    It nearly never is, and this costs a hundredth of a look at the text.
    """
    members = sum(len(name.encode()) + len(memoryview(raw)) + len('"":,') for name, raw in fields.items())
    blanks = min(2 * len(fields), len('"data":[],') - 1)  # less than anything that could have been there
    return len(memoryview(text)) > members + len("{}") + blanks


def check_given_once(subject: str, body: bytes, envelope: str) -> None:
    """Refuse an answer that gives its records or its cursor twice: which of them is meant would be a guess.

    Other members that come twice mean what they mean in all of JSON: the last counts.
    """
    names = {envelope.rpartition(".")[2], "next_cursor"}
    if any(body.count(json.dumps(name, ensure_ascii=False).encode()) > 1 for name in names):
        outermost = json.loads(body.decode(), object_pairs_hook=_Given, parse_int=str, parse_float=str)
        if twice := sorted(names & (outermost.twice | outermost.twice_inside)):
            raise PageUnreadable(f'{subject}: the answer gives "{clean(twice[0])}" twice')


class _Given:
    """Which members an object holds twice, and which the objects do that are its members."""

    __slots__ = ("twice", "twice_inside")

    def __init__(self, members: list[tuple[str, JSON]]) -> None:
        once: set[str] = set()
        self.twice: set[str] = set()
        self.twice_inside: set[str] = set()
        for name, value in members:
            (self.twice if name in once else once).add(name)
            if isinstance(value, _Given):
                self.twice_inside |= value.twice


def are_alike(one: bytes, other: bytes) -> bool:
    """Return whether two records have most of their members' names in common, as records of one resource have."""
    try:
        names, others = set(_OBJECT.decode(one)), set(_OBJECT.decode(other))
    except MALFORMED:
        return False
    return len(names & others) * 2 > max(len(names), len(others))
