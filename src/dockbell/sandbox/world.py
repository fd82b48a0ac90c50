"""All records of the sandbox, what is shown of them, and the log of their changes.

A business step reads and writes several records through one :class:`Step`, all stamped with one time, later than every
time before it; each touched record is one logged change. With late visibility the tables that are shown follow the
true ones by that much.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, Literal, TypeAlias

from dockbell.errors import ConfigError
from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.moments import format_micros, from_micros, to_micros
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.records import Record
from dockbell.sandbox.table import Row, Table

Clock: TypeAlias = Callable[[], datetime]
Kind: TypeAlias = Literal["created", "updated", "deleted", "restored"]

_KEPT_DELETIONS: Final = 200


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change of one record, as it was made.

    Attributes:
        sequence: Counts the changes from 1, without gaps.
        at: Time of the business step; the record's timestamp, unless it was deleted. It can be read
            ``late_visibility`` later.
        resource: ``shipments`` and so on.
        identity: The id as text; for composite keys its parts joined by a comma.
        kind: ``restored`` is the return of a deleted record.
        before: The record's raw JSON before, None where there was none.
        after: The record's raw JSON after, None where there is none.
    """

    sequence: int
    at: datetime
    resource: str
    identity: str
    kind: Kind
    before: bytes | None
    after: bytes | None


class Form:
    """How records are written: which fields hold id and timestamp."""

    def __init__(self, options: SandboxOptions) -> None:
        self._id_field = options.id_field
        self._timestamp_field = options.timestamp_field or ""
        self._composite = {"stock"} if options.stock_key == "composite" else set()

    def encode(self, resource: str, number: int, record: Record, stamp: int) -> Row:
        """Return the row of a record: id first, timestamp last.

        Raises:
            ConfigError: The record has a field of its own with the name of the id or timestamp field.
        """
        for name in (self._id_field, self._timestamp_field):
            if name in record:
                raise ConfigError(f"sandbox: {resource} have a field {name!r} of their own; choose another name")
        kind = RESOURCES[resource]
        identity = f"{kind.prefix}{number + 1}"
        body: Record = {self._id_field: identity}
        if resource in self._composite:
            identity, body = f"{record['sku']},{record['warehouse_id']}", {}
        body |= record
        if self._timestamp_field:
            body[self._timestamp_field] = format_micros(stamp)
        terms = tuple(record[name] for name in (*kind.filters, *kind.links))
        return Row(number, identity, stamp, record.get("status"), terms, encode(body))

    def decode(self, row: Row) -> Record:
        """Return a row's record without id and timestamp; the caller may change it."""
        record: Record = json.loads(row.body)
        record.pop(self._id_field, None)
        record.pop(self._timestamp_field, None)
        return record


