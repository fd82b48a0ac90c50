"""Several processes on one PostgreSQL, what a receiver is told by them, and the judge of both."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import psycopg
from anyio import to_thread

from dockbell.core.model import Feed, StatementKind
from dockbell.sandbox import Sandbox
from dockbell.stores.postgres.packing import unpack
from tests.oracle import Account, Story
from tests.postgres import Server
from tests.services import Daemon

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RESOURCES: Final = ("shipments", "stock")
CONFIG = """
name = "acme"

[store]
url = "{store}"

[resources]
shipments = {{ every = "2s", reconcile = "1h", stale_window = "0s", first_pass = "emit" }}
stock = {{ every = "4s", confirm_after = "1s", stale_window = "0s", first_pass = "emit" }}

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = "{secret}"
lanes = 8
"""


class Ledger(Account):
    """What a receiver was told of all sources."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, Account] = defaultdict(Account)
        self.contents: dict[str, Mapping[str, Any]] = {}
        self.sequences: dict[Feed, dict[int, str]] = defaultdict(dict)
        self.arrivals: list[tuple[float, str]] = []

    def hear(self, event: Mapping[str, Any]) -> None:
        """Note a delivery, and hold it against what came before."""
        self.arrivals.append((time.monotonic(), event["id"]))
        if self.contents.setdefault(event["id"], event) != event:
            self.problems.append(f"{event['id']} has two contents")
        *_, source, resource = urlsplit(event["source"]).path.split("/")
        number = int(event["sequence"])
        if self.sequences[Feed(source, resource)].setdefault(number, event["id"]) != event["id"]:
            self.problems.append(f"{source}/{resource} has two events with the number {number}")
        self.sources[source].hear(event)

    @property
    def repeats(self) -> int:
        return len(self.arrivals) - len(self.contents)


class Processes:
    """Processes on one database, by their names; ``sources`` are those that they share."""

    def __init__(self, server: Server, url: str, sources: Collection[str]) -> None:
        self.daemons: dict[str, Daemon] = {}
        self._server = server
        self._database = urlsplit(url).path.strip("/")
        self._sources = sources

    async def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return await to_thread.run_sync(self._server.query, self._database, statement, values)

    async def find_held(self, name: str) -> set[str]:
        """Return the sources that a process has."""
        rows = await self.query(
            "SELECT source FROM leases JOIN holders ON holders.id = leases.holder WHERE starts_with(holders.name, %s)",
            f"process {self.daemons[name].pid} ",
        )
        return {source for (source,) in rows} - {"dockbell"}

    async def find_holder(self, source: str) -> str:
        """Return the process that has a source."""
        while True:
            for name in self.daemons:
                if source in await self.find_held(name):
                    return name
            await anyio.sleep(0.1)

    async def settle(self, processes: int) -> None:
        """Return when so many processes have all sources, each its share."""
        with anyio.fail_after(40):
            while True:
                shares = []
                with suppress(psycopg.errors.UndefinedTable):  # the first process has yet to make them
                    rows = await self.query(
                        "SELECT count(*) FROM leases WHERE source <> 'dockbell' AND holder IS NOT NULL GROUP BY holder"
                    )
                    shares = [count for (count,) in rows]
                if sum(shares) == len(self._sources) and len(shares) == processes and max(shares) - min(shares) <= 2:
                    return
                await anyio.sleep(0.1)

    async def describe(self) -> str:
        """Return what the database knows of processes, sources and connections."""
        queries = (
            "SELECT name, slot, expires_at - clock_timestamp() FROM holders ORDER BY slot",
            (
                "SELECT source, slot, leaving, spent, clock_timestamp() - spent_at"
                " FROM leases LEFT JOIN holders ON holders.id = holder ORDER BY source"
            ),
            (
                "SELECT application_name, state, wait_event, clock_timestamp() - state_change, left(query, 60)"
                " FROM pg_stat_activity WHERE datname = current_database()"
            ),
        )
        return "\n".join([str(row) for query in queries for row in await self.query(query)])


async def change(sandbox: Sandbox, resources: Sequence[str], *, pause: float = 0.2) -> None:
    """Change records until cancelled, one after up to ``pause`` seconds."""
    dice = random.Random(7)
    while True:
        resource = dice.choice(resources)
        sandbox.edit(resource, identity=dice.choice([*sandbox.records(resource)]))
        await anyio.sleep(dice.uniform(0, pause))


async def judge_store(processes: Processes, ledger: Ledger, story: Story, sources: Collection[str]) -> None:
    """Check what is stored against what arrived, and of some sources against the API.

    A pass may have ended just before the last process did: its certificate is stored then, and still owed.
    """
    stored: dict[Feed, dict[int, str]] = defaultdict(dict)
    owed: dict[Feed, dict[int, str]] = defaultdict(dict)
    for source, resource, number, identity, may_be_owed in await processes.query(
        "SELECT source, resource, events.sequence, events.id, events.sequence > positions.sequence"
        " AND change = %s FROM events JOIN feeds ON feeds.id = events.feed"
        " JOIN positions ON positions.feed = feeds.id WHERE source <> 'dockbell'",
        StatementKind.RECONCILED,
    ):
        feed = Feed(source, resource)
        stored[feed][number] = identity
        if may_be_owed and number not in ledger.sequences[feed]:
            owed[feed][number] = identity
    for source, resource, origin, sequence in await processes.query(
        "SELECT source, resource, origin, feeds.sequence FROM feeds JOIN positions ON positions.feed = feeds.id"
        " WHERE source <> 'dockbell'"
    ):
        feed = Feed(source, resource)
        assert sequence
        missing = {*range(origin + 1, sequence + 1)} ^ stored[feed].keys()
        assert not missing, f"{feed}: {sorted(missing)} of {sequence} are not stored"
        untold = stored[feed].keys() ^ (ledger.sequences[feed].keys() | owed[feed].keys())
        assert not untold, f"{feed}: {sorted(untold)} of {sequence} did not arrive"
        assert stored[feed] == ledger.sequences[feed] | owed[feed]
    final: dict[str, dict[tuple[str, str], Any]] = defaultdict(dict)
    for source, resource, key, body in await processes.query(
        "SELECT source, resource, records.key, body FROM records JOIN feeds ON feeds.id = records.feed"
        " JOIN bodies ON (bodies.feed, bodies.row) = (records.feed, records.row) WHERE gone_at IS NULL"
    ):
        content = json.loads(unpack(bytes(body)))
        final[source][resource, key] = {name: value for name, value in content.items() if name != "updated_at"}
    assert [source for source in sources if final[source] != story.final()] == []
