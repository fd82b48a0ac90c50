"""The nouns that every room shares, one dataclass each; the words are those of the glossary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

JSON: TypeAlias = Any
"""A decoded JSON value: integers exact, other numbers :class:`decimal.Decimal`."""


# Reading -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection that the API serves.

    Attributes:
        name: As in the path and in the configuration, ``shipments``.
        singular: As in event types, ``shipment``.
        polled: Whether the listing accepts ``updated_since``.
        addressable: Whether one record can be read by its id.
    """

    name: str
    singular: str
    polled: bool
    addressable: bool = False

    @property
    def path(self) -> str:
        """Where the listing is, relative to the base URL."""
        return f"/v1/{self.name}"


RESOURCES: Final[dict[str, Resource]] = {
    resource.name: resource
    for resource in (
        Resource("shipments", "shipment", polled=True, addressable=True),
        Resource("packages", "package", polled=True),
        Resource("items", "item", polled=True),
        Resource("stock", "stock", polled=False),
        Resource("warehouses", "warehouse", polled=False),
    )
}
"""The five resources of the API, by name."""


@dataclass(frozen=True, slots=True, order=True)
class Feed:
    """One resource of one source; written ``main/shipments``."""

    source: str
    resource: str

    def __str__(self) -> str:
        """Return ``source/resource``, as in partition keys, logs and commands."""
        return f"{self.source}/{self.resource}"


class Urgency(StrEnum):
    """Which requests go first when they are scarce, the most urgent first."""

    OPERATOR = "operator"
    POLL = "poll"
    DETAIL = "detail"
    TRAILING = "trailing"
    PASS = "pass"


class ClockSource(StrEnum):
    """What a service time was taken from, best first."""

    DATE = "date"
    RESET = "reset"
    LOCAL = "local"


class Unsound(NamedTuple):
    """A record that is no sound JSON, though its beginning and its end are certain.

    Attributes:
        problem: What is wrong with it.
        head: What can be read of it, None for each part that cannot: it holds the key, and is never stored.
    """

    problem: str
    head: JSON


@dataclass(frozen=True, slots=True)
class Page:
    """One accepted response of a listing.

    Attributes:
        records: Each record's raw JSON text, in the order of the response.
        next_cursor: Asks for the following page; None at the end of the list.
        envelope: The field that held the records.
        asked_at: The service's time when the request reached it, at the earliest.
        clock: What ``asked_at`` was taken from.
        answered_at: The service's time when it made the answer, at the latest.
        received_at: Our own time when the response was complete.
        unsound: Those of its records that are no sound JSON, by their index.
        age: How long a cache on the way has kept it, as that states.
    """

    records: tuple[bytes, ...]
    next_cursor: str | None
    envelope: str
    asked_at: datetime
    clock: ClockSource
    answered_at: datetime
    received_at: datetime
    unsound: Mapping[int, Unsound] = field(default_factory=dict)
    age: timedelta = timedelta(0)

    @property
    def shown_at(self) -> datetime:
        """``asked_at`` of the content: a cache answers with what the service said before."""
        return self.asked_at - self.age

    @property
    def latest(self) -> datetime:
        """The latest time that it can be: the times in a cached answer may be old."""
        return max(self.answered_at, self.received_at)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the API says is left for the key in its current window (the ``x-ratelimit-`` headers).

    Attributes:
        limit: The most requests in a window.
        remaining: How many of them are left, for all users of the key.
        resets_in: How long the window still lasts.
    """

    limit: int
    remaining: int
    resets_in: timedelta


class RunKind(StrEnum):
    """A poll asks ``updated_since``, a trailing one from long before; a pass reads the whole list."""

    POLL = "poll"
    TRAILING = "trailing"
    PASS = "pass"


# Comparing -----------------------------------------------------------------------------------------------------------


class ChangeKind(StrEnum):
    """What became of a record; ``snapshot`` states it as it was first met."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"
    SNAPSHOT = "snapshot"


class Via(StrEnum):
    """Which kind of reading showed a change; ``operator`` for a command."""

    POLL = "poll"
    TRAILING = "trailing"
    PASS = "pass"
    DETAIL = "detail"
    FIRST_PASS = "first_pass"
    STATE = "state"
    OPERATOR = "operator"


