"""Events on one line for people: ``status: packed → shipped, carrier: ∅ → DHL``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from dockbell.core import pointer
from dockbell.core.counting import count_of
from dockbell.core.model import JSON, NOTICES, ChangeKind, StatementKind
from dockbell.core.moment import format_moment, parse_moment
from dockbell.core.printable import printable

NOTICE_SUBJECTS: Final = ("source", "sink", "feed", "process", "store", "server")
"""What a notice may be about: the member that names it."""
NOTHING: Final = "∅"
"""Stands where there is no value, which is not the same as null."""

_VALUE_WIDTH: Final = 32
_PLAIN: Final = re.compile(r"(?!(?:null|true|false)$)[^\W\d_][\w./:+-]*|\d{4}-\d\d-\d\dT[\d:.]+Z")
"""Text that needs no quotes: a word, a time."""


def narrate(event: JSON, *, width: int = 100) -> str:
    """Return an event on one line of at most ``width`` characters, with nothing unprintable in it.

    An update shows each changed place with its old and new value, times last, without those that moved to the record's
    own new timestamp. Other changes show the plain fields of the record, statements their details. Parts that do not
    fit are counted; values are cut to 32 characters in any case.
    """
    data = event["data"]
    if "statement" in data:
        return _fit([*_tell_statement(data)], width)
    if data.get("patch"):
        return _fit([*_tell_patch(data)], width)
    purged = ["purged"] if data.get("purged") else []
    if data["change"] == ChangeKind.DELETED:
        return _fit([str(data.get("reason", "gone")), *purged, *_tell_record(data.get("before"), data)], width)
    return _fit([*purged, *_tell_record(data.get("after"), data)], width)


def _tell_patch(data: JSON) -> Iterator[str]:
    """Yield the operations of a patch; its paths hold in ``before``, since it removes from the back of arrays."""
    own, times, others = [], [], []
    for operation in data["patch"]:
        tokens = pointer.parse(operation["path"])
        old = pointer.MISSING if operation["op"] == "add" else pointer.resolve(data["before"], tokens)
        new = operation.get("value", pointer.MISSING)
        told = f"{printable(operation['path'][1:]) or 'record'}: {_show(old)} → {_show(new)}"
        moment = _moment(new)
        if moment is None:
            others.append(told)
        elif _moment(old) and format_moment(moment) == data.get("modified_at"):
            own.append(told)
        else:
            times.append(told)
    yield from others + times or own


def _tell_record(record: JSON, data: JSON) -> Iterator[str]:
    """Yield the plain fields of a record, the status first; no times, nothing that the key says already."""
    if not isinstance(record, dict):
        return
    identity = data["id"] if isinstance(data["id"], list) else [data["id"]]
    for name in sorted(record, key=lambda name: name != "status"):
        value = record[name]
        is_plain = value is not None and not isinstance(value, list | dict) and value not in identity
        if is_plain and _moment(value) is None:
            yield f"{printable(name)}: {_show(value)}"


def _tell_statement(data: JSON) -> Iterator[str]:
    if data.get("resource") == NOTICES.resource:
        subject = next(f"{kind} {data[kind]}" for kind in NOTICE_SUBJECTS if kind in data)
        times = f", {data['count']} times" if data["count"] > 1 else ""
        yield f"{data['statement']}: {printable(subject)}: {printable(data['reason'])}{times}"
        return
    match data["statement"]:
        case StatementKind.RECONCILED:
            yield f"{data['verdict']}: {count_of(data['records'], 'record')} on {count_of(data['pages'], 'page')}"
            yield from (f"{data[kind]} {kind}" for kind in ("created", "updated", "deleted", "restored") if data[kind])
            yield f"{data['missed']} missed by polling"
        case StatementKind.GAP:
            yield f"{data['reason']}: blind from {data['from'] or 'an unknown time'} to {data['to']}"
        case StatementKind.REBASELINED:
            yield "read settings changed: " + ", ".join(map(printable, data["parts"]))
        case StatementKind.HELD:
            yield f"{data['reason']}: {count_of(data['count'], 'record')} waiting for an operator since {data['since']}"
            yield from map(printable, data.get("paths", ()))
        case newer:
            yield printable(newer)


def _moment(value: JSON) -> datetime | None:
    return parse_moment(value) if isinstance(value, str) else None  # a number is rather an amount


def _fit(parts: Sequence[str], width: int) -> str:
    line = ", ".join(parts)
    if len(line) <= width:
        return line
    line, left = parts[0], len(parts) - 1
    for part in parts[1:]:
        if len(line) + len(part) + len(f", , +{left} more") > width:
            break
        line, left = f"{line}, {part}", left - 1
    more = f", +{left} more" if left else ""
    return _cut(line, width - len(more)) + more


def _show(value: JSON) -> str:
    return _cut(_write(value), _VALUE_WIDTH)


def _write(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return value if _PLAIN.fullmatch(value) else printable(msgspec.json.encode(value).decode())
        case list():
            return f"[{', '.join(map(_write, value))}]"
        case dict():
            return f"{{{', '.join(f'{printable(name)}: {_write(item)}' for name, item in value.items())}}}"
    return NOTHING if value is pointer.MISSING else str(value)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
