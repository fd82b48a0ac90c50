"""What an answer of the API says: its page, its clock, what it leaves of the budget, or whose turn it is to act.

Much of it is "not shown" in the API's description, so what can be tolerated is, and what cannot be believed is an
error: an answer that is not whole passes by itself or with a smaller page (:class:`PageUnreadable`), one of another
shape does not (:class:`SchemaMismatch`). A record that is no sound JSON does not keep the others of its page from being
read: it is cut out as it is, and marked (:class:`~dockbell.core.model.Unsound`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dockbell.core.cutting import cut_elements, cut_members, salvage
from dockbell.core.document import decode
from dockbell.core.model import JSON, RESOURCES, Allowance, ClockSource, Page, Unsound
from dockbell.core.moment import EPOCH, parse_moment
from dockbell.core.reading.request import Request
from dockbell.errors import (
    CursorExpired,
    PageUnreadable,
    RateLimited,
    RequestRefused,
    SchemaMismatch,
    SourceRefused,
    SourceUnavailable,
)

WINDOW: Final = timedelta(seconds=60)
"""The service counts requests per minute (api-spec.md, "Limits")."""
NOT_FOUND: Final = frozenset({404, 410})
"""What is asked for does not exist, or no longer."""
NOT_MODIFIED: Final = 304
"""What was asked for is what was given before, under the same ``ETag``."""
RECORDS_MOST: Final = 100_000
"""A page of more records is not meant as one: the API gives 200."""
CURSOR_LONGEST: Final = 4096
"""No URL with a longer cursor in it gets through to a service."""
UNSOUND_SIZE_MOST: Final = 512 * 1024
"""A longer answer that is no sound JSON is not cut into its records: a smaller page takes less time than that."""

_DATE_RESOLUTION: Final = timedelta(seconds=1)
_LONGEST_WISH: Final = timedelta(days=1)
_PLAUSIBLE_SKEW: Final = timedelta(days=1)
# A reset below this is no Unix time (1971), but the seconds that are left, as many an API tells it.
_SECONDS_LEFT_MOST: Final = 31_536_000
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CURSOR_LOST: Final = frozenset({400, 404, 410, 422})
_PASSING: Final = frozenset({408, 425})
_PARTIAL_CONTENT: Final = 206

_JSON_TYPE: Final = re.compile(r"(application|text)/([^;]*\+)?json\s*(;.*)?", re.IGNORECASE)
_OBJECTS_OR_NOTHING: Final = re.compile(rb"\[[ \t\r\n]*[{\]]")
_INTEGER: Final = re.compile(rb"-?\d+")
_NUMBER: Final = re.compile(r"\s*(\d{1,15})")
_QUERY: Final = re.compile(r"\?\S+")
_LONGEST_SAYING: Final = 200
_WHERE_WORDS_ARE: Final = ("message", "detail", "error_description", "title", "error", "errors", "code")
_ERRORS: Final = frozenset({"error", "errors"})
"""What holds anything under such a name beside the records says that these are not what they should be."""
_NO_RECORDS: Final = _ERRORS | {"warning", "warnings", "message", "messages", "notices", "problems", "violations"}
"""What is called so is said about the answer, and is not what was asked for."""
_INCOMPLETE: Final = frozenset({"partial", "is_partial", "incomplete", "incomplete_results", "timed_out"})
"""What is true under such a name beside the records of a last page says that others are missing."""
_NOTHING: Final = frozenset({b"null", b"false", b"0", b'""', b"[]", b"{}"})

_Fields: TypeAlias = dict[str, msgspec.Raw]
_OBJECT: Final = msgspec.json.Decoder(_Fields)
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FIRST_BYTE: Final = itemgetter(0)
_BRACE: Final = frozenset(b"{")
_TEXT: Final = msgspec.json.Decoder(str)
_ANY: Final = msgspec.json.Decoder()
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# What is said of text that is no JSON, of bytes that are no UTF-8, and of brackets nested without end.
_MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Response:
    """One complete answer.

    Attributes:
        status: The HTTP status.
        headers: By name in lower case.
        body: Without its content coding.
        sent_at: Our time before the request was sent.
        answered_at: Our time when the head of the answer came.
        received_at: Our time when the answer was complete.
        ticks: Our monotonic clock before the request was sent, as the time since its origin.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_at: datetime
    answered_at: datetime
    received_at: datetime
    ticks: timedelta = timedelta(0)


