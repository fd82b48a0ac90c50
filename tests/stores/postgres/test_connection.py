from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from dockbell.stores.postgres.connection import NoFence, PostgresConnection, _Answer, can_join, connect, translate
from dockbell.stores.sql.connection import reading, transaction, upsert
from dockbell.stores.sql.dialect import BY_KEY, IS_HELD, THEN_JOIN, values_of


@pytest.fixture
def connection(postgres_url: str) -> Iterator[PostgresConnection]:
    connection = PostgresConnection(postgres_url, NoFence())
    connection.execute("CREATE TABLE words (id bigint, word text)")
    yield connection
    connection.raw.close()


def kill(connection: psycopg.Connection[Any], url: str) -> None:
    """End a connection from the other side."""
    with closing(connect(url)) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])


def insert(connection: PostgresConnection, *, then: Callable[[], object]) -> None:
    """Insert a row, and do something before that is committed."""
    with transaction(connection):
        connection.execute("INSERT INTO words VALUES (?, ?)", (1, "a"))
        then()


@pytest.mark.parametrize(
    ("statement", "translated"),
    [
        ("SELECT ? WHERE x LIKE '% %'", "SELECT %s WHERE x LIKE '%% %%'"),
        ("SELECT :a, ':b ?', :a :: text", "SELECT %(a)s, ':b ?', %(a)s :: text"),
        (f"FROM events {BY_KEY} JOIN feeds", "FROM events  JOIN feeds"),
        (f"FROM holds {THEN_JOIN} records USING (feed)", "FROM holds JOIN records USING (feed)"),
        (f"FROM a {THEN_JOIN} b AS c ON c.x = a.x", "FROM a JOIN b AS c ON c.x = a.x"),
        (f"WHERE {IS_HELD}", "WHERE held"),
        ("CAST(run ->> 'pages' AS INTEGER)", "CAST(CAST(run AS json) ->> 'pages' AS bigint)"),
    ],
)
def test_what_only_sqlite_understands_is_put_in_other_words(statement: str, translated: str) -> None:
    assert translate(statement) == translated


def test_an_array_is_a_table_of_its_values(connection: PostgresConnection) -> None:
    query = "SELECT value FROM "  # of what is ours
    alone, named = (query + values_of(each) for each in ("?", ":all"))
    assert connection.execute(alone, ['["a", "ü"]']).fetchall() == [("a",), ("ü",)]
    assert connection.execute(f"{named} AS x", {"all": '["a"]'}).fetchall() == [("a",)]


def test_a_nul_in_text_is_kept_as_its_sign(connection: PostgresConnection) -> None:
    connection.execute("INSERT INTO words VALUES (?, ?)", (1, "a\0b"))
    assert connection.execute("SELECT word FROM words").fetchall() == [("a␀b",)]


def test_a_transaction_that_breaks_leaves_nothing(connection: PostgresConnection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        insert(connection, then=lambda: connection.execute("SELECT * FROM nowhere"))
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)


def test_what_is_read_together_is_as_it_was_at_one_moment(connection: PostgresConnection, postgres_url: str) -> None:
    with reading(connection):
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)
        with closing(connect(postgres_url)) as other:
            other.execute("INSERT INTO words VALUES (1, 'a')")
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM words").fetchone() == (1,)


def test_a_transaction_whose_connection_dies_before_its_end_is_none(
    connection: PostgresConnection, postgres_url: str
) -> None:
    with pytest.raises(psycopg.OperationalError):
        insert(connection, then=lambda: kill(connection.raw, postgres_url))
    with closing(connect(postgres_url)) as other:
        assert other.execute("SELECT count(*) FROM words").fetchone() == (0,)


INSERT = "INSERT INTO words (id, word) VALUES (?, ?)"


@pytest.fixture
def statements(connection: PostgresConnection, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the statements that are sent from now on."""
    sent: list[str] = []
    send = _Answer.send

    def record(self: _Answer) -> None:
        sent.append(self.statement)
        send(self)

    monkeypatch.setattr(_Answer, "send", record)
    return sent


@pytest.mark.parametrize(("count", "inserts"), [(1, 1), (3, 1), (1200, 3)])
def test_rows_that_are_inserted_together_are_written_by_few_statements(
    connection: PostgresConnection, statements: list[str], count: int, inserts: int
) -> None:
    rows = [(number, None if number % 2 else f"word {number}") for number in range(count)]
    with transaction(connection):
        connection.executemany(INSERT, iter(rows))
    assert connection.execute("SELECT id, word FROM words ORDER BY id").fetchall() == rows
    assert len([each for each in statements if each.startswith("INSERT")]) == inserts


def test_rows_are_inserted_in_their_order(connection: PostgresConnection) -> None:
    connection.execute("ALTER TABLE words ADD COLUMN entry bigint GENERATED ALWAYS AS IDENTITY")
    connection.executemany(INSERT, [(number, "") for number in (3, 1, 2)])
    assert connection.execute("SELECT id FROM words ORDER BY entry").fetchall() == [(3,), (1,), (2,)]


@pytest.mark.parametrize(("ids", "is_joined"), [((1, 2), True), ((1, 2, 1), False)])
def test_a_row_that_replaces_another_of_those_beside_it_is_written_after_it(
    connection: PostgresConnection, ids: tuple[int, ...], *, is_joined: bool
) -> None:
    connection.execute("CREATE UNIQUE INDEX ON words (id)")
    connection.execute(INSERT, (2, "old"))
    with transaction(connection):
        connection.executemany(upsert("words", ["id"], "word"), [(each, f"new {n}") for n, each in enumerate(ids)])
    found = dict(connection.execute("SELECT id, word FROM words").fetchall())
    assert found == {each: f"new {n}" for n, each in enumerate(ids)}
    assert can_join(translate(upsert("words", ["id"], "word")), [(each, "") for each in ids]) == is_joined


def test_an_error_of_one_row_is_that_of_the_transaction(connection: PostgresConnection) -> None:
    connection.execute("CREATE UNIQUE INDEX ON words (id)")
    with pytest.raises(psycopg.errors.UniqueViolation), transaction(connection):
        connection.executemany(INSERT, [(1, "a"), (2, "b"), (1, "c")])
    assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)


def test_values_that_are_named_are_inserted_one_by_one(connection: PostgresConnection) -> None:
    statement = "INSERT INTO words (id, word) VALUES (:id, :word)"
    connection.executemany(statement, [{"id": 1, "word": "a"}, {"id": 2, "word": None}])
    assert connection.execute("SELECT id, word FROM words ORDER BY id").fetchall() == [(1, "a"), (2, None)]
