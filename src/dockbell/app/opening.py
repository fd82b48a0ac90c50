"""Opens what a configuration names, one thing at a time; the one place that knows which adapter each thing is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from dockbell._version import __version__
from dockbell.config import Config, SinkSettings, WebSettings, check_secrets, load, load_local, load_shared, validate
from dockbell.core.moment import to_micros
from dockbell.errors import ConfigError, StoreError, StoreMissing
from dockbell.net.network import make_trust
from dockbell.ports import CommandStore, ReadStore, Revision, Sink, Store
from dockbell.sinks import load_sink_type
from dockbell.stores.handles.database import Database, HeldConfigurations
from dockbell.stores.sqlite import backup, moving
from dockbell.stores.sqlite.copying import Copy, Progress
from dockbell.stores.sqlite.database import SqliteDatabase
from dockbell.telemetry import Telemetry

if TYPE_CHECKING:
    from dockbell.sources import InventoryClient
    from dockbell.stores.postgres.moving import Moved


def now() -> datetime:
    """Return the time: the one clock of the program."""
    return datetime.now(UTC)


def load_config(path: Path) -> Config:
    """Read a configuration file, with the kinds of sinks that are installed.

    Raises:
        ConfigError: Every problem of the file.
    """
    return load(path, _find_sink_settings)


def configure(base_url: str, api_key: object, *, sinks: Mapping[str, object] | None = None) -> Config:
    """Return what a configuration with nothing but one source would be: all its resources, at their defaults.

    Args:
        base_url: Where the API is, without ``/v1``.
        api_key: Its key, as a configuration writes it: text, ``{"env": NAME}`` or ``{"file": PATH}``.
        sinks: The tables of its sinks, by name.

    Raises:
        ConfigError: The address or a table cannot be used, or there is no key.
    """
    table = {"sources": {"main": {"base_url": base_url, "api_key": api_key}}, "sinks": sinks or {}}
    config = validate(table, _find_sink_settings, label="--sink" if sinks else "--base-url")
    check_secrets(config)
    return config


def load_place(path: Path) -> Config:
    """Read where a configuration file says that the store is, and nothing that processes on it share.

    Raises:
        ConfigError: Every problem of that.
    """
    return load_local(path, _find_sink_settings)


def load_revision(own: Config, revision: Revision) -> Config:
    """Return a revision as the process reads it whose own file is given.

    Raises:
        ConfigError: Every problem of it.
    """
    label = f"revision {revision.number}"
    try:
        return load_content(own, revision.content, label=label)
    except ConfigError as error:
        if revision.version == __version__:
            raise
        advice = f"{label}: was made by dockbell {revision.version}, this is {__version__}; upgrade the older one"
        raise ConfigError(*error.problems, advice) from None


def load_content(own: Config, content: str, *, label: str, places: Mapping[str, str] | None = None) -> Config:
    """Return what processes are to share; see :func:`dockbell.config.load_shared`."""
    return load_shared(own, content, _find_sink_settings, label=label, places=places)


def look_up(config: Config, sources: Collection[str]) -> None:
    """Look up whether this machine has the secrets and files of some sources.

    Raises:
        ConfigError: Every one that cannot be used, with its place.
    """
    meant = config.only(sources)
    check_secrets(meant)
    tried: set[str | None] = {None}
    problems: list[str] = []
    for name, each in meant.sources.items():
        if each.ca_file not in tried:
            tried.add(each.ca_file)
            try:
                make_trust(": ".join(config.origins.locate(("sources", name))), ca_file=each.ca_file)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(*problems)


async def load_newest(own: Config) -> Config:
    """Return what processes on the store of a file follow; what the file says where they share nothing.

    Raises:
        ConfigError: It cannot be used here.
        StoreError: The store cannot be asked.
    """
    if own.store.path is not None:
        return own
    try:
        configurations = await find_database(own).open_configurations()
    except StoreMissing:
        return own
    async with aclosing(configurations):
        newest = await configurations.find_newest()
    return own if newest is None else await to_thread.run_sync(load_revision, own, newest)


async def open_configurations(config: Config) -> HeldConfigurations:
    """Return the revisions of the configuration; see :meth:`Database.open_configurations`."""
    return await find_database(config).open_configurations()


def _find_sink_settings(kind: str) -> type[SinkSettings]:
    return load_sink_type(kind).Settings


def open_source(config: Config, name: str, telemetry: Telemetry, *, checked: bool = True) -> InventoryClient:
    """Return the client of a source; the caller closes it.

    With ``checked`` False, what it needs and cannot be used is a failure of each request, until it can.

    Raises:
        ConfigError: A file that it needs cannot be used.
    """
    from dockbell.sources import InventoryClient  # noqa: PLC0415  # loads httpx, which only a source needs

    return InventoryClient.from_settings(name, config.sources[name], telemetry, checked=checked)


def open_sink(config: Config, name: str, telemetry: Telemetry, *, aside: bool = False, slot: int = 0) -> Sink:
    """Return a sink, not connected yet; with ``aside`` one that does not disturb the daemon's.

    ``slot`` is that of this process among several.

    Raises:
        ConfigError: A secret, a template or a file that it needs cannot be used.
    """
    settings = config.sinks[name].owned_by(config.name, name).shared_by(slot)
    return load_sink_type(settings.type)(name, settings.aside() if aside else settings, telemetry)


def find_database(config: Config) -> Database:
    """Return where the store is, not opened.

    Raises:
        StoreError: It is in PostgreSQL, whose driver is not installed.
    """
    if (path := config.store.path) is not None:
        return SqliteDatabase(path)
    with _needing_driver("[store] url"):
        from dockbell.stores.postgres.database import PostgresDatabase  # noqa: PLC0415  # its driver is an extra
    return PostgresDatabase(config.store.url)


@contextmanager
def _needing_driver(label: str) -> Iterator[None]:
    """Say what to install where PostgreSQL's driver cannot be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = "the driver for PostgreSQL is not installed; pip install 'dockbell[postgres]'"
        raise StoreError(f"{label}: {advice}") from error


