"""Facts: agents and adapters emit each once; the log, the metrics and the page listen.

A fact is a frozen dataclass whose ``str()`` is its line in the log and whose fields are the structured form of it.
Nothing secret may enter a fact.
"""

from __future__ import annotations

from collections.abc import Callable

from dockbell.errors import StoreUnavailable, is_due_to
from dockbell.telemetry.facts import Fact
from dockbell.telemetry.facts.delivering import (
    DeliverySettled,
    EventDied,
    EventsSifted,
    EventsTakenBack,
    FilterUnanswered,
    LettersForgotten,
    SinkConnected,
    SinkFails,
    SinkLeft,
    SinkOmits,
    SinkOverrun,
    SinkPaused,
    SinkResumed,
    StateRepaired,
)
from dockbell.telemetry.facts.reading import (
    ChangesStored,
    FeedCleaned,
    FeedFails,
    FeedMended,
    HabitChanged,
    LookbackNarrow,
    NamedEventUnanswered,
    PageRead,
    RequestSent,
    RunEnded,
    SourceWaits,
    Stated,
)
from dockbell.telemetry.facts.running import (
    AgentFails,
    CommandFinished,
    Crowded,
    FileExposed,
    Reloaded,
    ReloadRefused,
    Started,
    Stopping,
    StoreFails,
    StoreMended,
    StoreUpgraded,
)

__all__ = [
    "AgentFails",
    "ChangesStored",
    "CommandFinished",
    "Crowded",
    "DeliverySettled",
    "EventDied",
    "EventsSifted",
    "EventsTakenBack",
    "Fact",
    "FeedCleaned",
    "FeedFails",
    "FeedMended",
    "FileExposed",
    "FilterUnanswered",
    "HabitChanged",
    "LettersForgotten",
    "LookbackNarrow",
    "NamedEventUnanswered",
    "PageRead",
    "ReloadRefused",
    "Reloaded",
    "RequestSent",
    "RunEnded",
    "SinkConnected",
    "SinkFails",
    "SinkLeft",
    "SinkOmits",
    "SinkOverrun",
    "SinkPaused",
    "SinkResumed",
    "SourceWaits",
    "Started",
    "StateRepaired",
    "Stated",
    "Stopping",
    "StoreFails",
    "StoreMended",
    "StoreUpgraded",
    "Telemetry",
]


class Telemetry:
    """Tells each fact to every listener, in the caller's own thread and at once."""

    def __init__(self, *listeners: Callable[[Fact], None]) -> None:
        self._listeners = list(listeners)

    def listen(self, listener: Callable[[Fact], None]) -> None:
        """Add a listener; it must return quickly and must not raise."""
        self._listeners.append(listener)

    def emit(self, fact: Fact) -> None:
        """Tell a fact."""
        for listener in self._listeners:
            listener(fact)

    def emit_failure(self, agent: str, error: BaseException) -> None:
        """Tell of an error that ended what an agent did, but for one of the store: that is told once for all agents."""
        if not is_due_to(error, StoreUnavailable):
            self.emit(AgentFails(agent, error))
