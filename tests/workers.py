"""The processes that evaluate conditions, as the system lists them."""

from __future__ import annotations

from pathlib import Path


def find_workers(parent: int) -> list[int]:
    """Return the processes that evaluate for another."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        if b"dockbell.condition.worker" in words and above == parent:
            found.append(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    """Return whether a process is there, and not only to be waited for."""
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
