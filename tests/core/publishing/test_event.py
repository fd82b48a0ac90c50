from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured
from cloudevents.core.formats.json import JSONFormat
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from dockbell.config import Answer, Expression, NamedEventSettings
from dockbell.core import key
from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.diff import apply, diff, touched
from dockbell.core.document import decode
from dockbell.core.model import (
    JSON,
    NOTICES,
    RESOURCES,
    Change,
    ChangeKind,
    DeletionReason,
    Event,
    Feed,
    Key,
    NoticeKind,
    Statement,
    StatementKind,
    Via,
)
from dockbell.core.publishing import event
from dockbell.core.publishing.erasure import empty_event
from dockbell.core.publishing.event import NamedEvent, NamedEvents, read_named
from dockbell.core.publishing.settlement import StartOffset
from dockbell.core.publishing.statement import (
    Certificate,
    GapReason,
    HoldReason,
    PassVerdict,
    gap,
    held,
    notice_key,
    rebaselined,
    reconciled,
)

GOLDEN: Final = Path(__file__).parents[2] / "golden"
SCHEMA: Final = json.loads((files("dockbell.core.publishing") / "event.schema.json").read_bytes())
VALIDATOR: Final = Draft202012Validator(SCHEMA)
SEEN: Final = datetime(2026, 11, 21, 2, 30, 0, 123456, tzinfo=UTC)
FEED: Final = Feed("main", "shipments")

PACKED: Final = b'{"id":"shp_123","status":"packed","tracking_number":null,"updated_at":"2026-11-21T02:11:07Z"}'
SHIPPED: Final = b'{"id":"shp_123","status":"shipped","tracking_number":"JJD01","updated_at":"2026-11-21T02:29:58Z"}'
STOCK: Final = b'{"sku":"PAL/12 +","warehouse_id":2,"available":%s,"unit_cost":%s}'
ITEM: Final = '{"id":"Größe 42%%","name":"東京 🗼","notes":{"a/b":"%s","m~n":"\\u00e9"}}'


def make(
    kind: ChangeKind, before: bytes | None, after: bytes | None, *, of: str = "shipments", by: str = "/id", **other: Any
) -> Change:
    """Return a change as the judge makes it."""
    record = decode(after or before or b"")
    patch = diff(decode(before), decode(after)) if before and after else None
    change = Change(
        feed=Feed("main", of),
        key=key.key_of(record, [tuple(place.split("/")[1:]) for place in by.split()]),
        kind=kind,
        revision=7,
        before=before,
        after=after,
        patch=patch,
        changed=None if patch is None else touched(patch),
        changed_between=(SEEN - timedelta(seconds=15), SEEN - timedelta(milliseconds=80)),
        modified_at=datetime(2026, 11, 21, 2, 29, 58, tzinfo=UTC),
        detected_at=SEEN,
        via=Via.POLL,
    )
    return replace(change, **other)


UPDATED: Final = make(ChangeKind.UPDATED, PACKED, SHIPPED)
GONE: Final = make(ChangeKind.DELETED, SHIPPED, None, via=Via.PASS, modified_at=None, reason=DeletionReason.ABSENT)
CHANGES: Final = {
    "created": make(ChangeKind.CREATED, None, PACKED, revision=1),
    "updated": UPDATED,
    "updated_without_before": make(
        ChangeKind.UPDATED, None, SHIPPED, revision=1, changed_between=(None, SEEN), via=Via.FIRST_PASS
    ),
    "updated_late": replace(UPDATED, via=Via.TRAILING, late=True),
    "deleted_absent": GONE,
    "deleted_not_found": replace(GONE, via=Via.DETAIL, reason=DeletionReason.NOT_FOUND),
    "deleted_left": replace(GONE, reason=DeletionReason.LEFT),
    "deleted_purged": purge(FEED, Key("shp_123", "shp_123"), 6, SEEN),
    "restored": make(ChangeKind.RESTORED, None, SHIPPED, revision=9),
    "snapshot": make(ChangeKind.SNAPSHOT, None, SHIPPED, revision=0, changed_between=(None, SEEN), via=Via.FIRST_PASS),
    "composite_key": make(
        ChangeKind.UPDATED,
        STOCK % (b"18446744073709551616", b"12.50"),
        STOCK % (b"18446744073709551617", b"0.10000000000000000000000001"),
        of="stock",
        by="/sku /warehouse_id",
        modified_at=None,
        via=Via.PASS,
    ),
    "unicode": make(ChangeKind.UPDATED, (ITEM % "ä").encode(), (ITEM % "\u2028").encode(), of="items"),
}


