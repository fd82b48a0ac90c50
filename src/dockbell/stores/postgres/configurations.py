"""The revisions of the configuration that processes share."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from dockbell._version import __version__
from dockbell.config.shared import keep_sources, would_replace
from dockbell.ports import Configurations, Revision
from dockbell.stores.postgres.holder import name_process
from dockbell.stores.postgres.line import Line
from dockbell.stores.sql.connection import Connection, transaction

_TURN: Final = "LOCK TABLE configurations IN SHARE ROW EXCLUSIVE MODE"
"""Those that come at once take turns; who only reads does not wait. The lock ends with its transaction."""

_KEPT: Final = 100
"""So many revisions are kept whole, for people: each holds all sources, and a script may add them one by one."""


class PostgresConfigurations(Configurations):
    """Implements the port, by a line that others may use too."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def agree(self, digest: str, content: str, *, force: bool = False) -> Revision:
        return await self._line.do(_agree, digest, content, force=force)

    async def replace(self, number: int, digest: str, content: str) -> Revision | None:
        return await self._line.do(_replace, number, digest, content)

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
        if not force and would_replace(content, newest.content, newest.digest):
            return replace(newest, is_other=True)
        return _add(connection, digest, keep_sources(content, newest.content))


def _replace(connection: Connection, number: int, digest: str, content: str) -> Revision | None:
    with transaction(connection):
        connection.execute(_TURN)
        is_replaced = _find_newest(connection, number) is not None
        return None if is_replaced else _add(connection, digest, content)


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
    _forget(connection, number - _KEPT)
    return Revision(number, digest, content, __version__)


def _forget(connection: Connection, last: int) -> None:
    """Keep of old revisions only which files were followed."""
    connection.execute(
        "DELETE FROM configurations AS old WHERE revision <= ? AND EXISTS"
        " (SELECT 1 FROM configurations AS later WHERE later.digest = old.digest AND later.revision > old.revision)",
        (last,),
    )
    connection.execute("UPDATE configurations SET content = '' WHERE revision <= ? AND content <> ''", (last,))
