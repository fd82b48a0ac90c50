"""Several ``dockbell run`` on one PostgreSQL, and what can be done to them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.postgres import Server
from tests.services import Daemon

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_CONFIG: Final = """
name = "acme"

[store]
url = "{store}"

[source_defaults]
base_url = "{api}"
api_key = {{ file = "{keys}/{{source}}" }}

[source_defaults.resources.shipments]
every = "{every}"

[resources.shipments]
reconcile = "24h"

[sinks.erp]
type = "webhook"
url = "{receiver}/hook"
secret = "{secret}"
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the processes read.

    Attributes:
        sources: All of them.
        every: The interval of most.
        busy: Those that would ask all the time, and how often a minute they may.
        special: Lines for the tables of some others.
    """

    sources: Sequence[str]
    every: float
    busy: Mapping[str, int] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path, *, store: str, api: str, receiver: str) -> Path:
        """Write a configuration with a file for each key, and return it."""
        keys = path.parent / "keys"
        keys.mkdir(exist_ok=True)
        parts = [
            _CONFIG.format(store=store, api=api, receiver=receiver, keys=keys, secret=SECRET, every=f"{self.every:g}s")
        ]
        for source in self.sources:
            (keys / source).write_text(source)
            parts.append(f"[sources.{source}]\n{self.special.get(source, '')}")
            if source in self.busy:
                parts.append(f"requests_per_minute = {self.busy[source]}\nshare = 1.0\n")
                parts.append('resources = { shipments = { every = "1s" } }\n')
        path.write_text("".join(parts))
        return path


class Fleet:
    """The processes, and the database as an operator sees it.

    Attributes:
        daemons: By name.
        stopped: Those that were sent SIGSTOP.
        server: The one that is asked; after a failover the other one.
    """

    def __init__(self, folder: Path, server: Server, database: str, configs: Sequence[Path]) -> None:
        self.daemons: dict[str, Daemon] = {}
        self.stopped: set[str] = set()
        self.server = server
        self._database = database
        self._folder = folder
        self._stack = ExitStack()
        for number, config in enumerate(configs):
            name = f"p{number}"
            (folder / name).mkdir()
            (folder / name / "dockbell.toml").symlink_to(config)
            self.daemons[name] = self._stack.enter_context(Daemon(folder / name))

    def close(self) -> None:
        self._stack.close()

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database, beside any pooler."""
        return self.server.query(self._database, statement, values)

    def find_held(self, name: str) -> set[str]:
        """Return the sources that a process has."""
        rows = self.query(
            "SELECT source FROM leases JOIN holders ON holders.id = leases.holder WHERE starts_with(holders.name, %s)",
            f"process {self.daemons[name].pid} ",
        )
        return {source for (source,) in rows} - {"dockbell"}

    def is_writing(self, name: str) -> bool:
        """Return whether a process is in the middle of a transaction that writes."""
        rows = self.query(
            "SELECT 1 FROM pg_stat_activity JOIN holders ON application_name = 'dockbell ' || id"
            " WHERE starts_with(name, %s) AND state <> 'idle' AND xact_start IS NOT NULL",
            f"process {self.daemons[name].pid} ",
        )
        return bool(rows)

    def count_shares(self) -> dict[str, int]:
        """Return how many sources each living process has, by what it is called."""
        rows: list[tuple[Any, ...]] = []
        with suppress(psycopg.errors.UndefinedTable, psycopg.OperationalError):  # not made yet; away
            rows = self.query(
                "SELECT name, (SELECT count(*) FROM leases WHERE holder = holders.id AND source <> 'dockbell')"
                " FROM holders WHERE expires_at > clock_timestamp()"
            )
        return dict(rows)

    def count_read(self) -> int:
        """Return how many sources have been read whole."""
        with suppress(psycopg.errors.UndefinedTable, psycopg.OperationalError):
            ((count,),) = self.query("SELECT count(DISTINCT source) FROM feeds WHERE watermark IS NOT NULL")
            return int(count)
        return 0

    def settle(self, sources: int, processes: int, most: float = 300) -> float:
        """Return after how many seconds so many processes have all sources, each its share."""
        began = time.monotonic()
        while True:
            shares = [*self.count_shares().values()]
            if len(shares) == processes and sum(shares) == sources:
                fair = sources / processes
                if max(shares) <= 1.1 * fair + 2 and min(shares) >= 0.5 * fair - 2:
                    return time.monotonic() - began
            if time.monotonic() > began + most:
                raise TimeoutError(f"{shares} of {sources} for {processes}")
            time.sleep(0.2)

    def stop(self, name: str) -> None:
        os.kill(self.daemons[name].pid, signal.SIGSTOP)
        self.stopped.add(name)

    def resume(self, name: str) -> None:
        os.kill(self.daemons[name].pid, signal.SIGCONT)
        self.stopped.discard(name)

    def read_logs(self) -> str:
        return "".join((self._folder / name / "dockbell.log").read_text() for name in self.daemons)

    def count_logged(self, pattern: str) -> int:
        return len(re.findall(pattern, self.read_logs()))

    def measure_memory(self) -> list[float]:
        """Return how many MB each process has."""
        found = []
        for daemon in self.daemons.values():
            with suppress(OSError):
                text = Path(f"/proc/{daemon.pid}/status").read_text()
                found.append(int(text.partition("VmRSS:")[2].split()[0]) / 1024)
        return found


def wait_until(is_done: Callable[[], bool], most: float, every: float = 0.5) -> float | None:
    """Return after how many seconds something was so; None where it was not in time."""
    began = time.monotonic()
    while not is_done():
        if time.monotonic() > began + most:
            return None
        time.sleep(every)
    return time.monotonic() - began
