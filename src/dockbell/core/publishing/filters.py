"""Which events a sink wants: by source and resource, by the change, by a condition on the record."""

from __future__ import annotations

from typing import Final

import msgspec

from dockbell.config import Answer, Expression, Facts, SinkSettings
from dockbell.core.model import NOTICES, DeletionReason, Event, Feed

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

    def wants(self, feed: Feed) -> bool:
        """Return whether the sink takes events of a feed at all; notices only where ``resources`` names them."""
        if feed == NOTICES:
            return self._resources is not None and feed.resource in self._resources
        return (self._sources is None or feed.source in self._sources) and (
            self._resources is None or feed.resource in self._resources
        )

    def judge(self, event: Event, *, is_told: bool = False) -> Answer:
        """Return what the filters say of an event in full.

        A statement about a feed goes by its name in ``changes`` and by nothing else, as does the deletion of a record
        that was purged: who has taken it by its content must hear of it. A notice always passes. Only a
        plain yes is to be delivered: :attr:`Answer.COSTLY` and :attr:`Answer.BROKEN` say that the condition could not
        be judged, every other answer that the event is held back.

        Args:
            event: In full.
            is_told: It tells of a record as it was stored when the sink began: ``changes`` says nothing of these.
        """
        if not self.wants(event.feed):
            return Answer.NO
        if event.feed == NOTICES:
            return Answer.YES
        if not is_told and self._changes is not None and event.change not in self._changes:
            return Answer.NO
        if self._where is None or not event.key:
            return Answer.YES
        data = _DECODER.decode(event.body).data
        if data.reason == DeletionReason.PURGED:
            return Answer.YES
        return self._where.judge(_find_facts(self._where, event, data))

    def explain(self, event: Event) -> str:
        """Return which of the filters holds an event back, in words; empty where none does."""
        if not self.wants(event.feed):
            return f"the sink takes nothing of {event.feed}"
        answer = self.judge(event)
        if answer is Answer.YES:
            return ""
        if self._changes is not None and event.change not in self._changes:
            return f"changes leaves out {event.change}"
        assert self._where is not None
        facts = _find_facts(self._where, event, _DECODER.decode(event.body).data)
        return f"where: {self._where.find_obstacle(facts) or answer.value}"


def _find_facts(where: Expression, event: Event, data: _Data) -> Facts:
    """Return what a condition is judged by."""
    return Facts(
        where.looks_at,
        before=_open(data.before),
        after=_open(data.after),
        others={
            "change": event.change,
            "changed": data.changed,
            "key": event.key,
            "resource": event.feed.resource,
            "source": event.feed.source,
        },
    )


def _open(raw: msgspec.Raw) -> bytes:
    """Return the raw JSON of a record; empty where there is none, as conditions want it."""
    text = bytes(raw)
    return b"" if text == _NULL else text
