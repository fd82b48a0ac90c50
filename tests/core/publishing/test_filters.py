from __future__ import annotations

from typing import Any, Final

import pytest

from dockbell.config import Answer, SinkSettings
from dockbell.core.model import NOTICES, Event, Feed
from dockbell.core.publishing.filters import Filter

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
    assert filter_by(changes=["created", "updated", "gap"]).judge(event) is answer


def test_notices_pass_whatever_is_asked_of_changes() -> None:
    notice = make(change="dead_letter", key="", feed=NOTICES)
    assert filter_by(resources=["notices"], changes=["created"], where="false").judge(notice) is Answer.YES


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
    assert filter_by(where=where).judge(make(data)) is answer


def test_a_condition_is_not_asked_of_what_changes_hold_back() -> None:
    assert filter_by(changes=["created"], where="1 / 0 == 1").judge(make()) is Answer.NO


def test_statements_about_a_feed_pass_every_condition() -> None:
    assert filter_by(where="false").judge(make(change="gap", key="")) is Answer.YES


def test_who_took_a_record_by_its_content_hears_that_it_was_purged() -> None:
    purged = make('{"before":null,"after":null,"reason":"purged"}', change="deleted")
    gone = make('{"before":null,"after":null,"reason":"absent"}', change="deleted")
    wants = filter_by(where="after.status == 'shipped' || before.status == 'shipped'")
    assert (wants.judge(purged), wants.judge(gone)) == (Answer.YES, Answer.MISSING)
    assert filter_by(changes=["created"], where="true").judge(purged) is Answer.NO


# Why -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "change", "reason"),
    [
        ({}, "updated", ""),
        ({"resources": ["items"]}, "updated", "the sink takes nothing of main/stock"),
        ({"changes": ["created"]}, "updated", "changes leaves out updated"),
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
    assert filter_by(**settings).explain(event) == reason
