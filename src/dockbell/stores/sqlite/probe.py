"""What can be said of a store without opening it to work on it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from anyio import to_thread

from dockbell.errors import StoreError
from dockbell.host.ownership import look_into
from dockbell.stores.sqlite import SqliteReadStore


def find_holder(path: Path) -> str:
    """Return who works on a store, ``process 4711``; empty when none does.

    Asks by a shared lock for the blink of an eye, since the kernel tells nothing of a lock otherwise; a process that
    opens the store tries twice.

    Raises:
        StoreError: It cannot be asked.
    """
    try:
        lock = look_into(Path(f"{path}.lock"))
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StoreError(f"store {path}: {error}; run this as the user that runs the daemon") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 100, 0).decode(errors="replace").strip() or "another process"
    finally:
        os.close(lock)
    return ""


async def probe(path: Path) -> str:
    """Look whether a daemon could open a store, without making one; say in a few words what was found.

    Raises:
        StoreIncompatible: It is not a store, or one of a newer dockbell.
        StoreError: It cannot be opened, or not be made.
    """
    if await to_thread.run_sync(path.exists):
        await (await SqliteReadStore.open(path)).aclose()
        holder = find_holder(path)
        return f"{path}, held by {holder}" if holder else f"{path}, free"
    if not os.access(path.parent, os.W_OK):
        raise StoreError(f"store {path}: cannot be created, its folder is missing or not writable; check [store] url")
    return f'{path}, does not exist yet; "dockbell run" creates it'