BEFORE: Final = SEEN - timedelta(minutes=20)
CERTIFICATE: Final = Certificate(
    began_at=BEFORE,
    ended_at=SEEN,
    pages=3,
    records=525,
    found={ChangeKind.UPDATED: 2, ChangeKind.DELETED: 1},
    missed=1,
    digest="8f14e45fceea167a5a36dedd4bea2543",
    verdict=PassVerdict.REPAIRED,
)
STATEMENTS: Final = {
    "reconciled": reconciled(FEED, SEEN, CERTIFICATE),
    "gap": gap(FEED, SEEN, began_at=BEFORE, ended_at=SEEN, reason=GapReason.UNAVAILABLE),
    "gap_store_lost": gap(FEED, SEEN, began_at=None, ended_at=SEEN, reason=GapReason.STORE_LOST),
    "rebaselined": rebaselined(FEED, SEEN, ["query", "expand"]),
    "held_deletions": held(FEED, SEEN, reason=HoldReason.DELETIONS, count=14, since=BEFORE),
    "held_drift": held(FEED, SEEN, reason=HoldReason.DRIFT, count=525, since=BEFORE, paths=["/customs_code"]),
}


def composer(feed: Feed = FEED, *, epoch: str = "4f6b", **conditions: str) -> event.Composer:
    """Return what writes the events of a feed; ``conditions`` are those of its named events."""
    named = [NamedEvent(name, Expression(condition)) for name, condition in conditions.items()]
    return event.Composer(feed, name="acme", singular=RESOURCES[feed.resource].singular, epoch=epoch, named=named)


def write(item: Change | Statement, *, epoch: str = "4f6b", sequence: int = 42) -> Event:
    (composed,) = composer(item.feed, epoch=epoch)(item, sequence)
    return composed


EVENTS: Final = (
    {name: write(item) for name, item in (CHANGES | STATEMENTS).items()}
    | {"named": composer(left="after.status == 'shipped'")(UPDATED, 42)[1]}
    | {"test": event.test_event("acme", "erp", SEEN, "nonce")}
    | {"updated_purged": dataclasses.replace(write(UPDATED), body=empty_event(write(UPDATED).body))}
)


def body_of(composed: Event) -> Any:
    return json.loads(composed.body, parse_float=Decimal)


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_bytes(), parse_float=Decimal)


# The golden examples -------------------------------------------------------------------------------------------------


def test_every_golden_example_is_rebuilt() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_a_golden_example_is_rebuilt_byte_for_byte(name: str) -> None:
    assert msgspec.json.format((GOLDEN / f"{name}.json").read_bytes(), indent=-1) == EVENTS[name].body


@pytest.mark.parametrize("name", EVENTS)
def test_a_golden_example_is_valid(name: str) -> None:
    VALIDATOR.validate(golden(name))


@pytest.mark.parametrize("name", EVENTS)
def test_a_cloudevents_library_reads_what_we_write(name: str) -> None:
    composed = EVENTS[name]
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    read = from_structured(HTTPMessage(headers, composed.body), JSONFormat())
    assert read.get_id() == composed.id
    assert read.get_type() == composed.type
    assert read.get_subject() == (composed.key or None)
    assert read.get_time() == SEEN.replace(microsecond=123000)
    assert read.get_extension("partitionkey") == f"{composed.feed}/{composed.key}".rstrip("/")
    assert read.get_extension("sequence") == f"{composed.sequence:020}"
    assert read.get_data() == json.loads(composed.body)["data"]


# Content -------------------------------------------------------------------------------------------------------------


def test_the_fields_stand_in_the_order_of_the_contract() -> None:
    body = body_of(EVENTS["updated"])
    assert " ".join(body) == (
        "specversion id source type subject time datacontenttype dataschema partitionkey sequence data"
    )
    assert " ".join(body["data"]) == (
        "resource key id change revision before after patch changed changed_between modified_at detected_at via late"
    )


