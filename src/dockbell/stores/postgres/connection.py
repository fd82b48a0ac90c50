"""A connection to PostgreSQL that takes the statements of ``stores.sql``.

They are written as SQLite has them; what PostgreSQL has otherwise is put in their place, once per statement. Nothing
stands in the session of the server, so that a pooler may give each transaction another one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types.string import ByteaLoader

from dockbell.stores.postgres.packing import pack, unpack
from dockbell.stores.sql.dialect import BY_KEY, IS_HELD, LOCKED, THEN_JOIN

_APPLICATION: Final = "dockbell"
_CONNECT_SECONDS: Final = 10
_KEEPALIVE: Final[Mapping[str, Any]] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""So soon a connection ends whose other side has gone without a word: seconds, and milliseconds for what is sent."""
_ASKED_SECONDS: Final = 5.0
_ASKED_AGAIN_SECONDS: Final = 0.2
_BEGIN: Final = {"BEGIN IMMEDIATE": "BEGIN", "BEGIN": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}
"""A transaction that writes, and one that shows what is read as it was at one moment."""
_QUOTED: Final = re.compile(r"('(?:[^']|'')*')")
_WORDS: Final = (
    (re.compile(re.escape(BY_KEY)), ""),
    (re.compile(rf"\b{THEN_JOIN}(?=\s+\w+\s+(?:AS \w+\s+)?(?:ON|USING)\b)"), "JOIN"),
    (re.compile(re.escape(IS_HELD)), "held"),
    (re.compile(re.escape(LOCKED)), "FOR UPDATE"),
    (re.compile(r"\bjson_each\((\?|:\w+)\)(?! AS)"), r"json_each(\1) AS named"),
    (re.compile(r"\bjson_each\((\?|:\w+)\)"), r"(SELECT json_array_elements_text(CAST(\1 AS json)) AS value)"),
    (re.compile(r"([\w.]+) ->> "), r"CAST(\1 AS json) ->> "),
    (re.compile(r"\bAS INTEGER\b"), "AS bigint"),
    (re.compile(r"\blength\(body\)"), "unpacked_length(body)"),
    (
        re.compile(r"(\?|(?<!:):\w+) IS NULL"),
        r"CAST(\1 AS text) IS NULL",
    ),  # else nothing tells the type
)
"""What only SQLite understands, and what PostgreSQL has for it."""


class _WholeLoader(Loader):
    """Sums of bigint are numeric in PostgreSQL; all of ours are whole."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


class _UnpackingLoader(ByteaLoader):
    """Records and events are stored deflated."""

    def load(self, data: Any) -> bytes:
        return unpack(super().load(bytes(data)))


class Fence(Protocol):
    """What each transaction that writes begins with."""

    def begin(self, connection: psycopg.Connection[Any]) -> None:
        """Mark the transaction that has just begun, or refuse it by an exception."""

    def has_committed(self, connection: psycopg.Connection[Any]) -> bool | None:
        """Return whether the last transaction was committed, once it has ended; None where it may not have ended."""


class NoFence:
    """The fence of a process that works on nothing: what became of a commit without an answer is not known."""

    def begin(self, connection: psycopg.Connection[Any]) -> None:
        pass

    def has_committed(self, connection: psycopg.Connection[Any]) -> bool:  # noqa: ARG002  # a fence asks there
        return False


class PostgresConnection:
    """Takes statements with ``?`` and ``:name`` for values.

    Args:
        url: Of the database.
        fence: Of the transactions that write.
        application: What the connection is called at the server.
    """

    def __init__(self, url: str, fence: Fence, application: str = _APPLICATION) -> None:
        self.raw = connect(url, application)
        self._url = url
        self._application = application
        self._fence = fence
        self._writes = False

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status is not TransactionStatus.IDLE and not self.raw.closed

    def execute(self, statement: str, values: Any = (), /) -> psycopg.Cursor[Any]:
        if statement in _BEGIN:
            self._writes = statement == "BEGIN IMMEDIATE"
            cursor = self.raw.execute(sql.SQL(_BEGIN[statement]))
            if self._writes:
                with _ending(self.raw):
                    self._fence.begin(self.raw)
            return cursor
        if statement == "COMMIT" and self._writes:
            return self._commit()
        return self.raw.execute(sql.SQL(translate(statement)), _adapt(values))

    def _commit(self) -> psycopg.Cursor[Any]:
        """Commit; where the connection is lost meanwhile, ask on another one whether that was done.

        Done again, a page would come to nothing, but an absence would count twice. Where the server does not answer
        soon, it is not known: the caller takes it for not done.
        """
        try:
            return self.raw.execute("COMMIT")
        except psycopg.OperationalError:
            if not self.raw.closed:
                raise
            until = time.monotonic() + _ASKED_SECONDS
            while (is_committed := self._ask()) is None and time.monotonic() < until:
                time.sleep(_ASKED_AGAIN_SECONDS)
            if not is_committed:
                raise
            return self.raw.cursor()

    def _ask(self) -> bool | None:
        """Return whether the last transaction was committed; None where the server cannot be asked."""
        try:
            if self.raw.closed:
                self.raw = connect(self._url, self._application)
            return self._fence.has_committed(self.raw)
        except psycopg.OperationalError:
            return None

    def executemany(self, statement: str, values: Iterable[Any], /) -> psycopg.Cursor[Any]:
        cursor = self.raw.cursor()
        rows = [_adapt(each) for each in values]
        if rows:
            cursor.executemany(sql.SQL(translate(statement)), rows)
        return cursor


@contextmanager
def _ending(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """End the transaction where it is refused."""
    try:
        yield
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise


def connect(url: str, application: str = _APPLICATION) -> psycopg.Connection[Any]:
    """Return a connection whose transactions are begun by hand; nothing is prepared, see the head of this module."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=_CONNECT_SECONDS,
        **_KEEPALIVE,
        application_name=application,
        client_encoding="utf-8",
    )
    connection.adapters.register_loader("numeric", _WholeLoader)
    connection.adapters.register_loader("bytea", _UnpackingLoader)
    return connection


@cache
def translate(statement: str) -> str:
    """Return a statement as PostgreSQL and its driver take it."""
    for pattern, word in _WORDS:
        statement = pattern.sub(word, statement)
    parts = _QUOTED.split(statement.replace("%", "%%"))
    for index in range(0, len(parts), 2):  # what is quoted holds no placeholder
        parts[index] = re.sub(r"(?<!:):(\w+)", r"%(\1)s", parts[index].replace("?", "%s"))
    return "".join(parts)


def _adapt(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: adapt_value(value) for name, value in values.items()}
    return [adapt_value(value) for value in values]


def adapt_value(value: Any) -> Any:
    """Return a value as the driver takes it; records and events are deflated.

    PostgreSQL's text cannot hold NUL. Keys hold none, they escape it; what may is what others have said in an error,
    where the sign for it says as much.
    """
    if isinstance(value, str):
        text = value.value if isinstance(value, Enum) else value
        return text.replace("\0", "␀")
    return pack(value) if isinstance(value, bytes) else value
