"""Events as typed values, from webhooks that are verified (Standard Webhooks 1.0.0, symmetric) or any other way.

They are msgspec structs: decoded and checked by the library that dockbell has already, at a tenth of the import time of
pydantic, and they pass over members that they do not know. What later versions add is in :attr:`Event.members`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Final, TypeAlias

import msgspec

from dockbell.core.document import decode
from dockbell.core.model import JSON
from dockbell.core.publishing.signature import TOLERANCE, Finding, parse_secret, verify
from dockbell.subscriber.errors import NotAnEvent, NotGenuine

SNAPSHOT: Final = "snapshot"
DELETED: Final = "deleted"
RESTORED: Final = "restored"
STORE_LOST: Final = "store_lost"
VIA_STATE: Final = "state"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one record.

    Attributes:
        resource: ``shipments``, ``packages``, ``items``, ``stock`` or ``warehouses``.
        key: The record's key string.
        id: The key as the API wrote it: a string, an integer, or a list of them.
        change: ``created``, ``updated``, ``deleted``, ``restored`` or ``snapshot``; perhaps more in later versions.
        revision: The record's change count.
        before: The record before; None where there was none, or where ``omitted`` says that it was left out.
        after: The record after; None where there is none (``deleted``), or where ``omitted`` says so.
        patch: RFC 6902 operations from ``before`` to ``after``, of ``updated``.
        changed: The pointers to what changed, of ``updated``.
        changed_between: The API's time: the start of the last complete run that would have shown it, and this reading.
        modified_at: The record's own timestamp, where it has one.
        detected_at: When dockbell saw it.
        via: Which kind of reading showed it, ``poll``, ``pass`` …; ``state`` where a sink is told how records are.
        late: An earlier complete run covered it and did not show it.
        reason: Of ``deleted``: ``absent``, ``not_found``, ``left``; ``purged``: erase what you have of the record.
        detail_missing: The record's detail was wanted and did not come.
        omitted: Which of ``before``, ``after``, ``patch``, ``changed`` were left out on the way to this sink.
        purged: Those that ``omitted`` names were erased, because the operator had the record's content erased.
    """

    resource: str
    key: str
    id: JSON
    change: str
    revision: int
    before: dict[str, JSON] | None = None
    after: dict[str, JSON] | None = None
    patch: list[dict[str, JSON]] | None = None
    changed: list[str] | None = None
    changed_between: tuple[datetime | None, datetime | None] | None = None
    modified_at: datetime | None = None
    detected_at: datetime
    via: str = ""
    late: bool = False
    reason: str | None = None
    detail_missing: bool = False
    omitted: tuple[str, ...] = ()
    purged: bool = False


class Named(Change, frozen=True, kw_only=True):
    """What the operator calls a change that matters; it repeats the change that it follows, revision included.

    Attributes:
        name: The last part of the event's type.
        unjudged: Its condition took too long to judge, so that it may not hold.
    """

    name: str
    unjudged: bool = False


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """Something said about a feed as a whole; of a kind that has no class here, unless it is a subclass.

    Attributes:
        resource: Of the feed.
        statement: The last part of the event's type.
        through_sequence: It holds for all events of the feed up to this one.
        detected_at: When it became known.
    """

    resource: str
    statement: str
    through_sequence: int
    detected_at: datetime


class Reconciled(Statement, frozen=True, kw_only=True):
    """A pass over the whole list is complete.

    Attributes:
        began_at: The API's time of its first request.
        ended_at: The API's time of its last answer.
        pages: How many pages it read.
        records: How many records they held.
        created: How many changes of this kind it found.
        updated: As ``created``.
        deleted: As ``created``.
        restored: As ``created``.
        missed: How many of these changes the polls should have shown.
        held: How many readings of the feed's records are held, as older than what is stored, or as drift.
        quarantined: How many records could not be read or told apart.
        digest: Hash of all keys and contents: the same one later means that nothing changed between.
        verdict: ``equal``, ``repaired`` or ``doubtful``.
    """

    began_at: datetime = msgspec.field(name="from")
    ended_at: datetime = msgspec.field(name="to")
    pages: int
    records: int
    created: int = 0
    updated: int = 0
    deleted: int = 0
    restored: int = 0
    missed: int = 0
    held: int = 0
    quarantined: int = 0
    digest: str = ""
    verdict: str


