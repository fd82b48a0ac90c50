"""A real PostgreSQL for tests: one server for each process of tests.

A new database takes 60 ms, and its tables as much; a store is emptied in 4 ms. So tests share one store, but those of
what makes it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

from dockbell.core.moment import to_micros
from dockbell.stores.postgres.holder import Holder
from dockbell.stores.postgres.schema import migrate
from tests.fakes import NOON

_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
_STARTED_SECONDS: Final = 30
_GROWN: Final = 32 * 1024 * 1024
"""A store of so many bytes is full of what was deleted; a new one has 9 MB."""
_KEEP: Final = """
DO $$ DECLARE name name; BEGIN
    CREATE SCHEMA kept;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', name, name);
    END LOOP;
END $$
"""
"""Remembers what is in a new store."""
_EMPTY: Final = """
SET lock_timeout = '10s';
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
SET session_replication_role = replica;
DO $$ DECLARE name name; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' LOOP
        EXECUTE format('DELETE FROM public.%I', name);
        EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE TABLE kept.%I', name, name);
    END LOOP;
END $$;
SELECT setval(oid :: regclass, 1, false) FROM pg_class WHERE relkind = 'S'
"""
"""Brings all tables back to what was in them; TRUNCATE would take 17 ms, however little is in them."""


class Server:
    """A server that listens on a socket in its own folder."""

    def __init__(self, programs: Path, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._programs = programs
        self._settings = settings
        self._numbers = count(1)
        self._store = ""
        self._lent: psycopg.Connection[Any] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make its files."""
        subprocess.run(
            [
                *as_other(),
                self._programs / "initdb",
                "-D",
                self.folder / "data",
                "-U",
                "dockbell",
                "-A",
                "trust",
                "-N",
            ],
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*as_other(), self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + _STARTED_SECONDS
        while True:
            try:
                return psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, as a crash would."""
        if self._lent is not None:
            self._lent.close()
            self._lent = None
        if self._process is not None:
            subprocess.run(
                [*as_other(), self._programs / "pg_ctl", "stop", "-D", self.folder / "data", "-m", "immediate"],
                check=True,
                capture_output=True,
            )
            self._process.wait()
            self._process = None

    @contextmanager
    def standing_by(self) -> Iterator[Server]:
        """Return a standby, not started, that has what this server has now, and receives nothing that comes later."""
        self.stop()
        standby = Server(self._programs, Path(f"{self.folder}-standby"), self._settings)
        shutil.copytree(self.folder, standby.folder, symlinks=True, ignore=shutil.ignore_patterns(".s.PGSQL*"))
        (standby.folder / "data" / "standby.signal").touch()
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "nobody", standby.folder], check=True)
        self.start()
        try:
            yield standby
        finally:
            standby.stop()
            shutil.rmtree(standby.folder)

    @contextmanager
    def followed(self) -> Iterator[Server]:
        """Return a running standby that has every commit before it is answered."""
        standby = Server(self._programs, Path(f"{self.folder}-following"), self._settings)
        standby.folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(standby.folder, "nobody")
        address = f"host={self.folder} user=dockbell application_name=standby"
        subprocess.run(
            [
                *as_other(),
                self._programs / "pg_basebackup",
                "-D",
                standby.folder / "data",
                "-R",
                "-c",
                "fast",
                "-d",
                address,
            ],
            check=True,
            capture_output=True,
        )
        try:
            standby.start()
            self.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            self.query("postgres", "SELECT pg_reload_conf()")
            yield standby
        finally:
            standby.stop()
            shutil.rmtree(standby.folder)

    def promote(self) -> None:
        """Let this standby take over."""
        if self._process is None:
            self.start()
        subprocess.run(
            [*as_other(), self._programs / "pg_ctl", "promote", "-D", self.folder / "data"],
            check=True,
            capture_output=True,
        )

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://dockbell@/{database}?host={self.folder}"

    def make_database(self) -> str:
        """Return the URL of a new database."""
        name = f"test{next(self._numbers)}"
        self.query("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def lend_store(self) -> str:
        """Return the URL of a store with nothing in it but its epoch, ``epoch``; what was lent before is gone."""
        if self._lent is not None:
            self._lent.execute(_EMPTY)
            ((size,),) = self._lent.execute("SELECT pg_database_size(current_database())").fetchall()
            if size < _GROWN:
                return self._store
            self._lent.close()
        self._store = self.make_database()
        self._lent = psycopg.connect(self._store, autocommit=True)
        migrate(self._lent, self._store, epoch="epoch", now=to_micros(NOON))
        self._lent.execute(_KEEP)
        return self._store

    def query(self, database: str, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a statement finds in a database."""
        with closing(psycopg.connect(self.url(database), autocommit=True)) as connection:
            cursor = connection.execute(sql.SQL(statement), values)
            return cursor.fetchall() if cursor.description else []


def begin_writing(connection: psycopg.Connection[Any], holder: Holder) -> None:
    """Begin a transaction as the process does that has a row, by a connection that begins one by itself."""
    statement, values = holder.fence().begin()
    connection.execute(sql.SQL(statement), values)


def as_other() -> list[str]:
    """Return how a program is run as a user whom PostgreSQL takes: not root."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _find_programs() -> Path | None:
    found = list(Path("/usr/lib/postgresql").glob("*/bin"))  # of Debian, which leaves them out of PATH
    if found:
        return max(found)
    program = shutil.which("initdb")
    return None if program is None else Path(program).resolve().parent


@contextmanager
def serving(**settings: str) -> Iterator[Server]:
    """Return a running server; where PostgreSQL is not installed the test is skipped, or fails where it is required.

    ``settings`` are put in the place of those that make tests quick.
    """
    programs = _find_programs()
    if programs is None:
        if os.environ.get("DOCKBELL_REQUIRE_POSTGRES"):
            pytest.fail("PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="dockbell-pg-"))  # short: the path of a socket has at most 107 bytes
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
    server = Server(programs, folder, {**_SETTINGS, **settings})
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
