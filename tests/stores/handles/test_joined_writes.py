from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from dockbell.core.comparing.page_diff import Collision, PageDiff
from dockbell.core.model import Feed
from dockbell.errors import LeaseLost, StoreUnavailable
from dockbell.ports import Committed
from dockbell.stores.handles.joined_writes import JoinedWrites, Write
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.lease import Lease
from dockbell.stores.sql.snapshots import PageCommit
from tests.relaying import until


class File:
    """A database that takes some time for each transaction.

    Attributes:
        batches: What each transaction has written.
        begun: How many were begun.
        refused: How many could not be, since it was away.
        ends: How many words were written each time that the end of the events was noted, which fails.
        is_away: Whether it cannot be written.
        is_unreadable: Whether what the writes have left cannot be read.
    """

    def __init__(self) -> None:
        self.connection: Any = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.execute("CREATE TABLE words (word TEXT)")
        self.batches: list[list[str]] = []
        self.begun = self.refused = 0
        self.ends: list[int] = []
        self.is_away = self.is_unreadable = False

    async def call(self, function: Callable[[Any], Mapping[int, int]]) -> Mapping[int, int]:
        await anyio.lowlevel.checkpoint()
        if self.is_away:
            self.refused += 1
            raise StoreUnavailable("away")
        self.begun += 1
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

    def save_end(self, connection: Any) -> None:
        assert not connection.in_transaction
        self.ends.append(len(self.words()))
        raise OSError("disk full")

    def words(self) -> list[str]:
        return [word for (word,) in self.connection.execute("SELECT word FROM words ORDER BY rowid")]

    def write(self, word: str) -> Write:
        return partial(_insert, word=word)


class Interrupted(BaseException):
    """What no one handles."""


class Page(PageCommit):
    """A page that comes to a word; to nothing where that is empty."""

    def __init__(self, word: str, feed: int) -> None:
        self.lease = Lease(Feed("main", "shipments"), feed, token=0)
        self.word = word
        self.prepared = 0

    def prepare(self, connection: Any) -> Callable[[Connection], Committed] | Committed:
        assert not connection.in_transaction
        self.prepared += 1
        if self.word == "odd":
            raise Collision(self.word)
        return self._insert if self.word else Committed(PageDiff(), 0)

    def _insert(self, connection: Any) -> Committed:
        _insert(connection, self.word)
        return Committed(PageDiff(), len(self.word), end=len(self.word) if self.word.isupper() else 0)


class Pages:
    """Commits pages.

    Attributes:
        committed: How many letters the words had of those that were committed, in that order.
        failed: The words whose commits failed.
    """

    def __init__(self, joined: JoinedWrites[int]) -> None:
        self.committed: list[int] = []
        self.failed: list[str] = []
        self._joined = joined

    async def commit(self, word: str, feed: int) -> None:
        try:
            committed = await self._joined.commit(Page(word, feed), lambda found: self.committed.append(found.events))
        except (LeaseLost, Collision, StoreUnavailable, Interrupted):
            self.failed.append(word)
        else:
            assert committed.events == len(word)


def _insert(connection: Any, word: str) -> None:
    if word == "interrupted":
        raise Interrupted
    if word == "lost":
        raise LeaseLost("another process has taken it over")
    connection.execute("INSERT INTO words VALUES (?)", (word,))


@pytest.fixture
def file() -> Iterator[File]:
    file = File()
    yield file
    file.connection.close()


async def test_what_comes_during_a_transaction_shares_the_next_one(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask, file.save_end)
    async with anyio.create_task_group() as group:
        for word in "abcdef":
            group.start_soon(joined.add, file.write(word), 1)
    assert file.batches[0][0] == "a"
    assert len(file.batches) <= 2
    assert file.words() == list("abcdef")


async def test_each_learns_what_the_transaction_has_left(file: File) -> None:
    joined, left = JoinedWrites(file.call, file.ask, file.save_end), dict[int, int | None]()

    async def write(word: str, number: int) -> None:
        left[number] = await joined.add(file.write(word), number)

    async with anyio.create_task_group() as group:
        for number, word in enumerate("abc"):
            group.start_soon(write, word, number)
    assert left == {0: 0, 1: 10, 2: 20}


async def test_what_is_written_is_not_written_again_where_what_it_has_left_cannot_be_read(file: File) -> None:
    joined, file.is_unreadable = JoinedWrites(file.call, file.ask, file.save_end), True
    assert await joined.add(file.write("a"), 1) is None
    assert file.words() == ["a"]


async def test_one_that_is_refused_keeps_no_other_from_being_written(file: File) -> None:
    joined, lost = JoinedWrites(file.call, file.ask, file.save_end), list[str]()

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
    joined, file.is_away = JoinedWrites(file.call, file.ask, file.save_end), True
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
    joined = JoinedWrites(file.call, file.ask, file.save_end)
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


async def test_pages_that_come_during_a_transaction_share_the_next_one_with_other_writes(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask, file.save_end)
    pages = Pages(joined)
    async with anyio.create_task_group() as group:
        for feed, word in enumerate(("a", "bb", "ccc")):
            group.start_soon(pages.commit, word, feed)
        group.start_soon(joined.add, file.write("end of a run"), 1)
    assert pages.committed == [1, 2, 3]
    assert file.batches == [["a"], ["bb", "ccc", "end of a run"]]


