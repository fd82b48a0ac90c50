from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.sinks.webhook import judge, parse_retry_after
from dockbell.sinks.webhook.answers import SHOWN_MOST
from dockbell.sinks.webhook.settings import Fate
from tests.sinks.receiver import OK, attempt, make_sink, receiving, respond

NOW = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
DAY = timedelta(hours=24)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("200 OK", OutcomeKind.DELIVERED),
        ("202 Accepted", OutcomeKind.DELIVERED),
        ("204 No Content", OutcomeKind.DELIVERED),
        ("299 Fine", OutcomeKind.DELIVERED),
        ("302 Found", OutcomeKind.FAILED),
        ("400 Bad Request", OutcomeKind.REFUSED),
        ("304 Not Modified", OutcomeKind.FAILED),
        ("401 Unauthorized", OutcomeKind.FAILED),
        ("403 Forbidden", OutcomeKind.FAILED),
        ("404 Not Found", OutcomeKind.FAILED),
        ("410 Gone", OutcomeKind.CLOSED),
        ("413 Content Too Large", OutcomeKind.REFUSED),
        ("415 Unsupported Media Type", OutcomeKind.REFUSED),
        ("422 Unprocessable Content", OutcomeKind.REFUSED),
        ("429 Too Many Requests", OutcomeKind.FAILED),
        ("500 Internal Server Error", OutcomeKind.FAILED),
        ("503 Service Unavailable", OutcomeKind.FAILED),
    ],
)
async def test_the_status_decides(status: str, kind: OutcomeKind) -> None:
    async with receiving(respond(status)) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.kind is kind
    assert outcome.reason.startswith(f"HTTP {status[:3]}" if kind is not OutcomeKind.DELIVERED else "")


async def test_a_redirect_is_not_followed() -> None:
    async with receiving(OK) as elsewhere, receiving(respond("307 Moved", location=elsewhere.url)) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome == Outcome(OutcomeKind.FAILED, "HTTP 307, dockbell does not follow redirects", status=307)
    assert not elsewhere.requests


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_a_receiver_s_wish_to_wait_is_passed_on(status: str) -> None:
    async with receiving(respond(status, retry_after="120")) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome == Outcome(OutcomeKind.FAILED, f"HTTP {status[:3]}", timedelta(minutes=2), status=int(status[:3]))


async def test_a_date_to_wait_for_is_obeyed_to_the_second() -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    async with receiving(respond("429 Too Many Requests", retry_after=format_datetime(at, usegmt=True))) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.retry_after is not None
    assert abs(datetime.now(UTC) + outcome.retry_after - at) < timedelta(seconds=5)


def test_only_429_and_503_may_ask_to_wait() -> None:
    assert judge(500, "120", {}, NOW) == Outcome(OutcomeKind.FAILED, "HTTP 500", status=500)


async def test_which_statuses_make_a_dead_letter_at_once_can_be_chosen() -> None:
    async with receiving(respond("404 Not Found")) as receiver:
        assert (await attempt(make_sink(receiver.url, dead_on=[404, 409]))).kind is OutcomeKind.REFUSED
    async with receiving(respond("422 Unprocessable Content")) as receiver:
        assert (await attempt(make_sink(receiver.url, dead_on=[404, 409]))).kind is OutcomeKind.FAILED
        assert (await attempt(make_sink(receiver.url, dead_on=[]))).kind is OutcomeKind.FAILED


FATES = st.dictionaries(st.integers(300, 599), st.sampled_from(["retry", "dead", "ok"]))


@given(st.integers(100, 599), FATES, st.text())
def test_every_status_has_one_fate(status: int, fates: dict[int, Fate], retry_after: str) -> None:
    outcome, fate = judge(status, retry_after, fates, NOW), fates.get(status)
    assert outcome.status == status
    assert (outcome.kind is OutcomeKind.DELIVERED) == (200 <= status < 300 or fate == "ok")
    assert (outcome.kind is OutcomeKind.CLOSED) == (status == 410 and fate is None)
    if status not in (429, 503):
        assert (outcome.kind is OutcomeKind.REFUSED) == (fate == "dead")
    assert outcome.retry_after is None or status in (429, 503)


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(minutes=2)),
        ("999999999", timedelta(hours=24)),
        ("Sat, 21 Nov 2026 02:31:00 GMT", timedelta(minutes=1)),
        ("Sat, 21 Nov 2026 02:31:00 -0000", timedelta(minutes=1)),
        ("Sat, 21 Nov 2026 02:29:00 GMT", timedelta(0)),
        ("Sat, 28 Nov 2026 02:29:00 GMT", timedelta(hours=24)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Sat, 99 Nov 2026 02:31:00 GMT", None),
        ("9" * 5000, DAY),
        ("Saturday, 21-Nov-26 02:31:00 GMT", timedelta(minutes=1)),
        ("Sat Nov 21 02:31:00 2026", timedelta(minutes=1)),
        ("Sat, 21 Nov 2026 02:31:00 +99999999999999", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", DAY),
        ("٣", None),
    ],
)
def test_both_forms_of_retry_after_are_read_and_bounded_by_a_day(value: str, pause: timedelta | None) -> None:
    assert parse_retry_after(value, NOW) == pause


