from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.admin.why import EventTrace, Presence, RecordHistory, SinkTrace, Stage, explain, read_key, trace_events
from dockbell.config import FeedSettings, ResourceSettings, SinkSettings
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.comparing.page_diff import PURGED, Finding
from dockbell.core.key import decode, encode
from dockbell.core.model import Event, Feed, RunKind, Via
from dockbell.core.publishing.settlement import Blocked, DeadLetter
from dockbell.core.reading.shape import Shape
from dockbell.host.evaluator import SHARED, ProcessEvaluator
from dockbell.ports import Failing, FeedState, KeyStatus, Noted, Quarantined, RunRecord, StoredRecord
from tests.fakes import NOON

FEED = Feed("main", "shipments")
MINUTE = timedelta(minutes=1)
SETTINGS = FeedSettings("main", "shipments", ResourceSettings(every=MINUTE))
PASS = RunRecord(RunKind.PASS, NOON - MINUTE, None, NOON, pages=1, records=7, events=0)
POLL = replace(PASS, kind=RunKind.POLL, asked_at=NOON, since=NOON - 2 * MINUTE)
STATE = FeedState(1, FEED, shape=Shape(("/id",), None, None), proven=True, first_asked_at=NOON, passes=1, full=PASS)
RECORD = StoredRecord("a", NOON, b"f" * 16, 0)
HELD = Drift(frozenset({"/new"}))


def event(sequence: int, change: str = "updated") -> Event:
    return Event(FEED, sequence, "a", f"evt_{sequence}", f"dockbell.shipment.{change}", change, 1, b"{}")


TOLD = (EventTrace(NOON, event(1)),)


def noted(finding: Finding, sequence: int | None = None) -> Noted:
    return Noted(NOON, Via.POLL, finding, NOON, b"f" * 16, sequence)


def account(
    state: FeedState | None = STATE,
    record: StoredRecord | None = RECORD,
    *notes: Noted,
    events: Sequence[EventTrace] = (),
) -> RecordHistory:
    return RecordHistory(NOON, FEED, "a", SETTINGS, state, record, notes=notes, events=tuple(events))


