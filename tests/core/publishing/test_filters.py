from __future__ import annotations

from typing import Any, Final

import pytest

from dockbell.config import Answer, SinkSettings
from dockbell.core.model import NOTICES, Event, Feed
from dockbell.core.publishing.filters import Filter, leaves_out

STOCK: Final = Feed("main", "stock")


def make(data: str = "{}", *, change: str = "updated", name: str = "", key: str = "A,2", feed: Feed = STOCK) -> Event:
    body = f'{{"specversion":"1.0","data":{data}}}'.encode()
    return Event(feed, 7, key, "evt_1", f"dockbell.stock.{name or change}", change, 3, body)


def filter_by(**settings: Any) -> Filter:
    return Filter(SinkSettings.model_validate({"type": "stdout"} | settings))


# Feeds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "feed", "wanted"),
    [
        ({}, STOCK, True),
        ({"sources": ["main"]}, STOCK, True),
        ({"sources": ["other"]}, STOCK, False),
        ({"resources": ["stock", "items"]}, STOCK, True),
        ({"resources": ["items"]}, STOCK, False),
        ({"sources": ["main"], "resources": ["items"]}, Feed("other", "items"), False),
        ({}, NOTICES, False),
        ({"resources": ["stock"]}, NOTICES, False),
        ({"resources": ["notices"]}, NOTICES, True),
        ({"resources": ["notices"]}, STOCK, False),
        ({"resources": ["notices"], "sources": ["main"]}, NOTICES, True),
        ({"sources": ["dockbell"]}, Feed("dockbell", "stock"), True),  # an operator may call a source so
    ],
)
def test_a_feed_is_wanted_by_its_source_and_resource_and_notices_by_name_alone(
    settings: dict[str, Any], feed: Feed, wanted: bool
) -> None:
    assert filter_by(**settings).wants(feed) is wanted


# Changes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        (make(change="updated"), Answer.YES),
        (make(change="deleted"), Answer.NO),
        (make(change="updated", name="low"), Answer.YES),
        (make(change="deleted", name="low"), Answer.NO),
        (make(change="gap", key=""), Answer.YES),
        (make(change="reconciled", key=""), Answer.NO),
    ],
)
def test_changes_pass_by_name_and_named_events_by_the_change_that_they_follow(event: Event, answer: Answer) -> None:
    assert filter_by(changes=["created", "updated", "gap"]).evaluate(event) is answer


def test_notices_pass_whatever_is_asked_of_changes() -> None:
    notice = make(change="dead_letter", key="", feed=NOTICES)
    assert filter_by(resources=["notices"], changes=["created"], where="false").evaluate(notice) is Answer.YES


# Conditions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "data", "answer"),
    [
        ("after.available < 10", '{"before":null,"after":{"available":3}}', Answer.YES),
        ("after.available < 10", '{"before":null,"after":{"available":12.5}}', Answer.NO),
        ("after.available < 10", '{"before":{"available":3},"after":null}', Answer.MISSING),
        ("after.available < 10", '{"before":null,"after":{}}', Answer.MISSING),
        ("after.available < 10", '{"before":null,"after":{"available":"3"}}', Answer.MISMATCH),
        ("after.available", '{"before":null,"after":{"available":3}}', Answer.MISMATCH),
        ("after.available < 10", '{"before":null,"after":{"available":1e999}}', Answer.BROKEN),
        ("1 / 0 == 1", "{}", Answer.BROKEN),
        ("has(before.sku)", '{"before":{"sku":"A"},"after":null}', Answer.YES),
        ("has(before.sku)", '{"before":null,"after":{"sku":"A"}}', Answer.NO),
        ("'/available' in changed", '{"changed":["/available"],"patch":[]}', Answer.YES),
        ("'/available' in changed", "{}", Answer.NO),
        ("change == 'updated' && key == 'A,2' && source == 'main' && resource == 'stock'", "{}", Answer.YES),
        (
            "after.a.all(x, after.a.all(y, x == y))",
            f'{{"before":null,"after":{{"a":[{"1," * 1500}1]}}}}',
            Answer.COSTLY,
        ),
    ],
)
def test_a_condition_is_judged_by_the_whole_event(where: str, data: str, answer: Answer) -> None:
    assert filter_by(where=where).evaluate(make(data)) is answer


def test_a_condition_is_not_asked_of_what_changes_hold_back() -> None:
    assert filter_by(changes=["created"], where="1 / 0 == 1").evaluate(make()) is Answer.NO


def test_statements_about_a_feed_pass_every_condition() -> None:
    assert filter_by(where="false").evaluate(make(change="gap", key="")) is Answer.YES


def test_who_took_a_record_by_its_content_hears_that_it_was_purged() -> None:
    purged = make('{"before":null,"after":null,"reason":"purged"}', change="deleted")
    gone = make('{"before":null,"after":null,"reason":"absent"}', change="deleted")
    wants = filter_by(where="after.status == 'shipped' || before.status == 'shipped'")
    assert (wants.evaluate(purged), wants.evaluate(gone)) == (Answer.YES, Answer.MISSING)
    assert filter_by(changes=["created"], where="true").evaluate(purged) is Answer.NO


# Records that leave the filter ---------------------------------------------------------------------------------------

SHIPPED: Final = '{"status":"shipped"}'
LOST: Final = '{"status":"lost"}'


