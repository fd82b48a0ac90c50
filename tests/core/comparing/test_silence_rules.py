"""Which rule silences a difference, and which reading is stale or held: each by itself, and their order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.core.comparing.candidate import Candidate, Difference, Facts
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.comparing.page_diff import UNDECIDED, Finding, Hold, Stored
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.silence_rules import (
    RULES,
    Staleness,
    find_silence,
    find_staleness,
    is_believed,
    keep,
    supersede,
    was_superseded,
)
from dockbell.core.model import ClockSource, Key, Page, Via
from dockbell.core.moment import micros, to_micros

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SOON = NOON + timedelta(seconds=60)
PAGE = Page((), None, "shipments", SOON, ClockSource.DATE, SOON, SOON)
POLL = ReadContext(Via.POLL, NOON, stale_window=timedelta(seconds=30))
ADDED = [{"op": "add", "path": "/carrier", "value": None}]
DRIFT = Drift(frozenset({"/carrier"}))


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def make_stored(modified: float | None = 5, **fields: Any) -> Stored:
    stored = Stored(1, b"o" * 16, b"o" * 16, None if modified is None else micros(at(modified)), 3)
    return stored._replace(**fields)


def make_facts(
    known: Stored | None = None,
    modified: float | None = 5,
    *,
    context: ReadContext = POLL,
    hold: Hold | None = None,
    drift: Drift | None = None,
) -> Facts:
    date = None if modified is None else at(modified)
    candidate = Candidate(Key("a", "a"), b"{}", b"n" * 16, {"carrier": None}, b"n" * 16, date, micros(date), known)
    is_compared = known is not None and known.gone_at is None
    patch: Any = ADDED if is_compared else None
    difference = Difference(candidate, b"{}" if is_compared else None, {}, patch, b"o" * 16)
    return Facts(difference, candidate, known, date, None, hold, drift, PAGE, context)


STALE = make_stored(40)
BACK = make_stored(gone_at=to_micros(NOON) - 86_400_000_000)
PROVISIONAL = replace(POLL, provisional=True)
SECOND_PASS = replace(POLL, via=Via.PASS, settling=True)
REBASELINING = replace(POLL, rebaselining=True)


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        pytest.param(make_facts(), None, id="unknown"),
        pytest.param(make_facts(make_stored()), None, id="changed silently"),
        pytest.param(make_facts(make_stored(), 10), None, id="changed"),
        pytest.param(make_facts(BACK), None, id="back"),
        pytest.param(make_facts(STALE), Finding.HELD, id="older than stored"),
        pytest.param(make_facts(STALE, hold=Hold(b"n" * 16, to_micros(at(30)))), None, id="older, but it has lasted"),
        pytest.param(make_facts(STALE, hold=Hold(b"x" * 16, to_micros(at(30)))), Finding.HELD, id="other was held"),
        pytest.param(make_facts(context=PROVISIONAL), Finding.POSTPONED, id="new, key unproven"),
        pytest.param(make_facts(None, -5, context=PROVISIONAL), Finding.UNPROVEN, id="baseline, key unproven"),
        pytest.param(make_facts(None, None, context=SECOND_PASS), Finding.UNDECIDED, id="undated in second pass"),
        pytest.param(
            make_facts(make_stored(None, raw_hash=UNDECIDED), None, context=SECOND_PASS),
            Finding.UNDECIDED,
            id="undated in second pass, again",
        ),
        pytest.param(make_facts(None, 5, context=SECOND_PASS), None, id="dated in second pass"),
        pytest.param(make_facts(make_stored(), context=REBASELINING), Finding.REBASELINED, id="read differently"),
        pytest.param(make_facts(make_stored(), 10, context=REBASELINING), None, id="modified since, read differently"),
        pytest.param(make_facts(BACK, context=REBASELINING), None, id="back, same records read differently"),
        pytest.param(
            make_facts(BACK, -5, context=replace(REBASELINING, baseline=True)),
            Finding.REBASELINED,
            id="tombstone matches new query",
        ),
        pytest.param(
            make_facts(BACK, 5, context=replace(REBASELINING, baseline=True)), None, id="tombstone modified since"
        ),
        pytest.param(make_facts(make_stored(), drift=DRIFT), Finding.DRIFT, id="drift"),
        pytest.param(
            make_facts(make_stored(), drift=replace(DRIFT, decision=Decision.ABSORB)), Finding.ABSORBED, id="absorbed"
        ),
        pytest.param(
            make_facts(make_stored(), drift=replace(DRIFT, decision=Decision.PUBLISH)), None, id="drift, published"
        ),
        pytest.param(make_facts(make_stored(), 10, drift=DRIFT), None, id="modified since, drift"),
        pytest.param(make_facts(make_stored(), drift=Drift(frozenset({"/other"}))), None, id="other drift"),
    ],
)
def test_a_difference_is_silenced_by_the_first_rule_that_applies(facts: Facts, finding: Finding | None) -> None:
    assert find_silence(facts) is finding


@pytest.mark.parametrize(
    ("facts", "first", "second"),
    [
        (make_facts(STALE, context=replace(PROVISIONAL)), Finding.HELD, Finding.POSTPONED),
        (make_facts(context=PROVISIONAL), Finding.POSTPONED, Finding.UNPROVEN),
        (make_facts(None, None, context=replace(SECOND_PASS, provisional=True)), Finding.UNDECIDED, Finding.UNPROVEN),
        (make_facts(make_stored(), context=REBASELINING, drift=DRIFT), Finding.REBASELINED, Finding.DRIFT),
    ],
)
def test_of_two_rules_that_apply_the_earlier_decides(facts: Facts, first: Finding, second: Finding) -> None:
    assert [rule.finding for rule in RULES if rule.applies(facts)][:2] == [first, second]
    assert find_silence(facts) is first


WINDOW = timedelta(seconds=60)
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


def at_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOON + timedelta(seconds=seconds)


def find(
    stored: Stored | None,
    *,
    modified: float | None = None,
    fingerprint: bytes = NEW,
    asked_at: float = 15,
    answered_at: float = 20,
    window: timedelta = WINDOW,
) -> Staleness | None:
    asked, answered = NOON + timedelta(seconds=asked_at), NOON + timedelta(seconds=answered_at)
    page = Page((), None, "shipments", asked, ClockSource.DATE, answered, asked)
    date = at_or_none(modified)
    candidate = Candidate(Key("a", "a"), b"{}", fingerprint, {}, fingerprint, date, micros(date), stored)
    return find_staleness(candidate, page, window)


def make_dated(
    modified: float | None = None, *, gone_at: float | None = None, superseded: bytes | None = None
) -> Stored:
    return Stored(
        1,
        OLD,
        OLD,
        micros(at_or_none(modified)),
        3,
        gone_at=micros(at_or_none(gone_at)),
        superseded=superseded,
    )


@pytest.mark.parametrize(
    ("modified", "stored", "is_stale"),
    [
        (5, 10, True),
        (10, 5, False),
        (5, 20, True),
        (5, 80, True),  # the replica's answer may be as old as the window
        (5, 80.001, False),  # what is stored lies in the future of every answer, and says nothing of age
        (-(10**6), 10, True),
    ],
)
def test_a_dated_reading_is_stale_when_its_date_is_before_the_stored_one(
    modified: float, stored: float, *, is_stale: bool
) -> None:
    assert find(make_dated(stored), modified=modified) is (Staleness.DATED_BEFORE_STORED if is_stale else None)


@pytest.mark.parametrize(("modified", "stored"), [(None, None), (None, 5), (5, None), (5, 5)])
def test_where_dates_do_not_tell_a_return_to_what_was_replaced_lately_is_stale(
    modified: float | None, stored: float | None
) -> None:
    record = make_dated(stored, superseded=supersede(None, OTHER, NOON, WINDOW))

    def find_at(fingerprint: bytes, seconds: float) -> Staleness | None:
        return find(record, modified=modified, fingerprint=fingerprint, asked_at=seconds, answered_at=seconds)

    assert find_at(OTHER, 59) is Staleness.SUPERSEDED
    assert find_at(OTHER, 60) is None
    assert find_at(NEW, 59) is None


def test_where_dates_tell_content_does_not_count() -> None:
    record = make_dated(5, superseded=supersede(None, OTHER, NOON, WINDOW))
    assert find(record, modified=10, fingerprint=OTHER) is None


def test_a_stored_record_is_never_stale_without_a_window() -> None:
    record = make_dated(10, superseded=supersede(None, OTHER, NOON, WINDOW))
    assert find(record, modified=5, window=timedelta(0)) is None
    assert find(record, modified=10, fingerprint=OTHER, window=timedelta(0)) is None


@pytest.mark.parametrize(
    ("fingerprint", "modified", "asked_at", "expected"),
    [
        (OLD, 5, 15, Staleness.BACK_UNCHANGED),
        (OLD, 5, 70, None),  # so long after the deletion, every replica knows of it
        (OLD, 12, 15, None),
        (NEW, 9, 15, Staleness.DATED_BEFORE_DELETION),
        (NEW, 9, 70, None),
        (NEW, 12, 15, None),
        (NEW, None, 15, None),
    ],
)
def test_a_record_comes_back_changed_or_later_than_its_deletion(
    fingerprint: bytes, modified: float | None, asked_at: float, expected: Staleness | None
) -> None:
    record = make_dated(5, gone_at=10)
    assert find(record, modified=modified, fingerprint=fingerprint, asked_at=asked_at) is expected


def test_an_unknown_record_is_not_stale() -> None:
    assert find(None, modified=-(10**6)) is None


def test_the_first_rule_that_applies_names_the_reason() -> None:
    gone = make_dated(9, gone_at=10)
    assert to_micros(NOON) < (gone.gone_at or 0)
    assert find(gone, modified=9, fingerprint=OLD) is Staleness.BACK_UNCHANGED
    assert find(gone, modified=9) is Staleness.DATED_BEFORE_DELETION


OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


def test_nothing_is_remembered_without_a_window() -> None:
    none = timedelta(0)
    assert supersede(b"", OLD, at(0), none) is None
    assert not was_superseded(supersede(None, OLD, at(0), WINDOW), OLD, at(1), none)


def test_replaced_content_counts_for_the_window() -> None:
    superseded = supersede(None, OLD, at(0), WINDOW)
    assert was_superseded(superseded, OLD, at(59), WINDOW)
    assert not was_superseded(superseded, OLD, at(60), WINDOW)
    assert not was_superseded(superseded, NEW, at(59), WINDOW)


def test_what_was_replaced_longer_ago_than_the_window_is_forgotten() -> None:
    superseded = supersede(supersede(None, OLD, at(0), WINDOW), OTHER, at(60), WINDOW)
    assert superseded is not None
    assert (OLD in superseded, OTHER in superseded) == (False, True)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=30))
def test_at_most_eight_of_the_latest_are_remembered(replaced: list[bytes]) -> None:
    superseded = None
    for fingerprint in replaced:
        superseded = supersede(superseded, fingerprint, NOON, WINDOW)
    assert len(superseded or b"") == 24 * min(8, len(replaced))
    for fingerprint in replaced[-8:]:
        assert was_superseded(superseded, fingerprint, NOON, WINDOW)


@pytest.mark.parametrize(
    ("hold", "believed"),
    [
        (None, False),
        (Hold(OLD, to_micros(at(0))), True),
        (Hold(OLD, to_micros(at(0.001))), False),
        (Hold(NEW, to_micros(at(0))), False),
    ],
)
def test_a_reading_is_believed_when_the_same_was_held_for_the_window(hold: Hold | None, *, believed: bool) -> None:
    assert is_believed(hold, OLD, at(60), WINDOW) is believed


def test_a_hold_keeps_its_beginning_while_the_reading_stays_the_same() -> None:
    hold = keep(None, OLD, at(0))
    assert keep(hold, OLD, at(30)) is hold
    assert keep(hold, NEW, at(30)) == Hold(NEW, to_micros(at(30)))
