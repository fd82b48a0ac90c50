from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.known_pages import KnownPages
from dockbell.core.comparing.page_diff import Collision, KnownRecords, PageDiff, Snapshots, Stored
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.record_rules import RecordIdentity
from dockbell.core.model import ClockSource, Feed, Page, Via
from dockbell.core.moment import to_micros
from tests.core.comparing.test_change_detector import StoredRecords
from tests.core.comparing.test_record_rules import MEMBERS

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CONTEXTS = [ReadContext(Via.FIRST_PASS, NOON, baseline=True), ReadContext(Via.POLL, NOON, last_pass=NOON)]
STRICT = replace(CONTEXTS[1], stale_window=timedelta(hours=1))
DETECTOR = ChangeDetector(
    Feed("main", "shipments"),
    key=("/id",),
    updated_at="/updated_at",
    created_at=None,
    canon=Canon(updated_at="/updated_at"),
)


class Nothing:
    """A store that holds nothing yet."""

    def find(self, *_: Any) -> dict[str, Any]:
        return {}

    def bodies(self, rows: Sequence[int]) -> dict[int, Any]:
        assert not rows
        return {}

    holds = bodies

    def quarantined(self, _: Sequence[bytes]) -> list[bytes]:
        return []


def make_page(raws: Sequence[bytes]) -> Page:
    return Page(tuple(raws), None, "shipments", NOON, ClockSource.DATE, NOON, NOON)


def compare(page: Page, context: ReadContext, stored: Snapshots, known: KnownRecords | None = None) -> PageDiff | str:
    try:
        return DETECTOR.detect(page, context, stored, known)
    except Collision as error:
        return str(error)


@pytest.mark.parametrize("context", CONTEXTS)
@given(records=st.lists(st.fixed_dictionaries({}, optional=MEMBERS), max_size=6))
def test_a_page_comes_to_the_same_whether_its_records_are_identified_at_once_or_one_by_one(
    records: list[dict[str, Any]], context: ReadContext
) -> None:
    page = make_page([json.dumps(record).encode() for record in records])
    at_once = compare(page, context, Nothing())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordIdentity, "find_plain", lambda *_: None)
        assert compare(page, context, Nothing()) == at_once


TEXTS = (
    b'{"id":%s,"updated_at":"2026-11-21T%02d:00:00Z","quantity":%d}',
    b'{"id": %s, "updated_at": "2026-11-21T%02d:00:00Z", "quantity": %d}',
)


def records_of(*keys: bytes) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda text, key, hour, quantity: text % (key, hour, quantity),
        st.sampled_from(TEXTS),
        st.sampled_from(keys),
        st.sampled_from([10, 11]),
        st.integers(0, 1),
    )


RECORDS = records_of(b'"a"', b'"b"', b'"c"', b'"d"', b'"e f"', b"7")
FEW = records_of(b'"a"', b'"b"')
ODD = st.sampled_from([b'{"id":"a","quantity":', b'{"id":""}', b'{"id":"b"}', b"[]"])
PAGES = st.lists(RECORDS | ODD, min_size=1, max_size=6)


@pytest.mark.parametrize("context", [CONTEXTS[1], replace(CONTEXTS[1], may_ask_again=True)])
@given(before=st.lists(RECORDS, max_size=6), records=PAGES, data=st.data())
def test_a_page_comes_to_the_same_whether_what_is_as_stored_is_known_or_looked_up(
    before: list[bytes], records: list[bytes], data: st.DataObject, context: ReadContext
) -> None:
    stored = StoredRecords()
    for raw in before:
        read_one(stored, raw)
    for key in data.draw(st.sets(st.sampled_from([*stored.rows])) if stored.rows else st.just(set())):
        stored.change(key, missed=True)
    page = make_page(records)
    looked_up = compare(page, context, stored)
    known = compare(page, context, stored, find_known(page, stored))
    if isinstance(looked_up, str) or isinstance(known, str):
        assert known == looked_up
        return
    assert list(known.dates.items()) == list(looked_up.dates.items())
    for page_diff in (known, looked_up):
        page_diff.seen.sort()
    assert known == looked_up


