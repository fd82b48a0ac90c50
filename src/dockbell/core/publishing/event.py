"""Events: a change of a record or a statement about a feed, numbered, as a structured CloudEvent 1.0.

``event.schema.json`` describes them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from dockbell.config import Answer, Expression, Facts, NamedEventSettings
from dockbell.config.expression import LooksAt, unite
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
from dockbell.core.moment import format_moment, write_moment
from dockbell.core.publishing.settlement import StartOffset
from dockbell.core.publishing.statement import GapReason, gap

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_TEST: Final = "test"
_SMALL: Final = 1000

Evaluate: TypeAlias = Callable[[Expression, Facts], Answer]
"""Evaluates a condition for a change."""


class NamedEvent(msgspec.Struct, frozen=True):
    """An event of the operator's own, such as ``low`` for stock that has just run low; ``name`` ends its type."""

    name: str
    when: Expression


def read_named(settings: Sequence[NamedEventSettings]) -> tuple[NamedEvent, ...]:
    return tuple(NamedEvent(each.name, Expression(each.when)) for each in settings)


class NamedEvents:
    def __init__(self, named: Sequence[NamedEvent] = (), evaluate: Evaluate = Expression.evaluate) -> None:
        self._evaluate = evaluate
        self._named = tuple(named)
        self._looks_at = unite(each.when for each in self._named)

    def evaluate(self, change: Change) -> Iterator[tuple[str, Answer]]:
        """Yield each name and the answer of its condition for a change; an answer that passes makes an event.

        ``before`` and ``after`` are the records, numbers with a fraction as doubles; an empty object where there is
        none, so that a comparison with it is never a yes. ``changed`` is empty where nothing can be compared.
        """
        if not self._named:
            return
        together = self._find_facts(self._looks_at, change)
        for each in self._named:
            # Of a large record, each condition decodes only its own members.
            facts = together if together.size_most < _SMALL else self._find_facts(each.when.looks_at, change)
            yield each.name, self._evaluate(each.when, facts)

    def _find_facts(self, looks_at: LooksAt, change: Change) -> Facts:
        return Facts(
            looks_at,
            before=change.before or b"",
            after=change.after or b"",
            others={
                "change": str(change.kind),
                "changed": change.changed or [],
                "key": change.key.text,
                "resource": change.feed.resource,
                "source": change.feed.source,
            },
        )


def event_source(name: str, feed: Feed) -> str:
    """Return the ``source`` of a feed's events, ``dockbell://acme/main/shipments``."""
    return "dockbell://" + "/".join([quote(part, safe="") for part in (name, feed.source, feed.resource)])


