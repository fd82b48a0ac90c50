"""Which events a sink wants: by source and resource, by the change, by a condition on the record."""

from __future__ import annotations

from typing import Final

import msgspec

from dockbell.config import Answer, Expression, Facts, SinkSettings
from dockbell.core.model import NOTICES, ChangeKind, DeletionReason, Event, Feed
from dockbell.core.publishing.named import Judge

_NULL: Final = b"null"


class _Data(msgspec.Struct):
    """What a condition may ask of the ``data`` of an event; all else in it is skipped."""

    before: msgspec.Raw = msgspec.Raw(_NULL)
    after: msgspec.Raw = msgspec.Raw(_NULL)
    changed: list[str] = []
    reason: str = ""


class _Body(msgspec.Struct):
    data: _Data


_DECODER: Final = msgspec.json.Decoder(_Body)


class Filter:
    """The filters of one sink.

    Args:
        settings: As configured; ``where`` was checked when they were read.
    """

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

    def judge(self, event: Event, *, is_told: bool = False, judge: Judge = Expression.evaluate) -> Answer:
        """Return what the filters say of an event in full.

        A statement about a feed goes by its name in ``changes`` and by nothing else, as does the deletion of a record
        that was purged: who has taken it by its content must hear of it. A notice always passes. With
        ``on_leave = "send"``, so does what the condition says no to, where it said yes of the record before.
        :attr:`Answer.COSTLY` says that the condition may take long, and :attr:`Answer.BROKEN` that it cannot be judged.

        Args:
            event: In full.
            is_told: It tells of a record as it was stored when the sink began: ``changes`` says nothing of these.
            judge: Judges the condition.
        """
        if not self.wants(event.feed):
            return Answer.NO
        if event.feed == NOTICES:
            return Answer.YES
        if not is_told and self._changes is not None and event.change not in self._changes:
            return Answer.NO
        return Answer.YES if self._where is None or not event.key else self._judge_record(self._where, event, judge)

    def _judge_record(self, where: Expression, event: Event, judge: Judge) -> Answer:
        data = _DECODER.decode(event.body).data
        if data.reason == DeletionReason.PURGED:
            return Answer.YES
        answer = judge(where, _find_facts(where, event, data))
        if not (self._sends_leaving and answer.is_held_back):
            return answer
        if _open(data.before):
            left = judge(where, _find_facts_before(where, event, data))
            return left if left.lets_through else answer
        # What is gone may have been followed; what is there, and was not known before, was not.
        return Answer.YES if event.change == ChangeKind.DELETED else answer

    def explain(self, event: Event, answer: Answer) -> str:
        """Return in words why an event is held back, or is let through although not all holds; empty where all does.

        Args:
            event: In full.
            answer: What the filters say of it.
        """
        if not self.wants(event.feed):
            return f"the sink takes nothing of {event.feed}"
        if answer is Answer.YES and not self._sends_leaving:
            return ""
        if self._changes is not None and event.change not in self._changes and event.feed != NOTICES:
            return f"changes leaves out {event.change}"
        data = _DECODER.decode(event.body).data
        if self._where is None or not event.key or data.reason == DeletionReason.PURGED:
            return ""
        obstacle = "" if answer is Answer.COSTLY else self._where.find_obstacle(_find_facts(self._where, event, data))
        if answer is Answer.YES:
            return f"it left the filter: {obstacle}" if obstacle else ""
        return f"where: {obstacle or answer.value}"


def _find_facts(where: Expression, event: Event, data: _Data) -> Facts:
    """Return what a condition is judged by."""
    others = _name(event) | {"change": event.change, "changed": data.changed}
    return Facts(where.looks_at, before=_open(data.before), after=_open(data.after), others=others)


def _find_facts_before(where: Expression, event: Event, data: _Data) -> Facts:
    """Return what it is judged by of the record before: as if that had been updated without another form."""
    before = _open(data.before)
    others = _name(event) | {"change": str(ChangeKind.UPDATED), "changed": list[str]()}
    return Facts(where.looks_at, before=before, after=before, others=others)


def _name(event: Event) -> dict[str, object]:
    return {"key": event.key, "resource": event.feed.resource, "source": event.feed.source}


def _open(raw: msgspec.Raw) -> bytes:
    """Return the raw JSON of a record; empty where there is none, as conditions want it."""
    text = bytes(raw)
    return b"" if text == _NULL else text