async def test_pages_that_come_to_nothing_need_no_transaction(file: File) -> None:
    pages, statements = Pages(JoinedWrites(file.call, file.ask, file.save_end)), list[str]()
    file.connection.set_trace_callback(statements.append)
    async with anyio.create_task_group() as group:
        for feed in range(3):
            group.start_soon(pages.commit, "", feed)
    assert pages.committed == [0, 0, 0]
    assert not any(each.startswith(("BEGIN", "COMMIT")) for each in statements)


@pytest.mark.parametrize("word", ["lost", "odd"])
async def test_a_page_that_fails_keeps_no_other_from_being_committed(file: File, word: str) -> None:
    pages = Pages(JoinedWrites(file.call, file.ask, file.save_end))
    async with anyio.create_task_group() as group:
        for feed, each in enumerate(("a", "bb", word, "ccccc")):
            group.start_soon(pages.commit, each, feed)
    assert pages.failed == [word]
    assert pages.committed == [1, 2, 5]
    assert file.words() == ["a", "bb", "ccccc"]
    assert not file.connection.in_transaction


async def test_what_is_committed_is_taken_in_even_if_its_caller_is_cancelled_meanwhile(file: File) -> None:
    pages = Pages(JoinedWrites(file.call, file.ask, file.save_end))
    async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
        group.start_soon(pages.commit, "a", 1)
        group.start_soon(pages.commit, "bb", 2)
        cancelled.start_soon(pages.commit, "ccc", 3)
        await until(lambda: file.begun == 2)  # "bb" writes "ccc", too
        cancelled.cancel_scope.cancel()
    assert file.batches == [["a"], ["bb", "ccc"]]
    assert pages.committed == [1, 2, 3]


async def test_who_is_cancelled_waits_until_nothing_of_his_is_still_to_be_written(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask, file.save_end)
    pages, left, taken = Pages(joined), Page("ccc", 4), list[Committed]()
    async with anyio.create_task_group() as group:
        group.start_soon(pages.commit, "a", 1)
        group.start_soon(pages.commit, "bb", 2)
        group.start_soon(pages.commit, "lost", 3)
        async with anyio.create_task_group() as cancelled:
            cancelled.start_soon(joined.commit, left, taken.append)
            await until(lambda: left.prepared == 1)  # in a transaction that fails
            cancelled.cancel_scope.cancel()
        words, prepared = file.words(), left.prepared
        assert words[-1] == "ccc"
    assert left.prepared == prepared, "it was written after its caller had gone"
    assert len(taken) == 1


async def test_who_commits_at_once_while_many_others_are_cancelled_is_committed(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask, file.save_end)
    pages = Pages(joined)

    async def commit_two() -> None:
        await joined.commit(Page("first", 1), lambda _: cancelled.cancel_scope.cancel())
        await pages.commit("second", 1)

    async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
        group.start_soon(commit_two)
        for feed in range(2, 30):
            cancelled.start_soon(pages.commit, str(feed), feed)
    assert "second" in file.words()


async def test_one_transaction_takes_ten_pages_at_most_and_of_one_feed_one(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask, file.save_end)
    pages = Pages(joined)
    async with anyio.create_task_group() as group:
        for feed in range(24):
            group.start_soon(pages.commit, str(feed), feed)
        group.start_soon(pages.commit, "of the same feed", 23)
    assert [len(batch) for batch in file.batches] == [1, 10, 10, 3, 1]


async def test_where_pages_are_not_joined_each_has_a_transaction(file: File) -> None:
    joined = JoinedWrites(file.call, file.ask, file.save_end, joins_pages=False)
    pages = Pages(joined)
    async with anyio.create_task_group() as group:
        for feed in range(3):
            group.start_soon(pages.commit, str(feed), feed)
            group.start_soon(joined.add, file.write("end"), feed)
    assert all(len(batch) == 1 or set(batch) == {"end"} for batch in file.batches)
    assert sorted(file.words()) == ["0", "1", "2", "end", "end", "end"]


async def test_once_the_store_is_away_no_other_write_of_a_batch_that_failed_is_tried(file: File) -> None:
    pages = Pages(JoinedWrites(file.call, file.ask, file.save_end))
    async with anyio.create_task_group() as group:
        for feed, word in enumerate(("a", "lost", "bb", "ccc", "dddd")):
            group.start_soon(pages.commit, word, feed)
        await until(lambda: file.begun == 4)  # "a", then all others, then "lost" and "bb" each alone
        file.is_away = True
    assert pages.failed == ["lost", "ccc", "dddd"]
    assert file.refused == 1


async def test_a_transaction_that_ends_without_a_word_is_no_success_of_any_of_its_writes(file: File) -> None:
    pages = Pages(JoinedWrites(file.call, file.ask, file.save_end))
    async with anyio.create_task_group() as group:
        for feed, word in enumerate(("a", "interrupted", "ccc")):
            group.start_soon(pages.commit, word, feed)
    assert sorted(pages.failed) == ["ccc", "interrupted"]
    assert file.words() == ["a"]


async def test_how_far_the_events_are_is_noted_once_for_a_transaction_that_added_some(file: File) -> None:
    pages = Pages(JoinedWrites(file.call, file.ask, file.save_end))
    async with anyio.create_task_group() as group:
        for feed, word in enumerate(("no event", "EVENT", "no event", "EVENT")):
            group.start_soon(pages.commit, word, feed)
    assert file.ends == [4]
    assert not pages.failed
