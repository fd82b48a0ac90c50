from __future__ import annotations

import json

import pytest

from dockbell.subscriber import Event, GapsUnknowable, Missing, RevisionGaps, SequenceGaps, parse
from tests.subscriber.stories import Story, store_lost


def events() -> list[Event]:
    story = Story()
    for status in ("open", "packed", "shipped", "billed"):
        story.tell("shp_1", {"status": status})
    story.state(store_lost())
    return [parse(event.body) for event in story.events]


CREATED, PACKED, SHIPPED, LEFT, BILLED, LOST = events()


@pytest.mark.parametrize(
    ("event", "seen", "missing"),
    [
        (PACKED, 1, None),
        (SHIPPED, 1, Missing("main/shipments/shp_1", 2, 2)),
        (BILLED, 1, Missing("main/shipments/shp_1", 2, 3)),
        (BILLED, None, None),
        (BILLED, 4, None),
        (BILLED, 7, None),
        (LEFT, 1, None),
        (LOST, 1, None),
    ],
)
def test_a_revision_that_is_left_out_is_missing(event: Event, seen: int | None, missing: Missing | None) -> None:
    assert RevisionGaps().find(event, seen) == missing


@pytest.mark.parametrize("change", ["snapshot", "deleted"])
def test_what_a_sink_is_told_when_it_begins_follows_nothing(change: str) -> None:
    told = SHIPPED.members | {"data": SHIPPED.members["data"] | {"change": change, "via": "state"}}
    assert RevisionGaps(from_beginning=True).find(parse(json.dumps(told)), 1) is None


def test_from_the_beginning_the_first_revision_is_one() -> None:
    gaps = RevisionGaps(from_beginning=True)
    assert gaps.find(CREATED, None) is None
    assert gaps.find(SHIPPED, None) == Missing("main/shipments/shp_1", 1, 2)


@pytest.mark.parametrize("filters", [{"changes": ["updated"]}, {"where": "after.status == 'shipped'"}])
def test_gaps_are_not_looked_for_where_filters_hold_changes_back(filters: dict[str, str]) -> None:
    with pytest.raises(GapsUnknowable, match=rf"{next(iter(filters))} = .* read the pull feed"):
        RevisionGaps(**filters)  # type: ignore[arg-type]


def test_a_sequence_that_is_left_out_is_missing_whatever_kind_of_event_it_was() -> None:
    gaps = SequenceGaps(after=0)
    found = [gaps.find(event) for event in (CREATED, PACKED, CREATED, SHIPPED, BILLED, LOST)]
    assert found == [None, None, None, None, Missing("main/shipments", 4, 4), None]


def test_a_reader_begins_where_its_position_is() -> None:
    assert SequenceGaps(after=2).find(SHIPPED) is None
    assert SequenceGaps(after=1).find(SHIPPED) == Missing("main/shipments", 2, 2)
