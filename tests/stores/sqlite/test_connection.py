from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from dockbell.stores.sqlite.connection import connect, has_foreign_log


def test_looking_into_a_store_leaves_the_locks_to_who_works_on_it(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.db"
    with closing(connect(path)) as working:
        working.execute("PRAGMA journal_mode = WAL")
        working.execute("CREATE TABLE numbers (number)")
        assert not has_foreign_log(path)
        # Another process that comes and goes deletes the log, unless it meets the lock of who works on the store.
        come_and_go = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM numbers').connection.close()"
        )
        subprocess.run([sys.executable, "-c", come_and_go, str(path)], check=True)
        assert Path(f"{path}-wal").exists()
