from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dockbell.core.model import RESOURCES, Allowance, ClockSource, Page
from dockbell.core.reading import response_page
from dockbell.core.reading.request import Request, list_request, shipment_request
from dockbell.core.reading.response import Response, check_status, clean, read_allowance, read_retry_after, service_time
from dockbell.core.reading.response_json import UNSOUND_SIZE_MOST, are_alike, decode_object, read_object, read_twice
from dockbell.core.reading.response_page import CURSOR_LONGEST, RECORDS_MOST, read_page
from dockbell.errors import (
    CursorExpired,
    DockbellError,
    PageUnreadable,
    RateLimited,
    RequestRefused,
    SchemaMismatch,
    SourceRefused,
    SourceUnavailable,
)

SENT = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
EPOCH_SECONDS = int(SENT.timestamp())
FIRST = list_request("shipments")
Headers: TypeAlias = dict[str, str | None]
LATER = list_request("shipments", cursor="abc")
ONE = shipment_request("shp_1")


def answer(body: Any = b"{}", status: int = 200, headers: Headers | None = None, **more: str | None) -> Response:
    """Return an answer that took 0.2 s to begin and 1 s to end; headers that are None are left out."""
    given = {"content_type": "application/json"} | (headers or {}) | more
    return Response(
        status=status,
        headers={name.replace("_", "-"): text for name, text in given.items() if text is not None},
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
        sent_at=SENT,
        answered_at=SENT + timedelta(seconds=0.2),
        received_at=SENT + timedelta(seconds=1),
    )


# The page ------------------------------------------------------------------------------------------------------------


def test_records_are_cut_out_as_they_are() -> None:
    body = b'{"shipments": [ {"id": 1.0, "b":"\xc3\xbc"} ,{"id":2}\n], "next_cursor": "abc"}'

    page = read_page("shipments", answer(body, date="Sat, 21 Nov 2026 02:30:00 GMT"))

    assert page == Page(
        records=(b'{"id": 1.0, "b":"\xc3\xbc"}', b'{"id":2}'),
        next_cursor="abc",
        envelope="shipments",
        asked_at=SENT - timedelta(seconds=0.2),
        clock=ClockSource.DATE,
        answered_at=SENT + timedelta(seconds=1),
        received_at=SENT + timedelta(seconds=1),
    )


@pytest.mark.parametrize(
    ("envelope", "cursor"),
    [
        ({"next_cursor": None}, None),
        ({}, None),
        ({"next_cursor": ""}, None),
        ({"next_cursor": "0"}, "0"),
        ({"next_cursor": 'a"b/ü\\'}, 'a"b/ü\\'),
        ({"next_cursor": 0}, "0"),
        ({"next_cursor": 12345678901234567890123}, "12345678901234567890123"),
        ({"next_cursor": -1}, "-1"),
        ({"meta": {"next_cursor": "m"}}, "m"),
        ({"meta": {"next_cursor": None}}, None),
        ({"next_cursor": None, "meta": {"next_cursor": "m"}}, None),
    ],
)
def test_the_cursor_is_read_in_every_form(envelope: dict[str, Any], cursor: str | None) -> None:
    assert read_page("stock", answer({"stock": [], **envelope})).next_cursor == cursor


@pytest.mark.parametrize("cursor", ["c" * CURSOR_LONGEST, int("9" * (CURSOR_LONGEST + 1))])
def test_a_cursor_that_no_request_holds_is_a_mismatch(cursor: Any) -> None:
    with pytest.raises(SchemaMismatch, match="too long for a request"):
        read_page("stock", answer({"stock": [], "next_cursor": cursor}))


@pytest.mark.parametrize("cursor", [True, False, 1.5, {"after": 3}, ["a"]])
def test_a_cursor_of_another_kind_is_a_mismatch(cursor: Any) -> None:
    with pytest.raises(SchemaMismatch, match="next_cursor is neither text nor number"):
        read_page("stock", answer({"stock": [], "next_cursor": cursor}))


@pytest.mark.parametrize(
    ("resource", "body", "envelope"),
    [
        ("shipments", {"shipments": [{"id": 1}]}, "shipments"),
        ("stock", {"Stock levels": [{"id": 1}]}, "Stock levels"),
        ("stock", {"stockLevels": []}, "stockLevels"),
        ("warehouses", {"data": [{"id": 1}]}, "data"),
        ("warehouses", {"records": []}, "records"),
        ("items", {"tags": ["a"], "results": [{"id": 1}]}, "results"),
        ("items", {"warnings": [], "results": [{"id": 1}]}, "results"),
        ("items", {"warnings": [{"code": 1}], "items": []}, "items"),
        ("items", {"errors": [], "items": []}, "items"),
        ("items", {"warnings": [{"code": 1}], "data": []}, "data"),
        ("items", {"Messages": [{"code": 1}], "data": [{"id": 1}]}, "data"),
        ("shipments", {"data": {"shipments": [{"id": 1}], "count": 1}}, "data.shipments"),
    ],
)
def test_the_array_of_records_is_found(resource: str, body: dict[str, Any], envelope: str) -> None:
    assert read_page(resource, answer(body)).envelope == envelope


