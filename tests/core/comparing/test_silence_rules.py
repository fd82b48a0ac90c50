"""Which rule silences a difference: each by itself, and the order between them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockbell.core.comparing.candidate import Candidate, Difference, Facts, micros
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.comparing.holding import Hold
from dockbell.core.comparing.page_diff import UNDECIDED, Finding, Stored
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.silence_rules import RULES, find_silence
from dockbell.core.model import ClockSource, Key, Page, Via
from dockbell.core.moment import to_micros

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
    candidate = Candidate(Key("a", "a"), b"{}", b"n" * 16, {"carrier": None}, b"n" * 16, date, known)
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
