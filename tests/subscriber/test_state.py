from __future__ import annotations

import dataclasses
import json
import random
from typing import Final

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import Event as Written
from dockbell.core.publishing.erasure import empty_event
from dockbell.core.publishing.statement import GapReason, gap, rebaselined
from dockbell.subscriber import (
    Change,
    Copy,
    Effect,
    Event,
    GapsUnknowable,
    Missing,
    RevisionGaps,
    Seen,
    SeenIds,
    SequenceGaps,
    State,
    Taken,
    parse,
)
from tests.subscriber.stories import FEED, NOW, STEPS, Content, Story, deliver, render, same, store_lost, told


@given(st.lists(st.integers(0, 20).map(str)), st.integers(1, 10))
def test_exactly_the_latest_ids_are_remembered(ids: list[str], limit: int) -> None:
    seen: SeenIds = Seen(limit)
    for each in ids:
        if each not in seen:
            seen.add(each)
    latest = [each for each in map(str, range(21)) if each in seen]
    assert len(latest) == min(limit, len(set(ids)))
    assert not ids or ids[-1] in seen


def test_memory_is_bounded_and_the_first_is_forgotten_first() -> None:
    seen = Seen(limit=3)
    for number in range(5):
        seen.add(f"evt_{number}")
    assert len(seen) == 3
    assert [number for number in range(5) if f"evt_{number}" in seen] == [2, 3, 4]


def test_an_id_that_is_added_twice_counts_once() -> None:
    seen = Seen(limit=2)
    for event_id in ("a", "b", "b", "b"):
        seen.add(event_id)
    assert "a" in seen


def test_a_limit_must_leave_room() -> None:
    with pytest.raises(ValueError, match="got 0"):
        Seen(0)


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


PLACE: Final = "main/shipments/shp_1"
SEEDS: Final = st.integers(0, 2**32)


def apply(state: State, events: list[Written]) -> list[Taken]:
    return [state.apply(parse(event.body)) for event in events]


def effects(state: State, events: list[Written]) -> list[Effect]:
    return [taken.effect for taken in apply(state, events)]


def lifecycle() -> Story:
    """Created, updated with a named event, deleted, restored."""
    story = Story()
    for content in ({"status": "open"}, {"status": "shipped"}, None, {"status": "open"}):
        story.tell("shp_1", content)
    return story


# Any stream of changes -----------------------------------------------------------------------------------------------


@given(STEPS, SEEDS, st.sampled_from(["full", "patch"]))
def test_repetitions_and_any_order_among_records_end_in_the_same_state(
    steps: list[tuple[str, Content]], seed: int, payload: str
) -> None:
    story = told(steps)
    state = State(gaps=RevisionGaps(from_beginning=True))
    arrived = deliver(render(story.events, payload), random.Random(seed), loss=0)
    assert [taken.missing for taken in apply(state, arrived) if taken.missing] == []
    assert same({str(place).rpartition("/")[2]: record for place, record in state.items()}, story.records)
    assert state.stale == set()


@given(STEPS, SEEDS, st.sampled_from(["full", "patch", "thin"]))
def test_exactly_the_lost_changes_are_missing_once_a_later_one_of_the_record_came(
    steps: list[tuple[str, Content]], seed: int, payload: str
) -> None:
    story = told(steps)
    state = State(gaps=RevisionGaps(from_beginning=True))
    arrived = deliver(render(story.events, payload), random.Random(seed), loss=0.4)
    found = [
        (missing.where, revision)
        for taken in apply(state, arrived)
        if (missing := taken.missing)
        for revision in range(missing.first, missing.last + 1)
    ]
    got = {(f"{FEED}/{event.key}", event.revision) for event in arrived if is_change(event)}
    sent = {(f"{FEED}/{event.key}", event.revision) for event in story.changes()}
    latest = {place: max(revision for where, revision in got if where == place) for place, _ in got}
    assert sorted(found) == sorted(
        (place, revision) for place, revision in sent - got if revision < latest.get(place, 0)
    )


@given(STEPS, SEEDS)
def test_with_losses_each_record_is_as_its_latest_event_tells(steps: list[tuple[str, Content]], seed: int) -> None:
    story = told(steps)
    state = State()
    arrived = deliver(story.events, random.Random(seed), loss=0.4)
    apply(state, arrived)
    latest: dict[str, Change] = {}
    for event in arrived:
        change = parse(event.body).data
        if type(change) is Change and change.revision > (latest[event.key].revision if event.key in latest else 0):
            latest[event.key] = change
    assert {key: change.after for key, change in latest.items() if change.after is not None} == {
        place.rpartition("/")[2]: record for place, record in state.items()
    }