def test_the_array_that_held_the_records_before_is_preferred() -> None:
    body = {"included": [{"id": 9}], "rows": [{"id": 1}], "shipments_total": []}

    page = read_page("shipments", answer(body), envelope="rows")

    assert (page.envelope, page.records) == ("rows", (b'{"id": 1}',))


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        [{"id": 1}],
        "text",
        None,
        17,
        {"shipments": {"id": 1}},
        {"shipments": ["a", "b"]},
        {"shipments": [{"id": 1}, None]},
        {"messages": [{"code": 7}]},
        {"warnings": [{"code": 7}], "error": None},
        {"included": [{"id": 1}], "rows": [{"id": 2}]},
        {"included": [], "rows": []},
        {"data": {"rows": [{"id": 1}]}},
    ],
)
def test_json_of_another_shape_is_a_mismatch(body: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r'^resource "shipments": the response '):
        read_page("shipments", answer(body))


@pytest.mark.parametrize("body", [{"details": []}, {"shipments": None}, {"shipments": ["a"]}, {"data": [{"id": 1}]}])
def test_an_answer_without_the_known_array_never_passes_for_an_empty_page(body: Any) -> None:
    with pytest.raises(SchemaMismatch, match='no array "shipments", which earlier pages had'):
        read_page("shipments", answer(body), envelope="shipments")


def test_a_mismatch_names_what_was_got() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        read_page("items", answer({"rows": "x", "bad\x1bname": 1}))

    assert str(caught.value) == (
        'resource "items": the response has no array of objects, got fields rows, bad name; check base_url'
    )


@pytest.mark.parametrize("envelope", [None, "shipments"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "backend down"}, ', "backend down"'),
        ({"errors": [{"code": "backend_down"}]}, ', "backend_down"'),
        ({"errors": [{"code": 7}]}, ""),
        ({"error": {"code": 7, "details": []}}, ""),
        ({"Error": True, "message": "backend down"}, ', "backend down"'),
        ({"error": 500, "message": "backend\ndown?key=1"}, ', "backend down?…"'),
        ({"shipments": [], "error": "backend down", "message": "OK"}, ', "backend down"'),
        ({"shipments": [{"id": 1}], "errors": [{"message": "backend down"}], "next_cursor": "a"}, ', "backend down"'),
    ],
)
def test_an_error_that_is_told_with_the_status_of_a_success_is_neither_records_nor_their_end(
    body: dict[str, Any], words: str, envelope: str | None
) -> None:
    with pytest.raises(SourceUnavailable) as caught:
        read_page("shipments", answer(body), envelope=envelope)

    assert not isinstance(caught.value, PageUnreadable)  # a smaller page would be no better
    assert str(caught.value) == (
        f'resource "shipments": the response contains an error{words}, though its status is a success'
    )


def test_an_error_beside_records_that_stand_one_level_down_is_one_too() -> None:
    with pytest.raises(SourceUnavailable, match="backend down"):
        read_page("shipments", answer({"data": {"shipments": [], "errors": ["backend down"]}}))


@pytest.mark.parametrize("name", ["partial", "is_partial", "Incomplete", "incomplete_results", "timed_out"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_last_page_that_calls_itself_incomplete_is_no_end_of_the_list(name: str, *, inside: bool) -> None:
    def wrap(members: dict[str, Any]) -> Response:
        return answer({"data": members} if inside else members)

    listing: dict[str, Any] = {"shipments": [{"id": 1}]}
    with pytest.raises(SourceUnavailable, match=f'although the list goes on, got "{name}": true') as caught:
        read_page("shipments", wrap(listing | {name: True}))

    assert not isinstance(caught.value, PageUnreadable)  # a smaller page would be no better
    assert len(read_page("shipments", wrap(listing | {name: False})).records) == 1
    assert len(read_page("shipments", wrap(listing | {name: True, "next_cursor": "more"})).records) == 1
    elsewhere = wrap(listing | {"query": {name: True}})
    assert len(read_page("shipments", elsewhere).records) == 1


@pytest.mark.parametrize("nothing", [None, False, 0, "", " ", [], {}])
def test_an_error_member_that_tells_of_none_is_fine(nothing: Any) -> None:
    body = json.dumps({"shipments": [{"id": 1}], "error": nothing, "errors": nothing}, indent=1).encode()
    assert len(read_page("shipments", answer(body)).records) == 1


def test_errors_that_are_counted_elsewhere_in_the_answer_are_no_error_of_it() -> None:
    assert read_page("shipments", answer({"shipments": [], "by_status": {"error": 3}})).records == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b'{"shipments": [{"id": 1}',
        b'{"\xff": []}',
        b'{"shipments": []} {"shipments": []}',
        b'{"shipments": [], "next_cursor": "\\ud800"}',
        b'{"shipments": [{}], "next_cursor"',
        b'[{"id": 1}',
        b"[" * 100_000,
        b'"shipments',
        b"nul",
        b"[NaN]",
        b"null null",
        b'{"shipments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        '{"shipments": []}'.encode("utf-16"),
    ],
)
def test_what_is_not_whole_or_no_json_in_its_structure_is_unreadable(body: bytes) -> None:
    with pytest.raises(PageUnreadable, match=r'^resource "shipments": the response is not JSON, got '):
        read_page("shipments", answer(body))


