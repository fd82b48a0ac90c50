"""Where a test's store is, a file or the URL of a database, and what opens it there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from dockbell.stores.handles.command_store import SqlCommandStore
from dockbell.stores.handles.read_store import SqlReadStore
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.postgres import PostgresCommandStore, PostgresReadStore, PostgresStore
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import Telemetry

Place: TypeAlias = Path | str


def url_of(place: Place) -> str:
    """Return the ``[store] url`` of a place."""
    return f"sqlite:///{place}" if isinstance(place, Path) else place


async def open_store(
    place: Place, *, now: Callable[[], datetime], epoch: str = "epoch", telemetry: Telemetry | None = None
) -> SqlStore:
    """Return the store, to work on it."""
    if isinstance(place, Path):
        return await SqliteStore.open(place, now=now, epoch=epoch, telemetry=telemetry)
    return await PostgresStore.open(place, now=now, epoch=epoch, telemetry=telemetry)


async def open_read_store(place: Place) -> SqlReadStore:
    """Return what looks at the store beside the process that holds it."""
    return await (SqliteReadStore.open(place) if isinstance(place, Path) else PostgresReadStore.open(place))


async def open_command_store(place: Place) -> SqlCommandStore:
    """Return what leaves commands in the store."""
    return await (SqliteCommandStore.open(place) if isinstance(place, Path) else PostgresCommandStore.open(place))