class World:
    """All records and the log of their changes.

    Attributes:
        form: How records are written.
        tables: The true state, by resource.
        log: The latest changes, oldest first.
        sequence: The number of the last change, 0 before the first.
    """

    def __init__(self, options: SandboxOptions, form: Form, tables: dict[str, Table], clock: Clock) -> None:
        self.form = form
        self.tables = tables
        self.log: deque[LoggedChange] = deque(maxlen=options.keep_changes)
        self.sequence = 0
        self._clock = clock
        self._last = max((row.stamp for table in tables.values() for row in table.rows.values()), default=0)
        self._next_numbers = {name: max(table.rows, default=-1) + 1 for name, table in tables.items()}
        self._deleted: deque[list[tuple[str, Row]]] = deque(maxlen=_KEPT_DELETIONS)
        self._late = round(options.late_visibility * 1_000_000)
        self._hidden: deque[tuple[int, str, int, Row | None]] = deque()
        self._shown = tables
        if self._late:
            self._shown = {name: Table(table.resource, table.rows.values()) for name, table in tables.items()}

    def shown(self) -> dict[str, Table]:
        """Return the tables as they can be read now."""
        now = to_micros(self._clock())
        while self._hidden and self._hidden[0][0] <= now:
            _, resource, number, row = self._hidden.popleft()
            _set(self._shown[resource], number, row)
        return self._shown

    def step(self) -> Step:
        """Begin a business step at the clock's time, or just after the last one where the clock has not moved on."""
        self._last = max(to_micros(self._clock()), self._last + 1)
        return Step(self, self._last)

    def next_number(self, resource: str) -> int:
        """Return a number that no record of the resource has had."""
        self._next_numbers[resource] += 1
        return self._next_numbers[resource] - 1

    def apply(self, at: int, writes: Iterable[tuple[str, int, Row | None]]) -> int:
        """Write the rows of a business step, log each change, and return how many there were."""
        deleted = []
        count = 0
        for resource, number, row in writes:
            before = self.tables[resource].rows.get(number)
            kind: Kind = "updated" if row and before else "created" if row else "deleted"
            self._write(at, resource, number, row)
            self._note(at, resource, kind, before, row)
            if before and not row:
                deleted.append((resource, before))
            count += 1
        if deleted:
            self._deleted.append(deleted)
        return count

    def restore(self) -> int:
        """Undo the last deletion that is still known, all its records at a time; return how many came back."""
        if not self._deleted:
            return 0
        step = self.step()
        returned = self._deleted.pop()
        for resource, old in returned:
            row = self.form.encode(resource, old.number, self.form.decode(old), step.at)
            self._write(step.at, resource, old.number, row)
            self._note(step.at, resource, "restored", None, row)
        return len(returned)

    def changes(self, after: int = 0) -> list[LoggedChange]:
        """Return the changes with a sequence above ``after``, oldest first.

        Raises:
            LookupError: Some of them are no longer kept.
        """
        missing = self.sequence - after - len(self.log)
        if missing > 0:
            raise LookupError(f"{missing} changes after {after} are no longer kept; ask more often or set keep_changes")
        return list(islice(self.log, -missing, None))

    def _write(self, at: int, resource: str, number: int, row: Row | None) -> None:
        _set(self.tables[resource], number, row)
        if self._late:
            self._hidden.append((at + self._late, resource, number, row))

    def _note(self, at: int, resource: str, kind: Kind, before: Row | None, after: Row | None) -> None:
        self.sequence += 1
        row = after or before
        assert row is not None
        self.log.append(
            LoggedChange(
                self.sequence,
                from_micros(at),
                resource,
                row.identity,
                kind,
                before and before.body,
                after and after.body,
            )
        )


class Step:
    """One business step: reads and changes records; nothing counts before :meth:`commit`.

    Attributes:
        at: Its time, microseconds since 1970; the timestamp of all it writes.
    """

    def __init__(self, world: World, at: int) -> None:
        self.at = at
        self._world = world
        self._drafts: dict[tuple[str, int], Record | None] = {}

    @property
    def time(self) -> str:
        """Return the step's time as records state it."""
        return format_micros(self.at)

    def open(self, resource: str, number: int) -> Record:
        """Return a record to change in place."""
        draft = self._drafts.get((resource, number))
        if draft is None:
            draft = self._world.form.decode(self._world.tables[resource].rows[number])
            self._drafts[resource, number] = draft
        return draft

    def add(self, resource: str, record: Record, number: int | None = None) -> str:
        """Add a new record, under a number from :meth:`World.next_number`, and return its id."""
        number = self._world.next_number(resource) if number is None else number
        self._drafts[resource, number] = record
        return f"{RESOURCES[resource].prefix}{number + 1}"

    def delete(self, resource: str, number: int) -> None:
        """Delete a record."""
        self._drafts[resource, number] = None

    def commit(self) -> int:
        """Write all that differs from before and return how many records changed."""
        return self._world.apply(self.at, list(self._differing()))

    def _differing(self) -> Iterable[tuple[str, int, Row | None]]:
        form = self._world.form
        for (resource, number), draft in self._drafts.items():
            old = self._world.tables[resource].rows.get(number)
            if draft is None:
                yield resource, number, None
            elif old is None or form.decode(old) != draft:
                yield resource, number, form.encode(resource, number, draft, self.at)


def _set(table: Table, number: int, row: Row | None) -> None:
    if row is None:
        table.drop(number)
    else:
        table.put(row)
