"""The processes of a benchmark: each measurement has its own, for true CPU and memory; the servers run beside it."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

_SPAWN: Final = get_context("spawn")
_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a measurement cost the process it ran in.

    Attributes:
        count: The records or events that it was about.
        wall: Seconds that passed.
        cpu: Seconds of CPU, of all threads, in the program and in the kernel.
        peak: The most memory that the process has ever had, in MB.
        pages: The pages that it read, for readings.
        size: The mean size of what it sent, in bytes, for deliveries.
        written: The rows that it wrote to its database, for readings.
    """

    count: int
    wall: float
    cpu: float
    peak: float
    pages: int = 0
    size: int = 0
    written: int = 0


class Meter:
    """Runs from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self, count: int, *, pages: int = 0, size: int = 0, written: int = 0) -> Cost:
        """Return what was spent since the meter was made."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Cost(count, wall, cpu, peak_memory(), pages, size, written)


def cpu_seconds(pid: int) -> float:
    """Return what a process has used of the CPU; on Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: str = "self") -> float:
    """Return the most memory that a process has ever had, in MB; another process than this one on Linux only."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():  # Linux: ru_maxrss would not be below what the parent had when it started this process
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_alone(function: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Return what a function of a module returns, or raise what it raises, in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        return pool.submit(function, *args).result()


@contextmanager
def serving(serve: Callable[[Connection, *_Args], None], *args: *_Args) -> Iterator[str]:
    """Run a server of a module in a fresh process until the block is left; the value is what it sends, its URL."""
    ours, theirs = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=serve, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()
