"""What the agents need of the world outside, as protocols, with their nouns.

- ``source``: an API account that is read. ``sink``: where events go.
- ``store``: where snapshots, events and progress are kept, by handles: of a sink, of retention, privacy, health and
  commands; ``feed_store`` is that of a feed. ``runs`` and ``delivery`` are their nouns.
- ``read_store``: a look at a store from beside. ``command_store``: what operators ask of a daemon, by way of its store.
- ``bell``: who waits, and what wakes them.
"""

from __future__ import annotations

from dockbell.ports.bell import Alarm, Bell, OutboxBell
from dockbell.ports.command_store import (
    Candidate,
    Command,
    CommandKind,
    CommandOutcome,
    CommandStore,
    DeadGroup,
    Hurried,
    Offered,
    Reach,
    Selection,
    Undelivered,
)
from dockbell.ports.delivery import (
    BackfillRecord,
    Condition,
    Controls,
    Extent,
    Footprint,
    Found,
    KeyStatus,
    SinkState,
    StoredState,
)
from dockbell.ports.feed_store import Compose, FeedStore
from dockbell.ports.read_store import Noted, Quarantined, ReadStore, StoredRecord
from dockbell.ports.runs import (
    Absentees,
    Awaited,
    Checkpoint,
    Committed,
    Failing,
    FeedState,
    Purged,
    Reached,
    RunRecord,
    Tally,
)
from dockbell.ports.sink import Deliveries, RetainedState, Settle, Sink, StateKeeper
from dockbell.ports.source import BetweenTries, Source
from dockbell.ports.store import REWRITE_MOST, CommandInbox, Health, Privacy, Retention, SinkStore, Store

__all__ = [
    "REWRITE_MOST",
    "Absentees",
    "Alarm",
    "Awaited",
    "BackfillRecord",
    "Bell",
    "BetweenTries",
    "Candidate",
    "Checkpoint",
    "Command",
    "CommandInbox",
    "CommandKind",
    "CommandOutcome",
    "CommandStore",
    "Committed",
    "Compose",
    "Condition",
    "Controls",
    "DeadGroup",
    "Deliveries",
    "Extent",
    "Failing",
    "FeedState",
    "FeedStore",
    "Footprint",
    "Found",
    "Health",
    "Hurried",
    "KeyStatus",
    "Noted",
    "Offered",
    "OutboxBell",
    "Privacy",
    "Purged",
    "Quarantined",
    "Reach",
    "Reached",
    "ReadStore",
    "RetainedState",
    "Retention",
    "RunRecord",
    "Selection",
    "Settle",
    "Sink",
    "SinkState",
    "SinkStore",
    "Source",
    "StateKeeper",
    "Store",
    "StoredRecord",
    "StoredState",
    "Tally",
    "Undelivered",
]
