"""How records are written: as compact JSON, with which fields for id and timestamp, and what the timestamp says."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from random import Random
from re import Match
from typing import Any, Final, TypeAlias

from dockbell.errors import ConfigError
from dockbell.sandbox.options import SandboxOptions, Settings
from dockbell.sandbox.table import RESOURCES, Resource, Row

Record: TypeAlias = dict[str, Any]
"""A record without its id and its timestamp."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TICKS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}
"""Microseconds of each precision that timestamps can have."""
_DIGITS: Final = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "min": "seconds"}
_OFFSETS: Final = {"Z": 0, "none": 0, "+00:00": 0, "+02:00": 7_200_000_000, "-09:30": -34_200_000_000}


def to_micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of an aware time."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def format_micros(micros: int) -> str:
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write_stamp(micros: int, options: SandboxOptions) -> str | int | None:
    """Return a record's timestamp in the chosen form; it is already cut to its precision."""
    form, precision, offset = options.timestamp_form, options.timestamp_precision, options.timestamp_offset
    if (form, precision, offset) == ("iso", "us", "Z"):
        return format_micros(micros)
    if form == "epoch":
        return micros // min(TICKS[precision], TICKS["s"])
    if form == "null":
        return None
    if form == "ctime":
        return from_micros(micros).ctime()
    local = from_micros(micros + _OFFSETS[offset]).replace(tzinfo=None).isoformat(timespec=_DIGITS[precision])
    if form == "date":
        return local[:10]
    return local if offset == "none" else local + offset


_FUTURE: Final = to_micros(datetime(2099, 1, 1, tzinfo=UTC))
_YEAR: Final = 365 * 86_400_000_000
_REFERENCE_PREFIXES: Final = {b"shipment": b"shp_", b"item": b"itm_", b"warehouse": b"whs_"}
_STRING_REFERENCE: Final = re.compile(rb'"(shipment|item|warehouse)_id":"[a-z]{3}_(\d+)"')
_INTEGER_REFERENCE: Final = re.compile(rb'"(shipment|item|warehouse)_id":(\d+)')


class Form:
    def __init__(self, settings: Settings, dice: Random) -> None:
        options = settings.options
        self.latest = 0  # time of any record, whatever its timestamp says
        self.extras: Record = {}  # fields that every record has at its end, besides its own
        self._settings = settings
        self._dice = dice
        self._id_field = options.id_field
        self._timestamp_field = options.timestamp_field or ""
        self._marker = b',"%s":' % self._timestamp_field.encode()
        self._composite = {"stock"} if options.stock_key == "composite" else set()
        self._integers = options.id_form == "integer"

    def encode(
        self, resource: str, number: int, record: Record, at: int, old: Row | None = None, *, is_new: bool = False
    ) -> Row:
        """Return the row of a record written at a time: id first, timestamp last.

        ``old`` is the row that it replaces; ``is_new`` says that its ``created_at`` is the true one.

        Raises:
            ConfigError: The record has a field of its own with the name of the id or timestamp field.
        """
        for name in (self._id_field, self._timestamp_field):
            if name in record:
                raise ConfigError(f"sandbox: {resource} have a field {name!r} of their own; choose another name")
        stamp = self._date(at, old)
        if is_new and self._settings.options.created_at != "true":
            record = self._tell_creation(record)
        kind = RESOURCES[resource]
        identity = f"{kind.prefix}{number + 1}"
        body: Record = {self._id_field: number + 1 if self._integers else identity}
        if resource in self._composite:
            identity, body = f"{record['sku']},{record['warehouse_id']}", {}
        body |= record
        if self._timestamp_field:
            body[self._timestamp_field] = write_stamp(stamp, self._settings.options)
        body |= self.extras
        terms = tuple(record[name] for name in (*kind.filters, *kind.links))
        return Row(number, identity, stamp, record.get("status"), terms, self.refer(encode(body)))

    def decode(self, row: Row) -> Record:
        """Return a row's record without id, timestamp and extras; the caller may change it."""
        body = _INTEGER_REFERENCE.sub(_to_string, row.body) if self._integers else row.body
        record: Record = json.loads(body)
        for name in (self._id_field, self._timestamp_field, *self.extras):
            record.pop(name, None)
        return record

    def redate(self, row: Row, body: bytes, at: int) -> Row:
        """Return a row with another body, written at a time: what :meth:`encode` does, without reading the record."""
        stamp = self._date(at, row)
        if self._timestamp_field:
            start = body.rindex(self._marker) + len(self._marker)
            end = body.find(b",", start)
            body = body[:start] + encode(write_stamp(stamp, self._settings.options)) + body[end if end > 0 else -1 :]
        return row._replace(stamp=stamp, body=body)

    def name(self, row: Row) -> str:
        """Return a record's identity as clients see it: the id as text, or its parts joined by a comma."""
        if not self._integers:
            return row.identity
        return row.identity.replace("whs_", "") if "," in row.identity else str(row.number + 1)

    def identity(self, resource: Resource, name: str) -> str:
        return f"{resource.prefix}{name}" if self._integers else name

    def refer(self, body: bytes) -> bytes:
        """Return JSON with references to other records as clients see them."""
        return _STRING_REFERENCE.sub(rb'"\1_id":\2', body) if self._integers else body

    def _tell_creation(self, record: Record) -> Record:
        options = self._settings.options
        at = to_micros(datetime.fromisoformat(record["created_at"]))
        told = {} if options.created_at == "missing" else {"created_at": write_stamp(self._cut(at), options)}
        return {name: value for name, value in record.items() if name != "created_at"} | told

    def _date(self, at: int, old: Row | None) -> int:
        options = self._settings.options
        self.latest = max(self.latest, at)
        if old is not None and options.silent_share and self._dice.random() < options.silent_share:
            return old.stamp
        if options.future_share and self._dice.random() < options.future_share:
            at = _FUTURE + at % _YEAR
        return self._cut(at)

    def _cut(self, at: int) -> int:
        """Return a time by the clock of the timestamps, cut to their precision."""
        options = self._settings.options
        at += round((options.timestamp_skew + options.clock_skew) * 1_000_000)
        return at - at % TICKS[options.timestamp_precision]


def _to_string(found: Match[bytes]) -> bytes:
    return b'"%s_id":"%s%s"' % (found[1], _REFERENCE_PREFIXES[found[1]], found[2])
