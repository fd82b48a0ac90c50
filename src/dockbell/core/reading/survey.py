"""What a few pages tell about how an API behaves: its cursors, its timestamps, the order of its lists, its clock."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import chain, combinations, pairwise
from typing import Final

import msgspec

from dockbell.core import pointer
from dockbell.core.key import find_keys
from dockbell.core.model import JSON
from dockbell.core.moment import parse_moment, to_micros
from dockbell.core.reading.response import Response, read_allowance
from dockbell.core.reading.shape import Shape

_DATE_RESOLUTION: Final = timedelta(seconds=1)
_OFFSET_WORDS: Final = re.compile(r"\b(?:offset|skip|page|start)\b", re.IGNORECASE)
_KEYSET_WORDS: Final = re.compile(r"\b(?:keyset|after|seek|last_?id|last_?key|since)\b", re.IGNORECASE)
_LONGEST_ID: Final = 200
_FRACTION: Final = re.compile(r"\d[.,](\d+)")
_ZONE: Final = re.compile(r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$")
_IDENTIFYING: Final = re.compile(
    r"(?:^|_)(?:id|uuid|key|code|number|no|nr|ref|sku|name)$|(?:Id|Uuid|Key|Code|Number|No)$"
)


def end_of_list(body: Mapping[str, JSON]) -> str:
    """Return how an answer says that no page follows: next_cursor is ``null``, ``absent`` or ``empty``."""
    holders = [body, *(value for value in body.values() if isinstance(value, dict))]
    cursors = [holder["next_cursor"] for holder in holders if "next_cursor" in holder]
    if not cursors:
        return "absent"
    return "null" if all(cursor is None for cursor in cursors) else "empty"


def find_total(body: Mapping[str, JSON]) -> tuple[str, int] | None:
    """Return the field that states how many records there are in all, and the number; None where none does."""
    places = [("", body), *((f"{name}.", value) for name, value in body.items() if isinstance(value, dict))]
    for prefix, holder in places:
        for name, value in holder.items():
            if re.fullmatch(r"total(?:_?(?:count|records|results|items))?", name, re.IGNORECASE) and type(value) is int:
                return prefix + name, value
    return None


def guess_cursor(token: str, *, read: int, last: JSON, shape: Shape | None) -> tuple[str, str]:
    """Return what a cursor seems to be, ``offset``, ``keyset`` or ``opaque``, and what speaks for it; only a hint.

    ``token`` followed the first page, of ``read`` records, of which ``last`` is the last.
    """
    texts = [token, *_decoded(token)]
    marks = _marks_of(last, shape)
    return next(
        chain(
            (("offset", f"it is {read}, the records read before") for text in texts if text.strip() == str(read)),
            (("offset", "it is a page number") for text in texts if text.strip() in {"1", "2"}),
            (("keyset", f"it holds {mark!r} of the last record") for text in texts for mark in marks if mark in text),
            (("offset", f"it holds the word {word!r}") for text in texts for word in _OFFSET_WORDS.findall(text)),
            (("keyset", f"it holds the word {word!r}") for text in texts for word in _KEYSET_WORDS.findall(text)),
            (  # after the words: the place of a record in a keyset may be this number too
                ("offset", f"it holds {read}, the records read before")
                for text in texts
                if str(read) in re.findall(r"\d+", text)
            ),
        ),
        ("opaque", "it shows nothing of its kind"),
    )


def _decoded(token: str) -> list[str]:
    texts = []
    for part in token.split("."):
        padded = part.rstrip("=").encode() + b"=" * (-len(part.rstrip("=")) % 4)
        try:
            raw = base64.b64decode(padded.replace(b"-", b"+").replace(b"_", b"/"), validate=True)
        except (binascii.Error, ValueError):
            continue
        texts.append(raw.decode("latin-1"))
    return texts


def _marks_of(record: JSON, shape: Shape | None) -> list[str]:
    """Return the texts by which a keyset cursor may name a record; short numbers could be anything."""
    if shape is None:
        return []
    marks = []
    for place in (shape.key[-1], shape.updated_at, shape.created_at):
        value = pointer.resolve(record, pointer.parse(place)) if place else pointer.MISSING
        if isinstance(value, str | int):
            marks.append(str(value))
        if place in (shape.updated_at, shape.created_at) and (moment := parse_moment(value)) is not None:
            micros = to_micros(moment)
            marks += [str(micros), str(micros // 1000), str(micros // 1_000_000)]
    return [mark for mark in marks if len(mark) >= 4]  # noqa: PLR2004  # fewer characters stand anywhere by chance


def suggest_key(records: Sequence[JSON]) -> tuple[str, ...] | None:
    """Return the member, or the two members, whose values are unique in all records; None where none are.

    For records whose identity has none of the usual names; members that are called like identities come first.
    """
    names = [name for name in (records[0] if records else {}) if _is_scalar_in_all(name, records)]
    names.sort(key=lambda name: not _IDENTIFYING.search(name))
    named = [name for name in names if _IDENTIFYING.search(name)]
    for candidate in (*((name,) for name in names), *combinations(named, 2)):
        if len({tuple(record[name] for name in candidate) for record in records}) == len(records):
            return tuple(pointer.join([name]) for name in candidate)
    return None


def _is_scalar_in_all(name: str, records: Sequence[JSON]) -> bool:
    values = [record.get(name) for record in records]
    is_scalar = all(type(each) is int or (type(each) is str and 0 < len(each) <= _LONGEST_ID) for each in values)
    return is_scalar and not all(map(_is_time, values))  # a time may be unique by chance, and is no identity


class Uniqueness(msgspec.Struct, frozen=True):
    """How well a key identifies records."""

    records: int
    present: int
    doubles: int  # how many keys came more than once
    kinds: tuple[str, ...]  # what the components are: ``string``, ``integer``

    @property
    def holds(self) -> bool:
        return self.present == self.records and not self.doubles


def count_keys(records: Sequence[JSON], key: Sequence[str]) -> Uniqueness:
    tokens = [pointer.parse(part) for part in key]
    seen: Counter[str] = Counter()
    kinds: set[str] = set()
    for _, found in find_keys(records, tokens):
        seen[found.text] += 1
        parts = found.id if isinstance(found.id, list) else [found.id]
        kinds |= {"integer" if type(part) is int else "string" for part in parts}
    doubles = sum(count > 1 for count in seen.values())
    return Uniqueness(len(records), sum(seen.values()), doubles, tuple(sorted(kinds)))


class Stamps(msgspec.Struct, frozen=True):
    """How timestamps are written, and what they say."""

    present: int
    forms: tuple[str, ...]
    """How they name their zone, ``Z``, ``+00:00``, ``+02:00``, ``no zone`` or ``epoch``; the usual one first."""
    digits: int  # the most digits after the second that say something: 0 for s, 3 for ms, 6 for µs
    oldest: datetime
    newest: datetime
    ahead: int  # how many lie later than the service's clock

    @property
    def precision(self) -> str:
        return {0: "s", 3: "ms"}.get(self.digits, "µs")


def read_stamps(values: Iterable[JSON], now: datetime) -> Stamps | None:
    """Return how timestamps are written that the service gave at ``now`` at the latest; None: there are none."""
    moments = [(value, moment) for value in values if (moment := parse_moment(value)) is not None]
    if not moments:
        return None
    forms = Counter(_form_of(value) for value, _ in moments)
    times = [moment for _, moment in moments]
    return Stamps(
        present=len(moments),
        forms=tuple(form for form, _ in forms.most_common()),
        digits=max(_digits_of(value) for value, _ in moments),
        oldest=min(times),
        newest=max(times),
        ahead=sum(moment > now for moment in times),
    )


def _form_of(value: JSON) -> str:
    if not isinstance(value, str):
        return "epoch"
    zone = _ZONE.search(value[10:])
    return "no zone" if zone is None else zone[0].upper()


def _digits_of(value: JSON) -> int:
    """Return 0, 3 or 6: how finely a timestamp is written, trailing zeros left out."""
    if not isinstance(value, str):
        moment = parse_moment(value)
        return 3 if moment is not None and moment.microsecond else 0
    fraction = _FRACTION.search(value)
    digits = len(fraction[1].rstrip("0")) if fraction else 0
    return min(-(-digits // 3) * 3, 6)


def find_times(records: Sequence[JSON]) -> list[str]:
    """Return the pointers to members that hold a time written as text in every record, for an operator to choose."""
    first = records[0] if records else {}
    return [pointer.join([name]) for name in first if all(_is_time(record.get(name)) for record in records)]


def _is_time(value: JSON) -> bool:
    return isinstance(value, str) and parse_moment(value) is not None


def find_orders(records: Sequence[JSON], shape: Shape) -> list[str]:
    """Return every order that records stand in: ``key ascending``, ``/updated_at descending`` …; none for too few.

    Times may repeat; keys are compared as text and with their numbers as numbers.
    """
    orders = []
    columns: list[tuple[str, list[JSON]]] = []
    for place in (shape.updated_at, shape.created_at):
        if place:
            path = pointer.parse(place)
            columns.append((place, [parse_moment(pointer.resolve(record, path)) for record in records]))
    ids = [key.id for _, key in find_keys(records, [pointer.parse(part) for part in shape.key])]
    if len(ids) == len(records):
        columns.append(("key", [_natural(each) for each in ids]))
        columns.append(("key as text", [str(each) for each in ids]))
    for name, values in columns:
        if None in values or len(set(values)) < 3:  # noqa: PLR2004  # two are in order by chance
            continue
        if all(earlier <= later for earlier, later in pairwise(values)):
            orders.append(f"{name} ascending")
        elif all(earlier >= later for earlier, later in pairwise(values)):
            orders.append(f"{name} descending")
    return orders


def _natural(identity: JSON) -> tuple[tuple[int, int, str], ...]:
    """Return a key so that ``shp_9`` comes before ``shp_10``."""
    text = "\0".join(map(str, identity)) if isinstance(identity, list) else str(identity)
    return tuple(
        (1, int(part), "") if part.isdecimal() and part.isascii() else (0, 0, part)
        for part in re.split(r"(\d+)", text)
        if part
    )


def clock_offset(answers: Iterable[Response]) -> tuple[timedelta, timedelta] | None:
    """Return by how much the service's clock is ahead of ours, at least and at most; None where no answer has a Date.

    ``Date`` is whole seconds, so each answer tells it within a second and a round trip, and several tell it better.
    """
    bounds = []
    for answer in answers:
        try:
            date = parsedate_to_datetime(answer.headers.get("date", ""))
            bounds.append((date - answer.answered_at, date + _DATE_RESOLUTION - answer.sent_at))
        except (ValueError, TypeError):  # none, or one without a zone
            continue
    if not bounds:
        return None
    least, most = max(low for low, _ in bounds), min(high for _, high in bounds)
    return (least, most) if least <= most else bounds[-1]


def count_foreign(answers: Sequence[Response]) -> int | None:
    """Return how many requests others made with the key between ours; None where the headers do not tell."""
    told = [
        (answer.headers.get("x-ratelimit-reset"), allowance.remaining)
        for answer in answers
        if (allowance := read_allowance(answer)) is not None
    ]
    if len(told) < 2:  # noqa: PLR2004  # it shows between two answers
        return None
    return sum(
        max(0, earlier - later - 1)
        for (window, earlier), (next_window, later) in pairwise(told)
        if window == next_window
    )