@given(STEPS, SEEDS)
def test_patches_are_applied_as_jsonpatch_would_and_never_to_another_base(
    steps: list[tuple[str, Content]], seed: int
) -> None:
    story = told(steps)
    state = State()
    for event in deliver(render(story.events, "patch"), random.Random(seed), loss=0.3):
        parsed = parse(event.body)
        before = state.copies.get(parsed.partitionkey)
        taken = state.apply(parsed)
        change = parsed.data
        if type(change) is Change and change.patch is not None and taken.effect is not Effect.OLD:
            fits = before is not None and before.is_current and before.revision == change.revision - 1
            assert taken.effect is (Effect.APPLIED if fits else Effect.INCOMPLETE)
            if fits and before is not None:
                assert same(state[parsed.partitionkey], jsonpatch.apply_patch(before.record, change.patch))


def is_change(event: Written) -> bool:
    return type(parse(event.body).data) is Change


# One at a time -------------------------------------------------------------------------------------------------------


def test_what_happens_to_a_record_happens_to_its_copy() -> None:
    story, state = lifecycle(), State()
    created, updated, named, deleted, restored = story.events
    assert effects(state, [created, updated]) == [Effect.APPLIED, Effect.APPLIED]
    assert state[PLACE] == {"id": "shp_1", "status": "shipped"}
    assert effects(state, [named]) == [Effect.ASIDE]
    assert effects(state, [deleted]) == [Effect.APPLIED]
    assert (PLACE in state, len(state)) == (False, 0)
    assert effects(state, [updated, deleted]) == [Effect.OLD, Effect.OLD]
    assert effects(state, [restored]) == [Effect.APPLIED]
    assert dict(state) == {PLACE: {"id": "shp_1", "status": "open"}}


def test_a_named_event_that_comes_first_does_not_hide_its_change() -> None:
    _, updated, named, *_ = lifecycle().events
    state = State()
    assert effects(state, [named, updated]) == [Effect.ASIDE, Effect.APPLIED]
    assert state[PLACE]["status"] == "shipped"


def test_a_snapshot_sets_a_record_and_nothing_is_missing_before_it() -> None:
    story = Story()
    story.snapshot("shp_1", {"status": "open"})
    story.tell("shp_1", {"status": "packed"})
    state = State(gaps=RevisionGaps(from_beginning=True))
    assert apply(state, story.events + story.events[:1]) == [
        Taken(Effect.APPLIED),
        Taken(Effect.APPLIED),
        Taken(Effect.OLD),
    ]
    assert state[PLACE]["status"] == "packed"


def test_a_thin_event_leaves_the_old_record_and_says_that_it_is_incomplete() -> None:
    created, updated, _, deleted, restored = render(lifecycle().events, "thin")
    state = State({PLACE: Copy(1, 1, {"status": "open"})})
    assert effects(state, [created, updated]) == [Effect.OLD, Effect.INCOMPLETE]
    assert (state[PLACE], state.stale) == ({"status": "open"}, {PLACE})
    assert effects(state, [deleted, restored]) == [Effect.APPLIED, Effect.INCOMPLETE]
    assert (PLACE in state, state.stale) == (False, {PLACE})


def test_the_same_revision_in_full_completes_what_a_thin_event_told() -> None:
    full, thin = lifecycle().events[1], render(lifecycle().events, "thin")[1]
    state = State()
    assert effects(state, [thin, thin, full, thin]) == [Effect.INCOMPLETE, Effect.OLD, Effect.APPLIED, Effect.OLD]
    assert (state[PLACE]["status"], state.stale) == ("shipped", set())


def test_a_patch_that_does_not_fit_the_copy_is_incomplete() -> None:
    _, updated, *_ = render(lifecycle().events, "patch")
    state = State({PLACE: Copy(1, 1, {"name": "what dockbell ignores came and went"})})
    assert effects(state, [updated]) == [Effect.INCOMPLETE]


def test_a_statement_is_no_change() -> None:
    story, state = Story(), State()
    story.state(gap(FEED, NOW, began_at=NOW, ended_at=NOW, reason=GapReason.DOWN))
    assert effects(state, story.events) == [Effect.ASIDE]
    assert (state.unread, state.copies) == (set(), {})


def test_after_a_lost_store_revisions_begin_anew() -> None:
    before, after, state = lifecycle(), Story(epoch="e2"), State(gaps=RevisionGaps(from_beginning=True))
    after.state(store_lost())
    after.tell("shp_1", {"status": "packed"})
    after.tell("shp_1", {"status": "billed"})
    apply(state, before.events)
    other = "other/shipments/shp_1"
    state.put(other, revision=3, sequence=9, record={})
    assert apply(state, after.events) == [Taken(Effect.UNREAD), Taken(Effect.APPLIED), Taken(Effect.APPLIED)]
    assert state[PLACE]["status"] == "billed"
    assert state.copies[other].revision == 3


