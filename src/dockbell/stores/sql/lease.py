"""The right of one process to write a feed: every commit of a feed names its token, and is refused when it is old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dockbell.core.model import Feed
from dockbell.errors import LeaseLost
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.dialect import IS_AT, IS_OWN


class Lease(msgspec.Struct, frozen=True):
    """A feed as the process holds it that took it last."""

    feed: Feed
    id: int  # the feed's number in the store
    token: int  # raised each time that a process takes the feed
    is_taken: bool = True  # false: the store could not be written when the feed was opened


def find_lease(connection: Connection, feed: Feed) -> Lease | None:
    """Return the present lease of a feed, which is not taken by that; None where the feed is not stored."""
    row = connection.execute(
        "SELECT id, token FROM feeds WHERE source = ? AND resource = ?", (feed.source, feed.resource)
    ).fetchone()
    return Lease(feed, row[0], row[1], is_taken=False) if row else None


def take_lease(connection: Connection, feed: Feed) -> Lease | None:
    """Take a feed from any process that holds it, None where it is not stored; call it in a transaction."""
    taken = connection.execute(
        "UPDATE feeds SET token = token + 1 WHERE source = ? AND resource = ? RETURNING id, token",
        (feed.source, feed.resource),
    ).fetchall()
    return Lease(feed, *taken[0]) if taken else None


def update_feed(
    connection: Connection,
    lease: Lease,
    changes: str = "token = token",
    values: Sequence[Any] = (),
    only: str = "",
    *,
    only_values: Sequence[Any] = (),
) -> None:
    """Change a feed's row, where the condition ``only`` holds; each commit of a feed does this at least once.

    Raises:
        LeaseLost: Another process has taken the feed; the transaction must not be committed.
    """
    statement = f"UPDATE feeds SET {changes} WHERE id = ? AND {IS_OWN} {only}"
    if connection.execute(statement, (*values, lease.id, lease.token, *only_values)).rowcount == 0:
        (token,) = connection.execute("SELECT token FROM feeds WHERE id = ?", (lease.id,)).fetchone()
        if token != lease.token:  # else the condition does not hold
            raise refuse_feed(str(lease.feed))


def move_feed(connection: Connection, lease: Lease, after: int, changes: str, values: Sequence[Any]) -> None:
    """Change the row of a feed whose events were numbered behind ``after``, which was read before the transaction.

    Raises:
        LeaseLost: Another process has taken the feed, or its numbers have moved on; the transaction must not be
            committed.
        StoreUnavailable: They have moved on by a commit whose answer was lost.
    """
    statement = f"UPDATE feeds SET {changes} WHERE id = ? AND {IS_OWN} AND {IS_AT}"
    if connection.execute(statement, (*values, lease.id, lease.token, after)).rowcount == 0:
        raise refuse_feed(str(lease.feed))


def refuse_feed(feed: str) -> LeaseLost:
    """Return the error of a process that writes a feed which another one has taken."""
    return LeaseLost(
        f"feed {feed}: another process took it over, and nothing was stored;"
        " let only one dockbell work on the store, and restart it"
    )