@pytest.mark.parametrize("before", [10, 65_510, 65_511, 65_512, 65_513, 200_000])
@pytest.mark.parametrize(
    ("text", "is_sound"),
    [
        (b"\xf0\x9f\x8e\x81", True),
        (b"\xff", False),
        (b"\xf0\x9f\x8e", False),
        (b"\xe2\x82\xac\xc0\x80", False),
    ],
)
def test_an_answer_is_utf_8_or_not_wherever_its_characters_stand(before: int, text: bytes, *, is_sound: bool) -> None:
    body = b'{"shipments": [], "a": "' + b"x" * before + text + b'"}'
    *_, is_lenient = read_twice("subject", answer(body), partial(decode_object, "subject"))
    assert is_lenient is not is_sound


def test_what_is_not_utf_8_is_told_with_its_place_in_the_whole_answer() -> None:
    body = b'{"a": "' + b"x" * UNSOUND_SIZE_MOST + b'\xff"}'
    with pytest.raises(PageUnreadable, match=f"can't decode byte 0xff in position {UNSOUND_SIZE_MOST + 7}: invalid"):
        read_object("subject", answer(body))


@pytest.mark.parametrize(
    "value",
    [
        rb'"cut \ud83d"',
        rb'"cut \ud83d\n"',
        rb'"\ude00"',
        b"NaN",
        b"-Infinity",
        b"01",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"a\nb"',
        b'"\x00"',
        rb'"\q"',
        b'{"deep": [1, NaN, {}]}',
        b'{"\xff": 1}',
        b"[" * 3000 + b"]" * 3000,
    ],
)
def test_a_record_that_is_no_sound_json_costs_only_itself(value: bytes) -> None:
    bad = b'{"note": %b, "id": "b"}' % value
    body = b'{"shipments": [{"id": "a"}, %b ,{"id": "c"}], "next_cursor": "abc"}' % bad

    page = read_page("shipments", answer(body))

    assert page.records == (b'{"id": "a"}', bad, b'{"id": "c"}')
    assert (page.next_cursor, page.envelope, list(page.unsound)) == ("abc", "shipments", [1])
    assert page.unsound[1].problem.startswith("not ")
    assert page.unsound[1].head is None or page.unsound[1].head["id"] == "b"


def test_what_can_be_read_of_an_unsound_record_tells_whose_it_is() -> None:
    record = b'{"id": 7, "updated_at": "x", "note": NaN, "item": {"sku": "s", "name": "\xff"}}'

    page = read_page("shipments", answer(b'{"shipments": [%b]}' % record))

    assert page.unsound[0].head == {"id": 7, "updated_at": "x", "note": None, "item": {"sku": "s", "name": None}}


@pytest.mark.parametrize(
    "body",
    [
        b'{"shipments": [{"id": "a"}, {"id": "\xff", "b": {"c": 1},',
        b'{"shipments": [{"id": "a"}, {"id": NaN}',
        b'{"shipments": [{"id": "a"}, {"id": NaN}]',
        b'{"shipments": [{"id": "a"}, {"id": "5" x 3"}, {"id": "c"}, {"id": "5" x 3"}]}',
        b'{"shipments": [{"id": NaN},]}',
        b'{"shipments": [{"id": NaN}], "shipments": []}',
        b'{"shipments": [{"id": NaN}], "next_cursor": "\xff"}',
        b'{"shipments": [{"id": NaN}], "\xff": 1}',
        b'{"error_log": [NaN]}',
        b'{"shipments": [NaN]}',
        b'{"shipments": [{"id": "' + b"a" * UNSOUND_SIZE_MOST + b'"}, {"id": NaN}]}',
    ],
)
def test_an_unsound_answer_whose_records_cannot_be_told_for_certain_is_unreadable(body: bytes) -> None:
    with pytest.raises(PageUnreadable, match=r'^resource "shipments": the response is not JSON, got '):
        read_page("shipments", answer(body))