class DeletionReason(StrEnum):
    """How a record was found to be gone."""

    ABSENT = "absent"
    NOT_FOUND = "not_found"
    LEFT = "left"
    PURGED = "purged"


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a record in its feed.

    Attributes:
        text: The key string of the contract: percent-encoded components joined by commas.
        id: The typed original: a string, an integer, or a list of them for composite keys.
    """

    text: str
    id: JSON


@dataclass(frozen=True, slots=True)
class Change:
    """One visible change of one record, before it has a number.

    Attributes:
        feed: Where it was seen.
        key: The record's identity.
        kind: What became of the record.
        revision: The record's change count: 0 for ``snapshot``, 1 for the first change.
        before: The record's raw JSON before, or None where there was none.
        after: The record's raw JSON after, or None where there is none.
        patch: RFC 6902 operations from ``before`` to ``after``; None but for ``updated`` with a ``before``.
        changed: The pointers that ``patch`` touches; None where ``patch`` is.
        changed_between: Service times: start of the last complete run that would have shown it, and this reading.
        modified_at: The record's own timestamp, where it has one.
        detected_at: Our time when the reading was complete.
        via: Which kind of reading showed it.
        late: An earlier completed run covered it and did not show it.
        reason: For ``deleted``: how that was found.
        detail_missing: The record's detail was wanted and did not come.
        made_at: ``modified_at`` by our clock, where the change moved it: when it was made, as the record says.
    """

    feed: Feed
    key: Key
    kind: ChangeKind
    revision: int
    before: bytes | None
    after: bytes | None
    patch: list[dict[str, JSON]] | None
    changed: list[str] | None
    changed_between: tuple[datetime | None, datetime]
    modified_at: datetime | None
    detected_at: datetime
    via: Via
    late: bool = False
    reason: DeletionReason | None = None
    detail_missing: bool = False
    made_at: datetime | None = None


class StatementKind(StrEnum):
    """What is said about a feed as a whole."""

    RECONCILED = "reconciled"  # a complete pass ended: its certificate
    GAP = "gap"  # dockbell was blind for a while
    REBASELINED = "rebaselined"  # it is read differently from now on
    HELD = "held"  # changes wait for an operator


class NoticeKind(StrEnum):
    """What dockbell tells its operator of itself."""

    CROWDED = "crowded"  # more came to the web server than there is room for
    DEAD_LETTER = "dead_letter"  # a sink is not offered an event again
    HELD = "held"  # changes of a feed wait for the operator
    OVERRUN = "overrun"  # a sink has lost events
    PAUSED = "paused"  # a sink takes nothing until it is resumed
    RECOVERED = "recovered"  # a sink, or a feed, works again
    REFUSED = "refused"  # a feed cannot be read, or not whole: the key is not accepted, or the answers do not fit
    UNREACHABLE = "unreachable"  # a sink cannot deliver


NOTICES: Final = Feed("dockbell", "notices")
"""The feed of dockbell's own notices to its operator: no resource has its name."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Something said about a feed, not about one of its records; it is numbered and published like a change.

    Attributes:
        feed: What it is about; :data:`NOTICES` for a notice.
        kind: What is said.
        detected_at: Our time when it became known.
        details: What the event adds to it, plain JSON values; times are written already.
    """

    feed: Feed
    kind: StatementKind | NoticeKind
    detected_at: datetime
    details: dict[str, JSON]


# Publishing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered entry of the outbox.

    Attributes:
        feed: The feed that numbers it.
        sequence: Its number in the feed, contiguous from 1.
        key: The record's key string; empty for an event about the feed itself.
        id: ``evt_…``; never changes, whatever is retried, replayed or restarted.
        type: ``dockbell.shipment.updated`` and so on.
        change: The last part of ``type``, or the change that a named event follows.
        revision: The record's change count.
        body: The structured CloudEvent, JSON as sent.
        recorded_at: When it was stored, by our clock; None where it was read without that.
        made_at: When its change was made, as the record says, by our clock; None where that is not known.
    """

    feed: Feed
    sequence: int
    key: str
    id: str
    type: str
    change: str
    revision: int
    body: bytes
    recorded_at: datetime | None = field(default=None, compare=False)
    made_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one sink.

    Attributes:
        event: What is delivered.
        attempt: 1 for the first.
        state: The latest committed record's raw JSON, None when it is gone; filled only for sinks that keep state.
        state_only: The sink's filters hold the event back; a sink that keeps state publishes the state alone.
        replayed: Sent again on an operator's request; never touches retained state.
    """

    event: Event
    attempt: int = 1
    state: bytes | None = None
    state_only: bool = False
    replayed: bool = False


class OutcomeKind(StrEnum):
    """What came of one attempt, as the sink saw it."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the receiver will never take this event: a dead letter at once
    UNFIT = "unfit"  # it cannot be sent through this sink at all: a dead letter at once, and no fault of the receiver
    FAILED = "failed"  # this attempt did not succeed; another may
    UNREACHABLE = "unreachable"  # no receiver answered, so the attempt says nothing of the event
    CLOSED = "closed"  # the receiver wants no events at all any more: the sink pauses until an operator resumes it


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt came to.

    Attributes:
        kind: The kind of outcome.
        reason: For people: ``HTTP 503``, ``connection refused``, ``reason code 0x97 (quota exceeded)``.
        retry_after: How long the receiver asks to wait; it holds for the whole sink.
        is_own: The receiver has taken events that it was given later: a failure speaks against this one only.
    """

    kind: OutcomeKind
    reason: str = ""
    retry_after: timedelta | None = None
    is_own: bool = False


DELIVERED: Final = Outcome(OutcomeKind.DELIVERED)
