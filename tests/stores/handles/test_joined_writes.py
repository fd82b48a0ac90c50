from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from dockbell.errors import LeaseLost, StoreUnavailable
from dockbell.stores.handles.joined_writes import JoinedWrites, Write
from dockbell.stores.sql.connection import transaction


class File:
    """A database that takes some time for each transaction.

    Attributes:
        batches: What each transaction has written.
        is_away: Whether it cannot be written.
        is_unreadable: Whether what the writes have left cannot be read.
    """

    def __init__(self) -> None:
        self.connection: Any = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.execute("CREATE TABLE words (word TEXT)")
        self.batches: list[list[str]] = []
        self.is_away = self.is_unreadable = False

    async def call(self, function: Callable[[Any], Mapping[int, int]]) -> Mapping[int, int]:
        await anyio.lowlevel.checkpoint()
        if self.is_away:
            raise StoreUnavailable("away")
        before = self.words()
        counts = function(self.connection)
        await anyio.sleep(0.01)
        self.batches.append(self.words()[len(before) :])
        return counts

    def ask(self, connection: Any, numbers: Sequence[int]) -> Callable[[], Mapping[int, int]]:
        """Return ten times each number; the answer can be read once the transaction is over."""

        def read() -> Mapping[int, int]:
            assert not connection.in_transaction
            if self.is_unreadable:
                raise OSError("unreadable")
            return {number: 10 * number for number in numbers}

        return read

    def words(self) -> list[str]:
        return [word for (word,) in self.connection.execute("SELECT word FROM words ORDER BY rowid")]

    def write(self, word: str) -> Write:
        return partial(_insert, word=word)


def _commit(connection: Any, word: str) -> int:
    """Insert a word in a transaction of its own, unless it is empty; return its length."""
    if word:
        with transaction(connection):
            _insert(connection, word)
    if word == "odd":
        raise ValueError(word)
    return len(word)


def _ignore(length: int) -> None:
    """Take in nothing."""


def _insert(connection: Any, word: str) -> None:
    if word == "lost":
        raise LeaseLost("another process has taken it over")
    connection.execute("INSERT INTO words VALUES (?)", (word,))


@pytest.fixture
def file() -> Iterator[File]:
    file = File()
    yield file
    file.connection.close()


async def test_what_comes_during_a_transaction_shares_the_next_one(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask)
    async with anyio.create_task_group() as group:
        for word in "abcdef":
            group.start_soon(joined.add, file.write(word), 1)
    assert file.batches[0][0] == "a"
    assert len(file.batches) <= 2
    assert file.words() == list("abcdef")


async def test_each_learns_what_the_transaction_has_left(file: File) -> None:
    joined, left = JoinedWrites(file.call, file.ask), dict[int, int | None]()

    async def write(word: str, number: int) -> None:
        left[number] = await joined.add(file.write(word), number)

    async with anyio.create_task_group() as group:
        for number, word in enumerate("abc"):
            group.start_soon(write, word, number)
    assert left == {0: 0, 1: 10, 2: 20}


async def test_what_is_written_is_not_written_again_where_what_it_has_left_cannot_be_read(file: File) -> None:
    joined, file.is_unreadable = JoinedWrites(file.call, file.ask), True
    assert await joined.add(file.write("a"), 1) is None
    assert file.words() == ["a"]


async def test_one_that_is_refused_keeps_no_other_from_being_written(file: File) -> None:
    joined, lost = JoinedWrites(file.call, file.ask), list[str]()

    async def write(word: str) -> None:
        try:
            await joined.add(file.write(word), 1)
        except LeaseLost:
            lost.append(word)

    async with anyio.create_task_group() as group:
        for word in ("a", "b", "lost", "c"):
            group.start_soon(write, word)
    assert sorted(file.words()) == ["a", "b", "c"]
    assert lost == ["lost"]