def move(before: str, after: str, change: str = "updated", **other: str) -> Event:
    reason = "".join(f',"{name}":"{value}"' for name, value in other.items())
    return make(f'{{"before":{before},"after":{after}{reason}}}', change=change)


@pytest.mark.parametrize(
    ("event", "skipped", "sent"),
    [
        (move(LOST, SHIPPED), Answer.YES, Answer.YES),
        (move(SHIPPED, SHIPPED), Answer.YES, Answer.YES),
        (move(SHIPPED, LOST), Answer.NO, Answer.YES),
        (move(LOST, LOST), Answer.NO, Answer.NO),
        (move(SHIPPED, "{}"), Answer.MISSING, Answer.YES),
        (move("{}", LOST), Answer.NO, Answer.NO),
        (move("null", LOST, "created"), Answer.NO, Answer.NO),
        (move("null", LOST), Answer.NO, Answer.NO),
        (move("null", LOST, "snapshot"), Answer.NO, Answer.NO),
        (move(SHIPPED, "null", "deleted", reason="absent"), Answer.MISSING, Answer.YES),
        (move(LOST, "null", "deleted", reason="absent"), Answer.MISSING, Answer.MISSING),
        (move("null", "null", "deleted", reason="absent"), Answer.MISSING, Answer.YES),  # it may have been followed
    ],
)
def test_the_change_with_which_a_record_leaves_the_filter_is_sent_where_that_is_wanted(
    event: Event, skipped: Answer, sent: Answer
) -> None:
    where = "after.status == 'shipped'"
    assert filter_by(where=where).evaluate(event) is skipped
    assert filter_by(where=where, on_leave="send").evaluate(event) is sent


def test_changes_are_left_out_all_the_same() -> None:
    sieve = filter_by(where="after.status == 'shipped'", on_leave="send", changes=["created", "updated"])
    assert sieve.evaluate(move(SHIPPED, "null", "deleted")) is Answer.NO
    assert sieve.evaluate(move(SHIPPED, LOST)) is Answer.YES


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("change == 'updated' && after.status == 'shipped'", Answer.YES),
        ("before.status != 'shipped' && after.status == 'shipped'", Answer.NO),  # of no record, but of a change
        ("'/status' in changed && after.status == 'shipped'", Answer.NO),
        ("resource == 'stock' && key == 'A,2' && source == 'main' && after.status == 'shipped'", Answer.YES),
    ],
)
def test_the_record_before_is_judged_as_if_it_had_been_updated_without_another_form(where: str, answer: Answer) -> None:
    assert filter_by(where=where, on_leave="send").evaluate(move(SHIPPED, LOST)) is answer


def test_a_condition_that_breaks_of_the_record_now_is_no_leaving() -> None:
    sieve = filter_by(where="1 / after.n == 1", on_leave="send")
    assert sieve.evaluate(move('{"n":1}', '{"n":0}')) is Answer.BROKEN
    assert sieve.evaluate(move('{"n":0}', '{"n":2}')) is Answer.NO


def test_that_a_record_left_is_told() -> None:
    sieve = filter_by(where="after.status == 'shipped'", on_leave="send")
    told = {event: sieve.explain(event, sieve.evaluate(event)) for event in (move(SHIPPED, LOST), move(LOST, SHIPPED))}
    assert list(told.values()) == ["it left the filter: after.status == 'shipped' does not hold", ""]


# Why -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "change", "reason"),
    [
        ({}, "updated", ""),
        ({"resources": ["items"]}, "updated", "the sink does not take main/stock"),
        ({"changes": ["created"]}, "updated", "changes does not include updated"),
        ({"where": "after.n > 1 && after.s == 'x'"}, "updated", "where: after.n > 1 does not hold"),
        ({"where": "after.n == 1 && after.s == 'y'"}, "updated", "where: after.s == 'y' does not hold"),
        (
            {"where": "after.n == 1 && after.t == 'y'"},
            "updated",
            "where: after.t == 'y' names a member that is not there",
        ),
        ({"where": "after.n == 1"}, "updated", ""),
    ],
)
def test_the_filter_that_holds_an_event_back_is_named(settings: dict[str, Any], change: str, reason: str) -> None:
    event = make('{"before":null,"after":{"n":1,"s":"x"}}', change=change)
    sieve = filter_by(**settings)
    assert sieve.explain(event, sieve.evaluate(event)) == reason


def test_what_takes_too_long_to_judge_is_named_and_not_held_back() -> None:
    event = make(f'{{"before":null,"after":{{"a":[{"1," * 1500}1]}}}}')
    sieve = filter_by(where="after.a.all(x, after.a.all(y, x == y))")
    answer = sieve.evaluate(event)
    assert answer.lets_through
    assert sieve.explain(event, answer) == "where: takes too long to judge of so large a record"


@pytest.mark.parametrize(
    ("settings", "is_less"),
    [
        ({}, False),
        ({"sources": ("main",), "resources": ("shipments",)}, False),  # whole feeds: nothing of the others is owed
        ({"changes": ("deleted",)}, True),
        ({"where": "after.status == 'SHIPPED'"}, True),
        ({"coalesce": True}, True),
    ],
)
def test_a_sink_may_get_fewer_events_than_are_recorded_of_its_feeds(settings: dict[str, Any], *, is_less: bool) -> None:
    assert leaves_out(SinkSettings(type="stdout", **settings)) == is_less