def test_an_event_repeats_what_the_outbox_sorts_it_by() -> None:
    composed = EVENTS["composite_key"]
    body = body_of(composed)
    assert (composed.feed, composed.sequence, composed.revision) == (Feed("main", "stock"), 42, 7)
    assert composed.key == body["subject"] == body["data"]["key"] == "PAL%2F12%20%2B,2"
    assert body["data"]["id"] == ["PAL/12 +", 2]
    assert (composed.id, composed.type) == (body["id"], body["type"])
    assert composed.change == body["data"]["change"] == "updated"
    assert type(composed.change) is str


def test_a_change_and_its_named_events_know_when_it_became_visible() -> None:
    change = replace(UPDATED, visible_at=SEEN - timedelta(seconds=9))
    events = composer(left="after.status == 'shipped'")(change, 42)
    assert [each.visible_at for each in events] == [change.visible_at] * 2
    assert [each.body for each in events] == [EVENTS["updated"].body, EVENTS["named"].body]


def test_records_are_embedded_byte_for_byte() -> None:
    odd = '{ "id": 7,\t"a": 1.50, "a": 1e3, "b": "\\u00e9é\\/" }'.encode()
    composed = write(make(ChangeKind.CREATED, None, odd))
    assert b'"before":null,"after":' + odd + b"," in composed.body


def test_an_event_is_one_line_however_the_api_writes_its_records() -> None:
    pretty = b'{\r\n  "id": "shp_123",\n  "price": 1.50, "note": "\\n"\n}'
    change = make(ChangeKind.CREATED, None, pretty)
    body = write(change).body
    assert b"\n" not in body
    assert b'{"id":"shp_123","price":1.50,"note":"\\n"}' in body


def test_numbers_in_a_patch_are_exact() -> None:
    values = [operation["value"] for operation in body_of(EVENTS["composite_key"])["data"]["patch"]]
    assert values == [18446744073709551617, Decimal("0.10000000000000000000000001")]


def test_the_patch_of_an_event_makes_after_of_before() -> None:
    for name in ("updated", "updated_late", "composite_key", "unicode"):
        data = decode(EVENTS[name].body)["data"]
        assert apply(data["before"], data["patch"]) == data["after"]
        assert data["changed"] == touched(data["patch"])


def test_a_source_is_a_uri_whatever_its_parts_are_called() -> None:
    assert event.event_source("acme", Feed("main", "shipments")) == "dockbell://acme/main/shipments"
    assert event.event_source("lager süd", Feed("a/b", "stock")) == "dockbell://lager%20s%C3%BCd/a%2Fb/stock"


# Ids -----------------------------------------------------------------------------------------------------------------


def test_the_same_event_has_the_same_id() -> None:
    assert write(UPDATED).id == write(make(ChangeKind.UPDATED, PACKED, SHIPPED)).id


def test_whatever_makes_another_event_makes_another_id() -> None:
    back = make(ChangeKind.UPDATED, SHIPPED, PACKED)
    other_feeds = [replace(UPDATED, feed=Feed("main", "packages")), replace(UPDATED, feed=Feed("other", "shipments"))]
    events = [
        write(UPDATED),
        write(UPDATED, sequence=43),
        write(UPDATED, epoch="4f6c"),
        write(back),
        write(replace(UPDATED, revision=8)),
        *map(write, other_feeds),
        *(event.test_event("acme", sink, SEEN, nonce) for sink in ("erp", "floor") for nonce in ("1", "2")),
    ]
    assert len({composed.id for composed in events}) == len(events)
    assert not any("." in composed.id for composed in events)


def test_there_and_back_again_gives_three_ids() -> None:
    there, back = UPDATED, make(ChangeKind.UPDATED, SHIPPED, PACKED)
    steps = [replace(change, revision=n) for n, change in enumerate((there, back, there), start=1)]
    assert len({write(step, sequence=n).id for n, step in enumerate(steps)}) == 3


def test_a_test_event_is_marked_and_stands_outside_every_feed() -> None:
    composed = event.test_event("acme", "floor north", SEEN, "nonce")
    assert (composed.type, composed.change, composed.sequence) == ("dockbell.test", "test", 0)
    assert composed.feed.resource not in RESOURCES
    assert composed.key == "floor%20north"
    VALIDATOR.validate(body_of(composed))


