"""Facts: agents and adapters emit each once; the log, the metrics and the page listen.

A fact is a frozen struct whose ``str()`` is its line in the log and whose fields are the structured form of it.
Nothing secret may enter a fact.
"""

from __future__ import annotations

from collections.abc import Callable

from dockbell.errors import LeaseLost, StoreUnavailable, is_due_to
from dockbell.telemetry.facts import AgentFails as AgentFails
from dockbell.telemetry.facts import CommandFinished as CommandFinished
from dockbell.telemetry.facts import ConfigurationOutdated as ConfigurationOutdated
from dockbell.telemetry.facts import Crowded as Crowded
from dockbell.telemetry.facts import DiskFills as DiskFills
from dockbell.telemetry.facts import DiskHasRoom as DiskHasRoom
from dockbell.telemetry.facts import Fact as Fact
from dockbell.telemetry.facts import FileExposed as FileExposed
from dockbell.telemetry.facts import MembershipLost as MembershipLost
from dockbell.telemetry.facts import ProcessDied as ProcessDied
from dockbell.telemetry.facts import Reloaded as Reloaded
from dockbell.telemetry.facts import ReloadRefused as ReloadRefused
from dockbell.telemetry.facts import SourcesClaimed as SourcesClaimed
from dockbell.telemetry.facts import SourcesHandedOver as SourcesHandedOver
from dockbell.telemetry.facts import Started as Started
from dockbell.telemetry.facts import Stopping as Stopping
from dockbell.telemetry.facts import StoreExtended as StoreExtended
from dockbell.telemetry.facts import StoreFails as StoreFails
from dockbell.telemetry.facts import StoreMended as StoreMended
from dockbell.telemetry.facts import StoreUpgraded as StoreUpgraded
from dockbell.telemetry.facts import UpgradeFinished as UpgradeFinished
from dockbell.telemetry.facts import UpgradeWaits as UpgradeWaits
from dockbell.telemetry.reading_facts import ChangesStored as ChangesStored
from dockbell.telemetry.reading_facts import FeedCleaned as FeedCleaned
from dockbell.telemetry.reading_facts import FeedFails as FeedFails
from dockbell.telemetry.reading_facts import FeedMended as FeedMended
from dockbell.telemetry.reading_facts import IntervalPlanned as IntervalPlanned
from dockbell.telemetry.reading_facts import ListingChanged as ListingChanged
from dockbell.telemetry.reading_facts import LookbackNarrow as LookbackNarrow
from dockbell.telemetry.reading_facts import NamedEventUnanswered as NamedEventUnanswered
from dockbell.telemetry.reading_facts import PageRead as PageRead
from dockbell.telemetry.reading_facts import RequestSent as RequestSent
from dockbell.telemetry.reading_facts import RunEnded as RunEnded
from dockbell.telemetry.reading_facts import SignalTold as SignalTold
from dockbell.telemetry.reading_facts import SourceAnswers as SourceAnswers
from dockbell.telemetry.reading_facts import SourceFails as SourceFails
from dockbell.telemetry.reading_facts import SourceWaits as SourceWaits
from dockbell.telemetry.reading_facts import Stated as Stated
from dockbell.telemetry.reading_facts import StoreWrittenAside as StoreWrittenAside
from dockbell.telemetry.sink_facts import DeliverySettled as DeliverySettled
from dockbell.telemetry.sink_facts import EventDied as EventDied
from dockbell.telemetry.sink_facts import EventsSifted as EventsSifted
from dockbell.telemetry.sink_facts import EventsTakenBack as EventsTakenBack
from dockbell.telemetry.sink_facts import FilterUnanswered as FilterUnanswered
from dockbell.telemetry.sink_facts import LettersForgotten as LettersForgotten
from dockbell.telemetry.sink_facts import SinkConnected as SinkConnected
from dockbell.telemetry.sink_facts import SinkFails as SinkFails
from dockbell.telemetry.sink_facts import SinkLeft as SinkLeft
from dockbell.telemetry.sink_facts import SinkOmits as SinkOmits
from dockbell.telemetry.sink_facts import SinkOverrun as SinkOverrun
from dockbell.telemetry.sink_facts import SinkPaused as SinkPaused
from dockbell.telemetry.sink_facts import SinkResumed as SinkResumed
from dockbell.telemetry.sink_facts import StateRepaired as StateRepaired


class Telemetry:
    """Tells each fact to every listener, in the caller's own thread and at once."""

    def __init__(self, *listeners: Callable[[Fact], None]) -> None:
        self._listeners = list(listeners)

    def listen(self, listener: Callable[[Fact], None]) -> None:
        """Add a listener; it must return quickly and must not raise."""
        self._listeners.append(listener)

    def emit(self, fact: Fact) -> None:
        for listener in self._listeners:
            listener(fact)

    def emit_failure(self, agent: str, error: BaseException) -> None:
        """Tell of an error that ended what an agent did, but for one of the store: that is told once for all agents.

        So is that this process has lost what it had.
        """
        if not (is_due_to(error, StoreUnavailable) or is_due_to(error, LeaseLost)):
            self.emit(AgentFails(agent, error))
