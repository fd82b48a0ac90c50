"""Statements about leases: which process has which source.

Sources with one API key share its budget, so they go together: a process claims the row of the first of them, which is
named as the ``account`` of each, and takes the others with it. The lock of that row decides between two that come at
once; who meets it locked passes it over. A process that dies leaves its rows without a holder, by the foreign key, and
with ``taken_at``, which a process that hands over clears. So the next one knows what it takes over from a dead one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any, Final

import msgspec

from dockbell.core.model import NOTICES, Feed, RunKind
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.ports import Claim, Member, Spent
from dockbell.stores.sql.connection import Connection

SETTLED_SECONDS: Final = 5.0
"""So long a process must have lived before others hand sources over to it. One that was stopped and goes on comes just
when others have taken over what it had: they would hand over sources that they have not read yet."""
_LOOKED_AT: Final = 2000
"""Of so many keys that are free the most overdue are found, which takes 12 µs for each of their sources."""
_BURY: Final = (
    "DELETE FROM holders WHERE id IN"
    " (SELECT id FROM holders WHERE expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED)"
)
_ENDED_MILLISECONDS: Final = 1000
"""So long the end of a connection is waited for."""
_TOLD_SECONDS: Final = 5
"""So long what was spent stands as it is where the same is said again; it may be so much younger than it looks."""
_REQUESTS: Final = (
    "SELECT sum(value :: int8) AS requests FROM json_array_elements_text(spent :: json)"
    " WITH ORDINALITY AS told (value, n) WHERE n > 1 AND spent_at > clock_timestamp() - (8 - n) * interval '10 s'"
)
"""How many requests of a lease are from the last minute: what was counted ages after it was said."""
_KINDS: Final = ", ".join(f"('{kind}')" for kind in RunKind)
_AMONG: Final = "source IN (SELECT value FROM json_array_elements_text(CAST(:sources AS json)) AS value)"


class Standing(msgspec.Struct, frozen=True):
    """How the sources are spread over the processes; those that a process is handing over are left out."""

    processes: int
    free: int  # sources without a process
    least: int  # the fewest API keys that a process has
    own: Mapping[str, str]  # the account of each source that this process has
    split: frozenset[str]  # those of its sources whose account is another process's
    settled: int  # how many of the processes have lived for some seconds, this one included


def bury(connection: Connection) -> None:
    """Remove the processes that have not renewed their rows.

    Such a process may have been stopped in the middle of a transaction, which locks its row. This function does not
    wait for that, but has the server end the connections of the process that are in a transaction. Others stay: a
    pooler gives a connection that rests to the next process, and it bears the name of the last one until then.
    """
    connection.execute(_BURY)
    ended = connection.execute(
        f"SELECT pg_terminate_backend(pid, {_ENDED_MILLISECONDS}) FROM holders"
        " JOIN pg_stat_activity ON application_name = 'dockbell ' || id AND state <> 'idle'"
        " WHERE expires_at < clock_timestamp()"
    ).fetchall()
    if ended:
        connection.execute(_BURY)


def list_sources(connection: Connection, accounts: Mapping[str, str]) -> None:
    """Make a row for each source that has none, and note the account of each."""
    connection.execute(
        "INSERT INTO leases (source, account) SELECT key, value FROM json_each_text(CAST(:accounts AS json))"
        " WHERE true ON CONFLICT (source) DO UPDATE SET account = excluded.account"
        " WHERE leases.account <> excluded.account",
        {"accounts": json.dumps(accounts)},
    )


def find_standing(connection: Connection, holder: str) -> Standing:
    processes, settled, least = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE is_settled), min(held) FROM"
        " (SELECT id = :holder OR began_at < clock_timestamp() - :settled * interval '1 s' AS is_settled,"
        " (SELECT count(*) FROM leases WHERE holder = holders.id"
        " AND NOT leaving AND source = account AND source <> :notices) AS held"
        " FROM holders WHERE expires_at >= clock_timestamp()) AS living",
        {"holder": holder, "settled": SETTLED_SECONDS, "notices": NOTICES.source},
    ).fetchone()
    (free,) = connection.execute("SELECT count(*) FROM leases WHERE holder IS NULL").fetchone()
    rows = connection.execute(
        "SELECT own.source, own.account, first.holder IS DISTINCT FROM own.holder FROM leases AS own"
        " LEFT JOIN leases AS first ON first.source = own.account WHERE own.holder = ? AND NOT own.leaving",
        (holder,),
    ).fetchall()
    return Standing(
        processes,
        free,
        least,
        {source: account for source, account, _ in rows},
        frozenset(source for source, _, is_split in rows if is_split),
        settled,
    )


def claim(
    connection: Connection, holder: str, accounts: Mapping[str, timedelta | None], most: int
) -> tuple[Mapping[str, Claim], frozenset[str]]:
    """Take up to ``most`` of those among some accounts that are free, with all their sources, the most overdue first.

    Several processes come at once, and each goes without the rows that it meets locked: it takes the next ones.

    ``accounts`` has the shortest interval of each, where it has one.

    Returns:
        What was spent of each account, and the sources among them that a dead process had.
    """
    found = connection.execute("SELECT source FROM leases WHERE holder IS NULL AND source = account")
    free = [source for (source,) in found if source in accounts]
    looked_at = random.sample(free, min(len(free), _LOOKED_AT)) if most else []
    overdue = _find_overdue(connection, looked_at, accounts)
    rows = connection.execute(
        "UPDATE leases SET holder = :holder, leaving = false, taken_at = clock_timestamp() FROM"
        " (SELECT leases.source, taken_at IS NOT NULL AS is_left"
        " FROM json_array_elements_text(CAST(:sources AS json)) WITH ORDINALITY AS wanted (source, place)"
        " JOIN leases ON leases.source = wanted.source WHERE holder IS NULL"
        " ORDER BY place LIMIT :most FOR UPDATE OF leases SKIP LOCKED) AS free WHERE leases.source = free.source"
        " RETURNING leases.source, spent,"
        " extract(epoch FROM clock_timestamp() - coalesce(spent_at, 'epoch')) :: float8 - :told, is_left",
        {
            "holder": holder,
            "sources": json.dumps(sorted(overdue, key=overdue.__getitem__, reverse=True)),
            "most": most,
            "told": _TOLD_SECONDS,
        },
    ).fetchall()
    others = connection.execute(
        "UPDATE leases SET holder = :holder, leaving = false, taken_at = clock_timestamp() FROM"
        " (SELECT source, taken_at IS NOT NULL AS is_left FROM leases WHERE holder IS NULL AND account IN"
        " (SELECT source FROM leases WHERE holder = :holder AND source = account) FOR UPDATE) AS free"
        " WHERE leases.source = free.source RETURNING leases.source, is_left",
        {"holder": holder},
    ).fetchall()
    due = _find_due(connection, [source for source, *_ in rows], accounts) if rows else {}
    claims = {
        source: Claim(json.loads(spent), timedelta(seconds=min(max(age, 0.0), 3600.0)), due.get(source))
        for source, spent, age, _ in rows
    }
    return claims, frozenset(source for source, *_, is_left in [*rows, *others] if is_left)


def _find_overdue(
    connection: Connection, keys: Sequence[str], accounts: Mapping[str, timedelta | None]
) -> Mapping[str, float]:
    """Return how many of its intervals have passed since the last run of each account, by what the log of runs shows.

    What was spent of a key does not tell: who hands it over, or has just taken it over, declares it anew.
    """
    if not keys:
        return {}
    rows = connection.execute(
        "SELECT account, extract(epoch FROM clock_timestamp()) :: float8 - max(last.ended_at) / 1e6 FROM leases"
        f" JOIN feeds ON feeds.source = leases.source CROSS JOIN (VALUES {_KINDS}) AS kinds (kind)"
        " CROSS JOIN LATERAL (SELECT ended_at FROM runs WHERE feed = feeds.id AND runs.kind = kinds.kind AND complete"
        " ORDER BY id DESC LIMIT 1) AS last"
        " WHERE account IN (SELECT value FROM json_array_elements_text(CAST(:keys AS json)) AS value) GROUP BY account",
        {"keys": json.dumps(keys)},
    ).fetchall()
    idle = {account: timedelta(seconds=max(float(seconds), 0.0)) for account, seconds in rows}
    return {key: idle[key] / every if (every := accounts[key]) and key in idle else 0.0 for key in keys}


def _find_due(
    connection: Connection, keys: Sequence[str], accounts: Mapping[str, timedelta | None]
) -> Mapping[str, timedelta]:
    """Return after which time the first feed of each account may be due; without those of which a feed does not tell.

    A feed is due an interval after its last reading began: that of its plan, or the shortest that is configured.
    """
    last = "(SELECT sent_at FROM runs WHERE feed = feeds.id AND kind = '{}' AND complete ORDER BY id DESC LIMIT 1)"
    rows = connection.execute(
        "SELECT account, plan, extract(epoch FROM clock_timestamp()) :: float8"
        f" - coalesce({last.format(RunKind.POLL)}, {last.format(RunKind.PASS)}) / 1e6"
        " FROM leases JOIN feeds ON feeds.source = leases.source"
        " WHERE account IN (SELECT value FROM json_array_elements_text(CAST(:keys AS json)) AS value)",
        {"keys": json.dumps(keys)},
    )
    due: dict[str, timedelta | None] = {}
    for account, plan, seconds in rows:
        shortest, planned = accounts[account], StoredPlan.from_json(plan).every
        if shortest is None or planned is None or seconds is None:
            due[account] = None
        elif (known := due.get(account, timedelta.max)) is not None:
            # The reading is of a process whose clock may be ahead.
            due[account] = min(known, min(shortest, planned) - timedelta(seconds=max(float(seconds), 0.0)))
    return {account: due_in for account, due_in in due.items() if due_in is not None}


def count_taken_over(connection: Connection, holder: str, count: int) -> None:
    """Count sources of dead processes that a process has taken."""
    connection.execute("UPDATE holders SET taken_over = taken_over + ? WHERE id = ?", (count, holder))


def note_spent(connection: Connection, holder: str, spent: Mapping[str, Spent]) -> None:
    """Store what was spent of keys, and may be until the next time, by account."""
    connection.execute(
        "UPDATE leases SET spent = told.value, spent_at = clock_timestamp()"
        " FROM json_each_text(CAST(:spent AS json)) AS told"
        " WHERE leases.source = told.key AND leases.holder = :holder AND (leases.spent <> told.value"
        " OR leases.spent_at < clock_timestamp() - :told * interval '1 s')",
        {
            "spent": json.dumps({account: json.dumps([*each]) for account, each in spent.items()}),
            "holder": holder,
            "told": _TOLD_SECONDS,
        },
    )


def prepare(connection: Connection, holder: str, sources: Collection[str]) -> None:
    connection.execute(
        f"UPDATE leases SET leaving = true WHERE holder = :holder AND {_AMONG}",
        {"holder": holder, "sources": json.dumps([*sources])},
    )


def release(connection: Connection, holder: str, sources: Collection[str]) -> None:
    connection.execute(
        f"UPDATE leases SET holder = NULL, leaving = false, taken_at = NULL WHERE holder = :holder AND {_AMONG}",
        {"holder": holder, "sources": json.dumps([*sources])},
    )


def load_members(connection: Connection) -> Sequence[Member]:
    """Return the processes that live, but for one that works on the store alone."""
    rows = connection.execute(
        "SELECT name, version, slot, began_at, count(source), coalesce(sum(requests), 0) :: int8, taken_over"
        " FROM holders LEFT JOIN leases ON holder = id AND source <> ?"
        f" LEFT JOIN LATERAL ({_REQUESTS}) AS counted ON true"
        " WHERE expires_at >= clock_timestamp() AND NOT alone GROUP BY id ORDER BY slot",
        (NOTICES.source,),
    )
    return [
        Member(name, version, slot, began_at.astimezone(UTC), sources, requests, taken_over)
        for name, version, slot, began_at, sources, requests, taken_over in rows
    ]


def load_holders(connection: Connection) -> Mapping[str, str]:
    """Return the name of the process that has each source, of those that live."""
    rows = connection.execute(
        "SELECT source, name FROM leases JOIN holders ON holders.id = holder"
        " WHERE expires_at >= clock_timestamp() AND source <> ?",
        (NOTICES.source,),
    )
    return dict(rows.fetchall())


def load_ends(connection: Connection, sources: Collection[str]) -> Mapping[Feed, int]:
    """Return the sequence of the last event of every feed of some sources."""
    rows: Sequence[Any] = connection.execute(
        f"SELECT source, resource, sequence FROM feeds WHERE {_AMONG}", {"sources": json.dumps([*sources])}
    ).fetchall()
    return {Feed(source, resource): sequence for source, resource, sequence in rows}
