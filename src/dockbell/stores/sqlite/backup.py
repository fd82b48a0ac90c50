"""Backups of a store, also while a daemon works on it."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from anyio import from_thread, to_thread

from dockbell.core.moment import to_micros
from dockbell.errors import StoreError
from dockbell.host.ownership import find_intruder
from dockbell.stores.sqlite.connection import look
from dockbell.stores.sqlite.copying import Copy, Progress, write_copy
from dockbell.stores.sqlite.probe import find_holder

_BESIDE: Final = ("", "-wal", "-shm", "-journal", ".lock", ".life", ".reserve")
"""What the names of a store's own files end in."""


async def back_up(path: Path, target: Path, *, at: datetime, force: bool, progress: Progress | None = None) -> Copy:
    """Copy a store, also while a daemon works on it; a process that opens the copy as a store begins a new life.

    The copy is at ``target`` when it is complete and was checked, and not before.

    Raises:
        StoreError: The store cannot be read, the target not be written, or the copy is not sound.
    """
    return await to_thread.run_sync(partial(_back_up, path, target, at=at, force=force, progress=progress))


def _back_up(path: Path, target: Path, *, at: datetime, force: bool, progress: Progress | None) -> Copy:
    _check_target(path, target, force=force)
    with closing(look(path)) as connection:
        return write_copy(connection, target, at=to_micros(at), progress=_watch_cancellation(progress))


def _watch_cancellation(progress: Progress | None) -> Progress:
    def tell(done: int, total: int) -> None:
        from_thread.check_cancelled()
        if progress is not None:
            progress(done, total)

    return tell


def _check_target(path: Path, target: Path, *, force: bool) -> None:
    folder = target.absolute().parent
    # The owner of the folder could replace the store itself.
    if folder.is_dir() and (found := find_intruder(folder, *_find_owner(path))):
        raise StoreError(f"backup {target}: {found}")
    if target.is_dir():
        raise StoreError(f"backup {target}: is a folder; name a file in it")
    if str(target.resolve()) in {f"{path.resolve()}{suffix}" for suffix in _BESIDE}:
        raise StoreError(f"backup {target}: belongs to the store itself; name another file")
    if os.path.lexists(target):
        if not force:
            raise StoreError(f"backup {target}: already exists; name another file, or replace it with --force")
        if holder := find_holder(target):
            raise StoreError(f"backup {target}: is a store that {holder} works on; name another file")
    for log in (f"{target}-journal", f"{target}-wal"):
        if os.path.lexists(log):
            raise StoreError(f"backup {target}: {log} exists, which SQLite would write into the copy; remove it")


def _find_owner(path: Path) -> list[int]:
    try:
        return [path.absolute().parent.stat().st_uid]
    except OSError:
        return []
