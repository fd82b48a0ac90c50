"""Copies of a store, made while others go on writing to it.

SQLite's own copying begins anew whenever another connection has written, so that beside a busy writer it never ends;
inside a transaction that reads, it copies what was there when that began. Until it ends the store's log cannot begin
anew and grows by what is written meanwhile.

A copy grows in a folder of its own beside its place, ``<target>.part``, which is ours alone: no other user can put a
link there, or a journal that SQLite would write into the copy.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from dockbell.errors import StoreError
from dockbell.host.ownership import PRIVATE, check_own, make_own_folder, open_own
from dockbell.stores.sql.connection import reading
from dockbell.stores.sqlite.disk_reserve import find_size
from dockbell.stores.sqlite.epoch_file import mark_copy
from dockbell.stores.sqlite.store_errors import find_room

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that are copied and with all of them, from another thread."""

_PAGES_AT_ONCE: Final = 250
_STEPS_UNTIL_SYNCED: Final = 16
"""So what others commit never waits for more than a few megabytes of the copy to reach the disk."""
_PART: Final = ".part"


class Copy(msgspec.Struct, frozen=True):
    path: Path  # where it is
    size: int  # in bytes


def write_copy(
    connection: sqlite3.Connection, target: Path, *, at: int | None = None, progress: Progress | None = None
) -> Copy:
    """Copy a store as it is now to a path, replacing what is there when the copy is complete, checked and on the disk.

    The connection is in no transaction. ``at`` is the time in microseconds, for a copy that shall know that it is one;
    only of a store that is up to date.

    Raises:
        StoreError: It cannot be written, or is not sound.
    """
    try:
        with _drafting(target) as (part, file):
            _check_room(connection, target)
            _fill(connection, part, file, progress)
            _check(part, target, at)
            size = os.fstat(file).st_size
            os.fsync(file)
            part.rename(target)
        _sync_folder(target)
    except BlockingIOError:
        raise StoreError(
            f"backup {target}: another process is writing it; wait until it has finished, or name another file"
        ) from None
    except (OSError, sqlite3.Error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise StoreError(f"backup {target}: {reason}; check its disk, or name another file") from error
    return Copy(target, size)


@contextmanager
def _drafting(target: Path) -> Iterator[tuple[Path, int]]:
    """Yield a file that only we can reach, by its path and its descriptor; what is left of it in the end is removed.

    Raises:
        BlockingIOError: Another process writes it.
        OSError: It cannot be made, or something that is not ours is in its place.
    """
    folder = Path(f"{target}{_PART}")
    if folder.is_file() and not folder.is_symlink():  # what a backup that was killed has left, in older times
        check_own(folder)
        folder.unlink()
    make_own_folder(folder)
    part = folder / "copy"
    file = open_own(part)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone with this process; what it leaves is written over
        if not part.exists() or not os.path.samestat(os.fstat(file), part.stat()):
            raise BlockingIOError  # the other has just come to its end
        os.fchmod(file, PRIVATE)
        try:
            yield part, file
        finally:
            with suppress(OSError):  # the copy is there, or a worse error is on its way
                for left in folder.iterdir():
                    left.unlink()
                folder.rmdir()
    finally:
        os.close(file)


def _check_room(connection: sqlite3.Connection, target: Path) -> None:
    size, room = find_size(connection), find_room(target)
    if size > room:
        mine, there = (f"{each / 1_000_000:,.1f} MB" for each in (size, room))
        raise StoreError(f"backup {target}: needs {mine}, {there} are free; free some space, or use another disk")


def _fill(connection: sqlite3.Connection, part: Path, file: int, progress: Progress | None) -> None:
    os.ftruncate(file, 0)
    steps, size = 0, find_size(connection)

    def note(_status: int, remaining: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if steps % _STEPS_UNTIL_SYNCED == 0:
            os.fdatasync(file)
        if progress is not None:
            progress(size * (total - remaining) // max(total, 1), size)

    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = OFF")  # nothing of a copy that was not completed is ever used
        copy.execute("PRAGMA synchronous = OFF")
        with reading(connection):
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()  # a transaction begins where it first reads
            connection.backup(copy, pages=_PAGES_AT_ONCE, progress=note)


def _check(part: Path, target: Path, at: int | None) -> None:
    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, which can be looked at where nothing can be written
        if at is not None:
            mark_copy(copy, at)
        (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(f"backup {target}: the store is damaged: {verdict}; restore an older backup")


def _sync_folder(target: Path) -> None:
    with suppress(OSError):  # where folders cannot be synced, nothing more can be done
        folder = os.open(target.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
