"""How many sources a process claims, and what its successor must know of its requests."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from itertools import product

import psycopg

from dockbell.stores.postgres import PostgresStore
from dockbell.stores.postgres.fleet import _find_most, _find_surplus
from dockbell.stores.postgres.leases import Standing
from tests.fakes import NOON

SOURCES = {"s1": "s1", "s2": "s2"}


def test_what_a_process_claims_it_does_not_hand_over_at_once() -> None:
    for keys, processes, least in product(range(1, 40), range(1, 8), range(4)):
        standing = Standing(processes, keys, least, {}, frozenset(), processes)
        accounts = {f"s{number:02}": f"s{number:02}" for number in range(keys)}
        claimed = dict([*accounts.items()][: _find_most(standing, keys)])
        after = Standing(processes, 0, min(least, len(claimed)), claimed, frozenset(), processes)
        assert not _find_surplus(after, accounts), (keys, processes, least)


async def test_who_spends_the_same_all_the_time_is_known_to_have_spent_it_lately(postgres_url: str) -> None:
    spent = (24, 16, 16, 16, 16, 16, 16)
    first = await PostgresStore.open(postgres_url, now=lambda: NOON, epoch="epoch", shared=True)
    second = await PostgresStore.open(postgres_url, now=lambda: NOON, epoch="epoch", shared=True)
    assert first.fleet is not None
    assert second.fleet is not None
    held = (await first.fleet.take_share(SOURCES)).held
    source = next(source for source in held if source in SOURCES)
    await first.fleet.note_spent({source: spent})
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("UPDATE leases SET spent_at = spent_at - interval '50 s'")
    await first.fleet.note_spent({source: spent})
    await first.fleet.hand_over(held, {})
    await first.aclose()
    claims = (await second.fleet.take_share(SOURCES)).claims
    await second.aclose()
    assert claims[source].spent == list(spent)
    assert claims[source].age < timedelta(seconds=2)