def test_an_error_beside_an_unsound_value_is_an_error() -> None:
    with pytest.raises(SourceUnavailable, match="backend down"):
        read_page("shipments", answer(b'{"shipments": [], "load": NaN, "error": "backend down"}'))


def test_an_unsound_value_beside_the_records_does_not_matter() -> None:
    page = read_page("shipments", answer(b'{"load": NaN, "shipments": [{"id": 1}], "meta": {"next_cursor": "m"}}'))

    assert (page.records, page.next_cursor, page.unsound) == ((b'{"id": 1}',), "m", {})


def test_records_are_alike_that_have_most_names_in_common() -> None:
    assert are_alike(b'{"id": 1, "status": "open"}', b'{"status": 2, "id": 3, "new": 4}')
    assert not are_alike(b'{"id": 1, "status": "open"}', b'{"id": 3}')
    assert not are_alike(b'{"id": 1}', b'{"id": NaN}')


def test_a_byte_order_mark_is_ignored() -> None:
    assert read_page("shipments", answer(b'\xef\xbb\xbf{"shipments": [{"id": 1}]}')).records == (b'{"id": 1}',)


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/plain", "application/javascript", "json"])
def test_what_is_json_is_believed_whatever_it_calls_itself(content_type: str) -> None:
    assert read_page("shipments", answer(b' {"shipments": []}', content_type=content_type)).records == ()


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/plain", "application/javascript", "json"])
@pytest.mark.parametrize("body", [b"<html></html>", b"OK", b"[]", b'"{}"', b""])
def test_what_neither_calls_itself_json_nor_begins_like_an_object_is_unreadable(content_type: str, body: bytes) -> None:
    with pytest.raises(PageUnreadable, match=f"got content type '{content_type}'"):
        read_page("shipments", answer(body, content_type=content_type))


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/vnd.api+json",
        "text/json",
        "application/json ",
    ],
)
def test_every_way_to_call_json_is_accepted(content_type: str) -> None:
    assert read_page("shipments", answer(b'{"shipments": []}', content_type=content_type)).records == ()


def test_a_missing_content_type_is_tolerated() -> None:
    response = Response(200, {}, b'{"shipments": []}', SENT, SENT, SENT)

    assert read_page("shipments", response).envelope == "shipments"


@pytest.mark.parametrize("envelope", [None, "shipments"])
def test_a_page_of_more_records_than_any_page_has_is_unreadable(envelope: str | None) -> None:
    body = b'{"shipments": [{}' + b",{}" * RECORDS_MOST + b"]}"

    with pytest.raises(
        PageUnreadable, match=r'^resource "shipments": the response contains 100001 objects, too many for a page$'
    ):
        read_page("shipments", answer(body), envelope=envelope)
    body = body.replace(b"{}]", b'{}], "error": "out of order"')
    with pytest.raises(SourceUnavailable, match="out of order"):
        read_page("shipments", answer(body), envelope=envelope)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"shipments": [{"id": 1}], "shipments": [{"id": 2}]}', "shipments"),
        (b'{"shipments": [], "shipments": []}', "shipments"),
        (b'{"next_cursor": "a", "shipments": [], "next_cursor": null}', "next_cursor"),
        (b'{"data": {"shipments": [{"id": 1}], "shipments": []}}', "shipments"),
        (b'{"shipments": [], "meta": {"next_cursor": "a", "next_cursor": "b"}}', "next_cursor"),
    ],
)
def test_records_or_a_cursor_that_are_given_twice_are_unreadable(body: bytes, name: str) -> None:
    with pytest.raises(PageUnreadable, match=f'^resource "shipments": the response contains "{name}" twice$'):
        read_page("shipments", answer(body))


@pytest.mark.parametrize(
    "body",
    [
        b'{"shipments": [{"shipments": 1, "shipments": 2}, {"next_cursor": 1}], "next_cursor": "a"}',
        b'{"total": 1, "shipments": [{}], "total": 2, "next_cursor": "a"}',
        b'{"total": 1, "shipments": [{}, {"shipments": 1}], "total": 2, "next_cursor": "a"}',
        b'{"shipments": [{}], "links": {"next_cursor": 1}, "next_cursor": "a", "note": "\\"next_cursor\\":"}',
        b'{"shipments": [{}], "next_cursor": "a", "x": {"y": {"next_cursor": 1, "next_cursor": 2}}}',
    ],
)
def test_of_other_members_that_come_twice_the_last_counts(body: bytes) -> None:
    page = read_page("shipments", answer(body))

    assert (len(page.records), page.next_cursor) == (len(json.loads(body)["shipments"]), "a")


