"""The sandbox, put together: records, activity and the API over them; and on a port of the running event loop."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
from starlette.types import ASGIApp

from dockbell.net.listening import Connection, listening
from dockbell.sandbox.activity import Activity
from dockbell.sandbox.api import Api, Transfer
from dockbell.sandbox.faults import HANG_UP, Faults
from dockbell.sandbox.form import Form
from dockbell.sandbox.gate import Gate
from dockbell.sandbox.options import Clock, SandboxOptions, Settings
from dockbell.sandbox.records import Author
from dockbell.sandbox.seed import seed_tables
from dockbell.sandbox.world import LoggedChange, World


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Sandbox:
    """An implementation of the API with records that move; it builds about 20,000 records a second.

    Methods that change records return how many they have changed. Each change is stamped later than the one before, by
    a microsecond where the clock stands still. An identity without a record is a LookupError.

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
        self.activity = Activity(self._world, Author(_dice(options, "activity")), options.activity)
        api = Api(self._world, self.activity, self._settings, now, _dice(options, "pages")).application()
        faults = Faults(Transfer(api, self._settings), api, self._settings, _dice(options, "faults"))
        self.app = Gate(faults, self._settings, now)

    @property
    def options(self) -> SandboxOptions:
        """The options in force."""
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
        """Make business steps at once, at the clock's now, until ``n`` records have changed or a few more."""
        return self.activity.step(n)

    def edit(self, resource: str, n: int = 1, *, identity: str | None = None) -> int:
        """Raise one number in the oldest ``n`` records of a resource on one tick, or in one record."""
        return self._world.edit(resource, n, identity)

    def touch(self, resource: str, n: int = 1, *, identity: str | None = None) -> int:
        """Move the timestamp alone of the oldest ``n`` records on one tick, or of one; each is logged as updated."""
        return self._world.touch(resource, n, identity)

    def delete(self, resource: str, n: int = 1, *, identity: str | None = None) -> int:
        """Delete the oldest ``n`` records on one tick, or one record, and nothing that belongs to them."""
        return self._world.delete(resource, n, identity)

    def restore(self) -> int:
        """Undo the last deletion, made by a method or by the activity."""
        return self._world.restore()

    def deploy(self, field: str, value: object = None, *, dated: bool = False) -> int:
        """Give every record of every resource, now and later, a new field at its end; ``dated`` moves timestamps.

        Raises:
            ConfigError: Records have such a field, or the value is no string, number, flag or None.
        """
        return self._world.deploy(field, value, dated=dated)

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


if TYPE_CHECKING:
    import asyncio

    from starlette.types import Receive, Scope, Send


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens: connections wait in it for :func:`serve`.

    Raises:
        OSError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves it off for sockets made by others
    return listener


@asynccontextmanager
async def serve(
    sandbox: Sandbox, host: str = "127.0.0.1", port: int = 0, *, listener: socket.socket | None = None
) -> AsyncIterator[str]:
    """Serve the sandbox and let it live until the block is left; the value is its base URL.

    Signals are left alone. On leaving, open connections are closed; answers under way have a second to finish.

    Args:
        sandbox: What to serve.
        host: The address to listen on.
        port: The port, 0 for any free one.
        listener: What :func:`bind` has returned, instead of a port.

    Raises:
        OSError: The address cannot be listened on.
    """
    listener = listener or bind(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    async with (
        listening(sandbox.app, listener, http=_Connection, date_header=False, server_header=False),
        anyio.create_task_group() as group,
    ):
        group.start_soon(sandbox.live)
        try:
            yield f"http://{shown_host}:{listener.getsockname()[1]}"
        finally:
            group.cancel_scope.cancel()


class _Connection(Connection):
    """Lets the application break the connection, as an ASGI extension."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        super().connection_made(transport)
        app = self.app

        async def app_with_hang_up(scope: Scope, receive: Receive, send: Send) -> None:
            async def hang_up(*, reset: bool) -> None:
                if reset:
                    endpoint = transport.get_extra_info("socket")
                    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    transport.abort()
                else:
                    transport.close()
                while (await receive())["type"] != "http.disconnect":
                    pass

            extensions: dict[str, Any] = scope.setdefault("extensions", {})
            extensions[HANG_UP] = hang_up
            await app(scope, receive, send)

        self.app = app_with_hang_up
