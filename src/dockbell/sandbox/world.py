"""All records of the sandbox, what is shown of them, and the log of their changes.

A business step reads and writes several records through one :class:`Step`, all stamped with one time, later than every
time before it; each touched record is one logged change. With late visibility, or a replica that lags, the tables that
are shown follow the true ones.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from dockbell.errors import ConfigError
from dockbell.sandbox.form import Form, Record, encode, format_micros, from_micros, to_micros
from dockbell.sandbox.options import Clock, SandboxOptions, Settings
from dockbell.sandbox.records import edit_body
from dockbell.sandbox.table import RESOURCES, Replica, Row, Table

Kind: TypeAlias = Literal["created", "updated", "deleted", "restored"]

_KEPT_DELETIONS: Final = 200


class LoggedChange(msgspec.Struct, frozen=True):
    """One change of one record, as it was made."""

    sequence: int  # counts the changes from 1, without gaps
    # True time of the business step, by the sandbox's clock; what the record's timestamp says unless options have it
    # otherwise. It can be read ``late_visibility`` later.
    at: datetime
    resource: str  # ``shipments`` and so on
    identity: str  # the id as text; for composite keys its parts joined by a comma
    kind: Kind  # ``restored`` is the return of a deleted record
    before: bytes | None  # the record's raw JSON before, None where there was none
    after: bytes | None  # the record's raw JSON after, None where there is none


class World:
    """All records and the log of their changes; its methods return how many records they have changed."""

    def __init__(self, settings: Settings, form: Form, tables: dict[str, Table], clock: Clock, dice: Random) -> None:
        self.form = form
        self.tables = tables  # the true state, by resource
        self.sequence = 0  # the number of the last change
        self._log: deque[LoggedChange] = deque(maxlen=settings.options.keep_changes)
        self._settings = settings
        self._clock = clock
        self._dice = dice
        self._last = form.latest
        self._next_numbers = {name: max(table.rows, default=-1) + 1 for name, table in tables.items()}
        self._deleted: deque[list[tuple[str, Row]]] = deque(maxlen=_KEPT_DELETIONS)
        self._visible: Replica | None = None
        self._lagging: Replica | None = None
        self._embedded: Replica | None = None
        self._asked = 0
        self._follow(settings.options)
        settings.listeners.append(self._follow)

    def shown(self, kind: str) -> dict[str, Table]:
        """Return the tables as the next request of this :data:`~dockbell.sandbox.requests.Kind` reads them."""
        if self._visible is None and self._lagging is None:
            return self.tables
        options, now = self._settings.options, to_micros(self._clock())
        self._asked += 1
        lagging = self._lagging and self._lagging.at(now - round(options.replica_lag * 1_000_000))
        visible = self._visible.at(now) if self._visible else self.tables
        is_turn = self._asked % options.replicas == 0 if options.replica_for == "turns" else kind == options.replica_for
        return lagging if lagging and options.replicas > 1 and is_turn else visible

    def embedded(self, shown: Mapping[str, Table]) -> Mapping[str, Table]:
        """Return the tables that embedded records are taken from, beside the tables that the request reads."""
        if self._embedded is None:
            return shown
        return self._embedded.at(to_micros(self._clock()) - round(self._settings.options.embed_lag * 1_000_000))

    def _follow(self, options: SandboxOptions) -> None:
        if options.late_visibility and self._visible is None:
            self._visible = Replica(self.tables)
        if options.replicas > 1 and self._lagging is None:
            self._lagging = self._visible.copy() if self._visible else Replica(self.tables)
        if options.embed_lag and self._embedded is None:
            self._embedded = self._visible.copy() if self._visible else Replica(self.tables)

    def step(self) -> Step:
        return Step(self, self.next_time())

    def next_time(self) -> int:
        """Return the time of the next business step, microseconds since 1970, later than the one before."""
        self._last = max(to_micros(self._clock()), self._last + 1)
        return self._last

    def next_number(self, resource: str) -> int:
        """Return a number that no record of the resource has had."""
        self._next_numbers[resource] += 1
        return self._next_numbers[resource] - 1

    def apply(self, at: int, writes: Iterable[tuple[str, int, Row | None]], kind: Kind | None = None) -> int:
        deleted = []
        written: defaultdict[str, dict[int, Row | None]] = defaultdict(dict)
        for resource, number, row in self._bump(at, list(writes)):
            before = self.tables[resource].rows.get(number)
            known = row or before
            assert known is not None
            self.sequence += 1
            change = LoggedChange(
                sequence=self.sequence,
                at=from_micros(at),
                resource=resource,
                identity=self.form.name(known),
                kind=_find_kind(before, row, kind),
                before=before and before.body,
                after=row and row.body,
            )
            self._log.append(change)
            written[resource][number] = row
            if before and not row:
                deleted.append((resource, before))
        if deleted:
            self._deleted.append(deleted)
        for resource, rows in written.items():
            self.tables[resource].write(rows)
        self._show_later(at, written)
        return sum(map(len, written.values()))

    def _bump(self, at: int, writes: list[tuple[str, int, Row | None]]) -> list[tuple[str, int, Row | None]]:
        """Return writes with those that they cause: of owners whose timestamp alone moves."""
        if not self._settings.options.bump_share:
            return writes
        written = {(resource, number) for resource, number, _ in writes}
        for resource, number, row in list(writes):
            owner, known = RESOURCES[resource].owner, row or self.tables[resource].rows.get(number)
            found = self.tables[owner].find(known.terms[-1] or "") if owner and known is not None else None
            options = self._settings.options
            if found is None or (owner, found.number) in written or options.bump_most == 0:
                continue
            if options.bump_share == 1 or self._dice.random() < options.bump_share:
                written.add((owner, found.number))
                writes.append((owner, found.number, self.form.redate(found, found.body, at)))
                self._settings.count_down("bump_most")
        return writes

    def edit(self, resource: str, count: int = 1, identity: str | None = None) -> int:
        return self._rewrite(resource, count, identity, edit_body)

    def touch(self, resource: str, count: int = 1, identity: str | None = None) -> int:
        return self._rewrite(resource, count, identity, lambda _, body: body)

    def _rewrite(self, resource: str, count: int, identity: str | None, change: Callable[[str, bytes], bytes]) -> int:
        at = self.next_time()
        rows = self._find(resource, count, identity)
        return self.apply(
            at, ((resource, row.number, self.form.redate(row, change(resource, row.body), at)) for row in rows)
        )

    def delete(self, resource: str, count: int = 1, identity: str | None = None) -> int:
        rows = self._find(resource, count, identity)
        return self.apply(self.next_time(), [(resource, row.number, None) for row in rows])

    def _find(self, resource: str, count: int, identity: str | None) -> list[Row]:
        """Return the oldest records of a resource, or the one with an identity."""
        table = self.tables[resource]
        if identity is None:
            return [table.rows[place[-1]] for place in table.places(changed=False)[:count]]
        found = table.find(self.form.identity(table.resource, identity))
        if found is None:  # composite keys are in no order
            found = next((row for row in table.rows.values() if self.form.name(row) == identity), None)
        if found is None:
            raise LookupError(f"there is no {identity!r} in {resource}")
        return [found]

    def deploy(self, field: str, value: object = None, *, dated: bool = False) -> int:
        """Give every record a new field; see :meth:`Sandbox.deploy`."""
        if isinstance(value, dict | list):
            raise ConfigError("sandbox: the value of a new field must not be an object or an array")
        added = b",%s:%s}" % (encode(field), encode(value))
        if any(
            field in json.loads(row.body) for table in self.tables.values() for row in islice(table.rows.values(), 1)
        ):
            raise ConfigError(f"sandbox: records have a field {field!r} of their own; choose another name")
        at = self.next_time()
        rows = [
            (resource, row.number, self.form.redate(row, body, at) if dated else row._replace(body=body))
            for resource, table in self.tables.items()
            for row in table.rows.values()
            for body in (row.body[:-1] + added,)
        ]
        self.form.extras[field] = value
        return self.apply(at, rows)

    def restore(self) -> int:
        """Undo the last deletion that is still known, all its records at a time."""
        if not self._deleted:
            return 0
        at = self.next_time()
        returned = self._deleted.pop()
        rows = [
            (resource, old.number, self.form.encode(resource, old.number, self.form.decode(old), at))
            for resource, old in returned
        ]
        return self.apply(at, rows, "restored")

    def changes(self, after: int = 0) -> list[LoggedChange]:
        missing = self.sequence - after - len(self._log)
        if missing > 0:
            raise LookupError(f"{missing} changes after {after} are no longer kept; ask more often or set keep_changes")
        return list(islice(self._log, -missing, None))

    def _show_later(self, at: int, written: Mapping[str, Mapping[int, Row | None]]) -> None:
        replicas = [replica for replica in (self._visible, self._lagging, self._embedded) if replica]
        if not replicas:
            return
        options = self._settings.options
        # Drawn for a step that changed nothing, too: the later draws do not depend on it.
        is_late = options.late_share == 1 or self._dice.random() < options.late_share
        visible = min(at, to_micros(self._clock())) + round(options.late_visibility * 1_000_000 * is_late)
        for replica in replicas:
            for resource, rows in written.items():
                for number, row in rows.items():
                    replica.put(visible, resource, number, row)


def _find_kind(before: Row | None, after: Row | None, kind: Kind | None) -> Kind:
    """Return what a write is called: as its step says, but for an owner that it only bumps."""
    if before is not None and after is not None:
        return "updated"
    return kind or ("created" if after else "deleted")


class Step:
    """One business step: reads and changes records, all with its time; nothing counts before :meth:`commit`."""

    def __init__(self, world: World, at: int) -> None:
        self.at = at
        self._world = world
        self._drafts: dict[tuple[str, int], Record | None] = {}

    @property
    def time(self) -> str:
        return format_micros(self.at)

    def open(self, resource: str, number: int) -> Record:
        """Return a record, to be changed in place."""
        draft = self._drafts.get((resource, number))
        if draft is None:
            row = self._world.tables[resource].rows[number]
            draft = self._drafts[resource, number] = self._world.form.decode(row)
        return draft

    def add(self, resource: str, record: Record, number: int | None = None) -> str:
        """Add a new record, under a number from :meth:`World.next_number`, and return its id."""
        number = self._world.next_number(resource) if number is None else number
        self._drafts[resource, number] = record
        return f"{RESOURCES[resource].prefix}{number + 1}"

    def delete(self, resource: str, number: int) -> None:
        self._drafts[resource, number] = None

    def commit(self) -> int:
        """Write all that differs from before and return how many records changed."""
        form = self._world.form
        writes: list[tuple[str, int, Row | None]] = []
        for (resource, number), draft in self._drafts.items():
            old = self._world.tables[resource].rows.get(number)
            if draft is None:
                writes.append((resource, number, None))
            elif old is None or form.decode(old) != draft:
                row = form.encode(resource, number, draft, self.at, old, is_new=old is None)
                writes.append((resource, number, row))
        return self._world.apply(self.at, writes)
