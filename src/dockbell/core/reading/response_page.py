"""The page that an answer holds: which of its members are the records and the cursor.

The names are "not shown" in the API's description, so what can be tolerated is, and what cannot be believed is an
error. A record that is no sound JSON does not keep the others of its page from being read: it is cut out as it is, and
marked (:class:`~dockbell.core.model.Unsound`). An answer with the status of a success may hold an error all the same.
"""

from __future__ import annotations

import re
from functools import partial
from operator import itemgetter
from typing import Final

import msgspec

from dockbell.core.document import decode, salvage
from dockbell.core.model import RESOURCES, Page, Unsound
from dockbell.core.reading.response import (
    MALFORMED,
    WHERE_WORDS_ARE,
    Response,
    clean,
    find_words,
    quote,
    read_age,
    service_time,
)
from dockbell.core.reading.response_json import (
    Fields,
    Parser,
    check_given_once,
    decode_object,
    has_room,
    not_json,
    read_twice,
)
from dockbell.errors import PageUnreadable, SchemaMismatch, SourceUnavailable

RECORDS_MOST: Final = 100_000
"""A page of more records is not meant as one: the API gives 200."""
CURSOR_LONGEST: Final = 4096
"""No URL with a longer cursor in it gets through to a service."""

_CURSOR: Final = "next_cursor"
_MARK: Final = b"[ ]"
"""Stands for records that are cut out already."""
_OBJECTS: Final = re.compile(rb"\[[ \t\r\n]*\{")
_OBJECTS_OR_NOTHING: Final = re.compile(rb"\[[ \t\r\n]*[{\]]")
_INTEGER: Final = re.compile(rb"-?\d+")
_ERRORS: Final = frozenset({"error", "errors"})
"""What holds anything under such a name beside the records says that these are not what they should be."""
_INCOMPLETE: Final = frozenset({"partial", "is_partial", "incomplete", "incomplete_results", "timed_out"})
"""What is true under such a name beside the records of a last page says that others are missing."""
_NOTHING: Final = frozenset({b"null", b"false", b"0", b'""', b"[]", b"{}"})
_NO_RECORDS: Final = _ERRORS | {"warning", "warnings", "message", "messages", "notices", "problems", "violations"}
"""What is called so is said about the answer, and is not what was asked for."""
_FIRST_BYTE: Final = itemgetter(0)
_BRACE: Final = frozenset(b"{")
_TEXT: Final = msgspec.json.Decoder(str)


class EnvelopeMissing(SchemaMismatch):
    """The answer has no array of the name that held the records before."""


def read_page(resource: str, response: Response, *, envelope: str | None = None) -> Page:
    """Return the page of a listing that an answer holds; its records are cut out, not decoded.

    ``envelope`` is the field that held the records of earlier pages, where that is known.

    Raises:
        PageUnreadable: Not whole, no JSON even in its structure, or not to be understood in one way only.
        SourceUnavailable: An error, told with the status of a success.
        SchemaMismatch: No array of records, or no telling which; :class:`EnvelopeMissing` where that is known by name.
    """
    subject = f'resource "{resource}"'
    _, (name, records, cursor), is_lenient = read_twice(subject, response, partial(_find_page, resource, envelope))
    unsound = {index: found for index, raw in enumerate(records) if is_lenient and (found := _find_unsound(raw))}
    time = service_time(response)
    return Page(
        records=tuple(records),
        next_cursor=cursor,
        envelope=name,
        asked_at=time.asked_at,
        clock=time.clock,
        answered_at=time.answered_at,
        received_at=response.received_at,
        unsound=unsound,
        age=read_age(response),
    )


def _find_page(resource: str, envelope: str | None, body: bytes, parser: Parser) -> tuple[str, list[bytes], str | None]:
    subject = f'resource "{resource}"'
    known = None if envelope is None or not parser.is_strict else _cut_known(envelope, body, parser)
    rest, outer, records = known or (body, decode_object(subject, body, parser), None)
    try:
        # One level down: {"data": {"shipments": []}}, {"shipments": [], "meta": {"next_cursor": null}}.
        inside = {name: parser.object(raw) for name, raw in outer.items() if _begins(raw, b"{")}
        inner = {f"{name}.{part}": value for name, fields in inside.items() for part, value in fields.items()}
        _check_no_error(subject, outer, parser)
        if envelope is None or records is None:
            name, records = _find_records(resource, outer, inner, envelope, parser)
        else:
            name = envelope
        _check_no_error(subject, inside.get(name.rpartition(".")[0], {}), parser)
        cursor = _find_cursor(resource, outer, inner)
        if cursor is None:
            _check_whole(subject, outer | inside.get(name.rpartition(".")[0], {}))
        if parser.is_strict and (
            has_room(rest, outer, name, _CURSOR)
            or any(has_room(outer[part], fields, name.rpartition(".")[2], _CURSOR) for part, fields in inside.items())
        ):
            check_given_once(subject, rest, name)
    except MALFORMED as error:
        raise not_json(subject, error) from error
    return name, records, cursor


