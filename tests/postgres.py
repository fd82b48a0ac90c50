"""A real PostgreSQL for tests: one server for each process of tests, one database for each test."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
_STARTED_SECONDS: Final = 30


class Server:
    """A server that listens on a socket in its own folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make its files."""
        subprocess.run(
            [
                *_as_other(),
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
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*_as_other(), self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *settings],
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
        if self._process is not None:
            subprocess.run(
                [*_as_other(), self._programs / "pg_ctl", "stop", "-D", self.folder / "data", "-m", "immediate"],
                check=True,
                capture_output=True,
            )
            self._process.wait()
            self._process = None

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://dockbell@/{database}?host={self.folder}"

    def make_database(self) -> str:
        """Return the URL of a new database."""
        name = f"test{next(self._numbers)}"
        self.query("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def query(self, database: str, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a statement finds in a database."""
        with closing(psycopg.connect(self.url(database), autocommit=True)) as connection:
            cursor = connection.execute(sql.SQL(statement), values)
            return cursor.fetchall() if cursor.description else []


def _as_other() -> list[str]:
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
def serving() -> Iterator[Server]:
    """Return a running server; where PostgreSQL is not installed the test is skipped, or fails where it is required."""
    programs = _find_programs()
    if programs is None:
        if os.environ.get("DOCKBELL_REQUIRE_POSTGRES"):
            pytest.fail("PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="dockbell-pg-"))  # short: the path of a socket has at most 107 bytes
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
    server = Server(programs, folder)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
