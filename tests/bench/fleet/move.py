"""How long ``dockbell move-store`` takes, whether the database holds the same, and what a kill in its commit leaves."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from dockbell.stores.postgres.connection import connect
from tests.bench.fleet.throughput import fill
from tests.bench.processes import run_alone
from tests.bench.table import print_table
from tests.postgres import Server, serving

_ROWS_EACH: Final = 3
"""A new record has a row in three tables: its own, its content, its event."""
_TABLES: Final = {
    "records": "SELECT feed, row, key, revision FROM records ORDER BY feed, row",
    "bodies": "SELECT feed, row, body FROM bodies ORDER BY feed, row",
    "events": "SELECT feed, sequence, id, body FROM events ORDER BY feed, sequence",
    "positions": "SELECT sink, feed, sequence, origin FROM positions ORDER BY sink, feed",
}
_CONFIG: Final = """
store = {{ url = "sqlite:///{path}" }}
sources = {{ s0 = {{ base_url = "http://127.0.0.1:1", api_key = "key" }} }}
"""


def measure_move(rows: int) -> bool:
    """Print what came of it; return whether the database holds what the file held."""
    with TemporaryDirectory() as name, serving(fsync="on", full_page_writes="on", shared_buffers="256MB") as server:
        path = Path(name, "dockbell.db")
        run_alone(fill, path, rows // _ROWS_EACH)
        with closing(sqlite3.connect(path)) as file:
            file.execute(
                "INSERT INTO positions (sink, feed, sequence, origin) SELECT 'erp', id, sequence / 2, 0 FROM feeds"
            )
            file.commit()
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copy = Path(name, "copy.db")
        shutil.copy(path, copy)
        began = time.monotonic()
        url = server.make_database()
        told = _move(path, url)
        seconds = time.monotonic() - began
        killed = _is_unmarked_after_a_kill(copy, server, other := server.make_database())
        again = _move(copy, other)
        results = {"moved": _is_same(path, url), "moved after the kill": _is_same(copy, other)}
        print_table(
            ("move-store", ""),
            ("rows of all tables", f"{told['rows']:,}"),
            ("records, events", f"{told['records']:,}, {told['events']:,}"),
            ("file, MB", f"{path.stat().st_size / 1e6:.0f}"),
            ("whole command, s", f"{seconds:.1f}"),
            ("rows a second", f"{told['rows'] / seconds:,.0f}"),
            (
                "kill -9 in the commit: the file is unmarked, the next try finds all there",
                f"{killed and again['was_there']}",
            ),
            *(
                (f"records, bodies, events, positions are the same, {what}", f"{each}")
                for what, each in results.items()
            ),
        )
        return killed and again["was_there"] and all(results.values())


def _command(path: Path, url: str) -> subprocess.Popen[bytes]:
    config = path.with_suffix(".toml")
    config.write_text(_CONFIG.format(path=path))
    return subprocess.Popen(
        [sys.executable, "-m", "dockbell", "move-store", url, "--config", config, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _move(path: Path, url: str) -> dict[str, Any]:
    with _command(path, url) as process:
        told, said = process.communicate()
    if process.returncode:
        raise RuntimeError((told + said).decode())
    found: dict[str, Any] = json.loads(told)
    return found


def _is_unmarked_after_a_kill(path: Path, server: Server, url: str) -> bool:
    """Kill a move whose commit is stored and not answered yet; return whether the file can still be used.

    A commit waits for a standby that does not exist, after it was stored.
    """
    database = urlsplit(url).path.strip("/")
    server.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.query("postgres", "SELECT pg_reload_conf()")
    with _command(path, url) as process:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event = 'SyncRep'"
        while not server.query("postgres", waiting, [database]):
            if process.poll() is not None:
                raise RuntimeError("the move has ended without a wait")
            time.sleep(0.05)
        process.kill()
    server.query("postgres", "ALTER SYSTEM RESET synchronous_standby_names")
    server.query("postgres", "SELECT pg_reload_conf()")
    with closing(sqlite3.connect(path)) as file:
        ((moved_to,),) = file.execute("SELECT moved_to FROM life").fetchall()
    return not moved_to


def _is_same(path: Path, url: str) -> bool:
    with closing(sqlite3.connect(path)) as file, closing(connect(url)) as database:
        return all(_sum(file.execute, query) == _sum(database.execute, query) for query in _TABLES.values())


def _sum(execute: Callable[[Any], Any], query: str) -> tuple[int, bytes]:
    """Return how many rows a query finds, and the hash of all of them."""
    found, count = blake2b(digest_size=16), 0
    for count, row in enumerate(_read(execute, query), 1):  # noqa: B007  # the last one is the answer
        found.update(repr(row).encode())
    return count, found.digest()


def _read(execute: Callable[[Any], Any], query: str) -> Iterator[tuple[object, ...]]:
    for row in execute(query):
        yield tuple(bytes(each) if isinstance(each, memoryview) else each for each in row)
