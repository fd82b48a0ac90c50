from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.message import Message
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from starlette.datastructures import Headers

from dockbell.core.publishing.signature import TOLERANCE, mint
from dockbell.subscriber import (
    Change,
    Event,
    Gap,
    Held,
    Named,
    NotAnEvent,
    NotGenuine,
    Notice,
    Rebaselined,
    Reconciled,
    Statement,
    Test,
    Unknown,
    Verifier,
    parse,
    parse_batch,
)
from tests.subscriber.stories import STEPS, Content, render, told

GOLDEN: Final = Path(__file__).parents[1] / "golden"


def golden(name: str, /, **data: Any) -> bytes:
    """Return a golden event, some members of its data changed."""
    event = json.loads((GOLDEN / f"{name}.json").read_bytes())
    event["data"] |= data
    return json.dumps(event).encode()


def retyped(name: str, kind: str, /, **data: Any) -> bytes:
    event = json.loads(golden(name, **data))
    return json.dumps(event | {"type": kind, "laterattribute": 1}).encode()


def test_a_change_has_every_member_typed() -> None:
    event = parse((GOLDEN / "updated.json").read_bytes())
    assert (event.type, event.sequence, event.subject) == ("dockbell.shipment.updated", 42, "shp_123")
    assert (event.partitionkey, event.feed) == ("main/shipments/shp_123", "main/shipments")
    change = event.data
    assert type(change) is Change
    assert (change.resource, change.key, change.id, change.change) == ("shipments", "shp_123", "shp_123", "updated")
    assert change.revision == 7
    assert change.before is not None
    assert change.after is not None
    assert (change.before["status"], change.after["status"]) == ("packed", "shipped")
    assert change.changed == ["/status", "/tracking_number", "/updated_at"]
    assert change.changed_between is not None
    assert change.changed_between[1] == datetime(2026, 11, 21, 2, 30, 0, 43_000, tzinfo=UTC)
    assert event.time == change.detected_at


KINDS: Final[dict[str, type]] = {
    "dockbell.feed.reconciled": Reconciled,
    "dockbell.feed.gap": Gap,
    "dockbell.feed.rebaselined": Rebaselined,
    "dockbell.feed.held": Held,
    "dockbell.test": Test,
}


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_every_event_has_its_class(name: str) -> None:
    written = json.loads((GOLDEN / f"{name}.json").read_bytes(), parse_float=Decimal)
    kind = KINDS.get(written["type"]) or (Notice if ".notice." in written["type"] else Change)
    event = parse((GOLDEN / f"{name}.json").read_bytes())
    assert type(event.data) is (Named if "name" in written["data"] else kind)
    assert event.members == written


def test_statements_are_typed() -> None:
    reconciled = parse((GOLDEN / "reconciled.json").read_bytes()).data
    assert isinstance(reconciled, Reconciled)
    assert (reconciled.verdict, reconciled.records, reconciled.through_sequence) == ("repaired", 525, 41)
    assert reconciled.began_at == datetime(2026, 11, 21, 2, 10, 0, 123_000, tzinfo=UTC)
    lost = parse((GOLDEN / "gap_store_lost.json").read_bytes()).data
    assert isinstance(lost, Gap)
    assert (lost.began_at, lost.reason) == (None, "store_lost")
    held = parse((GOLDEN / "held_drift.json").read_bytes()).data
    assert isinstance(held, Held)
    assert (held.count, held.paths) == (525, ("/customs_code",))
    event = parse((GOLDEN / "gap.json").read_bytes())
    assert (event.feed, event.subject) == ("main/shipments", None)


def test_numbers_are_exact() -> None:
    body = golden("created").replace(b'"packed"', b"12345678901234567890123.10")
    change = parse(body).data
    assert isinstance(change, Change)
    assert change.after is not None
    assert Decimal("12345678901234567890123.10") in change.after.values()


@pytest.mark.parametrize("payload", ["patch", "thin"])
@given(steps=STEPS)
def test_thinner_payloads_say_what_they_leave_out(payload: str, steps: list[tuple[str, Content]]) -> None:
    story = told(steps)
    for full, sent in zip(story.events, render(story.events, payload), strict=True):
        whole, change = parse(full.body).data, parse(sent.body).data
        if isinstance(whole, Change) and isinstance(change, Change):
            for name in ("before", "after", "patch", "changed"):
                expected = None if name in change.omitted else getattr(whole, name)
                assert getattr(change, name) == expected


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (retyped("updated", "dockbell.shipment.merged", change="merged", merged_into="shp_1", omitted=["x"]), Change),
        (retyped("named", "dockbell.shipment.urgent", name="urgent", rank=1), Named),
        (retyped("gap", "dockbell.feed.paused", statement="paused", until=None), Statement),
        (retyped("gap", "dockbell.notice.moved", statement="moved", sink="erp", since="2026"), Notice),
        (retyped("gap", "dockbell.sink.renamed"), Unknown),
    ],
)
def test_what_a_later_version_adds_is_passed_over_and_kept(body: bytes, kind: type) -> None:
    event = parse(body)
    assert type(event.data) is kind
    assert event.members == json.loads(body)


