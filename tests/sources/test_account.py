from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dockbell.core.reading.response import Response
from dockbell.sources.account import Redactor

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def redactor() -> Redactor:
    redactor = Redactor()
    redactor.show_proxy("http://user:hush%2Fhush@proxy:3128")
    redactor.show("canary-key-1")
    return redactor


@pytest.mark.parametrize(
    "secret", ["canary-key-1", "canary-k", "hush/hush", "dXNlcjpodXNoL2h1c2g=", "dXNlcjpodXNoL2h1"]
)
def test_no_secret_is_said_back_even_cut_short(redactor: Redactor, secret: str) -> None:
    assert redactor.redact(f"key {secret}… is unknown") == "key ***… is unknown"


def test_words_that_are_none_stay(redactor: Redactor) -> None:
    assert redactor.redact("the canary is a bird") == "the canary is a bird"
    assert Redactor().redact("nothing was shown") == "nothing was shown"


def test_an_answer_says_nothing_back_either(redactor: Redactor) -> None:
    response = Response(401, {"location": "//canary-key-1/"}, b"canary-key-1 hush/hush", NOW, NOW, NOW)
    redacted = redactor.redact_answer(response)
    assert (redacted.headers, redacted.body) == ({"location": "//***/"}, b"*** ***")


def test_a_short_key_is_kept_out_of_a_body_and_no_word_is_taken_for_it() -> None:
    redactor = Redactor()
    redactor.show_proxy("http://user@proxy:3128")
    redactor.show("k")
    assert redactor.redact("the key") == "the key"
    assert redactor.redact_answer(Response(401, {}, b'"k"', NOW, NOW, NOW)).body == b'"***"'
    assert redactor.redact_answer(Response(200, {}, b'{"key": 1}', NOW, NOW, NOW)).body == b'{"key": 1}'
