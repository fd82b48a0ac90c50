from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import anyio
import pytest

from dockbell.ports import Configurations, Revision
from dockbell.stores.postgres import PostgresStore
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
