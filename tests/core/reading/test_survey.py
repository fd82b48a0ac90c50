from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.reading.response import Response
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.survey import (
    Uniqueness,
    clock_offset,
    count_foreign,
    count_keys,
    end_of_list,
    find_orders,
    find_times,
    find_total,
    guess_cursor,
    read_stamps,
    suggest_key,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SHAPE = Shape(("/id",), "/updated_at", "/created_at")


def answer(at: datetime = NOON, *, took: float = 0.1, **headers: str) -> Response:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(200, headers, b"", at, at + timedelta(seconds=took), at + timedelta(seconds=took))


# The envelope --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ({"next_cursor": None}, "null"),
        ({"next_cursor": ""}, "empty"),
        ({"count": 3}, "absent"),
        ({"meta": {"next_cursor": None}}, "null"),
        ({"meta": {"next_cursor": ""}}, "empty"),
    ],
)
def test_how_a_list_ends_is_told_from_its_last_page(body: dict[str, Any], form: str) -> None:
    assert end_of_list(body) == form


@pytest.mark.parametrize(
    ("body", "total"),
    [
        ({"next_cursor": None, "total": 7}, ("total", 7)),
        ({"meta": {"total_count": 12}}, ("meta.total_count", 12)),
        ({"totalResults": 0}, ("totalResults", 0)),
        ({"total": "7"}, None),
        ({"total_weight": 7, "count": 200}, None),
    ],
)
def test_a_total_is_taken_where_the_answer_states_one(body: dict[str, Any], total: tuple[str, int] | None) -> None:
    assert find_total(body) == total


# Cursors -------------------------------------------------------------------------------------------------------------


def in_base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


LAST = {"id": "shp_200", "updated_at": "2026-11-21T12:00:00.5Z", "created_at": "2026-11-20T12:00:00Z"}


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        ("200", "offset"),
        ("2", "offset"),
        (in_base64({"o": 200}), "offset"),
        (in_base64({"skip": 17}), "offset"),
        (in_base64({"skip": 200}), "offset"),
        ("offset:aa", "offset"),
        ("shp_200", "keyset"),
        (in_base64(["shp_200"]), "keyset"),
        (in_base64(["keyset", 0, 200]), "keyset"),
        (in_base64(1_795_262_400_500), "keyset"),
        (in_base64("2026-11-20T12:00:00Z"), "keyset"),
        (f"v1.{in_base64({'after': 9})}.sig", "keyset"),
        ("b1946ac9", "opaque"),
        ("***", "opaque"),
    ],
)
def test_the_kind_of_a_cursor_is_guessed_from_what_it_holds(token: str, kind: str) -> None:
    assert guess_cursor(token, read=200, last=LAST, shape=SHAPE)[0] == kind


def test_an_id_that_is_the_number_of_records_read_speaks_for_an_offset() -> None:
    assert guess_cursor("200", read=200, last={"id": 200}, shape=SHAPE)[0] == "offset"


def test_short_ids_speak_for_nothing() -> None:
    assert guess_cursor("x7y", read=25, last={"id": 7}, shape=Shape(("/id",)))[0] == "opaque"


@given(st.text(max_size=40))
def test_any_cursor_is_guessed_something(token: str) -> None:
    assert guess_cursor(token, read=200, last=None, shape=None)[0] in {"offset", "keyset", "opaque"}


# Identity ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "key"),
    [
        ([{"x": 1, "ref": "a"}, {"x": 2, "ref": "b"}], ("/ref",)),
        ([{"x": 1}, {"x": 2}], ("/x",)),
        ([{"a/b": "1"}, {"a/b": "2"}], ("/a~1b",)),
        ([{"bin_no": 1, "art_no": 1}, {"bin_no": 1, "art_no": 2}, {"bin_no": 2, "art_no": 1}], ("/bin_no", "/art_no")),
        ([{"x": 1}, {"x": 1}], None),
        ([{"at": "2026-11-21T12:00:00Z"}, {"at": "2026-11-21T12:00:01Z"}], None),
        ([{"x": 1.5}, {"x": 2.5}], None),
        ([{"x": 1}, {}], None),
        ([], None),
    ],
)
def test_an_identity_without_a_usual_name_is_found_by_its_values(
    records: list[dict[str, Any]], key: tuple[str, ...] | None
) -> None:
    assert suggest_key(records) == key


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["sku", "bin_id", "x", "y"]), st.integers(0, 3) | st.text("ab", max_size=2)),
        max_size=6,
    )
)
def test_a_suggested_key_identifies_every_record(records: list[dict[str, Any]]) -> None:
    key = suggest_key(records)
    assert key is None or count_keys(records, key).holds


def test_keys_are_counted_with_their_kinds_and_doubles() -> None:
    records = [{"id": 1, "w": "a"}, {"id": 1, "w": "b"}, {"id": 1, "w": "b"}, {"id": 2}]
    assert count_keys(records, ["/id", "/w"]) == Uniqueness(4, 3, 1, ("integer", "string"))
    assert not count_keys(records, ["/id", "/w"]).holds
    assert not count_keys(records, ["/id"]).holds
    assert count_keys(records[1:4:2], ["/id"]) == Uniqueness(2, 2, 0, ("integer",))


