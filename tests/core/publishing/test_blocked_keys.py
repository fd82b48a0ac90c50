from __future__ import annotations

import itertools
from datetime import timedelta

from msgspec.structs import replace

from dockbell.core.model import Feed
from dockbell.core.publishing.blocked_keys import BlockedKeys
from dockbell.core.publishing.read_ahead import Flights
from dockbell.core.publishing.retry import Blame
from dockbell.core.publishing.settlement import Blocked
from tests.fakes import NOON

FEED = Feed("main", "shipments")


def test_every_key_comes_due_also_right_after_stale_items_were_dropped() -> None:
    blocked, keys = BlockedKeys(Flights(20, timedelta(0)), Blame()), [f"{number:03}" for number in range(100)]
    items = 0
    for number in itertools.count():
        due = NOON + timedelta(seconds=number)
        blocked.put(Blocked(FEED, keys[number % len(keys)], 1, 1, due, "HTTP 500"))
        if len(blocked._due) < items:
            break
        items = len(blocked._due)
    found = []
    while entries := list(blocked.take_due(NOON + timedelta(hours=1), len(keys))):
        for entry in entries:
            found.append(entry.key)
            blocked.remove((entry.feed, entry.key))
    assert sorted(found) == keys


def test_a_key_that_waits_for_an_operator_does_not_come_due() -> None:
    blocked = BlockedKeys(Flights(20, timedelta(0)), Blame())
    entry = Blocked(FEED, "a", 1, 1, NOON, "HTTP 500")
    blocked.put(entry)
    blocked.put(replace(entry, held=True))
    assert list(blocked.take_due(NOON + timedelta(hours=1), 10)) == []
