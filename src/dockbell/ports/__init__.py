"""What the agents need of the world outside, as protocols, with their nouns.

- ``source``: an API account that is read. ``sink``: where events go.
- ``store``: where snapshots, events and progress are kept, by handles: ``feed_store``, ``sink_store``, ``upkeep``
  (retention, privacy, health, commands); ``runs`` and ``delivery`` are their nouns.
- ``read_store``: a look at a store from beside. ``command_store``: what operators ask of a daemon, by way of its store.
- ``bell``: who waits, and what wakes them.
"""

from __future__ import annotations

from dockbell.ports.bell import Alarm, Bell
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
    SinkState,
    Standing,
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
from dockbell.ports.sink import RetainedState, Sink, StateKeeper
from dockbell.ports.sink_store import SinkStore
from dockbell.ports.source import BetweenTries, Source
from dockbell.ports.store import Store
from dockbell.ports.upkeep import REWRITE_MOST, CommandInbox, Health, Privacy, Retention

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
    "Extent",
    "Failing",
    "FeedState",
    "FeedStore",
    "Footprint",
    "Found",
    "Health",
    "Hurried",
    "Noted",
    "Offered",
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
    "Sink",
    "SinkState",
    "SinkStore",
    "Source",
    "Standing",
    "StateKeeper",
    "Store",
    "StoredRecord",
    "StoredState",
    "Tally",
    "Undelivered",
]