# Why there is no event -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            replace(account(None), settings=None),
            "main/shipments is not configured or is disabled, so dockbell does not read it",
        ),
        (account(None, None), 'main/shipments was never read; "dockbell run" reads it'),
        (account(replace(STATE, problem="the key is refused")), "main/shipments is stopped: the key is refused"),
        (
            replace(account(), quarantined=(Quarantined("a", "key a: stands twice", NOON, NOON),)),
            "it has been in quarantine since 2026-11-21 12:00:00Z: key a: stands twice",
        ),
        (
            account(STATE, replace(RECORD, awaited_at=NOON), noted(Finding.AWAITED)),
            "its event has waited for its detail since 2026-11-21 12:00:00Z, for at most 5m",
        ),
        (account(STATE, RECORD, noted(Finding.AWAITED), events=TOLD), ""),
        (
            account(STATE, replace(RECORD, held_at=NOON)),
            (
                "a reading of it has been held as stale since 2026-11-21 12:00:00Z: it is older than the stored record,"
                " and is believed if it is still the same 1m later"
            ),
        ),
        (
            account(STATE, replace(RECORD, gone_at=NOON, fingerprint=PURGED), noted(Finding.PURGED, 7), events=TOLD),
            ("an operator purged its content at 2026-11-21 12:00:00Z; it is restored when the API shows it again"),
        ),
        (
            account(STATE, replace(RECORD, gone_at=NOON, fingerprint=PURGED)),
            "an operator purged its content; it is restored when the API shows it again",
        ),
        (
            account(STATE, replace(RECORD, is_dormant=True)),
            "it is absent and kept until it is seen again: an operator rejected its deletion",
        ),
        (
            account(replace(STATE, rebaselining=True), replace(RECORD, is_dormant=True)),
            "it is absent and kept until it is seen again: the feed's read settings changed",
        ),
        (
            account(replace(STATE, held=30), replace(RECORD, suspected_at=NOON)),
            (
                "it has been absent since 2026-11-21 12:00:00Z, and its deletion is one of 30 that are held;"
                ' decide with "dockbell deletes approve main/shipments" or "dockbell deletes reject main/shipments"'
            ),
        ),
        (
            account(replace(STATE, confirm_at=NOON + MINUTE), replace(RECORD, suspected_at=NOON)),
            (
                "it has been absent since 2026-11-21 12:00:00Z, and counts as deleted once a second pass confirms it,"
                " due at 2026-11-21 12:01:00Z"
            ),
        ),
        (
            account(STATE, replace(RECORD, suspected_at=NOON)),
            "it has been absent since 2026-11-21 12:00:00Z, and counts as deleted once a second pass confirms it",
        ),
        (
            account(STATE, RECORD, noted(Finding.TOUCHED)),
            (
                "only its timestamp changed, at 2026-11-21 12:00:00Z; touch = true in [resources.shipments]"
                " publishes such changes"
            ),
        ),
        (
            account(STATE, RECORD, noted(Finding.CREATED, 1), noted(Finding.QUIET), events=TOLD),
            "the reading of 2026-11-21 12:00:00Z differs only in ignored members",
        ),
        (
            account(STATE, RECORD, noted(Finding.DRIFT)),
            (
                "the reading of 2026-11-21 12:00:00Z was held as drift;"
                ' decide with "dockbell drift absorb main/shipments" or "dockbell drift publish main/shipments"'
            ),
        ),
        (
            account(STATE, RECORD, noted(Finding.ABSORBED)),
            "the reading of 2026-11-21 12:00:00Z was stored without an event: an operator absorbed the drift",
        ),
        (
            account(STATE, RECORD, noted(Finding.REBASELINED)),
            "the reading of 2026-11-21 12:00:00Z was stored without an event: the read settings of the feed changed",
        ),
        (
            account(STATE, RECORD, noted(Finding.UNPROVEN)),
            "the reading of 2026-11-21 12:00:00Z was stored without an event: the key is not proven unique yet",
        ),
        (
            account(STATE, RECORD, noted(Finding.POSTPONED)),
            "the reading of 2026-11-21 12:00:00Z was left to the first poll: the key is not proven unique yet",
        ),
        (
            account(replace(STATE, full=None, failing={RunKind.PASS: Failing(1, NOON, NOON, "HTTP 500")}), None),
            (
                "no run has seen it, and no pass over main/shipments is complete yet; the last run is incomplete:"
                " HTTP 500"
            ),
        ),
        (
            account(STATE, None),
            "no complete run has ever seen it; the last pass started at 2026-11-21 11:59:00Z and read 7 records",
        ),
        (
            account(replace(STATE, poll=POLL, failing={RunKind.POLL: Failing(1, NOON, NOON, "HTTP 500")}), None),
            (
                "no complete run has ever seen it; the last pass started at 2026-11-21 11:59:00Z and read 7 records,"
                " the last poll started at 2026-11-21 12:00:00Z; the last run is incomplete: HTTP 500"
            ),
        ),
        (
            account(replace(STATE, drift=HELD), events=TOLD),
            (
                "readings that differ only by /new are held as drift;"
                ' decide with "dockbell drift absorb main/shipments" or "dockbell drift publish main/shipments"'
            ),
        ),
        (
            account(STATE, replace(RECORD, revision=3)),
            "its events, the last of revision 3, are older than keep_events",
        ),
        (
            account(STATE, replace(RECORD, revision=3, gone_at=NOON)),
            "its events, the last of revision 3, are older than keep_events",
        ),
        (
            account(replace(STATE, shape=Shape(("/code",)), proven=False)),
            "key /code is learned but not proven unique yet: nothing is published until a pass is complete",
        ),
        (account(), "it has not changed since the baseline of 2026-11-21 12:00:00Z, which publishes no events"),
        (
            account(replace(STATE, proven=False)),
            "it has not changed since the baseline of 2026-11-21 12:00:00Z, which publishes no events",
        ),
        (
            account(replace(STATE, first_asked_at=None, drift=replace(HELD, decision=Decision.ABSORB))),
            "it has not changed since the baseline, which publishes no events",
        ),
        (
            account(STATE, RECORD, noted(Finding.SEEN_AGAIN)),
            "it has not changed since the baseline of 2026-11-21 12:00:00Z, which publishes no events",
        ),
        (account(STATE, RECORD, noted(Finding.UPDATED, 1), events=TOLD), ""),
        (account(STATE, replace(RECORD, gone_at=NOON, revision=2), noted(Finding.DELETED, 1), events=TOLD), ""),
    ],
)
def test_why_nothing_is_published_is_said_in_one_sentence(found: RecordHistory, reason: str) -> None:
    assert explain(found) == reason


@pytest.mark.parametrize(
    ("record", "presence"),
    [
        (None, Presence.UNKNOWN),
        (RECORD, Presence.PRESENT),
        (replace(RECORD, suspected_at=NOON), Presence.SUSPECTED),
        (replace(RECORD, is_dormant=True), Presence.DORMANT),
        (replace(RECORD, gone_at=NOON), Presence.GONE),
    ],
)
def test_a_record_is_stored_in_one_of_five_ways(record: StoredRecord | None, presence: Presence) -> None:
    assert account(STATE, record).presence is presence


# Keys ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_key", "keys"),
    [
        ("shp_1", ["shp_1"]),
        ("SKU-1,wh_1", ["SKU-1,wh_1", "SKU-1%2Cwh_1"]),
        ("a%2Fb", ["a%2Fb", "a%252Fb"]),
        ("a/b+#%é", ["a%2Fb%2B%23%25é"]),
        ("SKU 1,wh_1", ["SKU%201,wh_1", "SKU%201%2Cwh_1"]),
        ("a%2Fb c", ["a%2Fb%20c", "a%252Fb%20c"]),
    ],
)
def test_a_key_is_taken_for_the_key_strings_that_it_may_mean(given_key: str, keys: list[str]) -> None:
    assert read_key(given_key) == keys


