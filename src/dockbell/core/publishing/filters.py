"""Which events a sink wants: by source and resource, by the change, by a condition on the record."""

from __future__ import annotations

from typing import Final

import msgspec

from dockbell.config import Answer, Expression, Facts, Program, SinkSettings
from dockbell.core.model import NOTICES, ChangeKind, DeletionReason, Event, Feed
from dockbell.core.publishing.event import Evaluate

_NULL: Final = b"null"


class EventData(msgspec.Struct):
    """The members of an event's ``data`` that an expression may use; others are skipped."""

    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)
    changed: list[str] = []
    reason: str = ""


class EventBody(msgspec.Struct):
    """The members of an event's body that an expression may use."""

    data: EventData
    time: str = ""


BODIES: Final = msgspec.json.Decoder(EventBody)


def leaves_out(settings: SinkSettings) -> bool:
    """Return whether a sink may get fewer events than are recorded of the feeds that it takes."""
    return settings.changes is not None or settings.where is not None or settings.coalesce


class Filter:
    """The filters of one sink; its ``where`` was checked when the configuration was read."""

    def __init__(self, settings: SinkSettings) -> None:
        self._sources = settings.sources
        self._resources = settings.resources
        self._changes = settings.changes
        self._where = None if settings.where is None else Expression(settings.where)
        self._sends_leaving = settings.on_leave == "send"

    def wants(self, feed: Feed) -> bool:
        """Return whether the sink takes events of a feed at all; notices only where ``resources`` names them."""
        if feed == NOTICES:
            return self._resources is not None and feed.resource in self._resources
        return (self._sources is None or feed.source in self._sources) and (
            self._resources is None or feed.resource in self._resources
        )

    def evaluate(self, event: Event, *, is_told: bool = False, evaluate: Evaluate = Expression.evaluate) -> Answer:
        """Return the answer of the filters for an event in full.

        Statements about a feed are filtered by ``changes`` only, and so are deletions of purged records: a receiver
        that took the record by its content must learn of its deletion. Notices always pass. With ``on_leave = "send"``,
        an event also passes when the condition holds for the record before the change. To a backfill event
        (``is_told``), ``changes`` does not apply.

        The answer is :attr:`Answer.COSTLY` where the condition may take long, :attr:`Answer.BROKEN` where it cannot be
        evaluated.
        """
        if not self.wants(event.feed):
            return Answer.NO
        if event.feed == NOTICES:
            return Answer.YES
        if not is_told and self._changes is not None and event.change not in self._changes:
            return Answer.NO
        if self._where is None or not event.is_of_record:
            return Answer.YES
        return self._evaluate_record(self._where, event, evaluate)

    def _evaluate_record(self, where: Expression, event: Event, evaluate: Evaluate) -> Answer:
        data = BODIES.decode(event.body).data
        if data.reason == DeletionReason.PURGED:
            return Answer.YES
        answer = evaluate(where, find_facts(where, event, data))
        if not (self._sends_leaving and answer.is_held_back):
            return answer
        if _open(data.before):
            left = evaluate(where, find_facts(where, event, data, is_before=True))
            return left if left.lets_through else answer
        # Without the record before: the receiver may have a deleted record, but cannot have a new one.
        return Answer.YES if event.change == ChangeKind.DELETED else answer

    def explain(self, event: Event, answer: Answer) -> str:
        """Return in words why an event is held back, or passes although the condition is false; else empty."""
        if not self.wants(event.feed):
            return f"the sink does not take {event.feed}"
        if answer is Answer.YES and not self._sends_leaving:
            return ""
        if self._changes is not None and event.change not in self._changes and event.feed != NOTICES:
            return f"changes does not include {event.change}"
        data = BODIES.decode(event.body).data
        if self._where is None or not event.is_of_record or data.reason == DeletionReason.PURGED:
            return ""
        obstacle = "" if answer is Answer.COSTLY else self._where.find_obstacle(find_facts(self._where, event, data))
        if answer is Answer.YES:
            return f"it left the filter: {obstacle}" if obstacle else ""
        return f"where: {obstacle or answer.value}"


def find_facts(expression: Program, event: Event, data: EventData, *, is_before: bool = False, time: str = "") -> Facts:
    """Return the facts for an expression; of the record before the change as for an update that changed nothing."""
    before = _open(data.before)
    after, change = (before, str(ChangeKind.UPDATED)) if is_before else (_open(data.after), event.change)
    others = {
        "id": event.id,
        "time": time,
        "key": event.key,
        "resource": event.feed.resource,
        "source": event.feed.source,
        "change": change,
        "changed": [] if is_before else data.changed,
    }
    return Facts(expression.looks_at, before=before, after=after, others=others)


def _open(raw: msgspec.Raw) -> bytes:
    text = bytes(raw)
    return b"" if text == _NULL else text