# Named events --------------------------------------------------------------------------------------------------------


def test_a_change_is_followed_directly_by_the_named_events_whose_condition_holds() -> None:
    compose = composer(
        left="before.status == 'packed'", lost="after.status == 'lost'", tracked="'/tracking_number' in changed"
    )
    events = compose(UPDATED, 42)
    assert [(each.type, each.sequence) for each in events] == [
        ("dockbell.shipment.updated", 42),
        ("dockbell.shipment.left", 43),
        ("dockbell.shipment.tracked", 44),
    ]
    assert {(each.key, each.revision, each.change) for each in events} == {("shp_123", 7, "updated")}
    assert len({each.id for each in events}) == 3
    assert compose.unanswered == {}


def test_a_named_event_says_what_its_change_says_and_its_name() -> None:
    change, named = (body_of(each) for each in composer(left="true")(UPDATED, 42))
    assert named["data"] == change["data"] | {"name": "left"}
    assert {member for member in change if change[member] != named[member]} == {"id", "type", "sequence", "data"}


def test_a_condition_that_cannot_be_answered_makes_no_event_stops_none_and_is_counted() -> None:
    compose = composer(a="after.weight > 5", b="after.status > 5", c="1 / 0 == 1", d="true")
    for sequence in (1, 3):
        assert [each.type for each in compose(UPDATED, sequence)] == [
            "dockbell.shipment.updated",
            "dockbell.shipment.d",
        ]
    assert compose.unanswered == {("a", Answer.MISSING): 2, ("b", Answer.MISMATCH): 2, ("c", Answer.BROKEN): 2}


def test_a_named_event_whose_condition_takes_too_long_is_published_says_so_and_is_counted() -> None:
    large = b'{"id":"shp_123","n":%d,"t":[' + b"0," * 5000 + b"0]}"
    compose = composer(many="after.t.exists(a, after.t.exists(b, a + b == 1))", d="true")
    _, named, judged = compose(make(ChangeKind.UPDATED, large % 1, large % 2), 42)
    assert (named.type, body_of(named)["data"]["unjudged"]) == ("dockbell.shipment.many", True)
    assert "unjudged" not in body_of(judged)["data"]
    VALIDATOR.validate(body_of(named))
    assert compose.unanswered == {("many", Answer.COSTLY): 1}


@pytest.mark.parametrize("name", CHANGES)
def test_a_named_event_of_each_kind_of_change_is_valid(name: str) -> None:
    change = CHANGES[name]
    _, named = composer(change.feed, mine="true")(change, 42)
    VALIDATOR.validate(body_of(named))


# Statements ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_about_a_feed_and_stands_for_what_came_before_it(name: str) -> None:
    composed, statement = EVENTS[name], STATEMENTS[name]
    body = body_of(composed)
    assert "subject" not in body
    assert body["partitionkey"] == "main/shipments"
    assert body["dataschema"] == "urn:dockbell:schema:feed:1"
    assert body["type"] == composed.type == f"dockbell.feed.{statement.kind}"
    assert body["data"]["statement"] == composed.change == statement.kind
    assert (composed.key, composed.revision, composed.sequence) == ("", 0, 42)
    assert body["data"]["through_sequence"] == 41
    assert body["time"] == body["data"]["detected_at"]
    assert statement.details.items() <= body["data"].items()


def test_every_kind_of_statement_has_an_example() -> None:
    assert {statement.kind for statement in STATEMENTS.values()} == set(StatementKind)


def test_named_events_follow_changes_only() -> None:
    assert len(composer(mine="true")(STATEMENTS["gap"], 42)) == 1