class Gap(Statement, frozen=True, kw_only=True):
    """Dockbell was blind for a while: versions that came and went meanwhile have no event.

    Attributes:
        began_at: Until when it had seen everything; None where that is unknown.
        ended_at: From when on it sees again.
        reason: ``down``, ``refused``, ``unavailable``, ``no_budget``, ``store_unavailable``; ``store_lost``: revisions
            begin anew; ``overrun``: this sink alone has lost events, and is told of each record as it is.
    """

    began_at: datetime | None = msgspec.field(name="from")
    ended_at: datetime = msgspec.field(name="to")
    reason: str


class Rebaselined(Statement, frozen=True, kw_only=True):
    """The feed is read differently from now on; what differs only for that has no event.

    Attributes:
        parts: What differs, by its names in the configuration.
    """

    parts: tuple[str, ...]


class Held(Statement, frozen=True, kw_only=True):
    """Changes wait for an operator.

    Attributes:
        reason: ``deletions`` or ``drift``.
        count: How many records wait.
        paths: The pointers that changed, of ``drift``.
        since: When the first of them began to.
    """

    reason: str
    count: int
    paths: tuple[str, ...] = ()
    since: datetime


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something about dockbell itself, for its operator; ``resources`` of the sink must name ``notices``.

    Attributes:
        notice: The last part of the event's type: ``dead_letter``, ``overrun``, ``unreachable``, …
        sink: About which sink; None where it is about something else.
        source: About which source; None where it is about something else.
        feed: About which feed, ``SOURCE/RESOURCE``; None where it is about something else.
        process: Which process; None where it is about something else.
        store: ``disk`` where it is about the disk of the store.
        server: ``web`` where it is about the web server.
        resolves: Of ``recovered``, the kind of the notice about the same thing that is over; else None.
        reason: In words.
        count: How often, since the last notice of the kind about it.
        detected_at: When it became known.
    """

    notice: str = msgspec.field(name="statement")
    sink: str | None = None
    source: str | None = None
    feed: str | None = None
    process: str | None = None
    store: str | None = None
    server: str | None = None
    resolves: str | None = None
    reason: str = ""
    count: int = 1
    detected_at: datetime


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """What ``dockbell test`` sends; no record stands behind it.

    Attributes:
        after: A note.
    """

    __test__: ClassVar = False  # pytest takes it for none of its own

    after: dict[str, JSON] | None = None


class Unknown(msgspec.Struct, frozen=True):
    """Of a later version; all of it stands in :attr:`Event.members`."""


Data: TypeAlias = Change | Statement | Notice | Test | Unknown
"""What an event says. Each is one class or a subclass, so that ``match event.data`` tells them apart."""

_STATEMENTS: Final[dict[str, type[Statement]]] = {
    "reconciled": Reconciled,
    "gap": Gap,
    "rebaselined": Rebaselined,
    "held": Held,
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event.

    Attributes:
        id: The same however often it comes, and on whatever way.
        source: ``dockbell://NAME/SOURCE/RESOURCE``.
        type: ``dockbell.shipment.updated`` and so on.
        time: When dockbell saw what it tells.
        partitionkey: ``SOURCE/RESOURCE/KEY``, or ``SOURCE/RESOURCE`` where it is about no record.
        sequence: Its number in its feed, contiguous from 1; 0 for a test.
        subject: The record's key; None where it is about none.
        dataref: Where the record can be read, when the event was too large to carry it.
        data: What it says.
        members: All of it as it came, also what this version does not know.
    """

    id: str
    source: str
    type: str
    time: datetime
    partitionkey: str
    sequence: int
    subject: str | None = None
    dataref: str | None = None
    data: Data
    members: dict[str, JSON]

    @property
    def feed(self) -> str:
        """``SOURCE/RESOURCE``: what ``sequence`` counts in, and where the pull feed is."""
        return "/".join(self.partitionkey.split("/", 2)[:2])


class _Envelope(msgspec.Struct):
    """The members that every event has."""

    id: str
    source: str
    type: str
    time: datetime
    partitionkey: str
    sequence: str
    data: dict[str, JSON]
    subject: str | None = None
    dataref: str | None = None


