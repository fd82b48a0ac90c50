"""Histories of a few records, written as events by the code that writes them; what a subscriber must end up with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from hypothesis import strategies as st

from dockbell.config import Expression, SinkSettings
from dockbell.core.diff import diff, touched
from dockbell.core.document import encode
from dockbell.core.model import JSON, Change, ChangeKind, Event, Feed, Key, Statement, Via
from dockbell.core.publishing.event import Composer, NamedEvent
from dockbell.core.publishing.rendering import Rendering
from dockbell.core.publishing.statement import GapReason, gap

FEED: Final = Feed("main", "shipments")
NOW: Final = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
KEYS: Final = ("shp_1", "shp_2", "shp/3 +")

_NAMED: Final = [NamedEvent("left", Expression("change == 'updated' && after.status == 'shipped'"))]

Content = dict[str, JSON] | None
"""What a record is to become; None is gone."""

CONTENTS: Final = st.none() | st.fixed_dictionaries(
    {"status": st.sampled_from(["open", "packed", "shipped"])},
    optional={
        "weight": st.integers(0, 2) | st.decimals(0, 1, places=2),
        "tags": st.lists(st.sampled_from("ab"), max_size=3),
    },
)
STEPS: Final = st.lists(st.tuples(st.sampled_from(KEYS), CONTENTS), min_size=1, max_size=20)


@dataclass
class Story:
    """What happened to a feed.

    Attributes:
        events: All of them, in the order of the feed.
        records: What the records are in the end.
        revisions: How often each was changed, those that are gone included.
    """

    epoch: str = "e1"
    events: list[Event] = field(default_factory=list)
    records: dict[str, dict[str, JSON]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._composer = Composer(FEED, name="acme", singular="shipment", epoch=self.epoch, named=_NAMED)

    @property
    def last(self) -> int:
        """The sequence of the last event; 0 where there is none."""
        return self.events[-1].sequence if self.events else 0

    def tell(self, raw_key: str, content: Content) -> None:
        """Let a record become something; nothing when it is so already."""
        key = Key(raw_key.replace("/", "%2F").replace(" ", "%20").replace("+", "%2B"), raw_key)
        before = self.records.get(key.text)
        after = None if content is None else {"id": raw_key, **content}
        if before == after or (patch := diff(before, after)) == []:
            return
        self.revisions[key.text] = revision = self.revisions.get(key.text, 0) + 1
        kind = ChangeKind.UPDATED
        if before is None:
            kind = ChangeKind.CREATED if revision == 1 else ChangeKind.RESTORED
        elif after is None:
            kind = ChangeKind.DELETED
        is_update = kind is ChangeKind.UPDATED
        self._add(
            Change(
                feed=FEED,
                key=key,
                kind=kind,
                revision=revision,
                before=_write(before),
                after=_write(after),
                patch=patch if is_update else None,
                changed=touched(patch) if is_update else None,
                changed_between=(NOW, NOW + timedelta(seconds=15)),
                modified_at=None,
                detected_at=NOW + timedelta(seconds=self.last),
                via=Via.POLL,
            )
        )
        if after is None:
            self.records.pop(key.text)
        else:
            self.records[key.text] = after

    def state(self, *statements: Statement) -> None:
        """Say something about the feed."""
        for each in statements:
            self._add(each)

    def snapshot(self, raw_key: str, content: dict[str, JSON]) -> None:
        """State a record as it was first met."""
        record = {"id": raw_key, **content}
        self.records[raw_key], self.revisions[raw_key] = record, 0
        self._add(
            Change(
                feed=FEED,
                key=Key(raw_key, raw_key),
                kind=ChangeKind.SNAPSHOT,
                revision=0,
                before=None,
                after=_write(record),
                patch=None,
                changed=None,
                changed_between=(None, NOW),
                modified_at=None,
                detected_at=NOW,
                via=Via.FIRST_PASS,
            )
        )

    def changes(self) -> list[Event]:
        """The changes of records among the events."""
        return [event for event in self.events if event.type.rpartition(".")[2] in set(ChangeKind)]

    def _add(self, item: Change | Statement) -> None:
        self.events += self._composer(item, self.last + 1)


def _write(record: JSON) -> bytes | None:
    return None if record is None else msgspec.json.Encoder(decimal_format="number").encode(record)


def store_lost() -> Statement:
    """Return the statement that what was known is gone."""
    return gap(FEED, NOW, began_at=None, ended_at=NOW, reason=GapReason.STORE_LOST)


def told(steps: Sequence[tuple[str, Content]]) -> Story:
    """Return the story of some steps, with a statement about the feed in the middle."""
    story = Story()
    for step in steps[: len(steps) // 2]:
        story.tell(*step)
    story.state(gap(FEED, NOW, began_at=NOW, ended_at=NOW, reason=GapReason.DOWN))
    for step in steps[len(steps) // 2 :]:
        story.tell(*step)
    return story


def render(events: Sequence[Event], payload: str) -> list[Event]:
    """Return the events in the form that a sink with this ``payload`` gets."""
    rendering = Rendering(SinkSettings.model_validate({"type": "webhook", "payload": payload}))
    return [rendering.event(event) for event in events]


def deliver(events: Sequence[Event], chance: random.Random, *, loss: float, repeat: float = 0.5) -> list[Event]:
    """Return events as a bad network may deliver them: some never, some again later, each key in order at first."""
    left: dict[str, list[Event]] = {}
    for event in events:
        if chance.random() >= loss:
            left.setdefault(event.key, []).append(event)
    arrived: list[Event] = []
    while any(left.values()):
        arrived.append(left[chance.choice([key for key, queue in left.items() if queue])].pop(0))
        while chance.random() < repeat / 2:
            arrived.append(chance.choice(arrived))
    return arrived


def same(one: JSON, other: JSON) -> bool:
    """Return whether two documents are the same JSON."""
    return encode(one) == encode(other)
