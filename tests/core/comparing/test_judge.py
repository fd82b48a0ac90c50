"""What one page comes to against what is stored; the snapshots here are plain dictionaries."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.diff import apply
from dockbell.core.comparing.judge import Judge, Judgement, Reading, Stored
from dockbell.core.model import ChangeKind, ClockSource, DeletionReason, Feed, Page, Via

S0 = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
LATER = Reading(Via.POLL, S0, last_pass=S0)
FIRST = Reading(Via.FIRST_PASS, S0, baseline=True)


def make_judge(*, touch: bool = False, key: Sequence[str] = ("/id",), **canon: Any) -> Judge:
    return Judge(
        FEED,
        key=key,
        updated_at="/updated_at",
        created_at="/created_at",
        canon=Canon(updated_at="/updated_at", **canon),
        quiet=("/updated_at",),
        touch=touch,
    )


def stamp(seconds: float) -> str:
    return (S0 + timedelta(seconds=seconds)).isoformat()


def shipment(number: int = 1, at: float = 10, **fields: Any) -> dict[str, Any]:
    return {"id": f"shp_{number}", "updated_at": stamp(at), "status": "open", **fields}


def page(*records: Any) -> Page:
    raws = tuple(record if isinstance(record, bytes) else json.dumps(record).encode() for record in records)
    asked = S0 + timedelta(seconds=20)
    return Page(raws, None, "shipments", asked, ClockSource.DATE, asked + timedelta(seconds=1), asked)


@dataclass
class Shelf:
    """Stored snapshots, as a store keeps them."""

    rows: dict[str, Stored] = field(default_factory=dict)
    kept: dict[int, bytes] = field(default_factory=dict)

    def find(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        return {key: self.rows[key] for key in keys if key in self.rows}

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        return {row: self.kept[row] for row in rows}

    def store(self, judgement: Judgement) -> Judgement:
        for write in judgement.writes:
            row = write.row or len(self.rows) + 1
            self.rows[write.key] = Stored(
                row, write.raw_hash, write.fingerprint, write.modified, write.revision, gone=False, suspected=False
            )
            self.kept[row] = write.body
        return judgement


def read(shelf: Shelf, *records: Any, reading: Reading = LATER, judge: Judge | None = None) -> Judgement:
    return shelf.store((judge or make_judge()).judge(page(*records), reading, shelf))


def test_an_unknown_record_is_created() -> None:
    (change,) = read(Shelf(), shipment()).changes
    assert (change.kind, change.revision, change.before, change.patch) == (ChangeKind.CREATED, 1, None, None)
    assert change.after is not None
    assert json.loads(change.after) == shipment()


def test_an_unchanged_record_writes_nothing_and_is_seen() -> None:
    shelf = Shelf()
    read(shelf, shipment())
    judgement = read(shelf, shipment())
    assert (judgement.writes, judgement.changes, judgement.seen) == ([], [], [1])


def test_a_changed_record_is_updated_with_the_difference() -> None:
    shelf = Shelf()
    read(shelf, shipment())
    (change,) = read(shelf, shipment(at=12, status="packed")).changes
    assert (change.kind, change.revision, change.changed) == (ChangeKind.UPDATED, 2, ["/status"])
    assert change.before is not None
    assert change.patch is not None
    assert apply(json.loads(change.before), change.patch) == shipment(at=12, status="packed")
    assert change.modified_at == S0 + timedelta(seconds=12)


def test_another_order_of_members_and_another_way_to_write_a_number_are_no_change() -> None:
    shelf = Shelf()
    read(shelf, b'{"id": "1", "weight": 1.0, "tags": ["a"]}')
    judgement = read(shelf, b'{"tags": ["a"], "weight": 1, "id": "1"}')
    assert (judgement.writes, judgement.changes) == ([], [])


def test_a_new_timestamp_alone_is_stored_and_is_no_event() -> None:
    shelf = Shelf()
    read(shelf, shipment(at=10))
    judgement = read(shelf, shipment(at=11))
    assert judgement.changes == []
    assert [write.revision for write in judgement.writes] == [1]


def test_a_new_timestamp_alone_is_an_event_where_touches_are_wanted() -> None:
    shelf = Shelf()
    judge = make_judge(touch=True)
    read(shelf, shipment(at=10), judge=judge)
    (change,) = read(shelf, shipment(at=11), judge=judge).changes
    assert change.changed == ["/updated_at"]


def test_ignored_members_and_unordered_arrays_make_no_event() -> None:
    shelf = Shelf()
    judge = make_judge(ignore=("/seen",), unordered=("/tags",))
    read(shelf, shipment(seen=1, tags=["a", "b"]), judge=judge)
    assert read(shelf, shipment(seen=2, tags=["b", "a"]), judge=judge).changes == []


def test_what_was_stored_under_other_rules_is_compared_by_todays() -> None:
    shelf = Shelf()
    read(shelf, shipment(seen=1, tags=["a", "b"]))
    judge = make_judge(ignore=("/seen",), unordered=("/tags",))
    judgement = read(shelf, shipment(seen=2, tags=["b", "a"]), judge=judge)
    assert (judgement.changes, len(judgement.writes)) == ([], 1)
    assert read(shelf, shipment(seen=3, tags=["b", "a"]), judge=judge).changes == []


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (shipment(at=-1), None),
        (shipment(at=1), ChangeKind.UPDATED),
        (shipment(at=1, created_at=stamp(1)), ChangeKind.CREATED),
        (shipment(at=1, created_at=stamp(-1)), ChangeKind.UPDATED),
        ({"id": 1}, None),
    ],
)
def test_the_first_pass_is_silent_but_for_what_happens_while_it_goes_on(
    record: dict[str, Any], kind: ChangeKind | None
) -> None:
    changes = read(Shelf(), record, reading=FIRST).changes
    assert [change.kind for change in changes] == ([] if kind is None else [kind])
    assert all(change.before is None and change.patch is None for change in changes)


def test_the_first_pass_states_each_record_on_request() -> None:
    (change,) = read(Shelf(), shipment(at=-1), reading=replace(FIRST, emit=True)).changes
    assert (change.kind, change.revision, change.via) == (ChangeKind.SNAPSHOT, 0, Via.FIRST_PASS)


def test_until_a_second_pass_has_ended_old_records_are_still_met_silently() -> None:
    reading = Reading(Via.POLL, S0, settling=True)
    assert read(Shelf(), shipment(at=-1), reading=reading).changes == []
    assert [change.kind for change in read(Shelf(), shipment(at=1), reading=reading).changes] == [ChangeKind.CREATED]


def test_the_first_change_after_a_baseline_is_revision_one() -> None:
    shelf = Shelf()
    read(shelf, shipment(at=-1), reading=FIRST)
    (change,) = read(shelf, shipment(at=5, status="packed")).changes
    assert change.revision == 1


def test_a_record_that_was_gone_is_restored_even_with_the_same_content() -> None:
    shelf = Shelf()
    read(shelf, shipment())
    shelf.rows["shp_1"] = replace(shelf.rows["shp_1"], gone=True, revision=2)
    (change,) = read(shelf, shipment()).changes
    assert (change.kind, change.revision, change.before) == (ChangeKind.RESTORED, 3, None)


def test_a_suspected_record_that_is_seen_is_cleared() -> None:
    shelf = Shelf()
    read(shelf, shipment())
    shelf.rows["shp_1"] = replace(shelf.rows["shp_1"], suspected=True)
    assert read(shelf, shipment()).cleared == [1]


def test_a_record_without_a_key_is_left_out_and_the_rest_is_judged() -> None:
    judgement = read(Shelf(), {"name": "none"}, b"[1]", shipment())
    assert len(judgement.problems) == 2
    assert "/id" in judgement.problems[0]
    assert [change.key.text for change in judgement.changes] == ["shp_1"]


def test_a_key_that_stands_twice_on_a_page_counts_once_when_equal_and_is_told_when_not() -> None:
    assert read(Shelf(), shipment(), shipment()).problems == []
    judgement = read(Shelf(), shipment(), shipment(status="packed"))
    assert judgement.problems == ["key shp_1: stands twice on one page with different content"]


def test_a_composite_key_keeps_its_typed_original() -> None:
    judge = make_judge(key=("/sku", "/warehouse/id"))
    (change,) = read(Shelf(), {"sku": "A/1", "warehouse": {"id": 7, "name": "x"}}, judge=judge).changes
    assert (change.key.text, change.key.id) == ("A%2F1,7", ["A/1", 7])


def test_a_change_dated_in_a_window_that_an_earlier_run_covered_is_late() -> None:
    for via in (Via.POLL, Via.PASS):
        reading = replace(LATER, via=via, last_poll=(S0, S0 + timedelta(seconds=15)))
        assert [change.late for change in read(Shelf(), shipment(at=14), reading=reading).changes] == [True]
        assert [change.late for change in read(Shelf(), shipment(at=15), reading=reading).changes] == [False]


def test_other_content_under_the_same_date_is_not_late() -> None:
    shelf, reading = Shelf(), replace(LATER, last_poll=(S0, S0 + timedelta(seconds=15)))
    read(shelf, shipment(at=10))
    assert [change.late for change in read(shelf, shipment(at=10, status="lost"), reading=reading).changes] == [False]


@pytest.mark.parametrize(("at", "since"), [(5, 15), (-5, 0)])
def test_a_change_is_unseen_since_the_last_run_that_would_have_shown_it(at: float, since: float) -> None:
    reading = replace(LATER, last_poll=(S0, S0 + timedelta(seconds=15)))
    (change,) = read(Shelf(), shipment(at=at), reading=reading).changes
    assert change.changed_between[0] == S0 + timedelta(seconds=since)


@pytest.mark.parametrize(("via", "since"), [(Via.POLL, 15), (Via.PASS, 0)])
def test_without_a_date_a_poll_shows_what_polls_show_and_a_pass_what_passes_show(via: Via, since: float) -> None:
    reading = replace(LATER, via=via, last_poll=(S0, S0 + timedelta(seconds=15)))
    (change,) = read(Shelf(), {"id": "shp_1"}, reading=reading).changes
    assert change.changed_between[0] == S0 + timedelta(seconds=since)


def test_the_oldest_unseen_record_is_known_whatever_it_comes_to() -> None:
    judgement = read(Shelf(), shipment(1, at=-30), shipment(2, at=5), reading=FIRST)
    assert judgement.oldest_unseen == S0 - timedelta(seconds=30)


def test_a_buried_record_names_its_last_content_and_how_it_was_found() -> None:
    body = json.dumps(shipment()).encode()
    change = make_judge().bury(body, 4, S0, until=S0, now=S0)
    assert (change.kind, change.revision, change.before, change.after) == (ChangeKind.DELETED, 5, body, None)
    assert change.reason is DeletionReason.ABSENT


contents = st.fixed_dictionaries(
    {"id": st.just("1"), "a": st.integers(0, 2), "b": st.lists(st.integers(0, 2), max_size=2)}
)


@given(st.lists(contents, min_size=1, max_size=12))
def test_the_chain_of_changes_is_unbroken(versions: list[dict[str, Any]]) -> None:
    shelf = Shelf()
    changes = [change for version in versions for change in read(shelf, version).changes]
    assert [change.revision for change in changes] == list(range(1, len(changes) + 1))
    for earlier, later in itertools.pairwise(changes):
        assert earlier.after == later.before
        assert earlier.after != later.after
    assert changes[-1].after is not None
    assert json.loads(changes[-1].after) == versions[-1]