class Composer:
    """Writes the events of one feed.

    The store's ``epoch`` is part of each id, so that a new store repeats none.

    Attributes:
        unanswered: How often a named event's condition was neither true nor false, by name and answer.
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
        self._writer = _Writer(feed, event_source(name, feed), epoch)
        self._singular = singular
        self._named = NamedEvents(named, evaluate)

    def __call__(self, item: Change | Statement, sequence: int) -> tuple[Event, ...]:
        """Return the event of a change, followed by its named events, or the event of a statement.

        ``before`` and ``after`` are embedded byte for byte, but for line breaks. The first event has the number
        ``sequence``; the others follow it.
        """
        if isinstance(item, Statement):
            subject = "notice" if isinstance(item.kind, NoticeKind) else "feed"
            data = _describe_statement(item, sequence)
            return (self._writer.write(f"{subject}.{item.kind}", data, sequence, key=item.key),)
        data = _describe_change(item)
        events = [self._writer.write(f"{self._singular}.{item.kind}", data, sequence, visible_at=item.visible_at)]
        for name, answer in self._named.evaluate(item):
            if answer.lets_through:
                sequence += 1
                said = {"name": name} if answer is Answer.YES else {"name": name, "unjudged": True}
                kind = f"{self._singular}.{name}"
                events.append(self._writer.write(kind, data | said, sequence, visible_at=item.visible_at))
            if not answer.is_plain:
                self.unanswered[name, answer] += 1
        return tuple(events)


class BackfillComposer:
    """Writes the backfill of a sink: events for this sink alone, which all have the number of its origin.

    The event of a record has the same id each time it is composed, even if its content differs: ignored members and its
    own timestamp may be stored anew without an event.
    """

    def __init__(self, feed: Feed, start: StartOffset, *, name: str, epoch: str) -> None:
        self._feed = feed
        self._start = start
        lost_since = start.lost_since
        self._lost_since = lost_since if lost_since is not None and lost_since.timestamp() else None
        self._writer = _Writer(feed, event_source(name, feed), epoch)

    def compose_record(self, key: Key, revision: int, body: bytes | None, modified: datetime | None) -> Event:
        """Return the event of a record as it was at the start: a snapshot, or a deletion if it was gone."""
        at = self._start.began_at
        change = Change(
            feed=self._feed,
            key=key,
            kind=ChangeKind.DELETED if body is None else ChangeKind.SNAPSHOT,
            revision=revision,
            after=body,
            changed_between=(self._lost_since, at),
            modified_at=modified,
            detected_at=at,
            via=Via.STATE,
            reason=DeletionReason.ABSENT if body is None else None,
        )
        kind = f"{RESOURCES[self._feed.resource].singular}.{change.kind}"
        return self._write(kind, _describe_change(change), key.text)

    def compose_gap(self) -> Event:
        start = self._start
        statement = gap(
            self._feed, start.began_at, began_at=self._lost_since, ended_at=start.began_at, reason=GapReason.OVERRUN
        )
        return self._write(f"feed.{statement.kind}", _describe_statement(statement, start.origin + 1), "")

    def _write(self, kind: str, data: dict[str, JSON], key: str) -> Event:
        return self._writer.write(kind, data, self._start.origin, [format_moment(self._start.began_at), key])


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
    return _Writer(feed, event_source(name, feed), nonce).write(_TEST, data, 0)


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
    data["changed_between"] = [write_moment(moment) for moment in change.changed_between]
    data["modified_at"] = write_moment(change.modified_at)
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


class _Writer(NamedTuple):
    feed: Feed
    source: str
    epoch: str

    def write(
        self,
        kind: str,
        data: dict[str, JSON],
        sequence: int,
        identity: Sequence[JSON] | None = None,
        *,
        visible_at: datetime | None = None,
        key: str = "",
    ) -> Event:
        """Return an event of type ``dockbell.KIND``; its id is that of its content, or of ``identity``.

        ``key`` orders what is not about a record.
        """
        type_ = f"dockbell.{kind}"
        content = msgspec.Raw(_ENCODER.encode(data))
        identified = [self.epoch, self.feed.source, self.feed.resource, sequence, type_, identity or content]
        event_id = "evt_" + blake2b(_ENCODER.encode(identified), digest_size=16).hexdigest()
        subject = data.get("key", "")
        key = subject or key
        # https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
        body: dict[str, JSON] = {"specversion": "1.0", "id": event_id, "source": self.source, "type": type_}
        if subject:
            body["subject"] = subject
        body |= {
            "time": data["detected_at"],
            "datacontenttype": "application/json",
            "dataschema": f"urn:dockbell:schema:{kind.partition('.')[0]}:1",
            "partitionkey": f"{self.feed}/{key}" if key else str(self.feed),
            "sequence": f"{sequence:020}",
            "data": content,
        }
        return Event(
            feed=self.feed,
            sequence=sequence,
            key=key,
            id=event_id,
            type=type_,
            change=str(data["change"] if subject else data["statement"]),
            revision=data.get("revision", 0),
            body=_ENCODER.encode(body),
            visible_at=visible_at,
        )


def _embed(raw: bytes | None) -> msgspec.Raw | None:
    if raw is None:
        return None
    # An event is one line: a line break can only stand between the tokens of a JSON text.
    return msgspec.Raw(msgspec.json.format(raw, indent=-1) if b"\n" in raw or b"\r" in raw else raw)
