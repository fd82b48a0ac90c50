"""The nouns that every room shares, one dataclass each; the words are those of the glossary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

JSON: TypeAlias = Any
"""A decoded JSON value: integers exact, other numbers :class:`decimal.Decimal`."""

DIGEST_SIZE: Final = 16
"""Bytes of every hash of a record, its raw text or its canonical form."""
_EMPTY: Final = blake2b(digest_size=DIGEST_SIZE)


class Resource(msgspec.Struct, frozen=True):
    """One collection that the API serves; ``polled``: its listing accepts ``updated_since``."""

    name: str  # as in the path and in the configuration, ``shipments``
    singular: str  # as in event types, ``shipment``
    polled: bool
    addressable: bool = False  # whether one record can be read by its id

    @property
    def path(self) -> str:
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
    """A record that is no sound JSON; ``head`` is what can be read of it: it holds the key, and is never stored."""

    problem: str
    head: JSON


class Page(msgspec.Struct, frozen=True, dict=True):
    """One accepted response of a listing."""

    records: tuple[bytes, ...]  # each record's raw JSON text, in the order of the response
    next_cursor: str | None  # asks for the following page; None at the end of the list
    envelope: str  # the field that held the records
    asked_at: datetime  # the service's time when the request reached it, at the earliest
    clock: ClockSource  # what ``asked_at`` was taken from
    answered_at: datetime  # the service's time when it made the answer, at the latest
    received_at: datetime  # our own time when the response was complete
    unsound: Mapping[int, Unsound] = msgspec.field(default_factory=dict)
    """Those of its records that are no sound JSON, by their index."""
    age: timedelta = timedelta(0)  # how long a cache on the way has kept it, as that states
    offset: timedelta | None = None
    """How far our clock is ahead of the service's, as nearly as all its answers tell; None: only this one does."""

    @cached_property
    def hashes(self) -> tuple[bytes, ...]:
        """The hashes of the records' texts."""
        hashes = []
        for raw in self.records:
            hash_ = _EMPTY.copy()  # takes less time than a new one
            hash_.update(raw)
            hashes.append(hash_.digest())
        return tuple(hashes)

    @property
    def shown_at(self) -> datetime:
        """``asked_at`` of the content: a cache answers with what the service said before."""
        return self.asked_at - self.age

    @property
    def latest(self) -> datetime:
        """The latest time that it can be: the times in a cached answer may be old."""
        return max(self.answered_at, self.received_at)


class Allowance(msgspec.Struct, frozen=True):
    """What the API says is left for the key in its current window (the ``x-ratelimit-`` headers), for all its users."""

    limit: int
    remaining: int
    resets_in: timedelta


class RunKind(StrEnum):
    """A poll asks ``updated_since``, a trailing one from long before; a pass reads the whole list."""

    POLL = "poll"
    TRAILING = "trailing"
    PASS = "pass"


class ChangeKind(StrEnum):
    """What became of a record; ``snapshot`` states it as it was first met."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"
    SNAPSHOT = "snapshot"


_CHANGES: Final = frozenset(ChangeKind)


class Via(StrEnum):
    """Which kind of reading showed a change; ``operator`` for a command."""

    POLL = "poll"
    TRAILING = "trailing"
    PASS = "pass"
    DETAIL = "detail"
    FIRST_PASS = "first_pass"
    SIGNAL = "signal"
    STATE = "state"
    OPERATOR = "operator"


class DeletionReason(StrEnum):
    """How a record was found to be gone."""

    ABSENT = "absent"
    NOT_FOUND = "not_found"
    LEFT = "left"
    PURGED = "purged"


class Key(msgspec.Struct, frozen=True):
    """The identity of a record in its feed."""

    text: str  # the key string of the contract: percent-encoded components joined by commas
    id: JSON  # the typed original: a string, an integer, or a list of them for composite keys


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One visible change of one record, before it has a number."""

    feed: Feed
    key: Key
    kind: ChangeKind
    revision: int  # the record's change count: 0 for ``snapshot``, 1 for the first change
    before: bytes | None = None  # the record's raw JSON before, or None where there was none
    after: bytes | None = None  # the record's raw JSON after, or None where there is none
    patch: list[dict[str, JSON]] | None = None
    """RFC 6902 operations from ``before`` to ``after``; None but for ``updated`` with a ``before``."""
    changed: list[str] | None = None  # the pointers that ``patch`` touches; None where ``patch`` is
    changed_between: tuple[datetime | None, datetime]
    """Service times: start of the last complete run that would have shown it, and this reading."""
    modified_at: datetime | None = None  # the record's own timestamp, where it has one
    detected_at: datetime  # our time when the reading was complete
    via: Via
    late: bool = False  # an earlier completed run covered it and did not show it
    reason: DeletionReason | None = None
    detail_missing: bool = False  # the record's detail was wanted and did not come
    visible_at: datetime | None = None
    """When it became visible in the API, by our clock, as far as that can be told; its delay counts from then."""


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
    DIED = "died"  # a process ended without stopping in order
    DISK = "disk"  # the disk of the store is nearly full
    GAP = "gap"  # feeds of a source were not read for a while
    HELD = "held"  # changes of a feed wait for the operator
    OVERRUN = "overrun"  # a sink has lost events
    PAUSED = "paused"  # a sink takes nothing until it is resumed
    RECOVERED = "recovered"  # what an earlier notice told of is over
    REFUSED = "refused"  # a feed cannot be read, or not whole: the key is not accepted, or the answers do not fit
    UNREACHABLE = "unreachable"  # a sink cannot deliver, or the API of a source answers nothing