# The schema ----------------------------------------------------------------------------------------------------------


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", EVENTS)
def test_no_field_can_be_left_out_or_added(name: str) -> None:
    body = golden(name)
    for path in ("", "/data"):
        part = body["data"] if path else body
        # Without this one it is the form of a sink that has left all of it out.
        wrong = [{"op": "remove", "path": f"{path}/{member}"} for member in part if member != "purged"]
        wrong += [{"op": "add", "path": f"{path}/{member}", "value": "x"} for member in ("extra", "sentby", "Late")]
        assert [operation for operation in wrong if VALIDATOR.is_valid(apply(body, [operation]))] == []


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("created", "/data/before", {}),
        ("created", "/data/after", None),
        ("created", "/data/patch", []),
        ("created", "/data/changed", []),
        ("created", "/data/reason", "absent"),
        ("created", "/data/revision", 0),
        ("created", "/data/change", "updated"),
        ("created", "/type", "dockbell.shipment.restored"),
        ("updated", "/data/before", None),
        ("updated", "/data/after", None),
        ("updated", "/data/reason", "absent"),
        ("updated", "/data/patch/0/op", "move"),
        ("updated", "/data/patch/0/op", "remove"),
        ("updated", "/data/patch/0/path", "status"),
        ("updated", "/data/patch/0/from", "/status"),
        ("updated", "/data/patch/-", {"op": "add", "path": "/a"}),
        ("updated", "/data/changed", ["/a", "/a"]),
        ("updated", "/data/changed/0", "/a~"),
        ("updated", "/data/changed_between", ["2026-11-21T02:30:00.123Z"]),
        ("updated", "/data/changed_between/1", None),
        ("updated", "/data/changed_between/-", None),
        ("updated", "/data/modified_at", "2026-11-21T02:30:00Z"),
        ("updated", "/data/detected_at", None),
        ("updated", "/data/late", "false"),
        ("updated", "/data/via", "push"),
        ("updated", "/data/resource", "orders"),
        ("updated", "/data/revision", 7.5),
        ("updated", "/data/id", None),
        ("updated", "/data/id", ""),
        ("updated", "/data/id", ["shp_123"]),
        ("updated", "/data/id", [1, None]),
        ("updated", "/data", None),
        ("updated_without_before", "/data/patch", []),
        ("updated_without_before", "/data/changed", []),
        ("updated_without_before", "/data/before", {}),
        ("deleted_absent", "/data/reason", "vanished"),
        ("deleted_absent", "/data/before", None),
        ("deleted_absent", "/data/after", {}),
        ("deleted_absent", "/data/patch", []),
        ("restored", "/data/before", {}),
        ("restored", "/data/revision", 1),
        ("snapshot", "/data/revision", 1),
        ("snapshot", "/data/before", {}),
        ("updated", "/data/name", "left"),
        ("named", "/data/name", 7),
        ("named", "/data/change", "created"),
        ("named", "/data/after", None),
        ("named", "/type", "dockbell.shipment.a/b"),
        ("named", "/type", "dockbell.feed.left"),
        ("reconciled", "/subject", "shp_123"),
        ("reconciled", "/partitionkey", "main/shipments/shp_123"),
        ("reconciled", "/dataschema", "urn:dockbell:schema:shipment:1"),
        ("updated", "/dataschema", "urn:dockbell:schema:feed:1"),
        ("reconciled", "/type", "dockbell.feed.gap"),
        ("reconciled", "/type", "dockbell.shipment.reconciled"),
        ("reconciled", "/data/statement", "gap"),
        ("reconciled", "/data/from", None),
        ("reconciled", "/data/records", -1),
        ("reconciled", "/data/digest", "?"),
        ("reconciled", "/data/verdict", "fine"),
        ("reconciled", "/data/through_sequence", None),
        ("gap", "/data/reason", "asleep"),
        ("gap", "/data/to", None),
        ("rebaselined", "/data/parts", []),
        ("held_deletions", "/data/paths", ["/a"]),
        ("held_drift", "/data/paths", []),
        ("held_drift", "/data/reason", "deletions"),
        ("test", "/type", "dockbell.shipment.created"),
        ("test", "/data/change", "created"),
        ("test", "/sequence", "00000000000000000001"),
        ("created", "/specversion", "0.3"),
        ("created", "/id", "evt_1.2"),
        ("created", "/source", "https://acme/main/shipments"),
        ("created", "/type", "dockbell.order.created"),
        ("created", "/type", "dockbell.test"),
        ("created", "/subject", "a b"),
        ("created", "/subject", "a/b"),
        ("created", "/subject", "a,"),
        ("created", "/subject", ""),
        ("created", "/subject", "50%"),
        ("created", "/time", "2026-11-21T02:30:00.123+00:00"),
        ("created", "/datacontenttype", "text/plain"),
        ("created", "/dataschema", "urn:dockbell:schema:order:1"),
        ("created", "/partitionkey", "main/shipments"),
        ("created", "/sequence", 42),
        ("created", "/sequence", "42"),
    ],
)
def test_an_event_that_breaks_the_contract_is_refused(name: str, path: str, value: object) -> None:
    assert not VALIDATOR.is_valid(apply(golden(name), [{"op": "add", "path": path, "value": value}]))