class EnvelopeMissing(SchemaMismatch):
    """The answer has no array of the name that held the records before."""


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """When the service worked on a request, by its own clock.

    Attributes:
        asked_at: At the earliest: S(r). What was visible before is in the answer.
        answered_at: At the latest.
        clock: What both were taken from.
    """

    asked_at: datetime
    answered_at: datetime
    clock: ClockSource


# The page ------------------------------------------------------------------------------------------------------------


class _Parser(NamedTuple):
    """How an answer is taken apart.

    Attributes:
        object: Returns the members of an object.
        array: Returns the elements of an array of objects.
        value: Returns what a member says.
        is_strict: What is no sound JSON is refused.
    """

    object: Callable[[bytes | msgspec.Raw], _Fields]
    array: Callable[[bytes | msgspec.Raw], list[msgspec.Raw]]
    value: Callable[[bytes | msgspec.Raw], JSON]
    is_strict: bool = False


def read_page(resource: str, response: Response, *, envelope: str | None = None) -> Page:
    """Return the page of a listing that an answer holds; its records are cut out, not decoded.

    Args:
        resource: What was asked for.
        response: The answer.
        envelope: The field that held the records of earlier pages, where that is known.

    Raises:
        PageUnreadable: Not whole, no JSON even in its structure, or not to be understood in one way only.
        SourceUnavailable: An error, told with the status of a success.
        SchemaMismatch: No array of records, or no telling which; :class:`EnvelopeMissing` where that is known by name.
    """
    subject = f'resource "{resource}"'
    body = _json_text(subject, response)
    unsound: dict[int, Unsound] = {}
    try:
        _check_encoding(subject, body)
        name, records, cursor = _find_page(resource, body, envelope, _STRICT)
    except PageUnreadable as error:
        if len(body) > UNSOUND_SIZE_MOST:
            raise
        try:
            name, records, cursor = _find_page(resource, body, envelope, _LENIENT)
        except (PageUnreadable, SchemaMismatch):
            raise error from error.__cause__  # that the answer is of another shape too would lead astray
        unsound = {index: found for index, raw in enumerate(records) if (found := _find_unsound(raw))}
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


def _find_page(
    resource: str, body: bytes, envelope: str | None, parser: _Parser
) -> tuple[str, list[bytes], str | None]:
    """Return the name of the array of records, the records, and the cursor."""
    subject = f'resource "{resource}"'
    outer = _decode_object(subject, body, parser)
    try:
        # One level down: {"data": {"shipments": []}}, {"shipments": [], "meta": {"next_cursor": null}}.
        inside = {name: parser.object(raw) for name, raw in outer.items() if _begins(raw, b"{")}
        inner = {f"{name}.{part}": value for name, fields in inside.items() for part, value in fields.items()}
        _check_no_error(subject, outer, parser)
        name, records = _find_records(resource, outer, inner, envelope, parser)
        _check_no_error(subject, inside.get(name.rpartition(".")[0], {}), parser)
        cursor = _find_cursor(resource, outer, inner)
        if cursor is None:
            _check_whole(subject, outer | inside.get(name.rpartition(".")[0], {}))
        if parser.is_strict and (
            _has_room(body, outer) or any(_has_room(outer[part], fields) for part, fields in inside.items())
        ):
            _check_given_once(subject, body, name)
    except _MALFORMED as error:
        raise _not_json(subject, error) from error
    return name, records, cursor


def _find_unsound(raw: bytes) -> Unsound | None:
    try:
        decode(raw)
    except ValueError as error:
        return Unsound(clean(str(error)), salvage(raw))
    return None


def _cut_object(text: bytes | msgspec.Raw) -> _Fields:
    members = cut_members(bytes(text))
    fields = {name: msgspec.Raw(value) for name, value in members}
    if len(fields) < len(members):
        raise ValueError("a member is given twice")
    return fields


