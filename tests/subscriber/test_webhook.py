from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from starlette.datastructures import Headers

from dockbell.core.publishing.signature import TOLERANCE, mint
from dockbell.subscriber import NotAnEvent, NotGenuine, Verifier

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
