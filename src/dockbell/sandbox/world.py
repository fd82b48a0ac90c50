"""All records of the sandbox, what is shown of them, and the log of their changes.

A business step reads and writes several records through one :class:`Step`, all stamped with one time, later than every
time before it; each touched record is one logged change. With late visibility, or a replica that lags, the tables that
are shown follow the true ones.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from random import Random
from typing import Final, Literal, TypeAlias

from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.form import Form
from dockbell.sandbox.moments import format_micros, from_micros, to_micros
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.records import Record
from dockbell.sandbox.replica import Replica
from dockbell.sandbox.settings import Clock, Settings
from dockbell.sandbox.table import Row, Table

Kind: TypeAlias = Literal["created", "updated", "deleted", "restored"]

_KEPT_DELETIONS: Final = 200


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change of one record, as it was made.

    Attributes:
        sequence: Counts the changes from 1, without gaps.
        at: True time of the business step, by the sandbox's clock; what the record's timestamp says unless options
            have it otherwise. It can be read ``late_visibility`` later.
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


class World:
    """All records and the log of their changes.

    Attributes:
        form: How records are written.
        tables: The true state, by resource.
        log: The latest changes, oldest first.
        sequence: The number of the last change, 0 before the first.
    """

    def __init__(self, settings: Settings, form: Form, tables: dict[str, Table], clock: Clock, dice: Random) -> None:
        self.form = form
        self.tables = tables
        self.log: deque[LoggedChange] = deque(maxlen=settings.options.keep_changes)
        self.sequence = 0
        self._settings = settings
        self._clock = clock
        self._dice = dice
        self._last = form.latest
        self._next_numbers = {name: max(table.rows, default=-1) + 1 for name, table in tables.items()}
        self._deleted: deque[list[tuple[str, Row]]] = deque(maxlen=_KEPT_DELETIONS)
        self._visible: Replica | None = None
        self._lagging: Replica | None = None
        self._asked = 0
        self._follow(settings.options)
        settings.listeners.append(self._follow)

    def shown(self, kind: str) -> dict[str, Table]:
        """Return the tables as the next request, of a kind as in :mod:`~dockbell.sandbox.aim`, reads them."""
        options = self._settings.options
        if self._visible is None and self._lagging is None:
            return self.tables
        now = to_micros(self._clock())
        self._asked += 1
        lagging = self._lagging and self._lagging.at(now - round(options.replica_lag * 1_000_000))
        visible = self._visible.at(now) if self._visible else self.tables
        is_its_turn = (
            self._asked % options.replicas == 0 if options.replica_for == "turns" else kind == options.replica_for
        )
        return lagging if lagging and options.replicas > 1 and is_its_turn else visible

    def _follow(self, options: SandboxOptions) -> None:
        """Begin to keep what is shown apart from what is true, where the options ask for it."""
        if options.late_visibility and self._visible is None:
            self._visible = Replica(self.tables)
        if options.replicas > 1 and self._lagging is None:
            self._lagging = self._visible.copy() if self._visible else Replica(self.tables)

    def step(self) -> Step:
        """Begin a business step at the clock's time, or just after the last one where the clock has not moved on."""
        return Step(self, self.next_time())

    def next_time(self) -> int:
        """Return the time of the next business step, microseconds since 1970."""
        self._last = max(to_micros(self._clock()), self._last + 1)
        return self._last

    def next_number(self, resource: str) -> int:
        """Return a number that no record of the resource has had."""
        self._next_numbers[resource] += 1
        return self._next_numbers[resource] - 1

    def apply(self, at: int, writes: Iterable[tuple[str, int, Row | None]], kind: Kind | None = None) -> int:
        """Write the rows of a business step, log each change, and return how many there were."""
        deleted = []
        written: defaultdict[str, dict[int, Row | None]] = defaultdict(dict)
        for resource, number, row in writes:
            before = self.tables[resource].rows.get(number)
            self._note(at, resource, kind or _kind(before, row), before, row)
            written[resource][number] = row
            if before and not row:
                deleted.append((resource, before))
        if deleted:
            self._deleted.append(deleted)
        self._write(at, written)
        return sum(map(len, written.values()))

    def restore(self) -> int:
        """Undo the last deletion that is still known, all its records at a time; return how many came back."""
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
        """Return the changes with a sequence above ``after``, oldest first.

        Raises:
            LookupError: Some of them are no longer kept.
        """
        missing = self.sequence - after - len(self.log)
        if missing > 0:
            raise LookupError(f"{missing} changes after {after} are no longer kept; ask more often or set keep_changes")
        return list(islice(self.log, -missing, None))

    def _write(self, at: int, written: Mapping[str, Mapping[int, Row | None]]) -> None:
        for resource, rows in written.items():
            self.tables[resource].write(rows)
        replicas = [replica for replica in (self._visible, self._lagging) if replica]
        if replicas:
            visible = min(at, to_micros(self._clock())) + self._delay()
            for replica in replicas:
                for resource, rows in written.items():
                    for number, row in rows.items():
                        replica.put(visible, resource, number, row)

    def _delay(self) -> int:
        options = self._settings.options
        late = options.late_share == 1 or self._dice.random() < options.late_share
        return round(options.late_visibility * 1_000_000) if late else 0

    def _note(self, at: int, resource: str, kind: Kind, before: Row | None, after: Row | None) -> None:
        self.sequence += 1
        row = after or before
        assert row is not None
        self.log.append(
            LoggedChange(
                self.sequence,
                from_micros(at),
                resource,
                self.form.name(row),
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
                yield resource, number, form.encode(resource, number, draft, self.at, old, is_new=old is None)


def _kind(before: Row | None, after: Row | None) -> Kind:
    return "updated" if after and before else "created" if after else "deleted"
