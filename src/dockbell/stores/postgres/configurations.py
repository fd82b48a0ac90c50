"""The revisions of the configuration that processes share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from dockbell._version import __version__
from dockbell.ports import Configurations, Revision
from dockbell.stores.postgres.holder import name_process
from dockbell.stores.postgres.line import Line
from dockbell.stores.sql.connection import Connection, transaction

_TURN: Final = "LOCK TABLE configurations IN SHARE ROW EXCLUSIVE MODE"
"""Those that come at once take turns; who only reads does not wait. The lock ends with its transaction."""


class PostgresConfigurations(Configurations):
    """Implements the port, by a line that others may use too."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def agree(self, digest: str, content: str, *, force: bool = False) -> Revision:
        return await self._line.do(_agree, digest, content, force=force)

    async def find_newest(self, after: int = 0) -> Revision | None:
        return await self._line.do(_find_newest, after)

    async def aclose(self) -> None:
        await self._line.aclose()


def _agree(connection: Connection, digest: str, content: str, *, force: bool) -> Revision:
    newest = _find_newest(connection, 0)
    if newest is not None and newest.digest == digest:
        return newest
    with transaction(connection):
        connection.execute(_TURN)
        newest = _find_newest(connection, 0)
        if newest is None:
            return _add(connection, digest, content)
        if newest.digest == digest:
            return newest
        (outdated,) = connection.execute(
            "SELECT coalesce(max(revision), 0) FROM configurations WHERE digest = ?", (digest,)
        ).fetchone()
        if outdated and not force:
            return replace(newest, outdated=outdated)
        return _add(connection, digest, _keep_sources(content, newest.content))


def _find_newest(connection: Connection, after: int) -> Revision | None:
    row = connection.execute(
        "SELECT revision, digest, content, version FROM configurations WHERE revision > ?"
        " ORDER BY revision DESC LIMIT 1",
        (after,),
    ).fetchone()
    return None if row is None else Revision(*row)


def _add(connection: Connection, digest: str, content: str) -> Revision:
    (number,) = connection.execute(
        "INSERT INTO configurations (digest, content, made_by, version) VALUES (?, ?, ?, ?) RETURNING revision",
        (digest, content, name_process(), __version__),
    ).fetchone()
    return Revision(number, digest, content, __version__)


def _keep_sources(content: str, before: str) -> str:
    """Return a content with the sources of the one before, where it has none of its own."""
    given = json.loads(content)
    if "sources" in given:
        return content
    kept = {"sources": sources} if (sources := json.loads(before).get("sources")) else {}
    return json.dumps(given | kept, sort_keys=True, ensure_ascii=False)
