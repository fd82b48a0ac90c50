"""How records are written: which fields hold id and timestamp, in which form, and what the timestamp says."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from random import Random
from re import Match
from typing import Final

from dockbell.errors import ConfigError
from dockbell.sandbox.catalog import RESOURCES, Resource
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.moments import TICKS, to_micros, write_stamp
from dockbell.sandbox.records import Record
from dockbell.sandbox.settings import Settings
from dockbell.sandbox.table import Row

_FUTURE: Final = to_micros(datetime(2099, 1, 1, tzinfo=UTC))
_YEAR: Final = 365 * 86_400_000_000
_REFERENCE_PREFIXES: Final = {b"shipment": b"shp_", b"item": b"itm_", b"warehouse": b"whs_"}
_STRING_REFERENCE: Final = re.compile(rb'"(shipment|item|warehouse)_id":"[a-z]{3}_(\d+)"')
_INTEGER_REFERENCE: Final = re.compile(rb'"(shipment|item|warehouse)_id":(\d+)')


class Form:
    """How records are written: which fields hold id and timestamp, and which time the timestamp says.

    Attributes:
        latest: The latest time of any record, whatever its timestamp says.
        extras: Fields that every record has besides its own, at its end.
    """

    def __init__(self, settings: Settings, dice: Random) -> None:
        options = settings.options
        self.latest = 0
        self.extras: Record = {}
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

        Args:
            resource: What it is one of.
            number: Which one.
            record: What it says, without id and timestamp.
            at: Microseconds since 1970.
            old: The row that it replaces.
            is_new: It was made just now, and its ``created_at`` is the true one.

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
        raw = encode(body)
        return Row(number, identity, stamp, record.get("status"), terms, self.refer(raw))

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
        return Row(row.number, row.identity, stamp, row.status, row.terms, body)

    def name(self, row: Row) -> str:
        """Return a record's identity as clients see it: the id as text, or its parts joined by a comma."""
        if not self._integers:
            return row.identity
        return row.identity.replace("whs_", "") if "," in row.identity else str(row.number + 1)

    def identity(self, resource: Resource, name: str) -> str:
        """Return the identity of a record by its id as clients write it."""
        return f"{resource.prefix}{name}" if self._integers else name

    def refer(self, body: bytes) -> bytes:
        """Return JSON with the references to other records as clients see them."""
        return _STRING_REFERENCE.sub(rb'"\1_id":\2', body) if self._integers else body

    def _tell_creation(self, record: Record) -> Record:
        """Return a new record whose time of creation is said as its timestamp is, or not at all."""
        options = self._settings.options
        at = to_micros(datetime.fromisoformat(record["created_at"]))
        told = {} if options.created_at == "missing" else {"created_at": write_stamp(self._cut(at), options)}
        return {name: value for name, value in record.items() if name != "created_at"} | told

    def _date(self, at: int, old: Row | None) -> int:
        """Return the timestamp of a record written at a time."""
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
