"""The sandbox, put together: records, activity and the API over them."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

from starlette.types import ASGIApp

from dockbell.sandbox.activity import Activity
from dockbell.sandbox.api import Api
from dockbell.sandbox.control import Control
from dockbell.sandbox.edits import Edits
from dockbell.sandbox.faults import Faults
from dockbell.sandbox.form import Form
from dockbell.sandbox.gate import Gate
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.records import Author
from dockbell.sandbox.seed import seed_tables
from dockbell.sandbox.settings import Clock, Settings
from dockbell.sandbox.transfer import Transfer
from dockbell.sandbox.world import LoggedChange, World


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Sandbox:
    """An implementation of the API with records that move.

    The records are built at once: about 20,000 a second.

    Args:
        options: How much it holds and how it behaves.
        now: The clock of timestamps, rate windows and ``Date``, as aware UTC times.

    Attributes:
        app: The ASGI application, for any ASGI server, :func:`~dockbell.sandbox.serve` or ``httpx.ASGITransport``.
        activity: Its ``rate`` in changes a second may be set at any time.
    """

    app: ASGIApp

    def __init__(self, options: SandboxOptions | None = None, *, now: Clock = _utc_now) -> None:
        options = options or SandboxOptions()
        self._settings = Settings(options, now)
        form = Form(self._settings, _dice(options, "stamps"))
        tables = seed_tables(options, Author(_dice(options, "records")), form)
        self._world = World(self._settings, form, tables, now, _dice(options, "visibility"))
        self._edits = Edits(self._world)
        self.activity = Activity(self._world, Author(_dice(options, "activity")), options.activity)
        control = Control(self._world, self.activity, self._edits, self._settings)
        api = Api(self._world, self.activity.orders, self._settings, now, _dice(options, "pages")).application(control)
        faults = Faults(Transfer(api, self._settings), api, self._settings, _dice(options, "faults"))
        self.app = Gate(faults, self._settings, now)

    @property
    def options(self) -> SandboxOptions:
        """Return the options in force."""
        return self._settings.options

    def set(self, **options: Any) -> None:
        """Change options while it runs; those with ``metadata["fixed"]`` stay as they were at the start.

        Raises:
            ConfigError: One is unknown, fixed, or has a value that cannot be used. Nothing is changed.
        """
        self._settings.change(**options)

    async def live(self) -> None:
        """Make changes at the rate of ``activity`` until cancelled."""
        await self.activity.live()

    def step(self, n: int = 1) -> int:
        """Make business steps at once, at the clock's now, until ``n`` records have changed or a few more.

        Returns:
            How many records have changed. Each change is stamped later than the one before, a microsecond where the
            clock stands still.
        """
        return self.activity.step(n)

    def edit(self, resource: str, n: int = 1, *, identity: str | None = None) -> int:
        """Change one field of the oldest ``n`` records of a resource on one tick, or of one record.

        Returns:
            How many records have changed.

        Raises:
            LookupError: There is no record with this identity.
        """
        return self._edits.edit(resource, n, identity)

    def touch(self, resource: str, n: int = 1, *, identity: str | None = None) -> int:
        """Move the timestamp of the oldest ``n`` records of a resource on one tick, or of one, and nothing else.

        Returns:
            How many records were touched; each is logged as updated.

        Raises:
            LookupError: There is no record with this identity.
        """
        return self._edits.touch(resource, n, identity)

    def delete(self, resource: str, n: int = 1, *, identity: str | None = None) -> int:
        """Delete the oldest ``n`` records of a resource on one tick, or one record, and nothing that belongs to them.

        Returns:
            How many records were deleted.

        Raises:
            LookupError: There is no record with this identity.
        """
        return self._edits.delete(resource, n, identity)

    def restore(self) -> int:
        """Undo the last deletion, whoever made it, and return how many records came back."""
        return self._world.restore()

    def deploy(self, field: str, value: object = None, *, dated: bool = False) -> int:
        """Give every record of every resource a new field with this value, those to come too.

        Args:
            field: Its name.
            value: A string, a number, a flag or None.
            dated: Whether the records' timestamps move.

        Returns:
            How many records have changed.

        Raises:
            ConfigError: Records have such a field, or the value is of another kind.
        """
        return self._edits.deploy(field, value, dated=dated)

    def changes(self, after: int = 0) -> list[LoggedChange]:
        """Return the logged changes with a sequence above ``after``, oldest first.

        Raises:
            LookupError: Some of them are no longer kept (``keep_changes``).
        """
        return self._world.changes(after)

    def records(self, resource: str) -> dict[str, bytes]:
        """Return the raw JSON of each record of a resource as it is after the last logged change, by identity.

        The identity is the id as text; where stock has a composite key, ``sku,warehouse_id``. None of the sandbox's own
        ids needs percent-encoding, so it is also dockbell's key string.
        """
        return {self._world.form.name(row): row.body for row in self._world.tables[resource].rows.values()}


def _dice(options: SandboxOptions, purpose: str) -> Random:
    return Random(f"{options.seed} {purpose}")  # noqa: S311  # repeatable, not secret
