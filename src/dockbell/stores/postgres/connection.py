"""A connection to PostgreSQL that takes the statements of ``stores.sql``.

They are written as SQLite has them; what PostgreSQL has otherwise is put in their place, once per statement. Nothing
stands in the session of the server, so that a pooler may give each transaction another one.

A statement of a transaction is not sent until something needs its answer: its rows, their count, or the end of the
transaction. Then all that wait are sent as one batch, which the server answers at once. So a transaction that only
writes takes one round trip, its beginning and its end included. An error of one statement is raised where the batch is
sent; the server passes over those behind it, the commit among them.

Since nothing is prepared, the server parses and plans each statement anew. So rows that are inserted together are
written by one statement for many of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache, lru_cache
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types.string import ByteaLoader

from dockbell.stores.postgres.packing import pack, unpack
from dockbell.stores.sql.connection import Cursor
from dockbell.stores.sql.dialect import BY_KEY, IS_AT, IS_HELD, IS_OWN, LOCKED, SKIP_LOCKED, THEN_JOIN

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
_ROWS_AT_ONCE: Final = 500
_INSERT: Final = re.compile(
    r"(?P<head>INSERT INTO \w+ \((?P<names>[\w, ]+)\) VALUES )\([%s, ]+\)"
    r"(?P<tail>(?: ON CONFLICT \((?P<key>[\w, ]+)\) DO UPDATE SET [^%]+)?)"
)
_QUOTED: Final = re.compile(r"('(?:[^']|'')*')")
_WORDS: Final = (
    (re.compile(re.escape(BY_KEY)), ""),
    (re.compile(rf"\b{THEN_JOIN}(?=\s+\w+\s+(?:AS \w+\s+)?(?:ON|USING)\b)"), "JOIN"),
    (re.compile(re.escape(IS_HELD)), "held"),
    (re.compile(re.escape(LOCKED)), "FOR UPDATE"),
    (re.compile(re.escape(SKIP_LOCKED)), "FOR UPDATE SKIP LOCKED"),
    (re.compile(re.escape(IS_OWN)), "is_still(source, resource, token, ?, 'LE003')"),
    (re.compile(re.escape(IS_AT)), "is_still(source, resource, sequence, ?, 'LE005')"),
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

    def begin(self) -> tuple[str, Sequence[object]]:
        """Return the statement that marks a new transaction, or refuses it by an error; and its values."""

    def read_refusal(self, error: psycopg.Error) -> Exception | None:
        """Return what is to be raised where an error says that the process may not write; None where it says else."""

    def has_committed(self, connection: psycopg.Connection[Any]) -> bool | None:
        """Return whether the last transaction was committed, once it has ended; None where it may not have ended."""


class NoFence:
    """The fence of a process that works on nothing: what became of a commit without an answer is not known."""

    def begin(self) -> tuple[str, Sequence[object]]:
        return "SELECT", ()

    def read_refusal(self, error: psycopg.Error) -> Exception | None:  # noqa: ARG002  # nothing refuses
        return None

    def has_committed(self, connection: psycopg.Connection[Any]) -> bool:  # noqa: ARG002  # a fence asks there
        return False


class _Answer:
    """The answer to a statement of a transaction, which is waited for when it is looked at."""

    def __init__(
        self,
        connection: PostgresConnection,
        statement: str,
        values: Any,
        *,
        many: bool = False,
        cursor: psycopg.Cursor[Any] | None = None,
    ) -> None:
        self.statement = statement
        self._connection = connection
        self._values = values
        self._many = many
        self._cursor = connection.raw.cursor() if cursor is None else cursor

    def send(self) -> None:
        """Send the statement, in a batch."""
        query = sql.SQL(self.statement)
        if self._many:
            self._cursor.executemany(query, self._values)
        else:
            self._cursor.execute(query, self._values)

    @property
    def _answered(self) -> psycopg.Cursor[Any]:
        self._connection.send(until=self)
        return self._cursor

    @property
    def rowcount(self) -> int:
        return self._answered.rowcount

    def fetchone(self) -> Any:
        return self._answered.fetchone()

    def fetchall(self) -> list[Any]:
        return self._answered.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._answered)


class _Checked(_Answer):
    """The answer to a statement that the server refuses where it finds no row that may be written."""

    @property
    def rowcount(self) -> int:
        return -1


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
        self._is_writing = False
        self._waiting: list[_Answer] = []

    @property
    def in_transaction(self) -> bool:
        is_begun = self.raw.info.transaction_status is not TransactionStatus.IDLE and not self.raw.closed
        return bool(self._waiting) or is_begun

    def execute(self, statement: str, values: Any = (), /) -> Cursor:
        if statement in _BEGIN:
            return self._begin(statement)
        if statement == "COMMIT":
            return self._commit() if self._is_writing else self._end_reading()
        if statement == "ROLLBACK":
            return self._roll_back()
        if not self.in_transaction:
            with self._refusing():
                return self.raw.execute(sql.SQL(translate(statement)), _adapt(values))
        kind = _Checked if IS_OWN in statement else _Answer
        return self._wait(kind(self, translate(statement), _adapt(values)))

    def executemany(self, statement: str, values: Iterable[Any], /) -> Cursor:
        rows, translated = [_adapt(each) for each in values], translate(statement)
        if len(rows) > 1 and can_join(translated, rows):
            parts = (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))
            answers = [self._join(translated, part) for part in parts]
        else:
            answers = [_Answer(self, translated, rows, many=True)]
        if rows:
            waits = self.in_transaction
            self._waiting += answers
            if not waits:
                self.send()
        return answers[-1]

    def _join(self, statement: str, rows: Sequence[Sequence[Any]]) -> _Answer:
        """Return the answer to one statement that inserts many rows."""
        values = [value for row in rows for value in row]
        return _Answer(self, _write_insert(statement, len(rows)), values, cursor=psycopg.RawCursor(self.raw))

    def _begin(self, statement: str) -> Cursor:
        self._is_writing = statement == "BEGIN IMMEDIATE"
        answer = self._wait(_Answer(self, _BEGIN[statement], None))
        if self._is_writing:
            marking, values = self._fence.begin()
            self._wait(_Answer(self, marking, values))
        return answer

    def _wait(self, answer: _Answer) -> _Answer:
        self._waiting.append(answer)
        return answer

    def send(self, until: _Answer | None = None) -> None:
        """Send the statements that wait, as one batch, and take the answers.

        Nothing is done where the answer to the one that is named has come.
        """
        if until is not None and until not in self._waiting:
            return
        batch, self._waiting = self._waiting, []
        failed: psycopg.Error | None = None
        with self._refusing():
            try:
                with self.raw.pipeline():
                    try:
                        for each in batch:
                            each.send()
                    except psycopg.Error as error:  # what comes after it fails too, and says less
                        failed = error
            except psycopg.Error as error:
                failed = failed or _find_first(error)
            if failed is not None:
                raise failed

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise what the process has lost where the server says that it may not write."""
        try:
            yield
        except psycopg.Error as error:
            refusal = self._fence.read_refusal(error)
            if refusal is None:
                raise
            raise refusal from None

    def _end_reading(self) -> Cursor:
        answer = self._wait(_Answer(self, "COMMIT", None))
        self.send()
        return answer

    def _roll_back(self) -> Cursor:
        self._waiting.clear()
        if self.in_transaction:
            return self.raw.execute("ROLLBACK")
        return self.raw.cursor()

    def _commit(self) -> Cursor:
        """Commit; where the connection is lost meanwhile, ask on another one whether that was done.

        Done again, a page would come to nothing, but an absence would count twice. Where the server does not answer
        soon, it is not known: the caller takes it for not done.
        """
        answer = self._wait(_Answer(self, "COMMIT", None))
        try:
            self.send()
        except psycopg.OperationalError:
            if not self.raw.closed:
                raise
            until = time.monotonic() + _ASKED_SECONDS
            while (is_committed := self._ask()) is None and time.monotonic() < until:
                time.sleep(_ASKED_AGAIN_SECONDS)
            if not is_committed:
                raise
        return answer

    def _ask(self) -> bool | None:
        """Return whether the last transaction was committed; None where the server cannot be asked."""
        try:
            if self.raw.closed:
                self.raw = connect(self._url, self._application)
            return self._fence.has_committed(self.raw)
        except psycopg.OperationalError:
            return None