async def open_store(config: Config, telemetry: Telemetry | None = None, *, shared: bool = False) -> Store:
    """Return the store to work on; see :meth:`Database.open_store`."""
    return await find_database(config).open_store(now=now, telemetry=telemetry, shared=shared)


async def back_up(config: Config, target: Path, *, force: bool, progress: Progress | None = None) -> Copy:
    """Copy the store, whether a daemon works on it or not; see :func:`dockbell.stores.sqlite.backup.back_up`.

    Raises:
        StoreError: There is none, the target is there already, the copy cannot be written, or the store is in
            PostgreSQL.
    """
    if config.store.path is None:
        advice = "back up PostgreSQL with pg_dump --format=custom, or with pg_basebackup and its WAL"
        raise StoreError(f"backup {target}: the store is not a file; {advice}")
    return await backup.back_up(config.store.path, target, at=now(), force=force, progress=progress)


async def move_store(config: Config, url: str, *, progress: Callable[[str, int, int], None] | None = None) -> Moved:
    """Move the store from its file into a database; see :func:`dockbell.stores.postgres.moving.move`.

    Raises:
        ConfigError: The URL names no database of PostgreSQL.
        StoreError: There is no file, a process works on it, or the database is not empty or cannot be used.
    """
    with _needing_driver("URL"):
        from dockbell.stores.postgres.moving import move  # noqa: PLC0415  # its driver is an extra
    return await move(_find_file(config), url, at=to_micros(now()), progress=progress)


def take_store_back(config: Config) -> str:
    """Let a file be used again whose store was moved; see :func:`dockbell.stores.sqlite.moving.take_back`.

    Raises:
        StoreError: There is none, a process works on it, or it was not moved.
    """
    return moving.take_back(_find_file(config))


def _find_file(config: Config) -> Path:
    if config.store.path is None:
        raise StoreError('[store] url: names a database, and must name the file: "sqlite:///dockbell.db"')
    return config.store.path


async def open_read_store(config: Config) -> ReadStore:
    """Return a read-only connection to the store; see :meth:`Database.open_read_store`."""
    return await find_database(config).open_read_store()


def find_holder(config: Config) -> str:
    """Return the process that works on the store; see :meth:`Database.find_holder`."""
    return find_database(config).find_holder()


async def open_command_store(config: Config) -> CommandStore:
    """Return the commands of the store, which a daemon runs; see :meth:`Database.open_command_store`."""
    return await find_database(config).open_command_store()


async def probe_store(config: Config) -> str:
    """Try whether a daemon could open the store; see :meth:`Database.probe`."""
    return await find_database(config).probe()


async def probe_web(config: Config, settings: WebSettings) -> str:
    """Try whether a daemon could listen on its address; return what was found, in a few words.

    While a process works on the store, nothing is tried: that daemon listens there itself.

    Raises:
        ConfigError: It could not.
        StoreError: The store cannot be asked whether a process works on it.
    """
    from dockbell.web.site import listen  # noqa: PLC0415  # only a daemon with [web] needs a web server

    if holder := find_holder(config):
        return f"{settings.listen}, store held by {holder}, not tried"
    (await to_thread.run_sync(listen, settings)).close()
    return f"{settings.listen}, free"