def find_known(page: Page, stored: StoredRecords) -> KnownRecords:
    """Return which records of a page are stored as it shows them, and not missed."""
    as_stored = {each.raw_hash: (key, each.row, each.modified) for key, each in stored.rows.items() if not each.missed}
    records = [as_stored[raw_hash] for raw_hash in page.hashes if raw_hash in as_stored]
    return KnownRecords(
        others=[place for place, raw_hash in enumerate(page.hashes) if raw_hash not in as_stored],
        keys=[key for key, _, _ in records],
        rows=[row for _, row, _ in records],
        dates=[date for _, _, date in records],
    )


def read_one(stored: StoredRecords, raw: bytes) -> None:
    stored.store(DETECTOR.detect(make_page([raw]), CONTEXTS[1], stored))


@given(
    before=st.lists(st.tuples(FEW, st.sampled_from([*CONTEXTS, STRICT])), max_size=6),
    state=st.sampled_from([{}, {"missed": True}, {"gone_at": to_micros(NOON)}]),
    records=st.lists(FEW | ODD, min_size=1, max_size=3),
    context=st.sampled_from([CONTEXTS[1], STRICT]),
)
@example(  # the record is held, and then shown as it is stored, in other words
    before=[(TEXTS[0] % (b'"a"', 11, 1), CONTEXTS[0]), (TEXTS[0] % (b'"a"', 10, 0), STRICT)],
    state={},
    records=[TEXTS[1] % (b'"a"', 11, 1), TEXTS[1] % (b'"b"', 11, 1)],
    context=STRICT,
)
def test_what_is_known_after_a_page_was_stored_is_what_the_next_comparison_would_find(
    before: list[tuple[bytes, ReadContext]], state: dict[str, Any], records: list[bytes], context: ReadContext
) -> None:
    stored = StoredRecords()
    for raw, earlier in before:
        stored.store(DETECTOR.detect(make_page([raw]), earlier, stored))
    for key in stored.rows:
        stored.change(key, **state)
    page, pages = make_page(records), KnownPages()
    lookup = pages.look(page.hashes)
    page_diff = stored.store(DETECTOR.detect(page, context, stored))
    if not page_diff.is_idle:
        pages.forget(page_diff.written)
    pages.take(lookup, page_diff)
    again = pages.look(page.hashes)
    known = again.known()
    rows = again.page_diff.seen if again.page_diff is not None else [] if known is None else known.rows
    assert {*rows} <= {*DETECTOR.detect(page, context, stored).as_stored.values()}


def test_what_is_known_is_not_looked_up() -> None:
    raws = [b'{"id":"%d"}' % number for number in range(200)]
    stored = StoredRecords()
    stored.store(DETECTOR.detect(make_page(raws), CONTEXTS[1], stored))
    asked: list[str] = []

    class Asked(StoredRecords):
        def find(self, hashes: Mapping[str, bytes | None], bad: Sequence[bytes] = ()) -> Mapping[str, Stored]:
            asked.extend(hashes)
            return super().find(hashes, bad)

    page = make_page([*raws[:100], b'{"id":"100","quantity":2}', *raws[101:]])
    page_diff = DETECTOR.detect(page, CONTEXTS[1], Asked(stored.rows, stored.kept), find_known(page, stored))
    assert asked == ["100"]
    assert [change.key.text for change in page_diff.changes] == ["100"]
    assert sorted(page_diff.seen) == list(range(1, 201))


@pytest.mark.parametrize("state", [{"missed": True}, {"held": True}, {"gone_at": 1}, {"raw_hash": b"another"}])
def test_a_record_about_which_something_is_to_be_done_is_not_as_stored(state: dict[str, Any]) -> None:
    stored, raws = StoredRecords(), [b'{"id":"a"}', b'{"id":"b"}']
    for raw in raws:
        read_one(stored, raw)
    assert DETECTOR.detect(make_page(raws), CONTEXTS[1], stored).as_stored == {"a": 1, "b": 2}
    stored.change("a", **state)
    assert DETECTOR.detect(make_page(raws), CONTEXTS[1], stored).as_stored == {"b": 2}
