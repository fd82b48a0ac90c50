"""Changes made on request: to chosen records, to many on one tick, or to all of them by a deploy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import islice
from re import Match
from typing import Final, NamedTuple

from dockbell.errors import ConfigError
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.table import Row
from dockbell.sandbox.world import World


class _Edit(NamedTuple):
    """What of a record's JSON is replaced by what."""

    pattern: re.Pattern[bytes]
    turn: Callable[[Match[bytes]], bytes]


def _more(found: Match[bytes]) -> bytes:
    return b"%s%d" % (found[1], int(found[2]) + 1)


def _other_priority(found: Match[bytes]) -> bytes:
    return found[1] + (b'"standard"' if found[2] == b'"express"' else b'"express"')


_EDITS: Final = {
    "shipments": _Edit(re.compile(rb'("priority":)("[a-z]+")'), _other_priority),
    "packages": _Edit(re.compile(rb'("scan_count":)(\d+)'), _more),
    "items": _Edit(re.compile(rb'("reorder_point":)(\d+)'), _more),
    "stock": _Edit(re.compile(rb'("safety_stock":)(\d+)'), _more),
    "warehouses": _Edit(re.compile(rb'("used":)(\d+)'), _more),
}


def edit_body(resource: str, body: bytes) -> bytes:
    """Return a record's JSON with one small field changed."""
    pattern, turn = _EDITS[resource]
    return pattern.sub(turn, body, count=1)


class Edits:
    """Changes records as told, all that belong together on one tick, and returns how many they were."""

    def __init__(self, world: World) -> None:
        self._world = world

    def edit(self, resource: str, count: int = 1, identity: str | None = None) -> int:
        """Change one field of the oldest ``count`` records of a resource, or of one record.

        Raises:
            LookupError: There is no record with this identity.
        """
        at = self._world.next_time()
        redate = self._world.form.redate
        rows = (
            (resource, row.number, redate(row, edit_body(resource, row.body), at))
            for row in self._find(resource, count, identity)
        )
        return self._world.apply(at, rows)

    def touch(self, resource: str, count: int = 1, identity: str | None = None) -> int:
        """Move the timestamp of the oldest ``count`` records of a resource, or of one record, and nothing else.

        Raises:
            LookupError: There is no record with this identity.
        """
        at = self._world.next_time()
        redate = self._world.form.redate
        rows = [(resource, row.number, redate(row, row.body, at)) for row in self._find(resource, count, identity)]
        return self._world.apply(at, rows)

    def delete(self, resource: str, count: int = 1, identity: str | None = None) -> int:
        """Delete the oldest ``count`` records of a resource, or one record, and nothing of what belongs to them.

        Raises:
            LookupError: There is no record with this identity.
        """
        rows = self._find(resource, count, identity)
        return self._world.apply(self._world.next_time(), [(resource, row.number, None) for row in rows])

    def deploy(self, field: str, value: object = None, *, dated: bool = False) -> int:
        """Give every record of every resource a new field at its end, those to come too.

        Args:
            field: Its name.
            value: The same for all: a string, a number, a flag or None.
            dated: Whether the records' timestamps move.

        Raises:
            ConfigError: Records have such a field, or the value is another one.
        """
        if isinstance(value, dict | list):
            raise ConfigError("sandbox: the value of a new field must not be an object or an array")
        world, form = self._world, self._world.form
        added = b",%s:%s}" % (encode(field), encode(value))
        tables = world.tables.items()
        if any(field in json.loads(row.body) for _, table in tables for row in islice(table.rows.values(), 1)):
            raise ConfigError(f"sandbox: records have a field {field!r} of their own; choose another name")
        at = world.next_time()
        rows = [
            (resource, row.number, form.redate(row, body, at) if dated else row._replace(body=body))
            for resource, table in tables
            for row in table.rows.values()
            for body in (row.body[:-1] + added,)
        ]
        form.extras[field] = value
        return world.apply(at, rows)

    def _find(self, resource: str, count: int, identity: str | None) -> list[Row]:
        table = self._world.tables[resource]
        if identity is None:
            return [table.rows[place[-1]] for place in table.places(changed=False)[:count]]
        found = next((row for row in table.rows.values() if self._world.form.name(row) == identity), None)
        if found is None:
            raise LookupError(f"there is no {identity!r} in {resource}")
        return [found]
