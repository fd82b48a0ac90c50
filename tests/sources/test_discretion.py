from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dockbell.core.reading.response import Response
from dockbell.sources.discretion import Discretion

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def discretion() -> Discretion:
    discretion = Discretion()
    discretion.show_proxy("http://user:hush%2Fhush@proxy:3128")
    discretion.show("canary-key-1")
    return discretion


@pytest.mark.parametrize(
    "secret", ["canary-key-1", "canary-k", "hush/hush", "dXNlcjpodXNoL2h1c2g=", "dXNlcjpodXNoL2h1"]
)
def test_no_secret_is_said_back_even_cut_short(discretion: Discretion, secret: str) -> None:
    assert discretion.hush(f"key {secret}… is unknown") == "key ***… is unknown"


def test_words_that_are_none_stay(discretion: Discretion) -> None:
    assert discretion.hush("the canary is a bird") == "the canary is a bird"
    assert Discretion().hush("nothing was shown") == "nothing was shown"


def test_an_answer_says_nothing_back_either(discretion: Discretion) -> None:
    response = Response(401, {"location": "//canary-key-1/"}, b"canary-key-1 hush/hush", NOW, NOW, NOW)
    hushed = discretion.hush_answer(response)
    assert (hushed.headers, hushed.body) == ({"location": "//***/"}, b"*** ***")


def test_a_short_key_is_kept_out_of_a_body_and_no_word_is_taken_for_it() -> None:
    discretion = Discretion()
    discretion.show_proxy("http://user@proxy:3128")
    discretion.show("k")
    assert discretion.hush("the key") == "the key"
    assert discretion.hush_answer(Response(401, {}, b'"k"', NOW, NOW, NOW)).body == b'"***"'
    assert discretion.hush_answer(Response(200, {}, b'{"key": 1}', NOW, NOW, NOW)).body == b'{"key": 1}'