@example("0\x1f")  # what strip() takes off, float() does not
@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} (Nov|Feb) \d{1,5} \d\d?:\d\d:\d\d ?([+-]\d{1,20}|GMT|X)?"))
def test_no_retry_after_is_too_odd_to_be_read(value: str) -> None:
    pause = parse_retry_after(value, NOW)
    assert pause is None or timedelta(0) <= pause <= DAY


async def test_what_the_receiver_answers_is_kept() -> None:
    async with receiving(respond("422 Unprocessable Content", body=b'{"error": "no such order"}')) as receiver:
        outcome = await attempt(make_sink(receiver.url))
        silent = await attempt(make_sink(receiver.url, keep_answers=False))
    assert (outcome.status, outcome.answer) == (422, '{"error": "no such order"}')
    assert (silent.status, silent.answer) == (422, "")


async def test_an_answer_is_cut_and_nothing_in_it_is_obeyed_by_a_terminal() -> None:
    async with receiving(respond("200 OK", body=b"\x1b[2J\xff\n" + b"x" * 5000)) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.kind is OutcomeKind.DELIVERED
    assert outcome.answer.startswith(r"\u001b[2J�\nxxx")
    assert len(outcome.answer) == SHOWN_MOST
    assert outcome.answer.endswith("x…")


async def test_an_answer_that_quotes_our_request_gives_no_secret_away() -> None:
    quoted = (
        b"Cannot POST /hooks/s3cret?token=t0psecret: bearer abcdefgh, authorization Bearer abcdefgh, x-key k-123456,"
        b" token t0psecret"
    )
    async with receiving(respond("404 Not Found", body=quoted)) as receiver:
        url = f"http://127.0.0.1:{receiver.port}/hooks/s3cret?token=t0psecret"
        outcome = await attempt(make_sink(url, bearer="abcdefgh", headers={"X-Key": "k-123456"}))
    hidden = "[redacted]"
    for written in ('{"key": "a\\"b&c/d"}', "key=a%22b%26c%2Fd", "<p>a&quot;b&amp;c/d</p>"):
        async with receiving(respond("400 Bad Request", body=written.encode())) as receiver:
            answer = (await attempt(make_sink(receiver.url, headers={"X-Key": 'a"b&c/d'}))).answer
        assert hidden in answer
        assert "b&c" not in answer.replace("&amp;", "&").replace("%26", "&")
    expected = f"Cannot POST {hidden}: bearer {hidden}, authorization {hidden}, x-key {hidden}, token {hidden}"
    assert outcome.answer == expected


async def test_what_a_status_means_can_be_said() -> None:
    on_status = {"409": "ok", "404": "dead", "400": "retry", "410": "retry"}
    for status, kind in (
        ("409 Conflict", OutcomeKind.DELIVERED),
        ("404 Not Found", OutcomeKind.REFUSED),
        ("400 Bad Request", OutcomeKind.FAILED),
        ("410 Gone", OutcomeKind.FAILED),
        ("413 Content Too Large", OutcomeKind.REFUSED),  # as dead_on has it
    ):
        async with receiving(respond(status)) as receiver:
            assert (await attempt(make_sink(receiver.url, on_status=on_status))).kind is kind


@pytest.mark.parametrize(
    ("on_status", "told"),
    [
        ({"200": "dead"}, 'must have statuses from 300 to 599 as keys, got "200"'),
        ({"4xx": "dead"}, 'must have statuses from 300 to 599 as keys, got "4xx"'),
        ({"429": "dead"}, "429 never concerns a single event"),
        ({"404": "maybe"}, 'must be "retry", "dead" or "ok", got "maybe"'),
    ],
)
def test_a_status_that_can_mean_no_such_thing_is_refused(on_status: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_sink("http://127.0.0.1:9", on_status=on_status)


async def test_a_secret_that_is_cut_off_where_reading_ended_is_not_kept_in_part() -> None:
    secret = "k" + "0123456789" * 40
    async with receiving(respond("400 Bad Request", body=secret.encode() * 20)) as receiver:
        answer = (await attempt(make_sink(receiver.url, headers={"X-Key": secret}))).answer
    assert answer.startswith("[redacted][redacted]")
    assert answer.replace("[redacted]", "") == ""
