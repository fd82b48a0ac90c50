from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from dockbell.core.publishing.signature import Finding, mint, parse_secret, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

KEY = parse_secret(SECRET)
OTHER = bytes(range(32))

keys = st.binary(min_size=24, max_size=64)
bodies = st.text(st.characters(exclude_categories=["Cs"])).map(str.encode)


def check(signatures: str, *, secrets: tuple[bytes, ...] = (KEY,), at: int = TIMESTAMP, body: bytes = BODY) -> Finding:
    return verify(secrets, ID, str(TIMESTAMP), signatures, body, now=at)


def test_the_published_vector_is_met() -> None:
    assert sign([KEY], ID, TIMESTAMP, BODY) == SIGNATURE


@given(keys, st.integers(0, 10**10), bodies)
def test_a_signature_equals_the_reference_library_s(key: bytes, timestamp: int, body: bytes) -> None:
    reference = Webhook(key).sign(ID, datetime.fromtimestamp(timestamp, UTC), body.decode())
    assert sign([key], ID, timestamp, body) == reference


@given(keys, bodies)
def test_what_is_signed_is_found_genuine(key: bytes, body: bytes) -> None:
    signatures = sign([OTHER, key], ID, TIMESTAMP, body)
    assert verify([key], ID, str(TIMESTAMP), signatures, body, now=TIMESTAMP) is Finding.GENUINE


def test_each_secret_gives_a_signature_and_either_verifies() -> None:
    both = sign([KEY, OTHER], ID, TIMESTAMP, BODY)
    assert both.split(" ") == [SIGNATURE, sign([OTHER], ID, TIMESTAMP, BODY)]
    assert check(both) is check(both, secrets=(OTHER,)) is Finding.GENUINE
    assert check(SIGNATURE, secrets=(OTHER, KEY)) is Finding.GENUINE


@pytest.mark.parametrize(
    "signatures", ["", "v1", "v1,", "v1a,AAAA", SIGNATURE.replace("v1", "v2"), SIGNATURE[:-2], "é"]
)
def test_what_matches_nothing_is_forged(signatures: str) -> None:
    assert check(signatures) is Finding.FORGED


def test_a_changed_body_is_forged() -> None:
    assert check(SIGNATURE, body=BODY + b" ") is Finding.FORGED


@pytest.mark.parametrize(
    ("at", "finding"),
    [
        (TIMESTAMP + 300, Finding.GENUINE),
        (TIMESTAMP + 301, Finding.TOO_OLD),
        (TIMESTAMP - 300, Finding.GENUINE),
        (TIMESTAMP - 301, Finding.TOO_NEW),
    ],
)
def test_a_timestamp_is_tolerated_for_five_minutes(at: int, finding: Finding) -> None:
    assert check(SIGNATURE, at=at) is finding


@pytest.mark.parametrize("timestamp", ["", "soon", "-1", "1.5", "٣", "9" * 5000])
def test_a_timestamp_that_is_no_number_is_malformed(timestamp: str) -> None:
    assert verify([KEY], ID, timestamp, SIGNATURE, BODY, now=TIMESTAMP) is Finding.MALFORMED


@given(keys)
def test_a_minted_secret_is_read_back(key: bytes) -> None:
    assert parse_secret(mint(key)) == key


def test_a_secret_may_lack_its_padding_and_carry_a_newline() -> None:
    assert parse_secret(mint(OTHER).rstrip("=") + "\n") == OTHER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        SECRET.removeprefix("whsec_"),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_" + "!" * 32,
        "whsec_" + "é" * 32,
        "whsec_" + "A" * 33,
    ],
)
def test_what_is_no_secret_is_told_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="must be whsec_ followed by base64 of 24 to 64 bytes") as error:
        parse_secret(text)
    assert "AAAA" not in str(error.value)


@pytest.mark.parametrize("size", [0, 23, 65])
def test_a_secret_of_another_size_is_not_minted(size: int) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes"):
        mint(bytes(size))