def test_records_may_hold_anything() -> None:
    body = apply(golden("created"), [{"op": "add", "path": "/data/after", "value": {"patch": [None], "": {}}}])
    VALIDATOR.validate(body)


# What a sink is told as it begins ------------------------------------------------------------------------------------


def make_backfill_composer(
    began_at: datetime = SEEN, origin: int = 41, lost_since: datetime | None = None
) -> event.BackfillComposer:
    feed = Feed("main", "shipments")
    return event.BackfillComposer(feed, StartOffset(origin, began_at, 0, lost_since), name="acme", epoch="epoch")


SHIPMENT_KEY: Final = Key("shp_123", "shp_123")


@pytest.mark.parametrize("lost_since", [None, SEEN - timedelta(days=30), datetime.fromtimestamp(0, UTC)])
@pytest.mark.parametrize(("after", "change"), [(SHIPPED, "snapshot"), (None, "deleted")])
def test_a_stored_record_is_told_by_a_valid_event_numbered_by_the_beginning(
    after: bytes | None, change: str, lost_since: datetime | None
) -> None:
    told = make_backfill_composer(lost_since=lost_since).compose_record(SHIPMENT_KEY, 7, after, SEEN)
    body = json.loads(told.body)
    VALIDATOR.validate(body)
    assert (told.type, told.change, told.sequence, told.revision) == (f"dockbell.shipment.{change}", change, 41, 7)
    assert (body["data"]["via"], told.visible_at) == ("state", None)
    since = None if lost_since is None or not lost_since.timestamp() else "2026-10-22T02:30:00.123Z"
    assert body["data"]["changed_between"] == [since, "2026-11-21T02:30:00.123Z"]
    assert body["data"]["before"] is None


@pytest.mark.parametrize(
    ("lost_since", "begin"),
    [(SEEN - timedelta(days=30), "2026-10-22T02:30:00.123Z"), (datetime.fromtimestamp(0, UTC), None)],
)
def test_the_gap_that_a_sink_is_told_of_is_a_valid_event(lost_since: datetime, begin: str | None) -> None:
    told = make_backfill_composer(lost_since=lost_since).compose_gap()
    body = json.loads(told.body)
    VALIDATOR.validate(body)
    assert (told.key, told.change, told.sequence) == ("", "gap", 41)
    assert (body["data"]["from"], body["data"]["to"]) == (begin, "2026-11-21T02:30:00.123Z")
    assert (body["data"]["reason"], body["data"]["through_sequence"]) == ("overrun", 41)


def test_a_record_has_one_id_in_one_telling_whatever_is_stored_of_it_meanwhile() -> None:
    first = make_backfill_composer().compose_record(SHIPMENT_KEY, 7, PACKED, SEEN)
    assert make_backfill_composer().compose_record(SHIPMENT_KEY, 7, PACKED, SEEN) == first
    assert make_backfill_composer().compose_record(SHIPMENT_KEY, 7, SHIPPED, None).id == first.id


def test_other_records_other_tellings_and_the_gap_have_other_ids() -> None:
    told = [
        make_backfill_composer().compose_record(SHIPMENT_KEY, 7, PACKED, SEEN),
        make_backfill_composer().compose_record(Key("shp_124", "shp_124"), 7, PACKED, SEEN),
        make_backfill_composer(began_at=SEEN + timedelta(days=1)).compose_record(SHIPMENT_KEY, 7, PACKED, SEEN),
        make_backfill_composer(origin=42).compose_record(SHIPMENT_KEY, 7, PACKED, SEEN),
        make_backfill_composer().compose_record(SHIPMENT_KEY, 7, None, SEEN),
        make_backfill_composer(lost_since=SEEN).compose_gap(),
    ]
    assert len({each.id for each in told}) == len(told)


