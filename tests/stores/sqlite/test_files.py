from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dockbell.errors import StoreError
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.files import Lock, take_lock
from tests.fakes import NOON

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


async def test_a_store_that_may_not_be_written_is_not_to_be_exchanged_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dockbell.db"
    await (await SqliteStore.open(path, now=lambda: NOON)).aclose()

    def refuse(_: Path) -> Lock:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # root may write everything

    monkeypatch.setattr("dockbell.stores.sqlite.files.take_lock", refuse)
    told = r"permission denied; make it and its folder writable by user \d+; another \[store\] url would start a new"
    with pytest.raises(StoreError, match=told):
        await SqliteStore.open(path, now=lambda: NOON)
