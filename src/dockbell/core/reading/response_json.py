"""The JSON of an answer, cut into members and elements without being decoded.

An answer that is not whole passes by itself or with a smaller page, so it is a :class:`PageUnreadable`. A value in it
that is no sound JSON does not keep the rest from being read: the lenient parser cuts the text by its structure alone.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from dockbell.core.document import cut_elements, cut_members, salvage
from dockbell.core.model import JSON
from dockbell.core.reading.response import MALFORMED, Response, clean
from dockbell.errors import PageUnreadable, SchemaMismatch

UNSOUND_SIZE_MOST: Final = 512 * 1024
"""A longer answer that is no sound JSON is not cut into its records: a smaller page takes less time than that."""
T = TypeVar("T")
Fields: TypeAlias = dict[str, msgspec.Raw]

_JSON_TYPE: Final = re.compile(r"(application|text)/([^;]*\+)?json\s*(;.*)?", re.IGNORECASE)
_OBJECT: Final = msgspec.json.Decoder(Fields)
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()
_UTF8: Final = getincrementaldecoder("utf-8")
_DECODED_AT_ONCE: Final = 64 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Parser(NamedTuple):
    """How an answer is taken apart; a strict one refuses what is no sound JSON."""

    object: Callable[[bytes | msgspec.Raw], Fields]
    array: Callable[[bytes | memoryview | msgspec.Raw], list[msgspec.Raw]]
    value: Callable[[bytes | msgspec.Raw], JSON]
    is_strict: bool = False


def _cut_object(text: bytes | msgspec.Raw) -> Fields:
    members = cut_members(bytes(text))
    fields = {name: msgspec.Raw(value) for name, value in members}
    if len(fields) < len(members):
        raise ValueError("a member appears twice")
    return fields


STRICT: Final = Parser(_OBJECT.decode, _ARRAY.decode, _ANY.decode, is_strict=True)
LENIENT: Final = Parser(
    object=_cut_object,
    array=lambda text: [msgspec.Raw(element) for element in cut_elements(bytes(text))],
    value=lambda text: salvage(bytes(text)),
)


def read_object(subject: str, response: Response) -> bytes:
    """Return the text of the one object of an answer, though values be unsound; raises as :func:`decode_object`."""
    body, _, _ = read_twice(subject, response, partial(decode_object, subject))
    return body.strip()


def read_twice(subject: str, response: Response, read: Callable[[bytes, Parser], T]) -> tuple[bytes, T, bool]:
    """Return the text of an answer, what it holds, and whether only the lenient parser can read it.

    Raises:
        PageUnreadable: Not whole, or no JSON even in its structure.
    """
    body = json_text(subject, response)
    try:
        try:
            _check_encoding(body)  # slices are cut out of the text without a look at it
        except UnicodeDecodeError as error:
            raise not_json(subject, error) from error
        return body, read(body, STRICT), False
    except PageUnreadable as error:
        if len(body) > UNSOUND_SIZE_MOST:
            raise
        try:
            return body, read(body, LENIENT), True
        except (PageUnreadable, SchemaMismatch):
            raise error from error.__cause__  # that the answer is of another shape too would lead astray


def _check_encoding(body: bytes) -> None:
    """Raise UnicodeDecodeError for what is not UTF-8; a part at a time, as 200 kB of text with an emoji take 800 kB."""
    if body.isascii():
        return
    decoder = _UTF8()
    try:
        for start in range(0, len(body), _DECODED_AT_ONCE):
            decoder.decode(body[start : start + _DECODED_AT_ONCE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        body.decode()  # names the place in the whole text
        raise


def decode_object(subject: str, body: bytes, parser: Parser) -> Fields:
    """Return the members of an object; raises PageUnreadable for no JSON, SchemaMismatch for other JSON."""
    try:
        try:
            return parser.object(body)
        except msgspec.ValidationError as error:
            _RAW.decode(body)  # an array that is cut short is no sound JSON either
            raise SchemaMismatch(f"{subject}: the response is not a JSON object; check base_url") from error
    except MALFORMED as error:
        raise not_json(subject, error) from error


def json_text(subject: str, response: Response) -> bytes:
    """Return the text of an answer that calls itself JSON, or at least begins like an object, whatever it is called."""
    body = response.body.removeprefix(_BYTE_ORDER_MARK)  # RFC 8259, section 8.1: it may be ignored
    content_type = response.headers.get("content-type", "application/json")
    if not _JSON_TYPE.fullmatch(content_type.strip()) and not body.lstrip().startswith(b"{"):
        raise PageUnreadable(f"{subject}: the response is not JSON, got content type {clean(content_type)!r}")
    return body


def not_json(subject: str, error: Exception) -> PageUnreadable:
    return PageUnreadable(f"{subject}: the response is not JSON, got {clean(str(error))}")


def has_room(text: bytes | msgspec.Raw, fields: Fields, *names: str) -> bool:
    """Return whether an object's text is so much longer than its members that one of these names may stand twice in it.

    It nearly never is, and this costs a hundredth of a look at the text.
    """
    members = sum(len(name.encode()) + len(memoryview(raw)) + len('"":,') for name, raw in fields.items())
    twin = min(len(name.encode()) + len('"":1,') for name in names)
    blanks = min(2 * len(fields), twin - 1)  # less than anything that could have been there
    return len(memoryview(text)) > max(members - len(","), 0) + len("{}") + blanks


def check_given_once(subject: str, body: bytes, envelope: str) -> None:
    """Refuse an answer that gives its records or its cursor twice: which of them is meant would be a guess.

    Other members that come twice mean what they mean in all of JSON: the last counts. ``body`` may be an answer without
    its records.
    """
    names = {envelope.rpartition(".")[2], "next_cursor"}
    if any(body.count(json.dumps(name, ensure_ascii=False).encode()) > 1 for name in names):
        outermost = json.loads(body.decode(), object_pairs_hook=_Given, parse_int=str, parse_float=str)
        if twice := sorted(names & (outermost.twice | outermost.twice_inside)):
            raise PageUnreadable(f'{subject}: the response contains "{clean(twice[0])}" twice')


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
