"""A real pgbouncer in transaction mode: each transaction may get another connection of the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.postgres import Server, as_other

_PORT: Final = 6432
_STARTED_SECONDS: Final = 30
_SETTINGS: Final = """
[databases]
* = host={server} user=dockbell

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
server_reset_query =
; a store is emptied by ending all connections: try each before it is used
server_check_delay = 0
log_connections = 0
log_disconnections = 0
"""


class Pooler:
    """Stands between a server and those who use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lead_to(self, url: str) -> str:
        """Return the URL by which a database of the server is reached through the pooler."""
        return f"postgresql://dockbell@{urlsplit(url).path}?host={self._folder}&port={_PORT}"


@contextmanager
def pooling(server: Server, connections: int = 8, *, by_way_of: Path | None = None) -> Iterator[Pooler]:
    """Return a running pooler with so many connections to a database; without pgbouncer as without PostgreSQL.

    Another server takes over where the link ``by_way_of`` leads to its folder.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        if os.environ.get("DOCKBELL_REQUIRE_POSTGRES"):
            pytest.fail("pgbouncer is not installed")
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="dockbell-pool-"))  # short: the path of a socket has at most 107 bytes
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _SETTINGS.format(server=by_way_of or server.folder, port=_PORT, folder=folder, connections=connections)
    )
    folder.chmod(0o777)
    process = subprocess.Popen(
        [*as_other(), program, "--quiet", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pooler = Pooler(folder)
    try:
        until = time.monotonic() + _STARTED_SECONDS
        while True:
            try:
                psycopg.connect(pooler.lead_to(server.url("postgres"))).close()
                break
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        yield pooler
    finally:
        process.kill()  # it has nothing to lose, and what other signals mean to it depends on its version
        process.wait()
        shutil.rmtree(folder)