@pytest.mark.parametrize("kind", NoticeKind)
@pytest.mark.parametrize(
    ("subject", "name"), [("sink", "erp"), ("feed", "main/shipments"), ("source", "main"), ("server", "web")]
)
def test_a_notice_is_a_valid_event(kind: NoticeKind, subject: str, name: str) -> None:
    composer = event.Composer(NOTICES, name="acme", singular="notice", epoch="epoch")
    details: dict[str, JSON] = {subject: name, "reason": "HTTP 410", "count": 2}
    if kind is NoticeKind.RECOVERED:
        details["resolves"] = NoticeKind.REFUSED
    key = notice_key(kind, subject, name)
    (made,) = composer(Statement(NOTICES, kind, SEEN, details, key), 1)
    body = json.loads(made.body)
    VALIDATOR.validate(body)
    assert (body["type"], body["partitionkey"]) == (f"dockbell.notice.{kind}", f"dockbell/notices/{key}")
    assert not made.is_of_record
    assert not VALIDATOR.is_valid(apply(body, [{"op": "remove", "path": "/data/reason"}]))


NAMED_SEEN: Final = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
LOW: Final = "after.available < 10 && before.available >= 10"


def make_judged(before: str | None, after: str | None, kind: ChangeKind = ChangeKind.UPDATED, **other: Any) -> Change:
    return Change(
        feed=Feed("main", "stock"),
        key=Key("A,2", ["A", 2]),
        kind=kind,
        revision=1,
        before=None if before is None else before.encode(),
        after=None if after is None else after.encode(),
        patch=None,
        changed=other.get("changed"),
        changed_between=(None, NAMED_SEEN),
        modified_at=None,
        detected_at=NAMED_SEEN,
        via=Via.PASS,
        reason=DeletionReason.ABSENT if kind is ChangeKind.DELETED else None,
    )


def ask(condition: str, change: Change) -> Answer:
    ((name, answer),) = NamedEvents([NamedEvent("mine", Expression(condition))]).evaluate(change)
    assert name == "mine"
    return answer


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        ('{"available":12}', '{"available":3}', Answer.YES),
        ('{"available":10.0}', '{"available":9.99}', Answer.YES),
        ('{"available":18446744073709551616}', '{"available":-5}', Answer.YES),
        ('{"available":3}', '{"available":2}', Answer.NO),
        ('{"available":12}', '{"available":11}', Answer.NO),
        (None, '{"available":3}', Answer.MISSING),
        ('{"available":12}', None, Answer.MISSING),
        ("{}", '{"available":3}', Answer.MISSING),
        ('{"available":null}', '{"available":3}', Answer.MISMATCH),
        ('{"available":"12"}', '{"available":3}', Answer.MISMATCH),
        ('{"available":12}', '{"available":1e999}', Answer.BROKEN),
    ],
)
def test_stock_is_low_only_when_it_was_not_before(before: str | None, after: str | None, answer: Answer) -> None:
    assert ask(LOW, make_judged(before, after)) is answer


@pytest.mark.parametrize("kind", ChangeKind)
def test_the_kind_of_change_can_be_asked_for(kind: ChangeKind) -> None:
    assert ask(f"change == '{kind}'", make_judged("{}", "{}", kind)) is Answer.YES


@pytest.mark.parametrize(
    "condition",
    ["key == 'A,2'", "'/available' in changed", "!has(before.x)", "size(before) == 0", "after.sku.startsWith('P')"],
)
def test_what_a_condition_may_look_at(condition: str) -> None:
    assert ask(condition, make_judged(None, '{"sku":"PAL"}', changed=["/available"])) is Answer.YES


def test_nothing_has_changed_where_nothing_can_be_compared() -> None:
    assert ask("size(changed) == 0", make_judged(None, "{}")) is Answer.YES


def test_every_named_event_is_asked_whatever_the_others_answer() -> None:
    named = [NamedEvent(name, Expression(text)) for name, text in {"a": "1 / 0 > 0", "b": LOW, "c": "true"}.items()]
    change = make_judged('{"available":12}', '{"available":3}')
    assert list(NamedEvents(named).evaluate(change)) == [("a", Answer.BROKEN), ("b", Answer.YES), ("c", Answer.YES)]
    assert list(NamedEvents().evaluate(change)) == []


def test_they_are_read_from_the_configuration() -> None:
    assert read_named([NamedEventSettings(name="low", when=LOW)]) == (NamedEvent("low", Expression(LOW)),)
