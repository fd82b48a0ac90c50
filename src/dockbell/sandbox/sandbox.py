"""The sandbox, put together: records, activity and the API over them."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from starlette.types import ASGIApp

from dockbell.sandbox.activity import Activity
from dockbell.sandbox.api import Api
from dockbell.sandbox.faults import Faults
from dockbell.sandbox.gate import Gate
from dockbell.sandbox.limits import Limits
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.records import Author
from dockbell.sandbox.seed import seed_tables
from dockbell.sandbox.world import Clock, Form, LoggedChange, World


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
        form = Form(options)
        tables = seed_tables(options, Author(_dice(options, "records")), form)
        self._world = World(options, form, tables, now)
        self.activity = Activity(self._world, Author(_dice(options, "activity")), options.activity)
        api = Api(self._world, self.activity, options).application()
        limits = Limits(options.requests_per_minute, options.orders_per_minute)
        self.app = Gate(Faults(api, options, _dice(options, "faults")), options.api_keys, limits, now)

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
        return {row.identity: row.body for row in self._world.tables[resource].rows.values()}


def _dice(options: SandboxOptions, purpose: str) -> Random:
    return Random(f"{options.seed} {purpose}")  # noqa: S311  # repeatable, not secret
