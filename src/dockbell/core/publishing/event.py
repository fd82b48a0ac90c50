"""Events: a change of a record or a statement about a feed, numbered, as a structured CloudEvent 1.0.

``event.schema.json`` describes them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

import msgspec

from dockbell.config import Answer, Expression
from dockbell.core.key import encode
from dockbell.core.model import (
    JSON,
    RESOURCES,
    Change,
    ChangeKind,
    DeletionReason,
    Event,
    Feed,
    Key,
    NoticeKind,
    Statement,
    Via,
)
from dockbell.core.moment import format_moment
from dockbell.core.publishing.named import Evaluate, NamedEvent, NamedEvents
from dockbell.core.publishing.settlement import StartOffset
from dockbell.core.publishing.statement import GapReason, gap

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_TEST: Final = "test"


def event_source(name: str, feed: Feed) -> str:
    """Return the ``source`` of a feed's events, ``dockbell://acme/main/shipments``."""
    return "dockbell://" + "/".join([quote(part, safe="") for part in (name, feed.source, feed.resource)])


class Composer:
    """Writes the events of one feed.

    Attributes:
        unanswered: How often a named event's condition was neither true nor false, by name and answer.

    Args:
        feed: The feed that numbers them.
        name: The name of this dockbell.
        singular: The resource's name of one record, as in event types.
        epoch: Of the store; part of each id, so that a new store repeats none.
        named: The operator's own events.
        evaluate: Evaluates their conditions.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        name: str,
        singular: str,
        epoch: str,
        named: Sequence[NamedEvent] = (),
        evaluate: Evaluate = Expression.evaluate,
    ) -> None:
        self.unanswered: Counter[tuple[str, Answer]] = Counter()
        self._feed = feed
        self._source = event_source(name, feed)
        self._singular = singular
        self._epoch = epoch
        self._named = NamedEvents(named, evaluate)

    def __call__(self, item: Change | Statement, sequence: int) -> tuple[Event, ...]:
        """Return the event of a change, followed by its named events, or the event of a statement.

        Args:
            item: What happened; ``before`` and ``after`` are embedded byte for byte, but for line breaks.
            sequence: The number of the first of these events in the feed; the others follow it.
        """
        if isinstance(item, Statement):
            subject = "notice" if isinstance(item.kind, NoticeKind) else "feed"
            return (self._write(f"{subject}.{item.kind}", _describe_statement(item, sequence), sequence),)
        data = _describe_change(item)
        events = [self._write(f"{self._singular}.{item.kind}", data, sequence, item.made_at)]
        for name, answer in self._named.evaluate(item):
            if answer.lets_through:
                sequence += 1
                said = {"name": name} if answer is Answer.YES else {"name": name, "unjudged": True}
                events.append(self._write(f"{self._singular}.{name}", data | said, sequence, item.made_at))
            if not answer.is_plain:
                self.unanswered[name, answer] += 1
        return tuple(events)

    def _write(self, kind: str, data: dict[str, JSON], sequence: int, made_at: datetime | None = None) -> Event:
        return _write_event(
            self._feed, kind, data, source=self._source, epoch=self._epoch, sequence=sequence, made_at=made_at
        )


class BackfillComposer:
    """Writes the backfill of a sink: events for this sink alone, which all have the number of its origin.

    The event of a record has the same id each time it is composed, even if its content differs: ignored members and
    its own timestamp may be stored anew without an event.

    Args:
        feed: The feed.
        start: Where the sink begins.
        name: The name of this dockbell.
        epoch: Of the store.
    """

    def __init__(self, feed: Feed, start: StartOffset, *, name: str, epoch: str) -> None:
        self._feed = feed
        self._start = start
        lost_since = start.lost_since
        self._lost_since = lost_since if lost_since is not None and lost_since.timestamp() else None
        self._source = event_source(name, feed)
        self._epoch = epoch

    def compose_record(self, key: Key, revision: int, body: bytes | None, modified: datetime | None) -> Event:
        """Return the event of a record as it was at the start: a snapshot, or a deletion if it was gone."""
        at = self._start.began_at
        change = Change(
            feed=self._feed,
            key=key,
            kind=ChangeKind.DELETED if body is None else ChangeKind.SNAPSHOT,
            revision=revision,
            before=None,
            after=body,
            patch=None,
            changed=None,
            changed_between=(self._lost_since, at),
            modified_at=modified,
            detected_at=at,
            via=Via.STATE,
            reason=DeletionReason.ABSENT if body is None else None,
        )
        return self._write(f"{RESOURCES[self._feed.resource].singular}.{change.kind}", _describe_change(change))

    def compose_gap(self) -> Event:
        """Return the event that the sink has lost the events since a time."""
        start = self._start
        statement = gap(
            self._feed,
            start.began_at,
            began_at=self._lost_since,
            ended_at=start.began_at,
            reason=GapReason.OVERRUN,
        )
        return self._write(f"feed.{statement.kind}", _describe_statement(statement, start.origin + 1))

    def _write(self, kind: str, data: dict[str, JSON]) -> Event:
        start = self._start
        identity: list[JSON] = [format_moment(start.began_at), data.get("key", "")]
        return _write_event(
            self._feed, kind, data, identity, source=self._source, epoch=self._epoch, sequence=start.origin
        )


def test_event(name: str, sink: str, now: datetime, nonce: str) -> Event:
    """Return an event without a record, for ``dockbell test``; ``nonce`` makes its id unique."""
    data = {
        "resource": _TEST,
        "key": encode([sink]),
        "id": sink,
        "change": _TEST,
        "revision": 0,
        "before": None,
        "after": {"note": "a test by the operator: no record changed"},
        "detected_at": format_moment(now),
    }
    feed = Feed("dockbell", _TEST)
    return _write_event(feed, _TEST, data, source=event_source(name, feed), epoch=nonce, sequence=0)


def _describe_change(change: Change) -> dict[str, JSON]:
    data = {
        "resource": change.feed.resource,
        "key": change.key.text,
        "id": change.key.id,
        "change": change.kind,
        "revision": change.revision,
        "before": _embed(change.before),
        "after": _embed(change.after),
    }
    if change.patch is not None:
        data["patch"] = change.patch
        data["changed"] = change.changed
    data["changed_between"] = [_write_moment(moment) for moment in change.changed_between]
    data["modified_at"] = _write_moment(change.modified_at)
    data["detected_at"] = format_moment(change.detected_at)
    data["via"] = change.via
    data["late"] = change.late
    if change.reason is not None:
        data["reason"] = change.reason
    if change.detail_missing:
        data["detail_missing"] = True
    return data


def _describe_statement(statement: Statement, sequence: int) -> dict[str, JSON]:
    return {
        "resource": statement.feed.resource,
        "statement": statement.kind,
        **statement.details,
        "through_sequence": sequence - 1,
        "detected_at": format_moment(statement.detected_at),
    }


def _write_event(
    feed: Feed,
    kind: str,
    data: dict[str, JSON],
    identity: Sequence[JSON] | None = None,
    *,
    source: str,
    epoch: str,
    sequence: int,
    made_at: datetime | None = None,
) -> Event:
    """Return an event of type ``dockbell.KIND``; the first part of the kind names its schema.

    Its id is that of its content, or of ``identity`` where that is given.
    """
    type_ = f"dockbell.{kind}"
    content = msgspec.Raw(_ENCODER.encode(data))
    # https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
    identified = _ENCODER.encode([epoch, feed.source, feed.resource, sequence, type_, identity or content])
    event_id = "evt_" + blake2b(identified, digest_size=16).hexdigest()
    key = data.get("key", "")
    body: dict[str, JSON] = {"specversion": "1.0", "id": event_id, "source": source, "type": type_}
    if key:
        body["subject"] = key
    body |= {
        "time": data["detected_at"],
        "datacontenttype": "application/json",
        "dataschema": f"urn:dockbell:schema:{kind.partition('.')[0]}:1",
        "partitionkey": f"{feed}/{key}" if key else str(feed),
        "sequence": f"{sequence:020}",
        "data": content,
    }
    return Event(
        feed=feed,
        sequence=sequence,
        key=key,
        id=event_id,
        type=type_,
        change=str(data["change"] if key else data["statement"]),
        revision=data.get("revision", 0),
        body=_ENCODER.encode(body),
        made_at=made_at,
    )


def _embed(raw: bytes | None) -> msgspec.Raw | None:
    if raw is None:
        return None
    # An event is one line: a line break can only stand between the tokens of a JSON text.
    return msgspec.Raw(msgspec.json.format(raw, indent=-1) if b"\n" in raw or b"\r" in raw else raw)


def _write_moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(moment)