def parse(body: bytes | str) -> Event:
    """Return the event of a structured CloudEvent: the body of a webhook, the payload of an MQTT publication.

    Integers are exact, other numbers are :class:`~decimal.Decimal`.

    Raises:
        NotAnEvent: It is none of dockbell.
    """
    try:
        document = decode(body.encode() if isinstance(body, str) else body)
    except ValueError as error:
        raise NotAnEvent(f"event: {error}") from error
    return _read(document)


def parse_batch(body: bytes) -> list[Event]:
    """Return the events of a CloudEvents batch, as pull feeds answer.

    Raises:
        NotAnEvent: It is none of events of dockbell.
    """
    try:
        documents = decode(body)
    except ValueError as error:
        raise NotAnEvent(f"batch: {error}") from error
    if not isinstance(documents, list):
        raise NotAnEvent(f"batch: must be an array of events, got {type(documents).__name__}")
    return [_read(document) for document in documents]


def _read(document: JSON) -> Event:
    try:
        envelope = msgspec.convert(document, _Envelope)
        typed = {"sequence": int(envelope.sequence), "data": _read_data(envelope.type, envelope.data)}
        return Event(**msgspec.structs.asdict(envelope) | typed, members=document)
    except ValueError as error:  # msgspec's own is one
        raise NotAnEvent(f"event: {error}; is this a structured CloudEvent of dockbell?") from error


def _read_data(kind: str, data: dict[str, JSON]) -> Data:
    domain, _, rest = kind.removeprefix("dockbell.").partition(".")
    if not kind.startswith("dockbell."):
        raise NotAnEvent(f'event: type must begin with "dockbell.", got {kind[:80]!r}')
    if kind == "dockbell.test":
        return msgspec.convert(data, Test)
    if domain == "feed":
        return msgspec.convert(data, _STATEMENTS.get(rest, Statement))
    if domain == "notice":
        return msgspec.convert(data, Notice)
    if {"key", "change", "revision"} <= data.keys():
        return msgspec.convert(data, Named if "name" in data else Change)
    return Unknown()


class Verifier:
    """Verifies webhooks.

    Args:
        secrets: The ``whsec_`` texts that the sender may sign with; two while one replaces the other.
        tolerance: How far from now ``webhook-timestamp`` may lie, against replay of recorded requests.

    Raises:
        ValueError: There is no secret, or one of them is none.
    """

    def __init__(self, *secrets: str, tolerance: timedelta = TOLERANCE) -> None:
        if not secrets:
            raise ValueError("secrets: at least one is needed, got none; make one with `dockbell secret`")
        self._secrets = [parse_secret(secret) for secret in secrets]
        self._tolerance = tolerance

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> None:
        """Return if a webhook is genuine.

        The signature is checked over the raw bytes of the body, before anything parses them: JSON that was parsed and
        written again is other bytes, and nothing of a body that is not genuine reaches a parser.

        Args:
            headers: Of the request, names in any case.
            body: The raw bytes, as received; not what a framework made of them.
            now: Unix seconds; the system's clock where left out.

        Raises:
            NotGenuine: It is not; the text says why and holds no secret.
        """
        given = {name.lower(): value for name, value in headers.items()}
        missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not given.get(name)]
        if missing:
            raise NotGenuine(f"webhook: has no header {missing[0]}; it must be signed by Standard Webhooks")
        if not given["webhook-id"].isascii():  # what a framework made of bytes that dockbell has not written
            raise NotGenuine(f"webhook {given['webhook-id'][:80]!r}: the id is not ASCII")
        finding = verify(
            self._secrets,
            given["webhook-id"],
            given["webhook-timestamp"],
            given["webhook-signature"],
            body,
            now=int(time.time() if now is None else now),
            tolerance=self._tolerance,
        )
        if finding is not Finding.GENUINE:
            raise NotGenuine(f"webhook {given['webhook-id'][:80]!r}: {finding}")

    def open(self, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> Event:
        """Return the event in a webhook, verified.

        Raises:
            NotGenuine: See :meth:`verify`.
            NotAnEvent: It is genuine, but no event of dockbell.
        """
        self.verify(headers, body, now=now)
        return parse(body)
