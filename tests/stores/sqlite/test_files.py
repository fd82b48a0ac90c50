from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dockbell.stores.sqlite.files import take_lock

_HOLD = """
import sys, time
from pathlib import Path
from dockbell.stores.sqlite.files import take_lock
lock = take_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
lock.release()
"""


def hold(path: Path) -> subprocess.Popen[bytes]:
    """Return a process that holds a store, until it is killed or reads a line."""
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_process_that_was_killed_is_named_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.db"
    with hold(path) as process:
        process.kill()
    lock = take_lock(path)
    assert lock.abandoned_by == f"process {process.pid}"
    lock.release()


def test_a_process_that_releases_a_store_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.db"
    with hold(path) as process:
        process.communicate(b"\n")
    lock = take_lock(path)
    assert lock.abandoned_by == ""
    lock.release()