# Timestamps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "form", "precision"),
    [
        ("2026-11-21T12:00:00Z", "Z", "s"),
        ("2026-11-21T12:00:00.000Z", "Z", "s"),
        ("2026-11-21T12:00:00.25z", "Z", "ms"),
        ("2026-11-21T12:00:00.123456789Z", "Z", "µs"),
        ("2026-11-21T12:00:00.1234+02:00", "+02:00", "µs"),
        ("2026-11-21 12:00:00", "no zone", "s"),
        ("2026-11-21T12:00", "no zone", "s"),
        ("2026-11-21T12:00:00,5-0930", "-0930", "ms"),
        (1_795_262_400, "epoch", "s"),
        (1_795_262_400_001, "epoch", "ms"),
    ],
)
def test_a_timestamp_tells_its_zone_and_its_precision(value: Any, form: str, precision: str) -> None:
    stamps = read_stamps([value, None, "never"], NOON)
    assert stamps is not None
    assert (stamps.present, stamps.forms, stamps.precision) == (1, (form,), precision)


def test_stamps_tell_their_ends_and_how_many_are_ahead_of_the_clock() -> None:
    stamps = read_stamps(["2026-11-21T12:00:00Z", "2099-01-01T00:00:00Z", "2026-11-20T12:00:00+00:00"], NOON)
    assert stamps is not None
    assert stamps.oldest == NOON - timedelta(days=1)
    assert stamps.newest == datetime(2099, 1, 1, tzinfo=UTC)
    assert stamps.ahead == 1
    assert stamps.forms == ("Z", "+00:00")


def test_no_stamps_are_none() -> None:
    assert read_stamps([None, "x"], NOON) is None


def test_members_that_hold_times_are_offered() -> None:
    records = [
        {"id": 1, "a/t": "2026-11-21T12:00:00Z", "n": 5, "p": "2026-11-21T12:00:00Z"},
        {"a/t": "2026-11-21T12:00:00Z"},
    ]
    assert find_times(records) == ["/a~1t"]
    assert find_times([]) == []


# The order of a list -------------------------------------------------------------------------------------------------


def made(*ids: object, seconds: tuple[int, ...] | None = None) -> list[dict[str, Any]]:
    times = seconds or tuple(range(len(ids)))
    return [
        {"id": each, "updated_at": f"2026-11-21T12:00:{second:02}Z", "created_at": "2026-11-21T11:00:00Z"}
        for each, second in zip(ids, times, strict=True)
    ]


@pytest.mark.parametrize(
    ("records", "orders"),
    [
        (made("shp_9", "shp_10", "shp_11"), ["/updated_at ascending", "key ascending"]),
        (made("shp_9", "shp_10", "shp_8", seconds=(3, 2, 2)), []),
        (made("shp_9", "shp_10", "shp_8", seconds=(3, 2, 1)), ["/updated_at descending"]),
        (made("10", "11", "9", seconds=(1, 3, 2)), ["key as text ascending"]),
        (made(3, 2, 1, seconds=(1, 3, 2)), ["key descending", "key as text descending"]),
        (made(1, 2), []),
        ([{"id": 1}, {}, {"id": 3}], []),
    ],
)
def test_every_order_that_the_records_stand_in_is_named(records: list[Any], orders: list[str]) -> None:
    assert find_orders(records, SHAPE) == orders


@given(st.lists(st.text("a19", min_size=1, max_size=4) | st.integers(), max_size=6))
def test_keys_of_any_kind_can_be_put_in_order(ids: list[Any]) -> None:
    orders = find_orders([{"id": each, "w": 1} for each in ids], Shape(("/id", "/w")))
    assert all(order.startswith("key") for order in orders)


# The clock and the budget --------------------------------------------------------------------------------------------


def dated(skew: float, at: datetime = NOON) -> Response:
    return answer(at, date=format_datetime((at + timedelta(seconds=skew)).replace(microsecond=0), usegmt=True))


def test_no_date_tells_no_offset() -> None:
    naive = "Sat, 21 Nov 2026 12:00:00 -0000"
    assert clock_offset([answer(), answer(date="soon"), answer(date=naive)]) is None


@given(st.floats(-5000, 5000), st.lists(st.floats(0, 5), min_size=1, max_size=8))
def test_the_offset_of_the_clock_lies_within_what_is_told(skew: float, delays: list[float]) -> None:
    found = clock_offset([dated(skew + 0.05, NOON + timedelta(seconds=delay)) for delay in delays])
    assert found is not None
    assert found[0] <= timedelta(seconds=skew + 0.05) <= found[1]


def test_several_answers_tell_the_offset_better_than_one() -> None:
    least, most = clock_offset([dated(90, NOON + timedelta(seconds=tenth / 10)) for tenth in range(10)]) or (None, None)
    assert least is not None
    assert most is not None
    assert most - least < timedelta(seconds=0.5)


def test_clocks_that_contradict_each_other_tell_the_last() -> None:
    assert clock_offset([dated(0), dated(90)]) == clock_offset([dated(90)])


def counted(remaining: int, reset: int = 60) -> Response:
    return answer(x_ratelimit_limit="300", x_ratelimit_remaining=str(remaining), x_ratelimit_reset=str(reset))


@pytest.mark.parametrize(
    ("answers", "foreign"),
    [
        ([counted(299), counted(298), counted(297)], 0),
        ([counted(299), counted(290), counted(289)], 8),
        ([counted(10), counted(299, reset=120), counted(298, reset=120)], 0),
        ([counted(299), counted(299)], 0),
        ([counted(299)], None),
        ([answer(), answer()], None),
    ],
)
def test_requests_of_others_show_between_two_answers_of_a_window(answers: list[Response], foreign: int | None) -> None:
    assert count_foreign(answers) == foreign
