"""What the agents need of the world outside, as protocols, with their nouns.

- ``source``: an API account that is read. ``sink``: where events go.
- ``store``: where snapshots, events and progress are kept, by handles: of a sink, of retention, privacy, health and
  commands; ``feed_store`` is that of a feed. ``runs`` and ``delivery`` are their nouns.
- ``read_store``: a look at a store from beside. ``command_store``: what operators ask of a daemon, by way of its store.
- ``fleet``: the processes that share one store, what each of them has, and what all of them follow.
- ``bell``: who waits, and what wakes them.
"""

from __future__ import annotations

from dockbell.ports.bell import Alarm as Alarm
from dockbell.ports.bell import Bell as Bell
from dockbell.ports.bell import OutboxBell as OutboxBell
from dockbell.ports.command_store import Candidate as Candidate
from dockbell.ports.command_store import Command as Command
from dockbell.ports.command_store import CommandKind as CommandKind
from dockbell.ports.command_store import CommandOutcome as CommandOutcome
from dockbell.ports.command_store import CommandStore as CommandStore
from dockbell.ports.command_store import DeadGroup as DeadGroup
from dockbell.ports.command_store import Hurried as Hurried
from dockbell.ports.command_store import Offered as Offered
from dockbell.ports.command_store import Reach as Reach
from dockbell.ports.command_store import Selection as Selection
from dockbell.ports.command_store import Undelivered as Undelivered
from dockbell.ports.delivery import BackfillRecord as BackfillRecord
from dockbell.ports.delivery import Condition as Condition
from dockbell.ports.delivery import Controls as Controls
from dockbell.ports.delivery import Extent as Extent
from dockbell.ports.delivery import Footprint as Footprint
from dockbell.ports.delivery import Found as Found
from dockbell.ports.delivery import KeyStatus as KeyStatus
from dockbell.ports.delivery import SinkState as SinkState
from dockbell.ports.delivery import StoredState as StoredState
from dockbell.ports.feed_store import Compose as Compose
from dockbell.ports.feed_store import FeedStore as FeedStore
from dockbell.ports.fleet import Claim as Claim
from dockbell.ports.fleet import Configurations as Configurations
from dockbell.ports.fleet import Fleet as Fleet
from dockbell.ports.fleet import Member as Member
from dockbell.ports.fleet import Revision as Revision
from dockbell.ports.fleet import Share as Share
from dockbell.ports.fleet import SharedSources as SharedSources
from dockbell.ports.fleet import Spent as Spent
from dockbell.ports.fleet import Upgrade as Upgrade
from dockbell.ports.read_store import Noted as Noted
from dockbell.ports.read_store import Quarantined as Quarantined
from dockbell.ports.read_store import ReadStore as ReadStore
from dockbell.ports.read_store import StoredRecord as StoredRecord
from dockbell.ports.runs import Absentees as Absentees
from dockbell.ports.runs import Awaited as Awaited
from dockbell.ports.runs import Checkpoint as Checkpoint
from dockbell.ports.runs import Committed as Committed
from dockbell.ports.runs import Failing as Failing
from dockbell.ports.runs import FeedState as FeedState
from dockbell.ports.runs import Purged as Purged
from dockbell.ports.runs import Reached as Reached
from dockbell.ports.runs import RunRecord as RunRecord
from dockbell.ports.runs import Tally as Tally
from dockbell.ports.sink import Deliveries as Deliveries
from dockbell.ports.sink import RetainedState as RetainedState
from dockbell.ports.sink import Settle as Settle
from dockbell.ports.sink import Sink as Sink
from dockbell.ports.sink import StateKeeper as StateKeeper
from dockbell.ports.source import BetweenTries as BetweenTries
from dockbell.ports.source import Source as Source
from dockbell.ports.store import REWRITE_MOST as REWRITE_MOST
from dockbell.ports.store import CommandInbox as CommandInbox
from dockbell.ports.store import Health as Health
from dockbell.ports.store import Privacy as Privacy
from dockbell.ports.store import Retention as Retention
from dockbell.ports.store import SinkStore as SinkStore
from dockbell.ports.store import Store as Store
