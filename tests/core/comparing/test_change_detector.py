"""What one page comes to against what is stored; the snapshots here are plain dictionaries."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.comparing.page_diff import (
    Collision,
    Finding,
    Hold,
    PageDiff,
    Stored,
)
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.diff import apply
from dockbell.core.model import ChangeKind, ClockSource, DeletionReason, Feed, Key, Page, Unsound, Via
from dockbell.core.moment import to_micros

S0 = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
LATER = ReadContext(Via.POLL, S0, last_pass=S0)
FIRST = ReadContext(Via.FIRST_PASS, S0, baseline=True)
FRESH = replace(LATER, may_ask_again=True)


def make_detector(
    *, touch: bool = False, learned: bool = False, key: Sequence[str] = ("/id",), **canon: Any
) -> ChangeDetector:
    return ChangeDetector(
        FEED,
        key=key,
        updated_at="/updated_at",
        created_at="/created_at",
        canon=Canon(updated_at="/updated_at", **canon),
        learned=learned,
        touch=touch,
    )


def stamp(seconds: float) -> str:
    return (S0 + timedelta(seconds=seconds)).isoformat()


def shipment(number: int = 1, at: float = 10, **fields: Any) -> dict[str, Any]:
    return {"id": f"shp_{number}", "updated_at": stamp(at), "status": "open", **fields}


def page(*records: Any, asked_at: float = 20) -> Page:
    raws = tuple(record if isinstance(record, bytes) else json.dumps(record).encode() for record in records)
    asked = S0 + timedelta(seconds=asked_at)
    return Page(raws, None, "shipments", asked, ClockSource.DATE, asked + timedelta(seconds=1), asked)


@dataclass
class StoredRecords:
    """Stored snapshots, as a store keeps them."""

    rows: dict[str, Stored] = field(default_factory=dict)
    kept: dict[int, bytes] = field(default_factory=dict)
    held: dict[int, Hold] = field(default_factory=dict)
    bad: set[bytes] = field(default_factory=set)

    def find(self, hashes: Mapping[str, bytes | None], _bad: Sequence[bytes] = ()) -> Mapping[str, Stored]:
        return {key: self.rows[key] for key in hashes if key in self.rows}

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        return {row: self.kept[row] for row in rows}

    def holds(self, rows: Sequence[int]) -> Mapping[int, Hold]:
        return {row: self.held[row] for row in rows}

    def quarantined(self, digests: Sequence[bytes]) -> Collection[bytes]:
        return self.bad & set(digests)

    def change(self, key: str, **fields: Any) -> None:
        self.rows[key] = self.rows[key]._replace(**fields)

    def store(self, page_diff: PageDiff) -> PageDiff:
        for write in page_diff.writes:
            row = write.row or len(self.rows) + 1
            is_missed = write.key in self.rows and self.rows[write.key].missed
            self.rows[write.key] = Stored(
                row,
                write.raw_hash,
                write.fingerprint,
                write.modified,
                write.revision,
                missed=is_missed,
                superseded=write.superseded,
            )
            if write.body is not None:
                self.kept[row] = write.body
        for row in page_diff.released:
            self.held.pop(row, None)
        self.held |= {held.row: held.hold for held in page_diff.holds}
        for key, known in self.rows.items():
            self.change(key, held=known.row in self.held, missed=known.missed and known.row not in page_diff.cleared)
        self.bad |= {bad.digest for bad in page_diff.bad}
        return page_diff


def read(
    stored: StoredRecords,
    *records: Any,
    context: ReadContext = LATER,
    detect: ChangeDetector | None = None,
    asked_at: float = 20,
) -> PageDiff:
    return stored.store((detect or make_detector()).detect(page(*records, asked_at=asked_at), context, stored))


def kinds(page_diff: PageDiff) -> list[str]:
    return [str(change.kind) for change in page_diff.changes]


def findings(page_diff: PageDiff) -> list[Finding]:
    return [note.finding for note in page_diff.notes]


def test_an_unknown_record_is_created() -> None:
    (change,) = read(StoredRecords(), shipment()).changes
    assert (change.kind, change.revision, change.before, change.patch) == (ChangeKind.CREATED, 1, None, None)
    assert change.after is not None
    assert json.loads(change.after) == shipment()


def test_an_unchanged_record_writes_nothing_and_is_seen() -> None:
    stored = StoredRecords()
    read(stored, shipment())
    page_diff = read(stored, shipment())
    assert (page_diff.writes, page_diff.changes, page_diff.seen) == ([], [], [1])


def test_a_changed_record_is_updated_with_the_difference() -> None:
    stored = StoredRecords()
    read(stored, shipment())
    (change,) = read(stored, shipment(at=12, status="packed")).changes
    assert (change.kind, change.revision, change.changed) == (ChangeKind.UPDATED, 2, ["/status"])
    assert change.before is not None
    assert change.patch is not None
    assert apply(json.loads(change.before), change.patch) == shipment(at=12, status="packed")
    assert change.modified_at == S0 + timedelta(seconds=12)


def test_another_order_of_members_and_another_way_to_write_a_number_are_no_change() -> None:
    stored = StoredRecords()
    read(stored, b'{"id": "1", "weight": 1.0, "tags": ["a"]}')
    page_diff = read(stored, b'{"tags": ["a"], "weight": 1, "id": "1"}')
    assert (page_diff.writes, page_diff.changes) == ([], [])


def test_a_new_timestamp_alone_is_stored_and_is_no_event() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=10))
    page_diff = read(stored, shipment(at=11))
    assert page_diff.changes == []
    assert [write.revision for write in page_diff.writes] == [1]


def test_a_first_timestamp_is_a_new_one() -> None:
    stored = StoredRecords()
    undated = {name: value for name, value in shipment().items() if name != "updated_at"}
    read(stored, undated)
    assert findings(read(stored, shipment())) == [Finding.TOUCHED]


def test_a_new_timestamp_alone_is_an_event_where_touches_are_wanted() -> None:
    stored = StoredRecords()
    detect = make_detector(touch=True)
    read(stored, shipment(at=10), detect=detect)
    (change,) = read(stored, shipment(at=11), detect=detect).changes
    assert change.changed == ["/updated_at"]


def test_ignored_members_and_unordered_arrays_make_no_event() -> None:
    stored = StoredRecords()
    detect = make_detector(ignore=("/seen",), unordered=("/tags",))
    read(stored, shipment(seen=1, tags=["a", "b"]), detect=detect)
    assert read(stored, shipment(seen=2, tags=["b", "a"]), detect=detect).changes == []


def test_changed_names_nothing_that_is_ignored_or_merely_in_another_order() -> None:
    stored = StoredRecords()
    detect = make_detector(ignore=("/seen",), unordered=("/tags",))
    read(stored, shipment(at=1, seen=1, tags=["a", "b"], status="open"), detect=detect)
    (change,) = read(stored, shipment(at=2, seen=2, tags=["b", "a"], status="packed"), detect=detect).changes
    assert change.changed == ["/status"]
    assert change.patch is not None
    assert {operation["path"] for operation in change.patch} >= {"/seen", "/tags/0", "/status"}


def test_what_was_stored_under_other_rules_is_compared_by_todays() -> None:
    stored = StoredRecords()
    read(stored, shipment(seen=1, tags=["a", "b"]))
    detect = make_detector(ignore=("/seen",), unordered=("/tags",))
    page_diff = read(stored, shipment(seen=2, tags=["b", "a"]), detect=detect)
    assert (page_diff.changes, len(page_diff.writes)) == ([], 1)
    assert read(stored, shipment(seen=3, tags=["b", "a"]), detect=detect).changes == []


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
    changes = read(StoredRecords(), record, context=FIRST).changes
    assert [change.kind for change in changes] == ([] if kind is None else [kind])
    assert all(change.before is None and change.patch is None for change in changes)


def test_a_baseline_is_compared_when_it_first_differs_and_not_before() -> None:
    stored = StoredRecords()
    emoji = b'{"id": "x", "name": "\\ud83d\\ude00", "n": 1}'
    assert read(stored, emoji, b'{"id": "y", "n": 1.0}', context=FIRST).changes == []
    same = read(stored, '{"id": "x", "name": "\N{GRINNING FACE}", "n": 1}'.encode(), b'{"n": 1, "id": "y"}')
    assert (same.changes, findings(same)) == ([], [Finding.QUIET])
    (change,) = read(stored, {"id": "y", "n": 2}).changes
    assert (change.kind, change.revision, change.changed) == (ChangeKind.UPDATED, 1, ["/n"])


def test_a_baseline_that_cannot_be_read_has_no_before_when_it_changes() -> None:
    stored = StoredRecords()
    read(stored, b'{"id": "x", "n": 1e99999999999999999999}', context=FIRST)
    (change,) = read(stored, {"id": "x", "n": 1}).changes
    assert (change.kind, change.before, change.patch) == (ChangeKind.UPDATED, None, None)


def test_the_first_pass_states_each_record_on_request() -> None:
    (change,) = read(StoredRecords(), shipment(at=-1), context=replace(FIRST, emit=True)).changes
    assert (change.kind, change.revision, change.via) == (ChangeKind.SNAPSHOT, 0, Via.FIRST_PASS)


def test_the_second_pass_meets_old_records_silently_and_no_other_run_does() -> None:
    for via, old in ((Via.PASS, []), (Via.POLL, ["updated"]), (Via.TRAILING, ["updated"])):
        context = ReadContext(via, S0, settling=True)
        assert kinds(read(StoredRecords(), shipment(at=-1), context=context)) == old
        assert kinds(read(StoredRecords(), shipment(at=1), context=context)) == ["created"]
        assert kinds(read(StoredRecords(), shipment(at=-1), context=replace(context, settling=False))) == ["created"]


@pytest.mark.parametrize("via", [Via.POLL, Via.PASS])
def test_old_is_what_is_dated_before_the_feed_was_first_asked_for_by_the_records_own_clock(via: Via) -> None:
    behind = S0 - timedelta(hours=2)
    for context, new in (
        (ReadContext(via, S0, boundary=behind, baseline=True), "updated"),
        (ReadContext(via, S0, boundary=behind, settling=True), "created"),
    ):
        assert kinds(read(StoredRecords(), shipment(at=-7199), context=context)) == [new]
        assert kinds(read(StoredRecords(), shipment(at=-7199, created_at=stamp(-7199)), context=context)) == ["created"]
        assert kinds(read(StoredRecords(), shipment(at=-7199, created_at=stamp(-7201)), context=context)) == ["updated"]
    assert (
        kinds(read(StoredRecords(), shipment(at=-7201), context=ReadContext(via, S0, boundary=behind, baseline=True)))
        == []
    )


def test_where_all_later_dates_are_stored_one_of_the_future_is_news() -> None:
    context = replace(FIRST, boundary=S0 - timedelta(minutes=1))
    assert kinds(read(StoredRecords(), shipment(at=7200), context=context)) == ["updated"]


def test_records_that_say_only_when_they_were_created_are_told_apart_by_that() -> None:
    detect = ChangeDetector(FEED, key=("/id",), updated_at=None, created_at="/created_at", canon=Canon())
    for at, expected in ((-1, []), (1, ["created"])):
        record = {"id": "a", "created_at": stamp(at)}
        stored = StoredRecords()
        assert kinds(read(stored, record, context=FIRST, detect=detect)) == expected
        assert stored.rows["a"].modified is None


def test_the_first_change_after_a_baseline_is_revision_one() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=-1), context=FIRST)
    (change,) = read(stored, shipment(at=5, status="packed")).changes
    assert change.revision == 1


def test_a_record_that_was_gone_is_restored_even_with_the_same_content() -> None:
    stored = StoredRecords()
    read(stored, shipment())
    stored.change("shp_1", gone_at=to_micros(S0), revision=2)
    (change,) = read(stored, shipment()).changes
    assert (change.kind, change.revision, change.before) == (ChangeKind.RESTORED, 3, None)


def test_a_missed_record_that_is_seen_is_cleared() -> None:
    stored = StoredRecords()
    read(stored, shipment())
    stored.change("shp_1", missed=True)
    page_diff = read(stored, shipment())
    assert (page_diff.cleared, findings(page_diff)) == ([1], [Finding.SEEN_AGAIN])
    assert not page_diff.is_idle


# Records that cannot be read, or not be told apart -------------------------------------------------------------------


def test_a_record_without_a_key_is_left_out_and_the_rest_is_judged() -> None:
    page_diff = read(StoredRecords(), {"name": "none"}, b"[1]", b'{"id": "x", "n": 1e99999999999999999999}', shipment())
    problems = [bad.problem for bad in page_diff.bad]
    assert problems[0].startswith("record 1 of the page: ")
    assert "/id" in problems[0]
    assert "not a JSON object" in problems[1]
    assert problems[2].startswith("key x: not usable JSON")
    assert [change.key.text for change in page_diff.changes] == ["shp_1"]


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\uD83D", b"\\uDE00"])
def test_a_record_of_a_first_read_that_cannot_be_read_whole_is_in_quarantine(half: bytes) -> None:
    page_diff = read(StoredRecords(), shipment(), b'{"id": "shp_2", "note": "' + half + b'"}', context=FIRST)
    assert ([write.key for write in page_diff.writes], [bad.key for bad in page_diff.bad]) == (["shp_1"], ["shp_2"])


def test_a_record_that_cannot_be_read_whole_is_there_and_in_quarantine_under_its_key() -> None:
    stored = StoredRecords()
    read(stored, shipment(), shipment(2))
    page_diff = read(stored, shipment(), b'{"id": "shp_2", "note": "\\ud83d"}')
    (bad,) = page_diff.bad
    assert (bad.key, bad.problem[:10], page_diff.seen, page_diff.changes) == ("shp_2", "key shp_2:", [1, 2], [])


@pytest.mark.parametrize("context", [LATER, FIRST])
def test_a_record_that_its_page_calls_unsound_is_never_stored(context: ReadContext) -> None:
    """Its raw text alone does not show everything: where a record is not decoded, its encoding is not looked at."""
    records = b'{"id": "shp_1", "note": "\xff"}', b'{"id": "shp_1", "note": "\xff"}', b'{"note": "\xff"}'
    heads = {"id": "shp_1", "note": None}, {"id": "shp_1", "note": None}, {"note": None}
    unsound = {index: Unsound("not UTF-8", head) for index, head in enumerate(heads)}
    page_diff = make_detector(learned=True).detect(replace(page(*records), unsound=unsound), context, StoredRecords())
    assert [(bad.key, bad.problem) for bad in page_diff.bad] == [
        ("shp_1", "key shp_1: not UTF-8"),
        ("", "record 3 of the page: not UTF-8"),
    ]
    assert page_diff.writes == []


def test_an_answer_shows_a_record_whether_it_can_be_read_whole_or_not() -> None:
    detect, key = make_detector(), Key("shp_1", "shp_1")
    assert detect.shows(b'{"id": "shp_1"}', key)
    assert detect.shows(b'{"id": "shp_1", "note": NaN}', key)
    assert detect.shows(b'{"data": {"id": "shp_1", "note": "\xff"}}', key)
    assert not detect.shows(b'{"id": "shp_2", "part": {"id": "shp_1", "note": NaN}}', key)
    assert not detect.shows(b'{"error": {"id": "shp_1", "note": NaN}}', key)
    assert not detect.shows(b"[NaN]", key)


def test_a_bad_record_is_noted_once_and_known_from_then_on() -> None:
    stored = StoredRecords()
    broken = b'{"id": "x", "n": 1e99999999999999999999}'
    first, second = read(stored, broken), read(stored, broken)
    assert [bad.known for bad in first.bad + second.bad] == [False, True]
    assert findings(first) == [Finding.QUARANTINED]
    assert findings(second) == []


def test_a_bad_record_is_the_same_whatever_its_text_and_so_are_those_of_another_key_not() -> None:
    stored = StoredRecords()
    broken = '{{"id": "{}", "n": 1e99999999999999999999, "at": {}}}'
    first = read(stored, broken.format("x", 1).encode())
    second = read(stored, broken.format("x", 2).encode(), broken.format("y", 1).encode())
    assert [bad.known for bad in first.bad + second.bad] == [False, True, False]


def test_a_bad_record_without_a_key_is_the_same_whatever_the_order_of_its_members() -> None:
    stored = StoredRecords()
    first = read(stored, b'{"n": 1, "at": 2}')
    second = read(stored, b'{"at": 2, "n": 1}', b'{"n": 2, "at": 2}')
    assert [bad.known for bad in first.bad + second.bad] == [False, True, False]


def test_a_learned_key_that_stands_twice_with_the_same_content_written_differently_is_not_proven_wrong() -> None:
    learned = make_detector(learned=True, unordered=("/tags",))
    records = shipment(tags=["a", "b"], n=1), dict(reversed(shipment(at=11, tags=["b", "a"], n=1.0).items()))
    assert kinds(read(StoredRecords(), *records, detect=learned)) == ["created"]
    with pytest.raises(Collision):
        read(StoredRecords(), *records, b'{"id": "shp_1", "n": 1e99999999999999999999}', detect=learned, context=FRESH)


def test_a_key_that_stands_twice_on_a_page_with_equal_content_counts_once() -> None:
    page_diff = read(StoredRecords(), shipment(), shipment())
    assert (page_diff.bad, kinds(page_diff)) == ([], ["created"])


def test_a_configured_key_that_stands_twice_with_different_content_puts_all_of_its_records_in_quarantine() -> None:
    stored = StoredRecords()
    read(stored, shipment())
    records = shipment(), shipment(status="packed"), shipment(status="lost")
    page_diff = read(stored, *records, shipment(2))
    assert [json.loads(bad.raw) for bad in page_diff.bad] == list(records)
    assert {bad.problem for bad in page_diff.bad} == {"key shp_1: appears twice on one page with different content"}
    assert (page_diff.seen, [change.key.text for change in page_diff.changes]) == ([1], ["shp_2"])


@pytest.mark.parametrize("learned", [False, True])
def test_a_page_on_which_a_key_stands_twice_is_refused_until_it_was_asked_for_again(*, learned: bool) -> None:
    stored, detect = StoredRecords(), make_detector(learned=learned)
    records = shipment(), shipment(status="packed"), shipment(2)
    with pytest.raises(Collision, match="shp_1"):
        read(stored, *records, detect=detect, context=FRESH)
    page_diff = read(stored, *records, detect=detect)
    assert ([bad.key for bad in page_diff.bad], page_diff.doubled) == (["shp_1", "shp_1"], 1)
    assert [change.key.text for change in page_diff.changes] == ["shp_2"]
    again = read(stored, *records, detect=detect, context=FRESH)
    assert again.doubled == 1, "what is in quarantine is no news, and is not asked for again each time"


def test_a_learned_key_that_stands_twice_many_times_is_proven_wrong() -> None:
    records = [shipment(number, status=status) for number in range(4) for status in ("open", "packed")]
    assert read(StoredRecords(), *records[:6], detect=make_detector(learned=True)).doubled == 3
    with pytest.raises(Collision, match="shp_0"):
        read(StoredRecords(), *records, detect=make_detector(learned=True))
    assert read(StoredRecords(), *records).doubled == 4, "a configured key stays"


# Held readings -------------------------------------------------------------------------------------------------------

STRICT = replace(LATER, stale_window=timedelta(seconds=60))


def packed_shelf(*, stamped: bool = True) -> StoredRecords:
    """Return a stored with one shipment that was open and is packed, as read 20 s after S0."""
    stored = StoredRecords()
    for at, status in ((5, "open"), (10, "packed")):
        read(stored, shipment(at=at, status=status) if stamped else bare(status), context=STRICT, asked_at=at)
    return stored


def bare(status: str) -> dict[str, Any]:
    return {"id": "shp_1", "status": status}


def test_a_reading_older_than_what_is_stored_is_held_once_and_believed_when_it_lasts() -> None:
    stored, stale = packed_shelf(), shipment(at=5)
    held = read(stored, stale, context=STRICT, asked_at=20)
    assert (kinds(held), held.writes, findings(held)) == ([], [], [Finding.HELD])
    again = read(stored, stale, context=STRICT, asked_at=79)
    assert (kinds(again), again.holds, again.is_idle) == ([], [], True)
    believed = read(stored, stale, context=STRICT, asked_at=80)
    assert (kinds(believed), believed.released, stored.held) == (["updated"], [1], {})


def test_a_current_reading_releases_what_was_held_and_the_next_stale_one_begins_anew() -> None:
    stored, stale = packed_shelf(), shipment(at=5)
    read(stored, stale, context=STRICT, asked_at=20)
    current = read(stored, shipment(at=10, status="packed"), context=STRICT, asked_at=50)
    assert (current.released, kinds(current), stored.held) == ([1], [], {})
    assert kinds(read(stored, stale, context=STRICT, asked_at=85)) == []
    assert stored.held[1].asked_at == to_micros(S0 + timedelta(seconds=85))


def test_a_current_reading_that_is_written_differently_releases_too() -> None:
    stored = packed_shelf()
    read(stored, shipment(at=5), context=STRICT)
    current = dict(reversed(shipment(at=10, status="packed").items()))
    assert read(stored, current, context=STRICT).released == [1]


@pytest.mark.parametrize("moved", [0, 5])
def test_a_current_reading_of_a_record_of_the_first_pass_that_is_written_differently_releases_too(moved: int) -> None:
    stored = StoredRecords()
    read(stored, shipment(at=-10, status="packed"), context=FIRST)
    assert findings(read(stored, shipment(at=-15), context=STRICT, asked_at=20)) == [Finding.HELD]
    current = dict(reversed(shipment(at=moved - 10, status="packed").items()))
    assert read(stored, current, context=STRICT, asked_at=30).released == [1]
    assert kinds(read(stored, shipment(at=-15), context=STRICT, asked_at=90)) == []


def test_a_later_change_releases_what_was_held() -> None:
    stored = packed_shelf()
    read(stored, shipment(at=5), context=STRICT)
    page_diff = read(stored, shipment(at=15, status="shipped"), context=STRICT)
    assert (kinds(page_diff), page_diff.released) == (["updated"], [1])


def test_another_stale_reading_must_last_by_itself() -> None:
    stored = packed_shelf()
    read(stored, shipment(at=5), context=STRICT, asked_at=20)
    read(stored, shipment(at=4, status="new"), context=STRICT, asked_at=40)
    assert kinds(read(stored, shipment(at=5), context=STRICT, asked_at=81)) == []
    assert kinds(read(stored, shipment(at=5), context=STRICT, asked_at=141)) == ["updated"]


def test_what_a_cache_shows_under_its_old_date_is_held() -> None:
    stored, stale = packed_shelf(), page(shipment(at=5), asked_at=8)
    read(stored, shipment(at=300, status="shipped"), context=STRICT, asked_at=301)
    cached = replace(stale, received_at=S0 + timedelta(seconds=310))
    verdict = make_detector().detect(cached, STRICT, stored)
    assert (kinds(verdict), findings(verdict)) == ([], [Finding.HELD])


def test_what_a_cache_shows_is_not_believed_for_being_shown_again() -> None:
    stored = packed_shelf()
    for asked_at in (20, 100, 300):
        cached = replace(page(shipment(at=5), asked_at=asked_at), age=timedelta(seconds=asked_at - 6))
        assert kinds(stored.store(make_detector().detect(cached, STRICT, stored))) == []
    assert kinds(read(stored, shipment(at=5), context=STRICT, asked_at=300)) == ["updated"]


def test_nothing_is_held_against_a_date_that_lies_in_the_service_s_future() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=10**9, status="packed"), context=STRICT)
    assert kinds(read(stored, shipment(at=15), context=STRICT)) == ["updated"]


def test_without_dates_only_a_return_to_what_was_replaced_lately_is_held() -> None:
    stored = packed_shelf(stamped=False)
    assert kinds(read(stored, bare("shipped"), context=STRICT, asked_at=20)) == ["updated"]
    assert kinds(read(stored, bare("open"), context=STRICT, asked_at=30)) == []
    assert kinds(read(stored, bare("packed"), context=STRICT, asked_at=80)) == []
    assert kinds(read(stored, bare("packed"), context=STRICT, asked_at=81)) == ["updated"], "a minute after the answer"


def test_a_return_under_an_unmoved_date_is_held_as_without_dates() -> None:
    stored = StoredRecords()
    for status in ("open", "packed"):
        read(stored, shipment(at=5, status=status), context=STRICT)
    assert findings(read(stored, shipment(at=5), context=STRICT)) == [Finding.HELD]


def test_an_older_date_with_the_same_content_is_neither_held_nor_stored() -> None:
    stored = packed_shelf()
    page_diff = read(stored, shipment(at=5, status="packed"), context=STRICT)
    assert page_diff.is_idle


def test_an_older_date_with_the_same_content_as_in_the_first_pass_is_neither_held_nor_stored() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=-10, status="packed"), context=FIRST)
    assert read(stored, shipment(at=-15, status="packed"), context=STRICT).is_idle
    assert kinds(read(stored, shipment(at=-13), context=STRICT)) == [], "it is older than what the first pass showed"


def test_nothing_is_held_without_a_window() -> None:
    stored = packed_shelf()
    assert kinds(read(stored, shipment(at=5))) == ["updated"]


def test_the_return_of_a_record_just_buried_is_held_unless_it_comes_back_with_other_content() -> None:
    stored = packed_shelf()
    stored.change("shp_1", gone_at=to_micros(S0 + timedelta(seconds=20)), revision=3)
    same = shipment(at=10, status="packed")
    assert kinds(read(stored, same, context=STRICT, asked_at=30)) == []
    assert kinds(read(stored, same, context=STRICT, asked_at=91)) == ["restored"]
    stored.change("shp_1", gone_at=to_micros(S0 + timedelta(seconds=100)))
    other = shipment(at=101, status="open")
    assert kinds(read(stored, other, context=STRICT, asked_at=102)) == ["restored"]


def test_the_age_of_a_tombstone_is_reckoned_by_our_clock_which_buried_it() -> None:
    stored = packed_shelf()
    ours = S0 - timedelta(hours=1)
    stored.change("shp_1", gone_at=to_micros(ours))
    seen = replace(page(shipment(at=10, status="packed")), received_at=ours + timedelta(seconds=5))
    assert make_detector().detect(seen, STRICT, stored).changes == []


def test_a_record_that_is_back_with_a_later_date_is_restored_at_once_though_it_is_as_it_was() -> None:
    stored = packed_shelf()
    stored.change("shp_1", gone_at=to_micros(S0 + timedelta(seconds=20)))
    back = read(stored, shipment(at=25, status="packed"), context=STRICT, asked_at=26)
    assert kinds(back) == ["restored"]


# Provisional keys ----------------------------------------------------------------------------------------------------

UNPROVEN = replace(FIRST, provisional=True)


def test_while_a_key_is_not_proven_nothing_is_published_and_everything_is_stored() -> None:
    stored, detect = StoredRecords(), make_detector(learned=True)
    assert kinds(read(stored, shipment(at=-5), context=UNPROVEN, detect=detect)) == []
    changed = read(stored, shipment(at=-4, status="packed"), context=UNPROVEN, detect=detect)
    assert (kinds(changed), findings(changed)) == ([], [Finding.UNPROVEN])
    assert [(write.revision, write.is_unexplained) for write in changed.writes] == [(0, True)]


def test_what_changes_while_a_key_is_not_proven_is_left_to_the_first_poll() -> None:
    stored, detect = StoredRecords(), make_detector(learned=True)
    read(stored, shipment(at=-5), context=UNPROVEN, detect=detect)
    page_diff = read(stored, shipment(at=3, status="packed"), context=UNPROVEN, detect=detect)
    assert (page_diff.writes, page_diff.seen) == ([], [1])
    settling = replace(LATER, settling=True)
    assert kinds(read(stored, shipment(at=3, status="packed"), context=settling, detect=detect)) == ["updated"]


@pytest.mark.parametrize(
    ("fields", "baseline", "kind"),
    [
        ({}, True, ChangeKind.UPDATED),
        ({"created_at": stamp(1)}, True, ChangeKind.CREATED),
        ({"created_at": stamp(-1)}, True, ChangeKind.UPDATED),
        ({}, False, ChangeKind.CREATED),  # an earlier pass had not shown it
        ({"created_at": stamp(1)}, False, ChangeKind.CREATED),
    ],
)
@pytest.mark.parametrize("settling", [False, True])
def test_a_record_met_while_a_key_is_not_proven_is_news_to_the_first_poll(
    fields: dict[str, Any], kind: ChangeKind, *, baseline: bool, settling: bool
) -> None:
    stored, detect, record = StoredRecords(), make_detector(learned=True), shipment(at=4, **fields)
    met = read(stored, record, context=replace(UNPROVEN, baseline=baseline), detect=detect)
    assert (kinds(met), met.dates) == ([], {"shp_1": to_micros(S0 + timedelta(seconds=4))})
    for _ in range(2):
        again = read(stored, record, context=UNPROVEN, detect=detect)
        assert (again.writes, again.seen) == ([], [1])
    polled = read(stored, record, context=replace(STRICT, settling=settling), detect=detect)
    (change,) = polled.changes
    assert (change.kind, change.revision, change.before, change.patch) == (kind, 1, None, None)
    assert (polled.on_time, polled.silent) == (1, 0)
    assert read(stored, record, detect=detect).is_idle


def test_other_content_of_a_record_that_was_only_met_is_marked_unless_a_later_date_explains_it() -> None:
    stored, detect = StoredRecords(), make_detector(learned=True)
    read(stored, shipment(at=4), context=UNPROVEN, detect=detect)
    for at, status, is_unexplained in ((4, "packed", True), (5, "shipped", False)):
        page_diff = read(stored, shipment(at=at, status=status), context=UNPROVEN, detect=detect)
        assert [write.is_unexplained for write in page_diff.writes] == [is_unexplained]
    (change,) = read(stored, shipment(at=5, status="shipped"), detect=detect).changes
    assert (change.kind, change.revision, change.before) == (ChangeKind.UPDATED, 1, None)


def test_in_the_first_pass_a_date_in_the_future_of_the_service_is_baseline() -> None:
    for context, expected in ((FIRST, []), (UNPROVEN, []), (LATER, ["created"])):
        stored = StoredRecords()
        assert kinds(read(stored, shipment(at=22), context=context)) == expected
        assert not stored.rows["shp_1"].is_met
    (change,) = read(StoredRecords(), shipment(at=21), context=FIRST).changes  # dated when it was answered
    assert change.kind is ChangeKind.UPDATED
    (change,) = read(StoredRecords(), shipment(at=22), context=replace(FIRST, emit=True)).changes
    assert change.kind is ChangeKind.SNAPSHOT


def test_a_baseline_record_that_was_never_compared_has_its_raw_hash_for_a_fingerprint() -> None:
    stored = StoredRecords()
    (write,) = read(stored, shipment(at=-5), context=FIRST).writes
    assert write.fingerprint == write.raw_hash
    (rewritten,) = read(stored, dict(reversed(shipment(at=-5).items()))).writes
    assert (rewritten.fingerprint, rewritten.raw_hash != write.raw_hash) == (write.fingerprint, True)
    (changed,) = read(stored, shipment(at=-5, status="packed")).writes
    assert changed.fingerprint not in (changed.raw_hash, write.fingerprint)


def test_a_second_reading_that_no_later_date_explains_is_marked() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=10))
    for at, status, is_unexplained in ((10, "packed", True), (11, "shipped", False)):
        page_diff = read(stored, shipment(at=at, status=status))
        assert [write.is_unexplained for write in page_diff.writes] == [is_unexplained]


def test_the_snapshot_of_a_stored_record_has_no_revision_and_no_before() -> None:
    body = json.dumps(shipment()).encode()
    change = make_detector().snapshot(body, S0, now=S0)
    assert (change.kind, change.revision, change.before, change.after) == (ChangeKind.SNAPSHOT, 0, None, body)
    assert (change.modified_at, change.via) == (S0, Via.FIRST_PASS)


# Another way of reading ----------------------------------------------------------------------------------------------

ANEW = replace(FIRST, rebaselining=True)


def test_a_feed_that_is_read_differently_differs_silently_and_keeps_its_revisions() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=5))
    page_diff = read(stored, shipment(at=5, packages=[1]), context=ANEW)
    assert (kinds(page_diff), findings(page_diff)) == ([], [Finding.REBASELINED])
    assert [write.revision for write in page_diff.writes] == [1]


def test_a_record_that_says_it_was_modified_is_a_change_however_the_feed_is_read() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=5))
    assert kinds(read(stored, shipment(at=6, packages=[1]), context=ANEW)) == ["updated"]


def test_a_record_that_was_gone_and_matches_the_new_query_is_no_news() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=-9))
    stored.change("shp_1", gone_at=to_micros(S0 - timedelta(hours=1)), revision=2)
    page_diff = read(stored, shipment(at=-5, status="closed"), context=ANEW)
    assert (kinds(page_diff), [write.revision for write in page_diff.writes]) == ([], [2])


AGAIN = replace(LATER, rebaselining=True)
"""The same records, read otherwise: what was passed and polled before still counts."""


def test_of_the_same_records_read_otherwise_what_is_new_or_moved_is_a_change_and_nothing_else() -> None:
    stored = StoredRecords()
    read(stored, shipment(1, at=5), shipment(2, at=5))
    records = [shipment(1, at=5, packages=[1]), shipment(2, at=6, packages=[1]), shipment(3, at=7, packages=[1])]
    page_diff = read(stored, *records, context=AGAIN)
    assert [(change.key.text, change.kind) for change in page_diff.changes] == [
        ("shp_2", ChangeKind.UPDATED),
        ("shp_3", ChangeKind.CREATED),
    ]
    assert findings(page_diff).count(Finding.REBASELINED) == 1


def test_of_the_same_records_read_otherwise_one_that_is_back_is_restored() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=-9))
    stored.change("shp_1", gone_at=to_micros(S0 - timedelta(hours=1)), revision=2)
    assert kinds(read(stored, shipment(at=-9, packages=[1]), context=AGAIN)) == ["restored"]


# Schema drift --------------------------------------------------------------------------------------------------------


def stock(count: int = 12) -> list[dict[str, Any]]:
    return [{"id": str(number), "available": number} for number in range(count)]


def deployed(records: Sequence[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    return [record | (fields or {"bin": None}) for record in records]


DRIFT = Drift(frozenset({"/bin"}))


def test_a_member_that_is_new_on_every_record_is_held_and_found_once() -> None:
    stored = StoredRecords()
    read(stored, *stock())
    page_diff = read(stored, *deployed(stock()))
    assert (kinds(page_diff), page_diff.writes, page_diff.drift, page_diff.drifted) == ([], [], DRIFT, 12)
    later = read(stored, *deployed(stock()), context=replace(LATER, drift=DRIFT))
    assert (kinds(later), later.drift, later.drifted) == ([], None, 12)


def test_a_record_that_differs_in_something_else_too_is_published_while_others_are_held() -> None:
    stored = StoredRecords()
    read(stored, *stock())
    records = deployed(stock())
    records[3]["available"] = 99
    (change,) = read(stored, *records).changes
    assert (change.key.text, change.changed) == ("3", ["/available", "/bin"])


def test_a_record_whose_date_moved_is_published_while_others_are_held() -> None:
    stored = StoredRecords()
    records = [shipment(number) for number in range(12)]
    read(stored, *records)
    records = deployed(records)
    records[3]["updated_at"] = stamp(11)
    page_diff = read(stored, *records)
    assert [change.key.text for change in page_diff.changes] == ["shp_3"]
    assert page_diff.drifted == 11


def test_drift_that_the_operator_absorbs_is_stored_silently_and_published_when_he_says_so() -> None:
    for decision, expected in ((Decision.ABSORB, []), (Decision.PUBLISH, ["updated"] * 12)):
        stored = StoredRecords()
        read(stored, *stock())
        page_diff = read(stored, *deployed(stock()), context=replace(LATER, drift=Drift(DRIFT.paths, decision)))
        assert (kinds(page_diff), len(page_diff.writes), page_diff.drifted) == (expected, 12, 0)
        assert set(findings(page_diff)) == {Finding.UPDATED if expected else Finding.ABSORBED}


def test_a_second_drift_is_held_with_the_first() -> None:
    stored = StoredRecords()
    read(stored, *stock())
    page_diff = read(stored, *deployed(stock(), bin=None, lot=None), context=replace(LATER, drift=DRIFT))
    assert (kinds(page_diff), page_diff.drifted) == ([], 12)
    assert page_diff.drift == Drift(frozenset({"/bin", "/lot"}))


def test_members_that_only_some_of_the_records_have_drift_with_the_others() -> None:
    stored = StoredRecords()
    read(stored, *stock(30))
    records = deployed(stock(30)[:18]) + deployed(stock(30)[18:], bin=None, lot=None)
    page_diff = read(stored, *records)
    assert (kinds(page_diff), page_diff.drifted) == ([], 30)


def test_values_that_are_written_in_another_form_on_every_record_are_held() -> None:
    stored = StoredRecords()
    records = [shipment(number) | {"packed": "2026-11-21T02:30:00Z", "weight": "1.50"} for number in range(40)]
    read(stored, *records)
    for record in records:
        record |= {"packed": "2026-11-21T02:30:00+00:00", "weight": 1.5}
    records[3]["weight"] = 1.6
    page_diff = read(stored, *records)
    assert ([change.key.text for change in page_diff.changes], page_diff.drifted) == (["shp_3"], 39)
    assert page_diff.drift == Drift(frozenset({"/packed", "/weight"}))
    absorbed = replace(LATER, drift=replace(page_diff.drift, decision=Decision.ABSORB))
    page_diff = read(stored, *records, context=absorbed)
    assert (kinds(page_diff), set(findings(page_diff)), len(page_diff.writes)) == ([], {Finding.ABSORBED}, 39)


def test_the_timestamp_itself_in_another_form_drifts_with_the_others() -> None:
    stored = StoredRecords()
    read(stored, *(shipment(number) | {"packed": stamp(0)} for number in range(12)))
    other = stamp(0).replace("+00:00", "Z")
    records = [shipment(number) | {"packed": other} for number in range(12)]
    for record in records:
        record["updated_at"] = record["updated_at"].replace("+00:00", "Z")
    page_diff = read(stored, *records)
    assert (kinds(page_diff), page_diff.drifted) == ([], 12)


def test_there_is_no_drift_in_what_is_first_met_or_read_differently() -> None:
    for context in (FIRST, ANEW):
        stored = StoredRecords()
        read(stored, *stock())
        assert read(stored, *deployed(stock()), context=context).drift is None


# Timestamps ----------------------------------------------------------------------------------------------------------


def test_a_composite_key_keeps_its_typed_original() -> None:
    detect = make_detector(key=("/sku", "/warehouse/id"))
    (change,) = read(StoredRecords(), {"sku": "A/1", "warehouse": {"id": 7, "name": "x"}}, detect=detect).changes
    assert (change.key.text, change.key.id) == ("A%2F1,7", ["A/1", 7])


@pytest.mark.parametrize(("at", "late"), [(14, 1), (15, None), (16, None)])
def test_a_change_dated_before_what_complete_runs_have_covered_is_late(at: float, late: float | None) -> None:
    context = replace(LATER, covered_until=S0 + timedelta(seconds=15))
    page_diff = read(StoredRecords(), shipment(at=at), context=context)
    assert [change.late for change in page_diff.changes] == [late is not None]
    assert page_diff.lateness == ([] if late is None else [timedelta(seconds=late)])
    assert page_diff.on_time == (late is None)


def test_other_content_under_the_same_date_is_silent_and_not_late() -> None:
    stored, context = StoredRecords(), replace(LATER, covered_until=S0 + timedelta(seconds=15))
    read(stored, shipment(at=10))
    page_diff = read(stored, shipment(at=10, status="lost"), context=context)
    assert [change.late for change in page_diff.changes] == [False]
    assert (page_diff.silent, page_diff.lateness, page_diff.on_time, page_diff.missed) == (1, [], 0, 0)


@pytest.mark.parametrize(("at", "missed"), [(4, 1), (5, 0)])
def test_a_change_dated_before_what_polls_still_look_at_was_missed_by_them(at: float, missed: int) -> None:
    context = replace(LATER, via=Via.PASS, polled_from=S0 + timedelta(seconds=5))
    stored = StoredRecords()
    read(stored, shipment(at=1))
    assert read(stored, shipment(at=at, status="packed"), context=context).missed == missed


EXACT = replace(LATER, precision=timedelta(0))


def visible(page_diff: PageDiff) -> list[float | None]:
    """Return how many seconds after noon by our clock, which is a second behind here, changes became visible."""
    times = [change.visible_at for change in page_diff.changes]
    return [None if time is None else (time - S0).total_seconds() for time in times]


def test_a_change_is_visible_since_its_record_says_it_was_modified_by_our_clock() -> None:
    stored = StoredRecords()
    assert visible(read(stored, shipment(at=10), context=EXACT)) == [9]
    assert visible(read(stored, shipment(at=12.5, status="packed"), context=EXACT)) == [11.5]


def test_the_best_that_is_known_of_the_clocks_tells_when_a_change_became_visible() -> None:
    for offset, expected in ((-0.3, 9.7), (-0.9, 9.1)):
        told = replace(page(shipment(at=10)), offset=timedelta(seconds=offset))
        (change,) = make_detector().detect(told, EXACT, StoredRecords()).changes
        assert change.visible_at == S0 + timedelta(seconds=expected)
    late = replace(page(shipment(at=20.9)), offset=timedelta(seconds=-0.3))  # the clocks are known to some ms only
    (change,) = make_detector().detect(late, EXACT, StoredRecords()).changes
    assert change.visible_at == late.received_at


def test_timestamps_in_whole_seconds_stand_for_any_moment_of_their_second() -> None:
    (at,) = visible(read(StoredRecords(), shipment(at=10)))
    assert at is not None
    assert 9 < at < 10


@pytest.mark.parametrize("at", [9, 10])
def test_a_change_that_its_timestamp_does_not_date_became_visible_between_two_readings(at: float) -> None:
    stored = StoredRecords()
    read(stored, shipment(at=10), context=EXACT)
    context = replace(EXACT, last_pass=S0 + timedelta(seconds=30))
    (seen,) = visible(read(stored, shipment(at=at, status="lost"), context=context, asked_at=40))
    assert seen is not None
    assert 29 < seen < 40


@pytest.mark.parametrize(("at", "expected"), [(10, None), (12, 11)])
def test_when_a_record_came_back_is_known_exactly_only_where_its_timestamp_says_it(
    at: float, expected: float | None
) -> None:
    stored = StoredRecords()
    read(stored, shipment(at=10), context=EXACT)
    stored.change("shp_1", gone_at=to_micros(S0), revision=2)
    page_diff = read(stored, shipment(at=at), context=EXACT)
    (seen,) = visible(page_diff)
    assert kinds(page_diff) == ["restored"]
    assert seen is not None
    assert -1 <= seen <= 20
    assert expected is None or seen == expected


def test_records_of_a_pass_were_looked_at_as_long_after_the_begin_of_the_one_before() -> None:
    stored, detect = StoredRecords(), make_detector()
    read(stored, {"id": "x", "n": 0}, context=EXACT, asked_at=0)
    # Both passes begin 100 s apart; this page is asked for 90 s after the begin, as it was then.
    context = replace(EXACT, via=Via.PASS, run_asked_at=S0 + timedelta(seconds=100))
    for number in range(1, 9):
        (seen,) = visible(read(stored, {"id": "x", "n": number}, context=context, detect=detect, asked_at=190))
        assert seen is not None
        assert 89 < seen < 190


def test_a_reading_that_was_held_was_visible_when_it_was_shown_first() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=10), context=EXACT)
    window = replace(EXACT, stale_window=timedelta(seconds=30))
    assert findings(read(stored, shipment(at=5, status="older"), context=window, asked_at=40)) == [Finding.HELD]
    later = replace(window, last_pass=S0 + timedelta(seconds=60))
    (seen,) = visible(read(stored, shipment(at=5, status="older"), context=later, asked_at=100))
    assert seen is not None
    assert seen <= 40


def test_no_delay_is_measured_of_snapshots_and_first_passes_nor_without_a_reading_before() -> None:
    snapshot = read(StoredRecords(), shipment(at=-1), context=replace(FIRST, emit=True))
    assert (kinds(snapshot), visible(snapshot)) == (["snapshot"], [None])
    early = read(StoredRecords(), shipment(at=10, created_at=stamp(10)), context=replace(FIRST, via=Via.POLL))
    assert (kinds(early), visible(early)) == (["created"], [None])
    unread = read(StoredRecords(), {"id": 1}, context=ReadContext(Via.POLL, S0))
    assert (kinds(unread), visible(unread)) == (["created"], [None])


def test_a_change_without_a_date_says_nothing_of_dates() -> None:
    page_diff = read(StoredRecords(), {"id": 1}, context=replace(LATER, covered_until=S0))
    assert (page_diff.silent, page_diff.on_time, page_diff.lateness, page_diff.oldest_unseen) == (0, 0, [], None)


def test_the_dates_of_all_records_of_a_page_are_told_changed_or_not() -> None:
    stored = StoredRecords()
    read(stored, shipment(1, at=5), shipment(2, at=6))
    read(stored, shipment(4, at=-5), context=FIRST)
    records = shipment(1, at=7, status="packed"), shipment(2, at=6), shipment(3, at=8), shipment(4, at=-5), {"id": "x"}
    page_diff = read(stored, *records)
    expected = {"shp_1": 7, "shp_2": 6, "shp_3": 8, "shp_4": -5}
    assert page_diff.dates == {key: to_micros(S0 + timedelta(seconds=at)) for key, at in expected.items()} | {"x": None}


def test_a_new_date_alone_was_unseen_too() -> None:
    stored = StoredRecords()
    read(stored, shipment(at=5))
    assert read(stored, shipment(at=7)).oldest_unseen == S0 + timedelta(seconds=7)


@pytest.mark.parametrize(("at", "since"), [(20, 15), (5, 5), (-5, -5)])
def test_a_change_is_unseen_since_the_last_run_that_would_have_shown_it_but_not_after_its_date(
    at: float, since: float
) -> None:
    context = replace(LATER, last_poll=(S0, S0 + timedelta(seconds=15)))
    (change,) = read(StoredRecords(), shipment(at=at), context=context, asked_at=30).changes
    assert change.changed_between[0] == S0 + timedelta(seconds=since)


@pytest.mark.parametrize(("via", "since"), [(Via.POLL, 15), (Via.PASS, 0)])
def test_without_a_date_a_poll_shows_what_polls_show_and_a_pass_what_passes_show(via: Via, since: float) -> None:
    context = replace(LATER, via=via, last_poll=(S0, S0 + timedelta(seconds=15)))
    (change,) = read(StoredRecords(), {"id": "shp_1"}, context=context).changes
    assert change.changed_between[0] == S0 + timedelta(seconds=since)


def test_the_oldest_unseen_record_is_known_whatever_it_comes_to() -> None:
    page_diff = read(StoredRecords(), shipment(1, at=-30), shipment(2, at=5), context=FIRST)
    assert page_diff.oldest_unseen == S0 - timedelta(seconds=30)


OWN: bytes = b'{"n": 1.0, "id": 7}'


@pytest.mark.parametrize(
    ("answer", "own"),
    [
        (OWN, OWN),
        (b'{"data": ' + OWN + b"}", OWN),
        (b'{"request": {"id": "r"}, "shipment": ' + OWN + b', "id": null}', OWN),
        (b'{"n": 1.0, "id": "7"}', b'{"n": 1.0, "id": "7"}'),
        (b'{"id": 8}', None),
        (b'{"id": 8, "parent": ' + OWN + b"}", None),
        (b'{"error": "not found"}', None),
        (b'{"error": ' + OWN + b"}", None),
        (b'{"errors": ' + OWN + b"}", None),
        (b'{"data": {"shipment": ' + OWN + b"}}", None),
        (b'{"data": [' + OWN + b"]}", None),
        (b'{"data": {"id": 8}, "count": 7}', None),
        (b"{}", None),
        (b"null", None),
        (b"[" + OWN + b"]", None),
        (b"7", None),
        (b'{"id": ', None),
        (b'{"id": "\xff"}', None),
        (b'{"a": ' * 100_000, None),
    ],
)
def test_an_answer_about_one_record_is_that_record_or_nothing(answer: bytes, own: bytes | None) -> None:
    assert make_detector().find_own(answer, Key("7", 7)) == own


@given(st.binary() | st.recursive(st.none() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_whatever_the_answer_is_it_is_that_record_or_nothing(answer: Any) -> None:
    raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    own = make_detector().find_own(raw, Key("7", 7))
    assert own is None or json.loads(own)["id"] == 7


def test_a_buried_record_names_its_last_content_and_how_it_was_found() -> None:
    body = json.dumps(shipment()).encode()
    change = make_detector().deletion(body, 4, S0, until=S0, now=S0)
    assert (change.kind, change.revision, change.before, change.after) == (ChangeKind.DELETED, 5, body, None)
    assert change.reason is DeletionReason.ABSENT


contents = st.fixed_dictionaries(
    {"id": st.just("1"), "a": st.integers(0, 2), "b": st.lists(st.integers(0, 2), max_size=2)}
)


@given(st.lists(contents, min_size=1, max_size=12))
def test_the_chain_of_changes_is_unbroken(versions: list[dict[str, Any]]) -> None:
    stored = StoredRecords()
    changes = [change for version in versions for change in read(stored, version).changes]
    assert [change.revision for change in changes] == list(range(1, len(changes) + 1))
    for earlier, later in itertools.pairwise(changes):
        assert earlier.after == later.before
        assert earlier.after != later.after
    assert changes[-1].after is not None
    assert json.loads(changes[-1].after) == versions[-1]