def _cut_known(envelope: str, body: bytes, parser: Parser) -> tuple[bytes, Fields, list[bytes]] | None:
    """Return an answer with a mark in place of its records, its members, and these records.

    So the text is gone through once and not twice. None where there may be more to it, and a closer look decides: where
    the records are not all that stands from the first ``[`` to the last ``}]``, are none or too many, or may stand one
    level down; where another member looks like the mark; and where the answer is not sound.
    """
    start, end = body.find(b"["), body.rfind(b"}]") + len(b"}]")  # nothing before looks like the mark
    if "." in envelope or _MARK in body[end:] or not _OBJECTS.match(body, start):
        return None
    rest = body[:start] + _MARK + body[end:]
    try:
        fields, elements = parser.object(rest), parser.array(memoryview(body)[start:end])
    except MALFORMED:
        return None
    # The mark stands nowhere else, so it is the member's value; of a name that is given twice, the last one counts.
    if envelope not in fields or bytes(fields[envelope]) != _MARK or len(elements) > RECORDS_MOST:
        return None
    records = _copy_objects(elements)
    return None if records is None else (rest, fields, records)


def _find_unsound(raw: bytes) -> Unsound | None:
    try:
        decode(raw)
    except ValueError as error:
        return Unsound(clean(str(error)), salvage(raw))
    return None


def _begins(raw: msgspec.Raw, bracket: bytes) -> bool:
    return memoryview(raw)[:1] == bracket


def _find_records(
    resource: str, outer: Fields, inner: Fields, envelope: str | None, parser: Parser
) -> tuple[str, list[bytes]]:
    """Return the one array of objects: as learned, else by its name, else the only one; one level down by name only.

    An error told with status 200 must not pass for an empty page, so nothing else is believed.
    """
    if envelope is not None:
        records = _as_records(resource, (outer | inner).get(envelope), parser)
        if records is None:
            raise EnvelopeMissing(
                _describe_mismatch(resource, f'no array "{envelope}", which earlier pages had', outer)
            )
        return envelope, records
    candid = {name: raw for name, raw in outer.items() if name.lower() not in _NO_RECORDS}
    arrays = {name: array for name, raw in candid.items() if (array := _as_records(resource, raw, parser)) is not None}
    nested = {name: array for name, raw in inner.items() if (array := _as_records(resource, raw, parser)) is not None}
    named = [name for name in arrays | nested if _is_named_after(resource, name)]
    filled = [name for name, array in arrays.items() if array]
    for candidates in (named, filled, list(arrays)):
        if len(candidates) == 1:
            return candidates[0], (arrays | nested)[candidates[0]]
        if candidates:
            raise SchemaMismatch(_describe_mismatch(resource, "several arrays of objects", outer))
    raise SchemaMismatch(_describe_mismatch(resource, "no array of objects", outer))


def _as_records(resource: str, raw: msgspec.Raw | None, parser: Parser) -> list[bytes] | None:
    if raw is None or not _begins(raw, b"["):
        return None
    if not _OBJECTS_OR_NOTHING.match(raw):
        return None  # millions of numbers are not worth a look at each
    elements = parser.array(raw)
    if len(elements) > RECORDS_MOST:
        raise PageUnreadable(
            f'resource "{resource}": the response contains {len(elements)} objects, too many for a page'
        )
    return _copy_objects(elements)


def _copy_objects(elements: list[msgspec.Raw]) -> list[bytes] | None:
    """Return the texts of the elements of an array; None where one of them is no object."""
    records = list(map(bytes, elements))
    return records if set(map(_FIRST_BYTE, records)) <= _BRACE else None


def _is_named_after(resource: str, name: str) -> bool:
    """Return whether a field is called like the resource: ``shipments``, ``Stock levels``, ``data.stockLevels``."""
    letters = re.sub("[^a-z]", "", name.rpartition(".")[2].lower())
    return letters.startswith(RESOURCES[resource].singular)


def _find_cursor(resource: str, outer: Fields, inner: Fields) -> str | None:
    raw = outer.get(_CURSOR)
    if raw is None:
        raw = next((value for name, value in inner.items() if name.endswith(f".{_CURSOR}")), None)
    text = b"null" if raw is None else bytes(raw)
    if text in {b"null", b'""'}:
        return None
    if len(text) > CURSOR_LONGEST:
        raise SchemaMismatch(f'resource "{resource}": next_cursor has {len(text)} bytes, too long for a request')
    if text.startswith(b'"'):
        return _TEXT.decode(text)
    if _INTEGER.fullmatch(text):
        return text.decode()
    got = clean(text[:50].decode(errors="replace"))
    raise SchemaMismatch(f'resource "{resource}": next_cursor is neither text nor number, got {got}; check base_url')


def _describe_mismatch(resource: str, fact: str, fields: Fields) -> str:
    got = clean(", ".join(list(fields)[:8])) or "none"
    return f'resource "{resource}": the response has {fact}, got fields {got}; check base_url'


def _check_no_error(subject: str, fields: Fields, parser: Parser) -> None:
    """Refuse an object that holds an error: records may stand beside it, and others may be missing."""
    for name, raw in fields.items():
        if name.lower() in _ERRORS and bytes(raw).translate(None, b" \t\r\n") not in _NOTHING:
            said = find_words(parser.value(raw))
            if not said:
                beside = {member: parser.value(fields[member]) for member in WHERE_WORDS_ARE if member in fields}
                said = find_words(beside)
            fact = f"{subject}: the response contains an error{quote(said)}"
            raise SourceUnavailable(f"{fact}, though its status is a success")


def _check_whole(subject: str, fields: Fields) -> None:
    """Refuse a last page that says of itself that it is not all there is."""
    for name, raw in fields.items():
        if name.lower() in _INCOMPLETE and bytes(raw) == b"true":
            fact = f'the response has no cursor although the list goes on, got "{name}": true'
            raise SourceUnavailable(f"{subject}: {fact}")