def _cut_array(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    return list(map(msgspec.Raw, cut_elements(bytes(text))))


def _salvage_value(text: bytes | msgspec.Raw) -> JSON:
    return salvage(bytes(text))


_STRICT: Final = _Parser(_OBJECT.decode, _ARRAY.decode, _ANY.decode, is_strict=True)
_LENIENT: Final = _Parser(_cut_object, _cut_array, _salvage_value)


def read_object(subject: str, response: Response) -> bytes:
    """Return the JSON text of the one object that an answer holds; where a value in it is unsound, as it is.

    Raises:
        PageUnreadable: Not whole, or no JSON even in its structure.
        SchemaMismatch: Sound JSON, but no object.
    """
    body = _json_text(subject, response)
    try:
        _check_encoding(subject, body)
        _decode_object(subject, body, _STRICT)
    except PageUnreadable as error:
        if len(body) > UNSOUND_SIZE_MOST:
            raise
        try:
            _decode_object(subject, body, _LENIENT)
        except PageUnreadable:
            raise error from error.__cause__
    return body.strip()


def _decode_object(subject: str, body: bytes, parser: _Parser) -> _Fields:
    try:
        try:
            return parser.object(body)
        except msgspec.ValidationError as error:
            _RAW.decode(body)  # an array that is cut short is no sound JSON either
            raise SchemaMismatch(f"{subject}: the answer is no JSON object; check base_url") from error
    except _MALFORMED as error:
        raise _not_json(subject, error) from error


def _json_text(subject: str, response: Response) -> bytes:
    """Return the text of an answer that calls itself JSON, or at least begins like an object, whatever it is called."""
    body = response.body.removeprefix(_BYTE_ORDER_MARK)  # RFC 8259, section 8.1: it may be ignored
    content_type = response.headers.get("content-type", "application/json")
    if not _JSON_TYPE.fullmatch(content_type.strip()) and not body.lstrip().startswith(b"{"):
        raise PageUnreadable(f"{subject}: the answer is not JSON, got content type {clean(content_type)!r}")
    return body


def _check_encoding(subject: str, body: bytes) -> None:
    try:
        body.decode()  # slices are cut out of the text without a look at their encoding
    except UnicodeDecodeError as error:
        raise _not_json(subject, error) from error


def _not_json(subject: str, error: Exception) -> PageUnreadable:
    return PageUnreadable(f"{subject}: the answer is not JSON, got {clean(str(error))}")


def _has_room(text: bytes | msgspec.Raw, fields: _Fields) -> bool:
    """Tell whether an object's text is longer than its members, so that one of them may have been there twice.

    It nearly never is, and this costs a hundredth of a look at the text.
    """
    members = sum(len(name.encode()) + len(memoryview(raw)) + len('"":,') for name, raw in fields.items())
    blanks = min(2 * len(fields), len('"data":[],') - 1)  # less than anything that could have been there
    return len(memoryview(text)) > members + len("{}") + blanks


def _check_given_once(subject: str, body: bytes, envelope: str) -> None:
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


def _check_no_error(subject: str, fields: _Fields, parser: _Parser) -> None:
    """Refuse an object that tells of an error: whatever records stand beside it, others may be missing."""
    for name, raw in fields.items():
        if name.lower() in _ERRORS and bytes(raw).translate(None, b" \t\r\n") not in _NOTHING:
            said = _find_words(parser.value(raw), depth=3)
            if not said:
                beside = {member: parser.value(fields[member]) for member in _WHERE_WORDS_ARE if member in fields}
                said = _find_words(beside, depth=3)
            fact = f"{subject}: the answer holds an error{_quote(said)}"
            raise SourceUnavailable(f"{fact}, though its status is a success")


def _check_whole(subject: str, fields: _Fields) -> None:
    """Refuse a last page that says of itself that it is not all there is."""
    for name, raw in fields.items():
        if name.lower() in _INCOMPLETE and bytes(raw) == b"true":
            raise SourceUnavailable(f'{subject}: the answer ends the list, got "{name}": true beside the records')


def _begins(raw: msgspec.Raw, bracket: bytes) -> bool:
    return memoryview(raw)[:1] == bracket


def _find_records(
    resource: str, outer: _Fields, inner: _Fields, envelope: str | None, parser: _Parser
) -> tuple[str, list[bytes]]:
    """Return the one array of objects: as learned, else by its name, else the only one; one level down by name only.

    An error told with status 200 must not pass for an empty page, so nothing else is believed.
    """
    if envelope is not None:
        records = _as_records(resource, (outer | inner).get(envelope), parser)
        if records is None:
            raise EnvelopeMissing(_describe_mismatch(resource, f'no array "{envelope}" as before', outer))
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
            raise _mismatch(resource, "several arrays of objects", outer)
    raise _mismatch(resource, "no array of objects", outer)


def _as_records(resource: str, raw: msgspec.Raw | None, parser: _Parser) -> list[bytes] | None:
    """Return the elements of an array of objects, None for anything else."""
    if raw is None or not _begins(raw, b"["):
        return None
    if not _OBJECTS_OR_NOTHING.match(raw):
        return None  # millions of numbers are not worth a look at each
    elements = parser.array(raw)
    if len(elements) > RECORDS_MOST:
        raise PageUnreadable(f'resource "{resource}": the answer holds an array of {len(elements)} objects')
    records = list(map(bytes, elements))
    return records if set(map(_FIRST_BYTE, records)) <= _BRACE else None


def _is_named_after(resource: str, name: str) -> bool:
    """Tell whether a field is called like the resource: ``shipments``, ``Stock levels``, ``data.stockLevels``."""
    letters = re.sub("[^a-z]", "", name.rpartition(".")[2].lower())
    return letters.startswith(RESOURCES[resource].singular)


def _find_cursor(resource: str, outer: _Fields, inner: _Fields) -> str | None:
    raw = outer.get("next_cursor")
    if raw is None:
        raw = next((value for name, value in inner.items() if name.endswith(".next_cursor")), None)
    text = b"null" if raw is None else bytes(raw)
    if text in {b"null", b'""'}:
        return None
    if len(text) > CURSOR_LONGEST:
        raise SchemaMismatch(f'resource "{resource}": next_cursor has {len(text)} bytes, no request holds that')
    if text.startswith(b'"'):
        return _TEXT.decode(text)
    if _INTEGER.fullmatch(text):
        return text.decode()
    got = clean(text[:50].decode(errors="replace"))
    raise SchemaMismatch(f'resource "{resource}": next_cursor is neither text nor number, got {got}; check base_url')


def _mismatch(resource: str, fact: str, fields: _Fields) -> SchemaMismatch:
    return SchemaMismatch(_describe_mismatch(resource, fact, fields))


def _describe_mismatch(resource: str, fact: str, fields: _Fields) -> str:
    got = clean(", ".join(list(fields)[:8])) or "none"
    return f'resource "{resource}": the answer holds {fact}, got fields {got}; check base_url'


def are_alike(one: bytes, other: bytes) -> bool:
    """Return whether two records have most of their members' names in common, as records of one resource have."""
    try:
        names, others = set(_OBJECT.decode(one)), set(_OBJECT.decode(other))
    except _MALFORMED:
        return False
    return len(names & others) * 2 > max(len(names), len(others))


# The clock and the budget --------------------------------------------------------------------------------------------


def service_time(response: Response) -> ServiceTime:
    """Return when the service worked on a request, by its own clock where it shows one."""
    if (date := read_date(response)) is not None:
        round_trip = response.answered_at - response.sent_at
        return ServiceTime(date - round_trip, date + _DATE_RESOLUTION, ClockSource.DATE)
    reset = read_reset(response)
    if isinstance(reset, datetime) and abs(reset - response.sent_at) < _PLAUSIBLE_SKEW:
        return ServiceTime(reset - WINDOW, reset, ClockSource.RESET)
    return ServiceTime(response.sent_at, response.answered_at, ClockSource.LOCAL)


def read_age(response: Response) -> timedelta:
    """Return for how long a cache has kept an answer, by its own word; nothing where it says nothing."""
    seconds = _number(response.headers.get("age"))
    return timedelta(seconds=min(seconds or 0, _LONGEST_WISH.total_seconds()))


def read_allowance(response: Response) -> Allowance | None:
    """Return what the answer says is left of the budget, None where it does not.

    Where the reset lies in no window around the service's time, it is told by another clock: then a whole window may be
    left. :class:`~dockbell.core.reading.allowance.WindowClock` knows more, from several answers.
    """
    limit, remaining = (_number(response.headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining"))
    if not limit or remaining is None:
        return None
    reset = read_reset(response)
    resets_in = reset - _now_of(response) if isinstance(reset, datetime) else reset
    if resets_in is None or not -_DATE_RESOLUTION <= resets_in <= WINDOW:
        resets_in = WINDOW
    return Allowance(limit, remaining, max(resets_in, timedelta(0)))


def read_retry_after(response: Response) -> timedelta | None:
    """Return how long the API asks to wait: ``Retry-After`` in both forms, else until the reset; a day at most."""
    text = response.headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        wish = timedelta(seconds=min(seconds, _LONGEST_WISH.total_seconds()))
    elif (date := _http_date(text)) is not None:
        wish = date - _now_of(response)
    else:
        allowance = read_allowance(response)
        return None if allowance is None else allowance.resets_in
    return min(max(wish, timedelta(0)), _LONGEST_WISH)


def read_date(response: Response) -> datetime | None:
    """Return what ``Date`` says, None where it says nothing."""
    return _http_date(response.headers.get("date"))


def read_reset(response: Response) -> datetime | timedelta | None:
    """Return what ``x-ratelimit-reset`` says: when the window ends, or in how long; None where it says nothing."""
    number = _number(response.headers.get("x-ratelimit-reset"))
    if number is not None and number <= _SECONDS_LEFT_MOST:
        return timedelta(seconds=number)
    return parse_moment(number)


def _now_of(response: Response) -> datetime:
    return read_date(response) or response.answered_at


def _number(text: str | None) -> int | None:
    match = _NUMBER.match(text or "")
    return None if match is None else int(match[1])


def _http_date(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if EPOCH.year <= moment.year < MAXYEAR else None


# Whose turn it is ----------------------------------------------------------------------------------------------------


def judge_status(request: Request, response: Response) -> None:
    """Raise what the status of an answer means; return when it is a success.

    Raises:
        SourceRefused: The key is not accepted (401, 403), or the API is elsewhere (3xx).
        RequestRefused: The request as such is not accepted.
        RateLimited: The key's budget is used up (429).
        CursorExpired: 400, 404, 410 or 422 on a page after the first.
        SourceUnavailable: Everything that passes by itself.
    """
    status = response.status
    fact = f"{request}: HTTP {status}"
    if status == _PARTIAL_CONTENT:
        raise SourceUnavailable(f"{fact}, a part of the answer only, which was not asked for")
    if 200 <= status < 300:  # noqa: PLR2004  # the class of successes
        return
    if status in _REDIRECTS:
        host = re.match(r"https?://(?:[^/?#@]*@)?([^/?#]+)", response.headers.get("location", ""), re.IGNORECASE)
        where = clean(host[1]) if host else "the same host"
        raise SourceRefused(f"{fact}, a redirect to {where} that is not followed; set base_url to where the API is")
    said = excerpt(response)
    if status in {401, 403}:
        raise SourceRefused(f"{fact}{said}; the API does not accept the key, check api_key")
    if status == 429:  # noqa: PLR2004  # api-spec.md, "Errors"
        raise RateLimited(f"{fact}, the key's budget is used up", read_retry_after(response))
    if request.continues and status in _CURSOR_LOST:
        is_refusal = status not in NOT_FOUND
        left = "the cursor is not accepted" if is_refusal else "the cursor is no longer known"
        raise CursorExpired(f"{fact}{said}; {left}", is_refusal=is_refusal)
    if 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004  # the class of the client's faults
        raise RequestRefused(f"{fact}{said}; check base_url and the query of this resource")
    raise SourceUnavailable(f"{fact}{said}")


def excerpt(response: Response) -> str:
    """Return what the API itself says about an error, ready to follow a fact: ``, "no such status"``; often empty."""
    try:
        words = _find_words(_ANY.decode(response.body), depth=3)
    except _MALFORMED:
        is_text = response.headers.get("content-type", "").lower().startswith("text/plain")
        words = response.body.decode(errors="replace") if is_text else ""
    return _quote(words)


def _quote(words: str) -> str:
    return f', "{cleaned}"' if (cleaned := clean(words)) else ""


def _find_words(value: JSON, depth: int) -> str:
    if isinstance(value, str):
        return value
    if depth and isinstance(value, list):
        return _find_words(value[0], depth - 1) if value else ""
    if depth and isinstance(value, dict):
        return next(filter(None, (_find_words(value.get(name), depth - 1) for name in _WHERE_WORDS_ARE)), "")
    return ""


def clean(words: str) -> str:
    """Return foreign words fit for a log line: short, on one line, nothing unprintable, no query strings."""
    printable = "".join(letter if letter.isprintable() else " " for letter in words[: 10 * _LONGEST_SAYING])
    line = " ".join(_QUERY.sub("?…", printable).split())
    return line if len(line) <= _LONGEST_SAYING else line[: _LONGEST_SAYING - 1] + "…"
