from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.model import Event, Feed
from dockbell.core.publishing.topic import FEED_FIELDS, MAX_BYTES, check_topic, render_topic

DEFAULT = "dockbell/event/{source}/{resource}/{key}/{change}"


def event(key: str = "shp_1") -> Event:
    return Event(Feed("main", "shipments"), 1, key, "evt_1", "dockbell.shipment.updated", "updated", 1, b"{}")


def test_each_field_is_filled_in() -> None:
    assert render_topic(check_topic(DEFAULT), event()) == "dockbell/event/main/shipments/shp_1/updated"


def test_a_named_event_and_a_statement_are_published_by_the_last_part_of_their_type() -> None:
    named = dataclasses.replace(event(), type="dockbell.shipment.left")
    assert render_topic(DEFAULT, named) == "dockbell/event/main/shipments/shp_1/left"
    statement = dataclasses.replace(event(""), type="dockbell.feed.gap", change="gap")
    template = check_topic("dockbell/feed/{source}/{resource}/{change}", fields=FEED_FIELDS)
    assert render_topic(template, statement) == "dockbell/feed/main/shipments/gap"


def test_a_field_may_stand_inside_a_level_and_appear_twice() -> None:
    assert render_topic(check_topic("a/x-{key}-{key}"), event("7")) == "a/x-7-7"


def test_a_template_needs_no_field() -> None:
    assert check_topic("dockbell/status", fields=()) == "dockbell/status"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("a/{colour}", r"must not contain \{colour\}; known: \{source\} \{resource\} \{key\} \{change\}"),
        ("a/{}", r"must not contain \{\}"),
        ("a/{key!r}", r"must not contain \{key!r\}"),
        ("a/{key.__class__}", r"must not contain \{key.__class__\}"),
        ("a/{key", "matching braces"),
        ("a/key}", "matching braces"),
        ("a/{{key}}", "matching braces"),
        ("a/+/b", "wildcard"),
        ("a/#", "wildcard"),
        ("a//b", "empty level"),
        ("/a", "empty level"),
        ("a/", "empty level"),
        ("", "empty level"),
        ("$SYS/a", r"not begin with \$"),
        ("a/\n", "control characters"),
        ("a/\x00", "control characters"),
        ("a/\ud800", "control characters"),
        ("ä" * 32_768, "longer than 65535 bytes"),
    ],
)
def test_a_template_that_cannot_work_is_told_with_its_reason(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_topic(template)


def test_fields_can_be_limited() -> None:
    with pytest.raises(
        ValueError, match=r'must not contain \{change\}; known: \{source\} \{key\}, got "a/\{key\}/\{change\}"'
    ):
        check_topic("a/{key}/{change}", fields=("source", "key"))


def test_fields_can_be_required() -> None:
    with pytest.raises(ValueError, match=r"must contain \{key\}"):
        check_topic("a/{source}", required=("key",))


def test_a_topic_longer_than_mqtt_allows_is_refused() -> None:
    assert len(render_topic("{key}", event("x" * MAX_BYTES))) == MAX_BYTES
    with pytest.raises(ValueError, match="topic: has 65536 bytes"):
        render_topic("{key}", event("x" * (MAX_BYTES + 1)))


@given(st.text())
def test_a_template_is_accepted_or_refused_by_a_value_error_and_then_renders(template: str) -> None:
    try:
        check_topic(template)
    except ValueError:
        return
    topic = render_topic(template, event())
    assert topic
    assert not set("+#{}\x00") & set(topic)
    assert all(topic.split("/"))