NOTICES: Final = Feed("dockbell", "notices")
"""The feed of dockbell's own notices to its operator: no resource has its name."""


class Statement(msgspec.Struct, frozen=True):
    """Something said about a feed, not about one of its records; it is numbered and published like a change."""

    feed: Feed  # what it is about; :data:`NOTICES` for a notice
    kind: StatementKind | NoticeKind
    detected_at: datetime  # our time when it became known
    details: dict[str, JSON]  # what the event adds to it, plain JSON values; times are written already
    key: str = ""  # notices with the same one are delivered in order, others do not wait for them


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered entry of the outbox."""

    feed: Feed  # the feed that numbers it
    sequence: int  # its number in the feed, contiguous from 1
    key: str  # of its record; a notice has one of its own, and a statement none: it orders deliveries
    id: str  # ``evt_…``; never changes, whatever is retried, replayed or restarted
    type: str  # ``dockbell.shipment.updated`` and so on
    change: str  # the last part of ``type``, or the change that a named event follows
    revision: int
    body: bytes  # the structured CloudEvent, JSON as sent
    recorded_at: datetime | None = field(default=None, compare=False)
    """When it was stored, by our clock; None where it was read without that."""
    visible_at: datetime | None = field(default=None, compare=False)
    """When its change became visible in the API, by our clock, as estimated; None where no delay is measured."""

    @property
    def is_of_record(self) -> bool:
        """Whether it tells of a record; otherwise it is a statement about a feed, or a notice."""
        return bool(self.key) and self.feed != NOTICES

    @property
    def is_change(self) -> bool:
        """Whether it tells what a record is from then on, so that the next one of the record can replace it.

        An event that the operator named has the change that it follows, and another type.
        """
        return self.is_of_record and self.change in _CHANGES and self.type.endswith(f".{self.change}")


class Delivery(msgspec.Struct, frozen=True):
    """One event on its way to one sink."""

    event: Event
    attempt: int = 1
    state: bytes | None = None
    """The latest committed record's raw JSON, None when it is gone; filled only for sinks that keep state."""
    state_only: bool = False
    """The sink's filters hold the event back; a sink that keeps state publishes the state alone."""
    replayed: bool = False  # sent again on an operator's request; never touches retained state


class OutcomeKind(StrEnum):
    """What came of one attempt, as the sink saw it."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the receiver will never take this event: a dead letter at once
    UNFIT = "unfit"  # it cannot be sent through this sink at all: a dead letter at once, and no fault of the receiver
    FAILED = "failed"  # this attempt did not succeed; another may
    UNREACHABLE = "unreachable"  # no receiver answered, so the attempt says nothing of the event
    CLOSED = "closed"  # the receiver wants no events at all any more: the sink pauses until an operator resumes it


class Outcome(msgspec.Struct, frozen=True):
    """What one attempt came to."""

    kind: OutcomeKind
    reason: str = ""  # for people: ``HTTP 503``, ``connection refused``, ``reason code 0x97 (quota exceeded)``
    retry_after: timedelta | None = None  # how long the receiver asks to wait; it holds for the whole sink
    is_own: bool = False
    """The receiver has taken events that it was given later: a failure speaks against this one only."""
    status: int | None = None  # of HTTP
    answer: str = ""  # what the receiver answered, cut and without secrets; empty where it said nothing


DELIVERED: Final = Outcome(OutcomeKind.DELIVERED)