def test_however_deep_an_answer_is_it_is_a_page_or_unreadable() -> None:
    kinds: set[type] = set()  # one that gives its records twice is unreadable
    for depth in range(1, 1100, 3):
        deep = b"[" * depth + b"]" * depth
        for body in (b'{"shipments": [{"a": %b}]}', b'{"stock": [], "stock": [], "shipments": [{"shipments": %b}]}'):
            try:
                kinds.add(type(read_page("shipments", answer(body % deep))))
            except PageUnreadable as error:
                kinds.add(type(error))

    assert kinds == {Page, PageUnreadable}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
envelopes = st.dictionaries(
    st.sampled_from(["shipments", "data", "next_cursor", "meta", "error"]), json_values, max_size=4
)


@given(
    st.binary() | st.builds(lambda body: json.dumps(body).encode(), envelopes),
    st.sampled_from(list(RESOURCES)),
    st.none() | st.sampled_from(["shipments", "data", "data.shipments"]),
    st.dictionaries(st.sampled_from(["content-type", "date", "x-ratelimit-reset"]), st.text(max_size=40)),
)
@example(b'{"stock": [], "next_cursor": ' + b"9" * 5000 + b"}", "stock", None, {})
@example(b'{"stock": [], "next_cursor": "' + b"9" * 5000 + b'"}', "stock", None, {})
@example(b'{"stock": []}', "stock", None, {"date": "Fri, 31 Dec 9999 23:59:59 GMT"})
@example(b'{"stock": []}', "stock", None, {"date": "Mon, 01 Jan 0001 00:00:00 +2300"})
@example(b'{"stock": []}', "stock", None, {"x-ratelimit-reset": "9" * 30})
def test_any_bytes_give_a_page_or_a_typed_error(
    body: bytes, resource: str, envelope: str | None, headers: dict[str, str]
) -> None:
    response = Response(200, {"content-type": "application/json"} | headers, body, SENT, SENT, SENT)
    try:
        page = read_page(resource, response, envelope=envelope)
    except (SourceUnavailable, SchemaMismatch) as error:
        assert str(error).isprintable()  # noqa: PT017  # both are right; this holds for the one
    else:
        assert all(record.startswith(b"{") and record.endswith(b"}") for record in page.records)
        assert page.next_cursor != ""
        assert page.asked_at <= page.answered_at


@given(st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=3)))
def test_every_record_of_a_page_is_kept_in_order(records: list[dict[str, Any]]) -> None:
    body = json.dumps({"next_cursor": None, "items": records}, ensure_ascii=False).encode()

    page = read_page("items", answer(body))

    assert [json.loads(record) for record in page.records] == json.loads(body)["items"]


def test_one_object_is_returned_as_it_is() -> None:
    assert read_object("GET /v1/shipments/7", answer(b' {"id": 7.0}\n')) == b'{"id": 7.0}'


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null"])
def test_what_is_no_object_is_a_mismatch(body: bytes) -> None:
    with pytest.raises(
        SchemaMismatch, match=r"^GET /v1/shipments/7: the response is not a JSON object; check base_url"
    ):
        read_object("GET /v1/shipments/7", answer(body))


@pytest.mark.parametrize("body", [b'{"id": 7, "note": "\xff"}', b'{"id": 7, "note": NaN}', b'\xef\xbb\xbf{"id": 7}'])
def test_an_object_with_an_unsound_value_is_returned_as_it_is(body: bytes) -> None:
    assert read_object("GET /v1/shipments/7", answer(body)) == body.removeprefix(b"\xef\xbb\xbf")


@pytest.mark.parametrize("body", [b"", b'{"id"', b'{"id": NaN', b'{"id": "\xff"', b'{"id": NaN} {}', b"{" + b"x" * 9])
def test_an_object_that_is_not_whole_is_unreadable(body: bytes) -> None:
    with pytest.raises(PageUnreadable, match=r"^GET /v1/shipments/7: the response is not JSON"):
        read_object("GET /v1/shipments/7", answer(body))


# The clock and the budget --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "date",
    ["Sat, 21 Nov 2026 02:31:00 GMT", "Saturday, 21-Nov-26 02:31:00 GMT", "Sat, 21 Nov 2026 05:31:00 +0300"],
)
def test_the_service_time_is_its_date_less_the_round_trip(date: str) -> None:
    time = service_time(answer(date=date, x_ratelimit_reset=str(EPOCH_SECONDS)))

    assert time.asked_at == SENT + timedelta(minutes=1) - timedelta(seconds=0.2)
    assert time.answered_at == SENT + timedelta(minutes=1, seconds=1)
    assert time.clock is ClockSource.DATE