def broken(**members: Any) -> bytes:
    return json.dumps(json.loads(golden("updated")) | members).encode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 300 + b"]" * 300, "nested"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"test": 1}', "missing required field `id`"),
        (broken(sequence="a"), "invalid literal"),
        (broken(time="yesterday"), "Invalid RFC3339"),
        (broken(data=None), "$.data"),
        (broken(type="com.example.made"), 'must begin with "dockbell."'),
        (golden("updated", revision="7"), "$.revision"),
        (golden("gap", reason=None), "$.reason"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(body: bytes, said: str) -> None:
    with pytest.raises(NotAnEvent) as error:
        parse(body)
    assert said in str(error.value)


@given(st.binary() | st.recursive(st.none() | st.text(), lambda each: st.dictionaries(st.text(), each)).map(json.dumps))
def test_whatever_comes_is_an_event_or_none(body: bytes | str) -> None:
    with pytest.raises(NotAnEvent):
        parse(body)


def test_a_batch_is_read_in_order() -> None:
    events = parse_batch(b"[" + golden("created") + b"," + golden("gap") + b"]")
    assert [type(event) for event in events] == [Event, Event]
    assert [type(event.data) for event in events] == [Change, Gap]
    assert parse_batch(b"[]") == []


@pytest.mark.parametrize(("body", "said"), [(b"{", "not JSON"), (b"{}", "array"), (b"[1]", "`object`")])
def test_what_is_no_batch_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(NotAnEvent, match=said):
        parse_batch(body)


# https://github.com/standard-webhooks/standard-webhooks: the vector of its own tests
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY: Final = b'{"test": 2432232314}'
AT: Final = 1614265330
HEADERS: Final = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(AT),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
EVENT: Final = (Path(__file__).parents[1] / "golden" / "updated.json").read_bytes()


def signed(secret: str, body: bytes) -> dict[str, str]:
    """Return the headers that the reference library signs with, now."""
    now = datetime.now(UTC)
    signature = Webhook(secret).sign("evt_1", now, body.decode())
    return {"Webhook-Id": "evt_1", "Webhook-Timestamp": str(int(now.timestamp())), "Webhook-Signature": signature}


def test_the_published_vector_is_genuine() -> None:
    Verifier(SECRET).verify(HEADERS, BODY, now=AT)


def test_what_the_reference_library_signs_is_opened_by_the_system_s_clock() -> None:
    event = Verifier(SECRET).open(signed(SECRET, EVENT), EVENT)
    assert event.type == "dockbell.shipment.updated"


def test_each_of_several_secrets_will_do() -> None:
    old, new = SECRET, mint(b"n" * 32)
    for secret in (old, new):
        Verifier(old, new).verify(signed(secret, BODY), BODY)


def test_headers_of_any_framework_will_do() -> None:
    message = Message()
    for name, value in HEADERS.items():
        message[name.title()] = value
    for headers in (message, Headers(HEADERS), {name.upper(): value for name, value in HEADERS.items()}):
        Verifier(SECRET).verify(headers, BODY, now=AT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "body", "now", "said"),
    [
        (HEADERS, BODY + b" ", AT, "no signature matches"),
        (HEADERS | {"webhook-id": "other"}, BODY, AT, "no signature matches"),
        (HEADERS | {"webhook-signature": "v1a,AAAA"}, BODY, AT, "no signature matches"),
        (HEADERS | {"webhook-timestamp": "soon"}, BODY, AT, "not a number"),
        (HEADERS, BODY, AT + 301, "too old"),
        (HEADERS, BODY, AT - 301, "in the future"),
        (HEADERS | {"webhook-signature": ""}, BODY, AT, "has no header webhook-signature"),
        ({}, BODY, AT, "has no header webhook-id"),
        (HEADERS | {"webhook-id": "\udcff"}, BODY, AT, "the id is not ASCII"),
        (HEADERS | {"webhook-id": "ü"}, BODY, AT, "the id is not ASCII"),
        (HEADERS | {"webhook-signature": "v1,\udcff"}, BODY, AT, "no signature matches"),
        (HEADERS | {"webhook-timestamp": "\u0661"}, BODY, AT, "not a number"),
        (HEADERS | {"webhook-timestamp": "\udcff"}, BODY, AT, "not a number"),
    ],
)
def test_what_is_not_genuine_is_refused_with_the_reason(
    headers: dict[str, str], body: bytes, now: int, said: str
) -> None:
    with pytest.raises(NotGenuine, match=said) as error:
        Verifier(SECRET).verify(headers, body, now=now)
    assert SECRET not in str(error.value)


def test_the_tolerance_can_be_chosen() -> None:
    Verifier(SECRET, tolerance=timedelta(days=1)).verify(HEADERS, BODY, now=AT + 86_000)
    with pytest.raises(NotGenuine):
        Verifier(SECRET, tolerance=timedelta(seconds=1)).verify(HEADERS, BODY, now=AT + 2)
    assert timedelta(minutes=5) == TOLERANCE


def test_what_is_genuine_and_no_event_is_told_apart() -> None:
    with pytest.raises(NotAnEvent):
        Verifier(SECRET).open(HEADERS, BODY, now=AT)


@given(st.fixed_dictionaries({name: st.text(st.characters(exclude_categories=())) for name in HEADERS}))
def test_no_header_text_is_more_than_not_genuine(headers: dict[str, str]) -> None:
    with pytest.raises(NotGenuine) as error:
        Verifier(SECRET).verify(headers, BODY, now=AT)
    str(error.value).encode()


@pytest.mark.parametrize("secrets", [(), ("hush",), (SECRET, "whsec_AAAA")])
def test_without_a_usable_secret_there_is_no_verifier(secrets: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="dockbell secret"):
        Verifier(*secrets)
