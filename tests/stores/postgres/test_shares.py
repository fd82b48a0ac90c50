"""How many sources a process claims, and what its successor must know of its requests."""

from __future__ import annotations

from itertools import product

from dockbell.stores.postgres.fleet import _find_most, _find_surplus
from dockbell.stores.postgres.leases import Standing


def test_what_a_process_claims_it_does_not_hand_over_at_once() -> None:
    for keys, processes, least in product(range(1, 40), range(1, 8), range(4)):
        standing = Standing(processes, keys, least, {}, frozenset())
        accounts = {f"s{number:02}": f"s{number:02}" for number in range(keys)}
        claimed = dict([*accounts.items()][: _find_most(standing, keys)])
        after = Standing(processes, 0, min(least, len(claimed)), claimed, frozenset())
        assert not _find_surplus(after, accounts), (keys, processes, least)
