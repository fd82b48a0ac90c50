from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest
from msgspec.structs import replace

from dockbell.config.shared import encode, find_digest, find_digest_aside
from dockbell.ports import Configurations, Revision
from dockbell.stores.postgres import PostgresStore
from dockbell.stores.postgres.configurations import PostgresConfigurations
from tests.fakes import NOON


@pytest.fixture
async def two(postgres_url: str) -> AsyncIterator[tuple[Configurations, Configurations]]:
    """The revisions as two processes of one store see them."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            store = await PostgresStore.open(postgres_url, now=lambda: NOON, shared=True)
            stack.push_async_callback(store.aclose)
            assert store.fleet is not None
            found.append(store.fleet.configurations)
        yield found[0], found[1]


async def test_a_text_never_seen_is_the_next_revision_and_an_older_one_only_by_force(
    two: tuple[Configurations, Configurations],
) -> None:
    one, other = two
    assert await one.find_newest() is None
    first = await one.agree("a", '{"name": "a"}')
    assert await other.agree("a", '{"name": "a"}') == first
    second = await other.agree("b", '{"name": "b"}')
    assert second.number > first.number
    assert await one.find_newest(first.number) == second
    assert await one.find_newest(second.number) is None
    outdated = await one.agree("a", '{"name": "a"}')
    assert outdated == replace(second, outdated=first.number)
    third = await one.agree("a", '{"name": "a"}', force=True)
    assert (third.number > second.number, third.content, third.outdated) == (True, '{"name": "a"}', 0)
    assert await other.agree("a", '{"name": "a"}') == third


async def test_processes_that_come_at_once_make_one_revision(two: tuple[Configurations, Configurations]) -> None:
    found: list[Revision] = []

    async def agree(each: Configurations) -> None:
        found.append(await each.agree("a", "{}"))

    async with anyio.create_task_group() as group:
        for each in two:
            group.start_soon(agree, each)
    assert found[0] == found[1]


async def test_a_text_without_sources_keeps_those_that_are_there(two: tuple[Configurations, Configurations]) -> None:
    one, _ = two
    await one.agree("a", '{"name": "a", "sources": {"acme": {}}}')
    kept = await one.agree("b", '{"name": "b"}')
    assert json.loads(kept.content) == {"name": "b", "sources": {"acme": {}}}
    assert await one.agree("b", '{"name": "b"}') == kept


async def test_of_two_that_replace_one_revision_the_second_is_told_to_look_again(
    two: tuple[Configurations, Configurations],
) -> None:
    one, other = two
    first = await one.agree("a", '{"sources": {}}')
    second = await one.replace(first.number, "b", '{"sources": {"acme": {}}}')
    assert second is not None
    assert await other.replace(first.number, "c", '{"sources": {"globex": {}}}') is None
    assert await other.find_newest() == second


async def test_sources_that_commands_look_after_are_not_replaced_by_those_of_a_file(
    two: tuple[Configurations, Configurations],
) -> None:
    one, other = two
    bare = encode({"name": "a"})
    first = await one.agree(find_digest(bare), bare)
    content = encode({"name": "a", "sources": {"acme": {}}})
    assert await one.replace(first.number, find_digest_aside(content), content) is not None
    assert (await other.agree(find_digest(bare), bare)).content == content, "a file without sources is not outdated"
    file = encode({"name": "a", "sources": {"globex": {}}})
    refused = await other.agree(find_digest(file), file)
    assert (refused.content, refused.is_other, refused.outdated) == (content, True, 0)
    assert (await other.agree(find_digest(content), content)).content == content, "the same ones are welcome"
    assert (await other.agree(find_digest(file), file)).content == file, "and are looked after by the file then"


async def test_old_revisions_are_forgotten_but_for_the_files_that_made_them(
    two: tuple[Configurations, Configurations],
) -> None:
    one, _ = two
    first = await one.agree("a", '{"name": "a"}')
    number = first.number
    for count in range(102):
        found = await one.replace(number, "b", f'{{"sources": {{"s{count}": {{}}}}}}')
        assert found is not None
        number = found.number
    assert (await one.agree("a", '{"name": "a"}')).outdated == first.number
    assert isinstance(one, PostgresConfigurations)
    rows = await one._line.do(lambda connection: connection.execute("SELECT content FROM configurations").fetchall())
    assert len(rows) == 101
    assert sum(content == "" for (content,) in rows) == 1