def _find_first(error: psycopg.Error) -> psycopg.Error:
    """Return the error of a batch for which the server passed over the statements behind it."""
    while isinstance(error, psycopg.errors.PipelineAborted) and isinstance(error.__context__, psycopg.Error):
        error = error.__context__
    return error


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


def can_join(statement: str, rows: Sequence[Any]) -> bool:
    """Return whether one statement may insert rows that a translated statement inserts one by one.

    Not where one of them replaces another: PostgreSQL refuses to write a row twice by one statement.
    """
    insert = _INSERT.fullmatch(statement)
    if insert is None or isinstance(rows[0], Mapping):
        return False
    if insert["key"] is None:
        return True
    names = insert["names"].split(", ")
    places = [names.index(name) for name in insert["key"].split(", ")]
    return len({tuple(row[place] for place in places) for row in rows}) == len(rows)


@lru_cache(maxsize=64)
def _write_insert(statement: str, count: int) -> str:
    """Return the statement that inserts so many rows; its placeholders are those of the server."""
    insert = _INSERT.fullmatch(statement)
    assert insert is not None
    width = insert["names"].count(",") + 1
    rows = (f"({', '.join(f'${row * width + column}' for column in range(1, width + 1))})" for row in range(count))
    return f"{insert['head']}{', '.join(rows)}{insert['tail']}"


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
    if isinstance(value, list):
        return [adapt_value(each) for each in value]
    return pack(value) if isinstance(value, bytes) else value