@pytest.mark.parametrize("date", [None, "", "now", "Sat, 99 Nov 2026 02:31:00 GMT", "Sat, 21 Nov 1926 02:31:00 GMT"])
def test_without_a_date_the_service_time_is_where_its_window_began(date: str | None) -> None:
    time = service_time(answer(x_ratelimit_reset=str(EPOCH_SECONDS + 90), date=date))

    assert (time.asked_at, time.clock) == (SENT + timedelta(seconds=30), ClockSource.RESET)
    assert time.answered_at == SENT + timedelta(seconds=90)


@pytest.mark.parametrize("reset", ["", "soon", "42", "-5", "17952282600000000", str(EPOCH_SECONDS + 10**6)])
def test_without_a_usable_reset_the_service_time_is_ours(reset: str) -> None:
    time = service_time(answer(x_ratelimit_reset=reset))

    assert (time.asked_at, time.clock) == (SENT, ClockSource.LOCAL)


def test_the_allowance_is_what_the_headers_say() -> None:
    response = answer(
        date="Sat, 21 Nov 2026 02:31:00 GMT",
        x_ratelimit_limit="300",
        x_ratelimit_remaining="17",
        x_ratelimit_reset=str(EPOCH_SECONDS + 83),
    )

    assert read_allowance(response) == Allowance(limit=300, remaining=17, resets_in=timedelta(seconds=23))


@pytest.mark.parametrize(
    ("reset", "resets_in"),
    [
        (None, 60),
        ("junk", 60),
        (str(EPOCH_SECONDS), 0),
        (str(EPOCH_SECONDS - 5), 60),
        (str(EPOCH_SECONDS - 10**9), 60),
        (str(EPOCH_SECONDS + 999), 60),
        ("42", 42),
        ("4200", 60),
        ("2026-11-21T02:31:00Z", 60),
    ],
)
def test_a_reset_that_cannot_be_meant_may_be_a_whole_window_away(reset: str | None, resets_in: int) -> None:
    allowance = read_allowance(answer(x_ratelimit_limit="300", x_ratelimit_remaining="0", x_ratelimit_reset=reset))

    assert allowance == Allowance(300, 0, timedelta(seconds=resets_in))


@pytest.mark.parametrize(("limit", "remaining"), [(None, "5"), ("300", None), ("0", "0"), ("many", "5"), ("300", "")])
def test_without_usable_headers_there_is_no_allowance(limit: str | None, remaining: str | None) -> None:
    assert read_allowance(answer(x_ratelimit_limit=limit, x_ratelimit_remaining=remaining)) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": " 0"}, 0),
        ({"retry_after": "999999999999"}, 86_400),
        ({"retry_after": "Sat, 21 Nov 2026 02:31:00 GMT", "date": "Sat, 21 Nov 2026 02:30:30 GMT"}, 30),
        ({"retry_after": "Sat, 21 Nov 2026 02:31:00 GMT"}, 59.8),
        ({"retry_after": "Sat, 21 Nov 2020 02:31:00 GMT"}, 0),
        ({"retry_after": "Sat, 21 Nov 2099 02:31:00 GMT"}, 86_400),
        ({"x_ratelimit_limit": "9", "x_ratelimit_remaining": "0", "x_ratelimit_reset": str(EPOCH_SECONDS + 31)}, 30.8),
        ({"retry_after": "later"}, None),
        ({}, None),
    ],
)
def test_the_wish_to_wait_is_read_in_every_form(headers: Headers, seconds: float | None) -> None:
    assert read_retry_after(answer(headers=headers)) == (None if seconds is None else timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("age", "seconds"), [(None, 0), ("0", 0), ("299", 299), (" 12", 12), ("-5", 0), ("old", 0), ("9" * 15, 86_400)]
)
def test_a_page_says_for_how_long_a_cache_has_kept_it(age: str | None, seconds: float) -> None:
    page = read_page("shipments", answer({"shipments": []}, headers={} if age is None else {"age": age}))
    assert page.age == timedelta(seconds=seconds)
    assert page.shown_at == page.asked_at - page.age


