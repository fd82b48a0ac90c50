"""Whatever comes over the wire is a page or a typed error, in time and memory that grow with it and no faster."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dockbell.core.model import RESOURCES, Page
from dockbell.core.reading.clock import ServiceClock
from dockbell.core.reading.request import list_request, shipment_request
from dockbell.core.reading.response import Response, check_status, read_allowance, read_retry_after
from dockbell.core.reading.response_json import read_object
from dockbell.core.reading.response_page import read_page
from dockbell.errors import DockbellError

SENT: Final = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
MANY: Final = settings(max_examples=500)
MB: Final = 1_000_000

# Bytes of which JSON breaks in interesting ways.
SPLINTERS: Final = [
    *(bytes([byte]) for byte in b'{}[]",:\\/ -+.0e\x00\x7f\xff\xc3'),
    *(
        b"NaN",
        b"-Infinity",
        b"null",
        b"tru",
        b"1e999999999999999999999",
        b"-0",
        b"01",
        b"9" * 5000,
        b"0." + b"1" * 5000,
    ),
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb"\u0000", rb'"\x"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf", b"\xf4\x90\x80\x80"),
    *(b"[" * 300, b"]" * 300, b'{"a":' * 300, b"}" * 300, b"[" * 5000, b"[{}" * 3000, b"/*", b"//\n"),
    *(b'"next_cursor":', b'"shipments":[', b'"shipments":[{}],', b'"next_cursor":"a",', b'{"data":', b'{"meta":{'),
]
DATES: Final = [
    "Sat, 21 Nov 2026 02:30:00 GMT",
    "Sat, 21 Nov 2026 02:30:60 GMT",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Sat, 21 Nov 2026 02:30:00 +99999999999",
    "Sat, 21 Nov 20260000 02:30:00 GMT",
    "21 Nov",
    ", , , :",
    "Sat, 21 Nov 2026 ::",
    "0 Jan 0 0:0:0 0",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
records = st.lists(
    st.dictionaries(st.sampled_from(["id", "next_cursor", "shipments", "x"]), values, max_size=3), max_size=5
)
pages = st.one_of(
    st.fixed_dictionaries({"shipments": records}, optional={"next_cursor": values, "meta": values, "error": values}),
    st.fixed_dictionaries({"data": st.fixed_dictionaries({"shipments": records}, optional={"next_cursor": values})}),
    st.dictionaries(st.sampled_from(["rows", "data", "next_cursor", "errors"]), values | records, max_size=4),
).map(lambda page: json.dumps(page, ensure_ascii=False).encode(errors="surrogatepass"))

header_texts = (
    st.sampled_from(DATES)
    | st.text(st.characters(max_codepoint=255), max_size=40)
    | st.from_regex(r"\A-?[0-9]{1,30}(\.[0-9]+)?\Z")
    | st.text("0123456789:,+- JanGMTSa", max_size=40)
    | st.sampled_from(["application/json", "text/json; charset=utf-16", "text/html", "9" * 5000])
)
headers = st.dictionaries(
    st.sampled_from(
        ["content-type", "date", "retry-after", "location"]
        + [f"x-ratelimit-{name}" for name in ("limit", "remaining", "reset")]
    ),
    header_texts,
)


@st.composite
def broken_pages(draw: st.DrawFn) -> bytes:
    """Draw a sound page to which a few things happened on the way."""
    body = bytearray(draw(pages))
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.integers(0, len(body)))
        end = draw(st.integers(where, len(body)))
        match draw(st.sampled_from(["flip", "cut", "truncate", "splice", "insert", "double"])):
            case "flip":
                body[where : where + 1] = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in body[where : where + 1])
            case "cut":
                del body[where:end]
            case "truncate":
                del body[where:]
            case "splice":
                body[where:end] = draw(pages)[where:end]
            case "insert":
                body[where:where] = draw(st.sampled_from(SPLINTERS))
            case _:
                body[where:where] = body[where:end]
    return bytes(body)


def answer(body: bytes, status: int = 200, **more: str) -> Response:
    return Response(status, {"content-type": "application/json"} | more, body, SENT, SENT, SENT)


def outcome_of(read: Callable[[], Any]) -> Any:
    """Return what was read, or the typed error, checked to be fit for a log line."""
    try:
        return read()
    except DockbellError as error:
        assert str(error).isprintable()  # noqa: PT017  # either is right; this holds for errors
        assert len(str(error)) < 1000  # noqa: PT017
        return error


def check_page(page: Page, body: bytes) -> None:
    for record in page.records:
        assert record.startswith(b"{")
        assert record.endswith(b"}")
        assert record in body
    assert page.next_cursor != ""
    assert page.asked_at <= page.answered_at


@given(broken_pages(), st.sampled_from(list(RESOURCES)), st.none() | st.sampled_from(["shipments", "data.shipments"]))
@example(rb'{"shipments":[],"next_cursor":"\ud800"}', "shipments", None)
@example(b'{"shipments":[' + b"[" * 5000, "shipments", None)
@MANY
def test_a_page_that_was_spoilt_is_a_page_or_a_typed_error(body: bytes, resource: str, envelope: str | None) -> None:
    page = outcome_of(lambda: read_page(resource, answer(body), envelope=envelope))

    if isinstance(page, Page):
        check_page(page, body)


@given(st.binary(max_size=200) | broken_pages(), headers, st.integers(100, 999))
@example(b"", {"date": "Fri, 31 Dec 9999 23:59:59 GMT", "retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 429)
@example(b"", {"x-ratelimit-reset": "253402300799", "x-ratelimit-limit": "1", "x-ratelimit-remaining": "0"}, 429)
@MANY
def test_any_answer_is_understood_or_a_typed_error(body: bytes, told: dict[str, str], status: int) -> None:
    response = answer(body, status, **told)

    for request in (list_request("shipments"), list_request("items", cursor="a"), shipment_request("7")):
        outcome_of(partial(check_status, request, response))
    page = outcome_of(lambda: read_page("shipments", response))
    if isinstance(page, Page):
        check_page(page, body)
    found = outcome_of(lambda: read_object("GET /v1/shipments/7", response))
    assert isinstance(found, DockbellError) or found.startswith(b"{")
    allowance = read_allowance(response)
    assert allowance is None or timedelta(0) <= allowance.resets_in <= timedelta(minutes=1)
    wish = read_retry_after(response)
    assert wish is None or timedelta(0) <= wish <= timedelta(days=1)


@given(st.lists(st.tuples(headers, st.timedeltas(timedelta(0), timedelta(days=30))), max_size=8))
@MANY
def test_any_headers_in_a_row_tell_some_time(answers: list[tuple[dict[str, str], timedelta]]) -> None:
    clock, now = ServiceClock(), timedelta(0)
    for told, pause in answers:
        now += pause
        sent = SENT + now
        judged = clock.time_of(Response(200, told, b"", sent, sent, sent, now))
        assert judged.asked_at <= judged.answered_at


# Time and memory -----------------------------------------------------------------------------------------------------


def fill(beginning: bytes, middle: bytes, end: bytes) -> bytes:
    """Return about a megabyte."""
    return beginning + middle * (MB // len(middle)) + end


LARGE: Final = {
    "records": fill(b'{"shipments":[{}', b',{"id":1}', b"]}"),
    "numbers": fill(b'{"shipments":[1', b",1", b"]}"),
    "members": b'{"shipments":[]' + b"".join(b',"%d":1' % number for number in range(MB // 12)) + b"}",
    "same members": fill(b'{"shipments":[]', b',"next_cursor":1', b"}"),
    "objects inside": fill(b'{"shipments":[]', b',"a":{"b":{}}', b"}"),
    "arrays inside": fill(b'{"shipments":[{"a":[', b"[],", b"[]]}]}"),
    "doubles inside": fill(b'{"shipments":[{}', b',{"shipments":[{}]}', b"]}"),
    "open arrays": fill(b'{"shipments":', b"[", b""),
    "open objects": fill(b'{"shipments":', b'{"a":', b""),
    "open records": fill(b'{"shipments":', b'[{"a":', b""),
    "deep": fill(b'{"shipments":', b"[", b"]" * MB + b"}"),
    "string": fill(b'{"shipments":[],"next_cursor":"', b"a", b'"}'),
    "escapes": fill(b'{"shipments":[],"next_cursor":"', rb"\u00e9", b'"}'),
    "quotes": fill(b'{"shipments":[{"a":"', rb"\"", b'"}]}'),
    "number": fill(b'{"shipments":[],"next_cursor":', b"1", b"}"),
    "fraction": fill(b'{"shipments":[{"a":0.', b"1", b"}]}"),
    "blank": fill(b"", b" ", b'{"shipments":[]}'),
    "zeros": fill(b"", b"\x00", b""),
    "not UTF-8": fill(b'{"shipments":[],"a":"', b"\xff", b'"}'),
    "markup": fill(b"<html>", b"<p>", b"</html>"),
    "words": fill(b'{"message":"', b"a?b ", b'"}'),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_answer_takes_time_and_memory_in_proportion(name: str) -> None:
    response = answer(LARGE[name])
    failure = answer(LARGE[name], 422, **{"content-type": "text/plain"})
    tracemalloc.start()
    began = time.process_time()

    outcome_of(lambda: read_page("shipments", response))
    outcome_of(lambda: read_page("shipments", response, envelope="shipments"))
    outcome_of(lambda: read_object("GET /v1/shipments/7", response))
    outcome_of(lambda: check_status(list_request("shipments"), failure))

    took = time.process_time() - began
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A list of the smallest records takes the most; what is quadratic in a megabyte takes minutes, or gigabytes.
    assert most < 60 * MB
    assert took < 10


def test_numbers_in_place_of_records_are_not_looked_at_one_by_one() -> None:
    response = answer(fill(b'{"shipments":[1', b",1", b",{}]}"))
    for envelope in (None, "shipments"):
        tracemalloc.start()
        outcome_of(lambda: read_page("shipments", response, envelope=envelope))  # noqa: B023  # it is called at once
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 5 * MB
