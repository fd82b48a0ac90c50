from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from dockbell.config import Answer, Expression, NamedEventSettings
from dockbell.core.model import Change, ChangeKind, DeletionReason, Feed, Key, Via
from dockbell.core.publishing.named import NamedEvent, NamedEvents, read_named

SEEN: Final = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
LOW: Final = "after.available < 10 && before.available >= 10"


def make(before: str | None, after: str | None, kind: ChangeKind = ChangeKind.UPDATED, **other: Any) -> Change:
    return Change(
        feed=Feed("main", "stock"),
        key=Key("A,2", ["A", 2]),
        kind=kind,
        revision=1,
        before=None if before is None else before.encode(),
        after=None if after is None else after.encode(),
        patch=None,
        changed=other.get("changed"),
        changed_between=(None, SEEN),
        modified_at=None,
        detected_at=SEEN,
        via=Via.PASS,
        reason=DeletionReason.ABSENT if kind is ChangeKind.DELETED else None,
    )


def ask(condition: str, change: Change) -> Answer:
    ((name, answer),) = NamedEvents([NamedEvent("mine", Expression(condition))]).evaluate(change)
    assert name == "mine"
    return answer


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        ('{"available":12}', '{"available":3}', Answer.YES),
        ('{"available":10.0}', '{"available":9.99}', Answer.YES),
        ('{"available":18446744073709551616}', '{"available":-5}', Answer.YES),
        ('{"available":3}', '{"available":2}', Answer.NO),
        ('{"available":12}', '{"available":11}', Answer.NO),
        (None, '{"available":3}', Answer.MISSING),
        ('{"available":12}', None, Answer.MISSING),
        ("{}", '{"available":3}', Answer.MISSING),
        ('{"available":null}', '{"available":3}', Answer.MISMATCH),
        ('{"available":"12"}', '{"available":3}', Answer.MISMATCH),
        ('{"available":12}', '{"available":1e999}', Answer.BROKEN),
    ],
)
def test_stock_is_low_only_when_it_was_not_before(before: str | None, after: str | None, answer: Answer) -> None:
    assert ask(LOW, make(before, after)) is answer


@pytest.mark.parametrize("kind", ChangeKind)
def test_the_kind_of_change_can_be_asked_for(kind: ChangeKind) -> None:
    assert ask(f"change == '{kind}'", make("{}", "{}", kind)) is Answer.YES


@pytest.mark.parametrize(
    "condition",
    ["key == 'A,2'", "'/available' in changed", "!has(before.x)", "size(before) == 0", "after.sku.startsWith('P')"],
)
def test_what_a_condition_may_look_at(condition: str) -> None:
    assert ask(condition, make(None, '{"sku":"PAL"}', changed=["/available"])) is Answer.YES


def test_nothing_has_changed_where_nothing_can_be_compared() -> None:
    assert ask("size(changed) == 0", make(None, "{}")) is Answer.YES


def test_every_named_event_is_asked_whatever_the_others_answer() -> None:
    named = [NamedEvent(name, Expression(text)) for name, text in {"a": "1 / 0 > 0", "b": LOW, "c": "true"}.items()]
    change = make('{"available":12}', '{"available":3}')
    assert list(NamedEvents(named).evaluate(change)) == [("a", Answer.BROKEN), ("b", Answer.YES), ("c", Answer.YES)]
    assert list(NamedEvents().evaluate(change)) == []


def test_they_are_read_from_the_configuration() -> None:
    assert read_named([NamedEventSettings(name="low", when=LOW)]) == (NamedEvent("low", Expression(LOW)),)