# Whose turn it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 203, 204])
def test_a_success_is_let_pass(status: int) -> None:
    check_status(FIRST, answer(status=status))


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (FIRST, 401, SourceRefused),
        (FIRST, 403, SourceRefused),
        (LATER, 401, SourceRefused),
        (FIRST, 429, RateLimited),
        (LATER, 429, RateLimited),
        *((LATER, status, CursorExpired) for status in (400, 404, 410, 422)),
        *((FIRST, status, RequestRefused) for status in (400, 402, 404, 405, 410, 418, 422, 451)),
        *((ONE, status, RequestRefused) for status in (400, 422)),
        *((FIRST, status, SourceUnavailable) for status in (100, 206, 304, 408, 425, 500, 502, 503, 504, 599, 999)),
        *((FIRST, status, SourceRefused) for status in (301, 302, 303, 307, 308)),
    ],
)
def test_a_status_says_who_must_act(request_: Request, status: int, kind: type[DockbellError]) -> None:
    with pytest.raises(kind, match=f"^GET {request_.path}: HTTP {status}") as caught:
        check_status(request_, answer(status=status))

    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("https://new.example.com/v1/shipments?cursor=secret", "new.example.com"),
        ("https://user:password@new.example.com:8443/", "new.example.com:8443"),
        ("//elsewhere", "the same host"),
        ("/login?next=secret", "the same host"),
        ("", "the same host"),
    ],
)
def test_a_redirect_is_told_by_its_host_alone(location: str, host: str) -> None:
    with pytest.raises(SourceRefused) as caught:
        check_status(FIRST, answer(status=302, location=location))

    assert str(caught.value) == (
        f"GET /v1/shipments: HTTP 302, a redirect to {host} that dockbell does not follow;"
        " set base_url to the address of the API"
    )


def test_a_429_carries_how_long_to_wait() -> None:
    with pytest.raises(RateLimited) as caught:
        check_status(FIRST, answer(status=429, retry_after="12"))

    assert caught.value.retry_after == timedelta(seconds=12)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": "no such status"}, ', "no such status"'),
        ({"error": "no such status", "code": 7}, ', "no such status"'),
        ({"error": {"code": 7, "message": "no such status"}}, ', "no such status"'),
        ({"errors": [{"detail": "no such status"}, {"detail": "two"}]}, ', "no such status"'),
        ({"type": "about:blank", "title": "Bad", "detail": "no such status"}, ', "no such status"'),
        (["no such status"], ', "no such status"'),
        ("no such\n\x1b[31mstatus", ', "no such [31mstatus"'),
        ({"message": "see https://x.example/doc?token=abc for more"}, ', "see https://x.example/doc?… for more"'),
        ({"message": "a" * 999}, ', "' + "a" * 199 + '…"'),
        ({"code": "no such status", "status": 422}, ', "no such status"'),
        ({"message": 7}, ""),
        ({}, ""),
        ([], ""),
        (b"<html>no such status</html>", ""),
        (b"\xff", ""),
        (b"[" * 100_000, ""),
        (b"[" * 500 + b'"deep"' + b"]" * 500, ""),
    ],
)
def test_the_api_is_quoted_briefly_and_on_one_line(body: Any, words: str) -> None:
    with pytest.raises(SourceRefused) as caught:
        check_status(FIRST, answer(body, status=422))

    assert str(caught.value) == f"GET /v1/shipments: HTTP 422{words}; check base_url and the query of this resource"


def test_plain_text_is_quoted_too() -> None:
    with pytest.raises(SourceUnavailable, match=r'HTTP 503, "down for lunch"$'):
        check_status(FIRST, answer(b"down for\r\nlunch\n", status=503, content_type="text/plain"))


@given(st.text())
def test_foreign_words_never_break_a_line(words: str) -> None:
    cleaned = clean(words)

    assert cleaned.isprintable()
    assert len(cleaned) <= 200


@given(st.integers(100, 999), st.binary(), st.sampled_from([FIRST, LATER, ONE]), st.text(), st.text())
def test_any_answer_is_a_success_or_a_typed_error(
    status: int, body: bytes, request_: Request, location: str, retry_after: str
) -> None:
    try:
        check_status(request_, answer(body, status, location=location, retry_after=retry_after))
    except (SourceRefused, SourceUnavailable, CursorExpired) as error:
        assert str(error).isprintable()  # noqa: PT017  # all are right; this holds for errors
    else:
        assert 200 <= status < 300


