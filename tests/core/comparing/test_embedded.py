"""What embedded records come to against what is stored."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.embedded import EmbeddedDiff, Said, compare_embedded, contradicts
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ChangeKind, Via
from tests.core.comparing.test_change_detector import S0, StoredRecords, make_detector, page, shipment, stamp

WINDOW = timedelta(seconds=60)
SIGNAL = ReadContext(Via.SIGNAL, S0, last_pass=S0, stale_window=WINDOW)
PASS = ReadContext(Via.PASS, S0, last_pass=S0, stale_window=WINDOW)


class Stock:
    """A feed of which two records are stored, and what embeds them."""

    def __init__(self, detector: ChangeDetector | None = None) -> None:
        self.detector = detector or make_detector()
        self.stored = StoredRecords()
        self.store(shipment(1), shipment(2))

    def store(self, *records: Any, context: ReadContext = PASS, asked_at: float = 20) -> None:
        self.stored.store(self.detector.detect(page(*records, asked_at=asked_at), context, self.stored))

    def compare(self, *records: Any, asked_at: float = 40, context: ReadContext = SIGNAL) -> EmbeddedDiff:
        return compare_embedded(self.detector, page(*records, asked_at=asked_at), context, self.stored)

    def mark(self, key: str, **fields: Any) -> None:
        self.stored.change(key, **fields)


@pytest.fixture
def stock() -> Stock:
    return Stock()


def test_a_record_that_advanced_is_updated(stock: Stock) -> None:
    found = stock.compare(shipment(1, at=30, status="shipped"), shipment(2))
    (change,) = found.page_diff.changes
    assert (change.kind, change.via, change.key.text) == (ChangeKind.UPDATED, Via.SIGNAL, "shp_1")
    assert change.changed_between == (S0, S0 + timedelta(seconds=41))
    assert list(found.equal) == ["shp_2"]
    assert found.said["shp_1"].modified is not None


def test_it_marks_nothing_as_seen_and_holds_nothing(stock: Stock) -> None:
    found = stock.compare(shipment(1, at=30, status="shipped"), shipment(2, at=5, status="lost"))
    diff = found.page_diff
    assert found.stale == ["shp_2"]
    assert (diff.seen, diff.cleared, diff.holds, diff.released, diff.bad, diff.drift) == ([], [], [], [], [], None)
    assert [write.key for write in diff.writes] == [note.key for note in diff.notes] == ["shp_1"]


def test_what_is_equal_in_another_writing_is_not_stored(stock: Stock) -> None:
    found = stock.compare(json.dumps(dict(reversed(shipment(1).items())), indent=1).encode())
    assert list(found.equal) == ["shp_1"]
    assert found.page_diff.is_idle


@pytest.mark.parametrize(
    "fields", [{"gone_at": 1}, {"missed": True}, {"held": True}, {"raw_hash": b"undecided"}, {"raw_hash": b""}]
)
def test_a_record_in_doubt_is_left_alone(stock: Stock, fields: dict[str, Any]) -> None:
    stock.mark("shp_1", **fields)
    found = stock.compare(shipment(1, at=30, status="shipped"))
    assert found.page_diff.is_idle
    assert (found.said, found.equal) == ({}, {})


def test_an_unknown_record_is_not_created(stock: Stock) -> None:
    found = stock.compare(shipment(3, at=30))
    assert found.page_diff.is_idle
    assert (found.said, found.equal, found.keyless) == ({}, {}, 0)


def test_of_a_record_that_did_not_advance_nothing_is_used(stock: Stock) -> None:
    assert not stock.compare(shipment(1, status="shipped")).page_diff.changes
    stock.mark("shp_1", modified=None)
    assert not stock.compare(shipment(1, at=30, status="shipped")).page_diff.changes


def test_of_an_older_record_nothing_is_used_even_if_the_list_is_believed_at_once(stock: Stock) -> None:
    stock.store(shipment(1, at=30, status="shipped"), asked_at=31)
    at_once = replace(SIGNAL, stale_window=timedelta(0))
    assert not stock.compare(shipment(1, at=20, status="packed"), context=at_once).page_diff.changes


@pytest.mark.parametrize(("stored_at", "at"), [(30, 10_000), (10_000, 35)])
def test_a_date_in_the_future_says_nothing_of_age(stock: Stock, stored_at: int, at: int) -> None:
    stock.store(shipment(1, at=stored_at, status="shipped"), asked_at=31)
    assert not stock.compare(shipment(1, at=at, status="lost")).page_diff.changes


@pytest.mark.parametrize("fields", [{"status": "shipped"}, {"status": "shipped", "lots": [1], "bin": "A"}])
def test_a_record_that_has_gained_or_lost_a_member_is_left_alone(stock: Stock, fields: dict[str, Any]) -> None:
    stock.store(shipment(1, at=20, lots=[1]), asked_at=21)
    assert not stock.compare(shipment(1, at=30, **fields)).page_diff.changes


def test_content_that_was_replaced_just_now_is_stale() -> None:
    stock = Stock(make_detector())
    stock.store(shipment(1, status="shipped"), asked_at=30)  # in silence: its timestamp did not move
    assert stock.compare(shipment(1)).stale == ["shp_1"]


def test_records_without_a_key_are_counted_and_doubled_ones_left_alone(stock: Stock) -> None:
    found = stock.compare({"status": "open"}, b"[1]", shipment(1, at=30, x=1), shipment(1, at=31, x=2))
    assert found.keyless == 2
    assert found.page_diff.is_idle


def test_records_of_another_form_are_told_and_not_used() -> None:
    stock = Stock()
    stock.store(*(shipment(number) for number in range(3, 20)))
    found = stock.compare(*(shipment(number, extra=None) for number in range(1, 20)))
    assert found.has_other_form
    assert found.page_diff.is_idle
    few = stock.compare(*(shipment(number, extra=None) for number in range(1, 4)))
    assert not few.has_other_form
    assert few.page_diff.is_idle


@given(
    st.lists(
        st.builds(
            lambda number, at, status: shipment(number, at=at, status=status),
            st.integers(1, 4),
            st.integers(0, 50),
            st.sampled_from(["open", "shipped", "lost"]),
        ),
        max_size=6,
    ),
)
def test_whatever_is_embedded_only_known_records_are_updated_and_the_chain_holds(
    records: list[dict[str, Any]],
) -> None:
    stock = Stock()
    found = stock.compare(*records)
    for change in found.page_diff.changes:
        assert change.kind is ChangeKind.UPDATED
        assert change.key.text in {"shp_1", "shp_2"}
        assert json.loads(change.before or b"") == shipment(int(change.key.text[-1]))
        after = json.loads(change.after or b"")
        assert after["status"] != "open"
        assert stamp(10) < after["updated_at"] <= stamp(41)
    assert {write.key for write in found.page_diff.writes} == set(found.said)


def test_a_list_contradicts_what_it_shows_otherwise_unless_it_calls_that_later() -> None:
    said = Said(b"before", b"after", 7)
    assert contradicts(said, b"before", 7)
    assert contradicts(said, b"before", None)
    assert contradicts(said, b"third", 7)
    assert not contradicts(said, b"before", 8)
    assert not contradicts(said, b"third", 8)
    assert not contradicts(said, b"after", 7)
    assert contradicts(Said(b"before", b"after", None), b"before", 8)