@pytest.mark.parametrize("given_key", ["", "\udc80", "%ff"])
def test_what_can_be_no_key_is_refused(given_key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        read_key(given_key)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_every_key_string_stands_for_itself_and_every_raw_key_is_understood(components: list[str]) -> None:
    try:
        text = encode(components)
    except ValueError:
        return  # half a surrogate pair
    assert read_key(text)[0] == text
    if len(components) == 1 and "%" not in components[0]:
        assert text in read_key(components[0])
    assert all(decode(key) for key in read_key(text))


# Deliveries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "stages"),
    [
        (KeyStatus("erp", 3), ["delivered", "delivered", "delivered"]),
        (KeyStatus("erp", 1), ["delivered", "owed", "owed"]),
        (KeyStatus("erp", 3, Blocked(FEED, "a", 2, 4, NOON, "HTTP 503")), ["delivered", "blocked", "waiting"]),
        (KeyStatus("erp", 3, None, (DeadLetter(FEED, "a", 2, 9, NOON, "x"),)), ["delivered", "dead", "delivered"]),
    ],
)
async def test_an_event_is_somewhere_on_its_way_to_a_sink(status: KeyStatus, stages: list[str]) -> None:
    traces = await trace_events([event(1), event(2), event(3)], status, SinkSettings(type="stdout"), SHARED)
    assert [trace.stage.value for trace in traces] == stages


async def test_a_change_that_a_later_one_may_have_replaced_says_so() -> None:
    settings = SinkSettings(type="stdout", coalesce=True)
    first, last = await trace_events([event(1), event(2)], KeyStatus("erp", 3), settings, SHARED)
    assert first.stage is Stage.DELIVERED
    assert first.error == "sent, or replaced by a later change up to #2: coalesce"
    assert (last.stage, last.error) == (Stage.DELIVERED, "")


async def test_a_change_that_is_held_back_has_replaced_none() -> None:
    settings = SinkSettings(type="stdout", coalesce=True, changes=("created", "deleted"))
    first, _ = await trace_events([event(1, "deleted"), event(2)], KeyStatus("erp", 3), settings, SHARED)
    assert (first.stage, first.error) == (Stage.DELIVERED, "")


async def test_a_blocked_event_says_how_often_it_was_tried_and_when_it_is_next() -> None:
    blocked = Blocked(FEED, "a", 1, 4, NOON, "HTTP 503")
    (trace,) = await trace_events([event(1)], KeyStatus("erp", 3, blocked), SinkSettings(type="stdout"), SHARED)
    assert trace == SinkTrace("erp", Stage.BLOCKED, 4, "HTTP 503", NOON)


async def test_attempts_at_an_event_that_is_filtered_now_are_not_those_of_the_next() -> None:
    settings = SinkSettings(type="stdout", changes=("deleted",))
    status = KeyStatus("erp", 3, Blocked(FEED, "a", 1, 4, NOON, "HTTP 503"))
    filtered, blocked = await trace_events([event(1), event(2, "deleted")], status, settings, SHARED)
    assert (filtered.stage, blocked.stage, blocked.attempts) == (Stage.FILTERED, Stage.BLOCKED, 0)


@pytest.mark.parametrize("filters", [{"sources": ["other"]}, {"resources": ["stock"]}, {"changes": ["deleted"]}])
async def test_what_a_sink_does_not_want_is_filtered(filters: dict[str, list[str]]) -> None:
    settings = SinkSettings.model_validate({"type": "stdout"} | filters)
    (trace,) = await trace_events([event(1)], KeyStatus("erp", 3), settings, SHARED)
    assert trace.stage is Stage.FILTERED


async def test_an_event_that_went_out_because_its_filter_took_too_long_says_so() -> None:
    settings = SinkSettings(type="stdout", where="after.t.exists(a, after.t.exists(b, a + b == 1))")
    large = dataclasses.replace(event(1), body=b'{"data":{"after":{"t":[' + b"0," * 20_000 + b"0]}}}")
    with closing(ProcessEvaluator(timedelta(milliseconds=100))) as evaluator:
        (trace,) = await trace_events([large], KeyStatus("erp", 3), settings, evaluator)
    assert (trace.stage, trace.error) == (Stage.DELIVERED, "where: takes too long to judge of so large a record")


async def test_an_event_that_went_out_because_its_record_left_the_filter_says_so() -> None:
    settings = SinkSettings(type="stdout", where="after.status == 'shipped'", on_leave="send")
    left = dataclasses.replace(event(1), body=b'{"data":{"before":{"status":"shipped"},"after":{"status":"lost"}}}')
    (trace,) = await trace_events([left], KeyStatus("erp", 3), settings, SHARED)
    assert (trace.stage, trace.error) == (
        Stage.DELIVERED,
        "it left the filter: after.status == 'shipped' does not hold",
    )


def test_a_named_event_that_was_published_unjudged_is_told_from_others() -> None:
    bodies = (b'{"data":{"unjudged":true}}', b'{"data":{"after":{"unjudged":true}}}')
    assert [EventTrace(NOON, dataclasses.replace(event(1), body=body)).is_unjudged for body in bodies] == [True, False]
