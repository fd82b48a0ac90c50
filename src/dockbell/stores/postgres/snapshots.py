"""Stored snapshots of one feed, read for a page in one round trip."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from dockbell.core.comparing.page_diff import Hold, Stored
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.snapshots import FeedSnapshots, Last

_FIND: Final = """
SELECT last_row, sequence, records.row, raw_hash, records.fingerprint, modified, revision, gone_at,
    suspected_at IS NOT NULL OR ignored_until_seen <> 0, superseded, held, records.key,
    CASE WHEN gone_at IS NULL AND raw_hash <> ALL(:hashes) THEN
        (SELECT body FROM bodies WHERE bodies.feed = records.feed AND bodies.row = records.row) END,
    holds.fingerprint, asked_at, ARRAY(SELECT digest FROM quarantine WHERE feed = :feed AND digest = ANY(:bad))
FROM feeds LEFT JOIN records ON records.feed = feeds.id AND records.key = ANY(:keys)
    LEFT JOIN holds ON held AND holds.feed = records.feed AND holds.row = records.row
WHERE feeds.id = :feed
"""
_NUMBERS: Final = 2  # of the feed, before the columns of the record
_STORED: Final = _NUMBERS + len(Stored._fields)


class PostgresSnapshots:
    """What is stored under the keys of a page, with the bodies of the records that the page shows otherwise."""

    def __init__(self, connection: Connection, feed_id: int) -> None:
        self._connection = connection
        self._feed_id = feed_id
        self._others = FeedSnapshots(connection, feed_id)
        self._last: Last | None = None
        self._bodies: dict[int, bytes] = {}
        self._holds: dict[int, Hold] = {}
        self._unknown: Collection[bytes] = ()
        self._quarantined: Collection[bytes] = ()

    def last(self) -> Last:
        return self._others.last() if self._last is None else self._last

    def find(self, hashes: Mapping[str, bytes | None], bad: Sequence[bytes] = ()) -> Mapping[str, Stored]:
        shown = [each for each in hashes.values() if each is not None]
        values = {"feed": self._feed_id, "keys": list(hashes), "hashes": shown, "bad": list(bad)}
        rows = self._connection.execute(_FIND, values).fetchall()  # at least the one of the feed
        self._last, self._quarantined = Last(*rows[0][:_NUMBERS]), rows[0][-1]
        self._unknown = {*bad} - {*self._quarantined}
        found = {}
        for columns in rows:
            if columns[_NUMBERS] is None:  # nothing is stored under any of the keys
                break
            stored = Stored._make(columns[_NUMBERS:_STORED])
            body, held, asked_at = columns[_STORED:-1]
            if body is not None:
                self._bodies[stored.row] = body
            if held is not None:
                self._holds[stored.row] = Hold(held, asked_at)
            found[stored.key] = stored
        return found

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        others = [row for row in rows if row not in self._bodies]
        return {**self._bodies, **(self._others.bodies(others) if others else {})}

    def holds(self, rows: Sequence[int]) -> Mapping[int, Hold]:
        others = [row for row in rows if row not in self._holds]
        return {**self._holds, **(self._others.holds(others) if others else {})}

    def quarantined(self, digests: Sequence[bytes]) -> Collection[bytes]:
        known = {each for each in digests if each in self._quarantined}
        others = [each for each in digests if each not in known and each not in self._unknown]
        return known | {*(self._others.quarantined(others) if others else ())}