async def test_all_hear_that_the_store_is_away_and_may_try_again(file: File) -> None:
    joined, file.is_away = JoinedWrites(file.call, file.ask), True
    failed: list[str] = []

    async def write(word: str) -> None:
        try:
            await joined.add(file.write(word), 1)
        except StoreUnavailable:
            failed.append(word)

    async with anyio.create_task_group() as group:
        for word in "abc":
            group.start_soon(write, word)
    assert sorted(failed) == ["a", "b", "c"]
    file.is_away = False
    await joined.add(file.write("a"), 1)
    assert file.words() == ["a"]


async def test_who_is_cancelled_takes_no_other_along_and_writes_once(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask)
    async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
        cancelled.start_soon(joined.add, file.write("a"), 1)
        cancelled.start_soon(joined.add, file.write("b"), 1)
        group.start_soon(joined.add, file.write("c"), 1)
        await anyio.sleep(0.005)  # the first transaction is under way
        cancelled.cancel_scope.cancel()
    assert sorted(set(file.words())) == sorted(file.words())
    assert "c" in file.words()
    await joined.add(file.write("d"), 1)
    assert file.words().count("d") == 1


async def test_commits_that_come_during_another_share_one_transaction_and_have_their_own_results(file: File) -> None:
    joined, lengths, taken = JoinedWrites(file.call, file.ask), dict[str, int](), list[int]()

    async def commit(word: str) -> None:
        lengths[word] = await joined.commit(partial(_commit, word=word), taken.append)

    async with anyio.create_task_group() as group:
        for word in ("a", "bb", "ccc"):
            group.start_soon(commit, word)
        group.start_soon(joined.add, file.write("end of a run"), 1)
    assert lengths == {"a": 1, "bb": 2, "ccc": 3}
    assert taken == [1, 2, 3]
    assert file.batches == [["a"], ["bb", "ccc", "end of a run"]]


async def test_what_writes_nothing_begins_no_transaction(file: File) -> None:
    joined, statements = JoinedWrites(file.call, file.ask), list[str]()
    file.connection.set_trace_callback(statements.append)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(joined.commit, partial(_commit, word=""), _ignore)
    assert not any(each.startswith(("BEGIN", "COMMIT")) for each in statements)


@pytest.mark.parametrize("word", ["lost", "odd"])
async def test_a_commit_that_fails_keeps_no_other_from_being_committed_and_leaves_nothing(
    file: File, word: str
) -> None:
    joined, failed, taken = JoinedWrites(file.call, file.ask), list[str](), list[int]()

    async def commit(word: str) -> None:
        try:
            await joined.commit(partial(_commit, word=word), taken.append)
        except (LeaseLost, ValueError):
            failed.append(word)

    async with anyio.create_task_group() as group:
        for each in ("a", "bb", word, "ccccc"):
            group.start_soon(commit, each)
    assert failed == [word]
    assert taken == [1, 2, 5]
    assert file.words() == ["a", "bb", "ccccc"]
    assert not file.connection.in_transaction


async def test_what_is_committed_is_taken_in_even_if_its_caller_is_cancelled_meanwhile(file: File) -> None:
    joined, taken = JoinedWrites(file.call, file.ask), list[int]()

    async def commit(word: str) -> None:
        await joined.commit(partial(_commit, word=word), taken.append)

    async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
        group.start_soon(commit, "a")
        group.start_soon(commit, "bb")
        cancelled.start_soon(commit, "ccc")
        await anyio.sleep(0.015)  # the second transaction is under way: "bb" writes "ccc", too
        cancelled.cancel_scope.cancel()
    assert file.batches == [["a"], ["bb", "ccc"]]
    assert taken == [1, 2, 3]


async def test_one_transaction_does_not_take_more_than_ten_pages(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask)
    async with anyio.create_task_group() as group:
        for number in range(24):
            group.start_soon(joined.commit, partial(_commit, word=str(number)), _ignore)
        group.start_soon(joined.add, file.write("end of a run"), 1)
    assert [len(batch) for batch in file.batches] == [1, 10, 10, 4]