def test_what_is_read_differently_from_now_on_is_no_base_for_patches() -> None:
    story = Story()
    story.tell("shp_1", {"status": "open"})
    story.tell("shp_2", {"status": "open"})
    story.tell("shp_2", None)
    story.state(rebaselined(FEED, NOW, ["query"]))
    story.tell("shp_1", {"status": "packed"})
    state = State(gaps=RevisionGaps(from_beginning=True))
    *_, second_last, last = apply(state, render(story.events, "patch"))
    assert (second_last, last) == (Taken(Effect.UNREAD), Taken(Effect.INCOMPLETE))
    assert (state.unread, state.stale) == ({str(FEED)}, {PLACE})
    state.put(PLACE, revision=2, sequence=5, record={"status": "packed"})
    state.close(str(FEED), {PLACE}, 5)
    assert (state.unread, state.stale, dict(state)) == (set(), set(), {PLACE: {"status": "packed"}})
    assert effects(state, [event for event in story.events if event.type.endswith("rebaselined")]) == [Effect.ASIDE]


def test_copies_may_be_kept_anywhere() -> None:
    copies = {PLACE: Copy(1, 1, {"status": "open"}, is_current=False)}
    assert State(copies).stale == {PLACE}
    apply(State(copies), lifecycle().events[1:2])
    assert copies[PLACE].revision == 2


# What is read from dockbell ------------------------------------------------------------------------------------------


def test_what_was_read_is_taken_unless_something_later_was_told() -> None:
    created, updated, *_ = lifecycle().events
    state = State()
    apply(state, [created])
    state.put(PLACE, revision=1, sequence=1, record={"status": "silently changed"})
    assert state[PLACE] == {"status": "silently changed"}
    apply(state, [updated])
    state.put(PLACE, revision=1, sequence=1, record={"status": "open"})
    assert state[PLACE]["status"] == "shipped"


def test_a_read_record_ends_what_was_incomplete() -> None:
    _, updated, *_ = render(lifecycle().events, "thin")
    state = State()
    apply(state, [updated])
    state.put(PLACE, revision=2, sequence=2, record={"status": "shipped"})
    assert (state.stale, state[PLACE]) == (set(), {"status": "shipped"})


def test_what_is_not_listed_is_gone_unless_it_was_told_of_later() -> None:
    state = State(gaps=RevisionGaps())
    for number in range(1, 5):
        state.put(f"main/shipments/shp_{number}", revision=4, sequence=number, record={})
    state.put("main/shipments/shp_9", revision=4, sequence=1, record=None)
    state.put("main/stock/1", revision=1, sequence=1, record={})
    state.close(str(FEED), {"main/shipments/shp_1"}, 3)
    assert sorted(state) == ["main/shipments/shp_1", "main/shipments/shp_4", "main/stock/1"]
    assert state.copies["main/shipments/shp_2"].revision == 5
    assert state.copies["main/shipments/shp_9"].revision == 4


def test_what_a_reading_showed_gone_may_have_come_and_gone_meanwhile() -> None:
    *_, deleted, restored = lifecycle().events
    again = Story()
    again.revisions["shp_1"] = 7
    again.tell("shp_1", {"status": "open"})
    state = State(gaps=RevisionGaps())
    apply(state, [deleted])
    state.close(str(FEED), set(), deleted.sequence)
    assert effects(state, [deleted]) == [Effect.OLD]
    assert apply(state, again.events) == [Taken(Effect.APPLIED)]
    assert effects(state, [restored]) == [Effect.OLD]


def test_what_was_forgotten_and_is_not_listed_leaves_nothing() -> None:
    state = State()
    state.put(PLACE, revision=4, sequence=1, record={})
    state.forget(str(FEED))
    assert (dict(state), state.stale, state.unread) == ({PLACE: {}}, {PLACE}, {str(FEED)})
    state.close(str(FEED), set(), 9)
    assert (state.copies, state.stale, state.unread) == ({}, set(), set())


@pytest.mark.parametrize(
    ("index", "missing"), [(0, None), (1, Missing(PLACE, 1, 1)), (3, Missing(PLACE, 1, 2)), (4, None)]
)
def test_once_a_feed_was_listed_a_record_that_is_not_known_has_had_no_change_but_may_have_been_gone(
    index: int, missing: Missing | None
) -> None:
    state = State(gaps=RevisionGaps())
    state.close(str(FEED), set(), 0)
    (taken,) = apply(state, [lifecycle().events[index]])
    assert taken.missing == missing


def test_a_copy_of_what_was_purged_is_gone_whatever_came_before() -> None:
    story = lifecycle()
    events = [dataclasses.replace(event, body=empty_event(event.body)) for event in story.events]
    last = events[-1]
    purged = json.loads(last.body)
    purged["data"] |= {"change": "deleted", "reason": "purged", "revision": last.revision + 1}
    purged["data"] |= {"before": None, "after": None}
    state = State()
    assert set(effects(state, events)) <= {Effect.INCOMPLETE, Effect.ASIDE, Effect.APPLIED}
    state.apply(parse(json.dumps(purged)))
    assert (dict(state), state.stale) == ({}, set())
    told = parse(events[0].body).data
    assert isinstance(told, Change)
    assert (told.purged, told.after) == (True, None)