@given(
    st.dictionaries(st.text("abc\u00e9", max_size=3), json_values, max_size=8),
    st.sampled_from(["shipments", "next_cursor"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", " : ")]),
    st.booleans(),
)
def test_whatever_else_an_answer_holds_a_second_cursor_or_list_is_seen(
    others: dict[str, Any], twice: str, separators: tuple[str, str], nested: bool
) -> None:
    assume("shipments" not in json.dumps(others))
    members = [("shipments", []), ("next_cursor", None), *others.items(), (twice, [] if twice == "shipments" else 1)]
    comma, colon = separators
    body = "{" + comma.join(json.dumps(name) + colon + json.dumps(value) for name, value in members) + "}"
    if nested:
        body = '{"data":' + body + "}"

    with pytest.raises(PageUnreadable, match="twice"):
        read_page("shipments", answer(body.encode()))


ARRAYS = ["[]", "[{}]", '[{"id":1},{"id":2}]', '[{"a":[{}]}]', "[1,{}]", "[{},1]", '["[{}]"]', "[[{}]]", "[{]", "[{}"]
OTHERS = ["null", "1", '"[{}]"', '"}]"', "{}", '{"next_cursor":"b"}', '{"data":[{}]}', '{"b":[]}', '{"b":null}', "[ ]"]
NAMES = ["data", r"d\u0061ta", "d", "next_cursor", "error", "partial", "meta", "data.b", "x y", "xy"]
MEMBERS = st.tuples(st.sampled_from(NAMES), st.sampled_from(ARRAYS + OTHERS))
TOTALS = [("total", "2"), ("page", "1"), ("limit", "200"), ("next_cursor", '"b"')]
COMPACT = ("", ",", ":", "")


@given(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(ARRAYS[1:4])) | MEMBERS,
    st.lists(MEMBERS | st.sampled_from(TOTALS), max_size=6),
    st.sampled_from([COMPACT, COMPACT, (" ", " ,", " : ", "\n"), ("x", ",", ":", ""), ("", ",", ":", "x")]),
    st.sampled_from(["data", "d", "data.b", "x y"]),
    st.integers(0, 9),
)
@example(("data", "[{}]"), [("data", "[]"), *TOTALS], COMPACT, "data", 0)
@example(("data", "[{}]"), [("data", "null")], COMPACT, "data", 0)
@example(("data", "[{}]"), [("data", "[ ]")], COMPACT, "data", 0)
@example(("data", "[{}]"), [(r"d\u0061ta", "[]")], COMPACT, "data", 0)
@example(("data", "[{}]"), [(r"d\u0061ta", "[ ]")], COMPACT, "data", 0)
@example(("data", "[{}]"), [("meta", '{"b":[{}]}')], COMPACT, "data", 0)
@example(("meta", '"[{}]"'), [("data", "[]")], COMPACT, "data", 0)
@example(("xy", "[{}]"), [("x y", "[]")], COMPACT, "x y", 0)
@example(("data.b", "[{}]"), [("data", '{"b":[]}')], COMPACT, "data.b", 0)
def test_an_answer_whose_records_are_cut_out_in_one_walk_is_read_as_any_other(
    first: tuple[str, str], others: list[tuple[str, str]], spaces: tuple[str, str, str, str], envelope: str, cut: int
) -> None:
    before, comma, colon, after = spaces
    members = [f'"{name}"{colon}{value}' for name, value in (first, *others)]
    text = before + "{" + comma.join(members) + "}" + after
    response = answer(text[: len(text) - max(0, cut - 6)].encode())

    def read() -> Page | tuple[type, str]:
        try:
            return read_page("stock", response, envelope=envelope)
        except (SourceUnavailable, SchemaMismatch) as error:
            return type(error), str(error)

    found = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(response_page, "_cut_known", lambda *_: None)
        assert found == read()


def test_an_answer_without_room_for_a_second_member_is_not_searched_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_page, "check_given_once", None)
    for body in (b'{"d":[{}],"meta":{},"next_cursor":1}', b'{"d": [{}], "next_cursor": 1}'):
        assert read_page("stock", answer(body), envelope="d").next_cursor == "1"


@pytest.mark.parametrize("twin", ['"d":1', '"d":[]', '"next_cursor":1'])
@pytest.mark.parametrize("others", [[], ['"a":1', '"b":2'], ['"a":1', '"b":2', '"c":3', '"e":4', '"f":5', '"g":6']])
def test_however_short_the_second_one_is_and_whatever_else_an_answer_holds_it_is_seen(
    twin: str, others: list[str]
) -> None:
    body = "{" + ",".join([twin, '"next_cursor":1', *others, '"d":[]']) + "}"
    for text, envelope in ((body, "d"), (f'{{"a":{body},"b":{{}}}}', "a.d")):
        with pytest.raises(PageUnreadable, match="twice"):
            read_page("stock", answer(text.encode()), envelope=envelope)


def test_records_of_a_known_name_are_cut_out_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_page, "_find_records", None)
    for body in (b'{"data":[{"a":[1]},{}],"next_cursor":"b"}', b'{ "n": 1, "data" : [\n{"a":[1]}, {}] , "links": [1]}'):
        assert read_page("stock", answer(body), envelope="data").records == (b'{"a":[1]}', b"{}")
