"""The files of a store, opened to work on it: the store itself, its log, and what stands beside it.

``<store>.lock`` is held by the process that works on it, ``<store>.life`` tells that another store was put in its
place, ``<store>.reserve`` is room on the disk.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from dockbell.errors import StoreError, StoreFull, StoreInUse
from dockbell.host.ownership import check_own, check_owner, open_own
from dockbell.stores.sql.connection import transaction
from dockbell.stores.sql.life import begin_anew, end_beginning
from dockbell.stores.sqlite.connection import connect, has_foreign_log
from dockbell.stores.sqlite.disk_reserve import Reserve
from dockbell.stores.sqlite.epoch_file import EpochFile, EpochMark, last_entry, look_back
from dockbell.stores.sqlite.schema import check_version
from dockbell.stores.sqlite.store_errors import blame
from dockbell.stores.sqlite.upgrading import Upgrade, upgrade

_ASKING_SECONDS: Final = 0.1
"""Longer than the question takes whether the store is held."""
_LOG_MOST: Final = 64 * 1024 * 1024
"""So large the log stays at most, in bytes, once a long look at the store, or a large page, has made it grow."""


class Lock(msgspec.Struct, frozen=True):
    """The right to work on a store.

    Attributes:
        file: Its open file: whatever happens to this process, the lock ends with it.
        abandoned_by: The process that had it last, where that ended without releasing it: it was killed, or the machine
            went down; else empty.
    """

    file: int
    abandoned_by: str

    def release(self) -> None:
        """Leave nothing of this process in the file, and close it."""
        os.ftruncate(self.file, 0)
        os.close(self.file)


class Files(msgspec.Struct, frozen=True):
    """The files of a store that this process holds."""

    lock: Lock  # held until it is released
    life: EpochFile  # how far it is
    reserve: Reserve  # room for a full disk
    upgrade: Upgrade  # what was done to it when it was opened
    writer: sqlite3.Connection  # the one connection that writes
    reader: sqlite3.Connection  # the one that does not


def open_files(path: Path, *, epoch: str, now: int) -> Files:
    """Open a store to work on it, making it if there is none, under ``epoch``.

    Raises:
        StoreInUse: Another process works on it.
        StoreIncompatible: It is not a store, or one of a newer dockbell.
        StoreError: It cannot be opened.
    """
    reserve = Reserve(path)
    try:
        return _open(path, reserve, epoch=epoch, now=now)
    except StoreFull:
        if not reserve.path.exists():
            raise
        reserve.give_up()
        return _open(path, reserve, epoch=epoch, now=now)


@contextmanager
def holding(path: Path, *, epoch: str, now: int) -> Iterator[Files]:
    """Hold a store until the block is left; see :func:`open_files`."""
    files = open_files(path, epoch=epoch, now=now)
    try:
        yield files
    finally:
        files.writer.close()
        files.reader.close()
        files.life.close()
        files.lock.release()


def _open(path: Path, reserve: Reserve, *, epoch: str, now: int) -> Files:
    try:
        with ExitStack() as opened:
            lock = take_lock(path)
            opened.callback(lock.release)
            _claim(path)
            if has_foreign_log(path):  # SQLite would write it into what was put in the place of the store
                for suffix in ("-wal", "-shm"):
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
            writer = opened.enter_context(closing(connect(path)))
            check_version(writer, path)
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute(f"PRAGMA journal_size_limit = {_LOG_MOST}")
            # FULL: what is committed survives a power loss; a feed yields a few pages a second, so it costs nothing.
            writer.execute("PRAGMA synchronous = FULL")
            life = EpochFile(path)
            opened.callback(life.close)
            upgraded = _begin_life(path, life, writer, epoch=epoch, now=now)
            files = Files(lock, life, reserve, upgraded, writer, connect(path))
            opened.pop_all()
            return files
    except (OSError, sqlite3.Error) as error:
        if isinstance(blamed := blame(error, path), StoreFull):
            raise blamed from error
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        remedy = "check [store] url and the permissions of its folder"
        if path.exists() and (isinstance(error, PermissionError) or "readonly" in reason):
            remedy = (
                f"make it and its folder writable by user {os.geteuid()}; another [store] url would start a new store"
            )
        raise StoreError(f"store {path}: {reason}; {remedy}") from error


def _claim(path: Path) -> None:
    """Make the store's file where there is none, and look whether it, and what SQLite puts beside it, is ours.

    Raises:
        PermissionError: Another user has put something there.
    """
    check_owner(path)  # it may well be a link, to another disk
    place = Path(os.path.realpath(path))
    # Records hold names and addresses: the file, and what SQLite puts beside it, is for its owner only.
    os.close(open_own(place))
    for suffix in ("-wal", "-shm", "-journal"):
        check_own(Path(f"{place}{suffix}"))
    check_own(Reserve(path).path)


def _begin_life(path: Path, life: EpochFile, writer: sqlite3.Connection, *, epoch: str, now: int) -> Upgrade:
    """Bring a store up to date, and begin a new life where the file is not the one that was there."""
    known = life.read()
    upgraded = upgrade(writer, path, epoch=epoch, now=now)
    if reason := look_back(writer, known, is_new=upgraded.version == 0):
        with transaction(writer):
            begin_anew(writer, epoch, reason, now)
    else:
        end_beginning(writer)
    (current,) = writer.execute("SELECT epoch FROM life").fetchone()
    life.write(EpochMark(current, last_entry(writer)))
    return upgraded


def take_lock(path: Path) -> Lock:
    """Hold the store for this process until it ends, however it ends, or releases the lock.

    Raises:
        StoreInUse: Another process holds it.
    """
    lock = open_own(Path(f"{path}.lock"))
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # perhaps only a question, see probe.find_holder
            time.sleep(_ASKING_SECONDS)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _read_holder(lock) or "another process"
        os.close(lock)
        raise StoreInUse(f"store {path}: held by {holder}; stop it, or give this one another [store] url") from error
    abandoned_by = _read_holder(lock)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()}".encode(), 0)
    return Lock(lock, abandoned_by)


def _read_holder(lock: int) -> str:
    return os.pread(lock, 100, 0).decode(errors="replace").strip()
