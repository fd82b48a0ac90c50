from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.page_diff import Collision, PageDiff
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.record_rules import RecordIdentity
from dockbell.core.model import ClockSource, Feed, Page, Via
from tests.core.comparing.test_record_rules import MEMBERS

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CONTEXTS = [ReadContext(Via.FIRST_PASS, NOON, baseline=True), ReadContext(Via.POLL, NOON, last_pass=NOON)]
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


def compare(records: Sequence[dict[str, Any]], context: ReadContext) -> PageDiff | str:
    raws = tuple(json.dumps(record).encode() for record in records)
    page = Page(raws, None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
    try:
        return DETECTOR.detect(page, context, Nothing())
    except Collision as error:
        return str(error)


@pytest.mark.parametrize("context", CONTEXTS)
@given(records=st.lists(st.fixed_dictionaries({}, optional=MEMBERS), max_size=6))
def test_a_page_comes_to_the_same_whether_its_records_are_identified_at_once_or_one_by_one(
    records: list[dict[str, Any]], context: ReadContext
) -> None:
    at_once = compare(records, context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordIdentity, "find_plain", lambda *_: None)
        assert compare(records, context) == at_once
