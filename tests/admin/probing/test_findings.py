from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.admin.probing.findings import State
from dockbell.core.reading.request import Request
from dockbell.core.reading.response import Response
from tests.admin.probing.odd import START, OddLine, Records, probe_line, said, stamped, whats

MANY = stamped(*(f"itm_{number:04}" for number in range(450)), status="active")


async def find(line: OddLine, what: str, resource: str = "items", **more: Any) -> tuple[str, str, State]:
    """Return what a probe of one resource finds about something."""
    finding = said(await probe_line(line, resource, **more), what, f"main/{resource}")
    return finding.found, finding.evidence, finding.state


# Reading and size ----------------------------------------------------------------------------------------------------


async def test_a_sound_api_fails_in_nothing() -> None:
    report = await probe_line(OddLine({"items": MANY}), "items")
    assert not report.fails
    assert said(report, "key").evidence == "string, present in 450 of 450 records, unique"
    assert said(report, "page size").found == "200"


async def test_a_list_that_goes_on_is_more_than_what_was_read() -> None:
    line = OddLine({"stock": stamped(*range(1000))})
    assert (await find(line, "records", "stock"))[:2] == ("more than 600", "3 pages read")
    assert (await find(line, "end of list", "stock"))[2] is State.UNTOLD


async def test_a_total_in_the_answer_is_believed() -> None:
    line = OddLine({"stock": stamped(*range(1000))}, extra={"meta": {"total": 1000}})
    assert (await find(line, "records", "stock"))[:2] == ("1000", 'from "meta.total"; 3 pages read')


async def test_pages_smaller_than_asked_are_noted() -> None:
    line = OddLine({"items": MANY}, serve=lambda _, __, records: records[:150])
    assert (await find(line, "page size"))[::2] == ("150", State.NOTE)


async def test_pages_of_several_sizes_are_noted() -> None:
    line = OddLine({"stock": stamped(*range(1000))}, serve=lambda _, number, records: records[: 100 + number])
    found, _, state = await find(line, "page size", "stock")
    assert (found.startswith("101 to 1"), state) == (True, State.NOTE)


async def test_records_in_a_nested_envelope_are_read() -> None:
    def answer(request: Request, _: int) -> Response:
        return line.respond(200, {"data": {"stock": stamped(1, 2), "page": 1}, "next_cursor": None})

    line = OddLine({}, answer=answer)
    assert (await find(line, "reading", "stock"))[0] == 'records in "data.stock"'


async def test_an_empty_list_tells_nothing_and_fails_in_nothing() -> None:
    report = await probe_line(OddLine({}), "shipments", "stock")
    assert not report.fails
    assert "key" not in whats(report)
    assert said(report, "updated_since").found == "honoured"


@pytest.mark.parametrize("status", [403, 404])
async def test_a_resource_that_is_refused_fails_alone(status: int) -> None:
    def answer(request: Request, _: int) -> Response | None:
        return line.respond(status, {"error": "no such right"}) if request.path == "/v1/stock" else None

    line = OddLine({"items": MANY}, answer=answer)
    report = await probe_line(line, "items", "stock")
    assert report.fails
    assert f'HTTP {status}, "no such right"' in said(report, "reading", "main/stock").evidence
    assert said(report, "reading", "main/items").state is State.OK


async def test_a_record_that_is_no_json_makes_the_reading_fail() -> None:
    def answer(*_: object) -> Response:
        return replace(line.respond(200, {}), body=b'{"items": [{"id": 1e99999999999999999999}]}')

    line = OddLine({}, answer=answer)
    assert (await find(line, "reading"))[2] is State.FAILS


# Key and times -------------------------------------------------------------------------------------------------------


async def test_a_key_that_comes_twice_on_a_page_fails() -> None:
    line = OddLine({"items": [*MANY[:5], MANY[0]]})
    found, evidence, state = await find(line, "key", settings={"key": "/id"})
    assert (found, state) == ("/id", State.FAILS)
    assert evidence == "string, present in 6 of 6 records, 1 of them more than once"


async def test_a_key_that_comes_twice_on_two_pages_is_drift() -> None:
    def shift(request: Request, _: int, records: Records) -> Records:
        return [MANY[0], *records[1:]] if ("cursor", "200") in request.params else records

    report = await probe_line(OddLine({"items": MANY}, serve=shift), "items")
    assert said(report, "key").state is State.NOTE
    assert said(report, "pages overlap").found == "1 record"
    assert not report.fails


async def test_a_key_that_is_missing_in_a_record_fails() -> None:
    line = OddLine({"items": [{"id": 1}, {"name": "x"}]})
    assert (await find(line, "key", settings={"key": "/id"}))[2] is State.FAILS


async def test_an_unusual_key_is_found_and_to_be_looked_at() -> None:
    found, evidence, state = await find(OddLine({"items": [{"art_no": 7}, {"art_no": 8}]}), "key")
    assert (found, state) == ("/art_no", State.NOTE)
    assert evidence.endswith("check that it is right")


async def test_records_that_nothing_identifies_fail() -> None:
    found, evidence, state = await find(OddLine({"items": [{"x": 1}, {"x": 1}]}), "key")
    assert (found, state) == ("none", State.FAILS)
    assert "got x" in evidence


async def test_records_without_a_usual_timestamp_say_where_times_stand() -> None:
    records = [{"id": 1, "shipped": "2026-11-21T12:00:00Z"}, {"id": 2, "shipped": "2026-11-21T12:00:00Z"}]
    found, evidence, state = await find(OddLine({"items": records}), "updated_at")
    assert (found, state) == ("none", State.NOTE)
    assert evidence.endswith("times found in /shipped")


async def test_timestamps_without_a_zone_are_noted() -> None:
    records = [{"id": number, "updated_at": f"2026-11-21T12:00:0{number}"} for number in range(3)]
    assert (await find(OddLine({"items": records}), "updated_at"))[1:] == (
        "in 3 of 3 records, no zone, to the s",
        State.NOTE,
    )


async def test_stamps_from_the_future_are_counted_and_not_asked_from() -> None:
    line = OddLine({"items": [*stamped(1, 2, 3), {"id": 4, "updated_at": "2099-01-01T00:00:00Z"}]})
    report = await probe_line(line, "items")
    assert said(report, "future stamps").found == "1"
    assert said(report, "updated_since").found == "honoured"
    asked = [dict(each.params).get("updated_since", "") for each in line.asked]
    assert "2026-11-21T12:00:02Z" in asked
    assert "2099-01-02T00:00:00Z" in asked


# updated_since -------------------------------------------------------------------------------------------------------


def fine(*ids: str) -> Records:
    return [{"id": each, "updated_at": f"2026-11-21T12:00:0{number}.123456Z"} for number, each in enumerate(ids)]


async def test_a_precise_inclusive_bound_is_told() -> None:
    report = await probe_line(OddLine({"items": fine("a", "b", "c")}), "items")
    assert [said(report, what).found for what in ("updated_since", "bound", "precision of since")] == [
        "honoured",
        "inclusive",
        "1 µs",
    ]


async def test_an_exclusive_bound_is_noted() -> None:
    def serve(request: Request, _: int, records: Records) -> Records:
        since = dict(request.params).get("updated_since")
        return [each for each in records if since is None or each["updated_at"] > since]

    line = OddLine({"items": fine("a", "b", "c")}, serve=serve)
    assert (await find(line, "bound"))[::2] == ("exclusive", State.NOTE)


async def test_a_bound_whose_record_may_come_later_is_untold() -> None:
    def answer(request: Request, _: int) -> Response | None:
        if "updated_since" not in dict(request.params):
            return None
        return line.respond(200, {"items": [], "next_cursor": "more"})

    line = OddLine({"items": fine("a", "b", "c")}, answer=answer)
    assert (await find(line, "bound"))[::2] == ("unknown", State.UNTOLD)


@pytest.mark.parametrize(("length", "grain"), [(23, "milliseconds"), (19, "seconds"), (16, "minutes"), (10, "days")])
async def test_a_bound_that_is_cut_is_noted(length: int, grain: str) -> None:
    """The API compares only the first letters of ``updated_since``; older records of the same grain come too."""
    older = {"milliseconds": "12:00:05.123450", "seconds": "12:00:05.1", "minutes": "12:00:04.1", "days": "11:00:00.1"}
    records = [
        {"id": "old", "updated_at": "2026-11-20T12:00:00.1Z"},
        {"id": "same", "updated_at": f"2026-11-21T{older[grain]}Z"},
        {"id": "new", "updated_at": "2026-11-21T12:00:05.123456Z"},
    ]

    def answer(request: Request, _: int) -> Response | None:
        if (since := dict(request.params).get("updated_since")) is None:
            return None
        return line.respond(200, {"items": [each for each in records if each["updated_at"] >= since[:length]]})

    line = OddLine({"items": records}, answer=answer)
    assert (await find(line, "updated_since"))[::2] == (f"cut to whole {grain}", State.NOTE)


async def test_a_bound_coarser_than_the_stamps_is_noted() -> None:
    def answer(request: Request, _: int) -> Response | None:
        if (since := dict(request.params).get("updated_since")) is None:
            return None
        kept = [each for each in fine("a", "b", "c") if each["updated_at"] >= since[:19]]
        return line.respond(200, {"items": kept})

    line = OddLine({"items": fine("a", "b", "c")}, answer=answer)
    assert (await find(line, "precision of since"))[::2] == ("coarser than 1 µs", State.NOTE)


async def test_updated_since_that_is_ignored_fails() -> None:
    def answer(request: Request, _: int) -> Response | None:
        return line.respond(200, {"items": stamped(1, 2, 3)}) if "shipments" not in request.path else None

    line = OddLine({}, answer=answer)
    assert (await find(line, "updated_since"))[::2] == ("ignored", State.FAILS)


async def test_updated_since_that_only_looks_ahead_is_ignored_too() -> None:
    """It gives nothing for a time ahead, and everything for one that has been."""

    def serve(request: Request, _: int, records: Records) -> Records:
        since = dict(request.params).get("updated_since", "")
        return records if not since or since.startswith("2026-11-22") else old

    old = [{"id": 1, "updated_at": "2020-01-01T00:00:00Z"}, *stamped(2, 3)]
    line = OddLine({"items": old}, serve=serve)
    assert (await find(line, "updated_since"))[::2] == ("ignored", State.FAILS)


async def test_a_parameter_that_is_refused_is_told_as_not_measured() -> None:
    def answer(request: Request, _: int) -> Response | None:
        return line.respond(400, {"error": "bad time"}) if "updated_since" in dict(request.params) else None

    line = OddLine({"items": MANY}, answer=answer)
    report = await probe_line(line, "items")
    finding = said(report, "updated_since")
    assert (finding.found, finding.state) == ("unknown", State.UNTOLD)
    assert 'HTTP 400, "bad time"' in finding.evidence


# Cursors, order, second readings -------------------------------------------------------------------------------------


async def test_an_offset_cursor_is_a_note() -> None:
    assert (await find(OddLine({"items": MANY}), "cursor"))[::2] == ("offset (a hint)", State.NOTE)


async def test_a_cursor_that_serves_once_is_noted() -> None:
    used: set[str] = set()

    def answer(request: Request, _: int) -> Response | None:
        cursor = dict(request.params).get("cursor")
        if cursor is None or cursor not in used:
            used.add(cursor or "")
            return None
        return line.respond(410, {"error": "gone"})

    line = OddLine({"items": MANY}, answer=answer)
    assert (await find(line, "cursor reuse"))[::2] == ("refused", State.NOTE)


async def test_a_cursor_that_leads_elsewhere_is_noted() -> None:
    seen: list[str] = []

    def serve(request: Request, _: int, records: Records) -> Records:
        cursor = dict(request.params).get("cursor", "")
        seen.append(cursor)
        return records[::-1] if cursor and seen.count(cursor) > 1 else records

    assert (await find(OddLine({"items": MANY}, serve=serve), "cursor reuse"))[::2] == ("another page", State.NOTE)


async def test_an_order_that_changes_between_two_readings_is_noted() -> None:
    line = OddLine({"items": MANY[:3]}, serve=lambda _, number, records: records[:: 1 if number == 1 else -1])
    assert (await find(line, "order when reread"))[::2] == ("different", State.NOTE)


async def test_what_moves_by_itself_and_what_is_shuffled_is_told() -> None:
    def serve(_: Request, number: int, records: Records) -> Records:
        return [
            each
            | {"seen": number, "tags": ["a", "b"][:: (-1) ** (number > 1)], "weight": number if each["id"] == 1 else 0}
            for each in records
        ]

    report = await probe_line(OddLine({"items": stamped(*range(10))}, serve=serve), "items")
    assert said(report, "unordered").found == "/tags"
    assert said(report, "volatile").found == "/seen"
    assert "in 10 of 10 records while /updated_at did not change" in said(report, "volatile").evidence
    assert said(report, "silent change").found == "/weight"


async def test_without_timestamps_what_moves_is_told_all_the_same() -> None:
    line = OddLine(
        {"stock": [{"id": number} for number in range(3)]},
        serve=lambda _, number, records: [each | {"seen": number} for each in records],
    )
    assert (await find(line, "volatile", "stock"))[1].endswith("while there was no timestamp to show it")


async def test_a_first_page_that_holds_others_the_second_time_says_so() -> None:
    line = OddLine({"stock": [{"id": 1}]}, serve=lambda _, number, records: [{"id": number} for each in records])
    assert (await find(line, "order when reread", "stock"))[0] == "unknown"


# Filters, relations, shipments ---------------------------------------------------------------------------------------


async def test_what_the_default_status_hides_is_told() -> None:
    def serve(request: Request, _: int, records: Records) -> Records:
        return [each for each in records if ("status", "all") in request.params or each["status"] == "active"]

    records = stamped(1, 2, status="active") + stamped(3, status="inactive")
    line = OddLine({"items": records}, serve=serve)
    assert (await find(line, "status=all"))[0] == "shows more"
    assert (await find(OddLine({"items": records[:2]}), "status=all"))[0] == "no difference seen"


async def test_relations_are_accepted_refused_or_without_effect() -> None:
    def answer(request: Request, _: int) -> Response | None:
        wanted = dict(request.params).get("expand", "").split(",")
        return line.respond(400, {"error": "no invoices"}) if "invoices" in wanted else None

    def serve(request: Request, _: int, records: Records) -> Records:
        return [each | ({"boxes": []} if ("expand", "packages") in request.params else {}) for each in records]

    line = OddLine({"shipments": stamped(1)}, answer=answer, serve=serve)
    report = await probe_line(line, "shipments")
    found = [said(report, f"expand={name}").found for name in ("packages", "line_items", "invoices")]
    assert found == ["accepted", "no effect seen", "refused"]
    assert said(report, "expand=packages").evidence == "adds boxes"


def shipments(answer: Any) -> OddLine:
    """Return a line with shipments, and this answer for single ones."""

    def reply(request: Request, _: int) -> Response | None:
        return answer(line, request) if request.path.startswith("/v1/shipments/") else None

    line = OddLine({"shipments": stamped("shp_1", "shp_2")}, answer=reply)
    return line


@pytest.mark.parametrize(
    ("status", "state"), [(404, State.OK), (410, State.OK), (200, State.NOTE), (400, State.NOTE), (503, State.UNTOLD)]
)
async def test_the_answer_to_an_unknown_shipment_is_told(status: int, state: State) -> None:
    line = shipments(lambda line, _: line.respond(status, None))
    assert (await find(line, "unknown shipment", "shipments"))[2] is state


async def test_a_shipment_with_a_number_is_asked_for_by_another_number() -> None:
    line = OddLine(
        {"shipments": stamped(1, 2)},
        answer=lambda request, _: line.respond(404, None) if "98" in request.path else None,
    )
    assert (await find(line, "unknown shipment", "shipments"))[0] == "HTTP 404"


async def test_members_that_only_a_single_shipment_has_are_told() -> None:
    line = shipments(lambda line, _: line.respond(200, {"id": "shp_1", "route": [], "notes": ""}))
    assert (await find(line, "detail", "shipments"))[:2] == ("2 more fields", "notes, route")


async def test_a_single_shipment_that_is_no_object_is_not_measured() -> None:
    line = shipments(lambda line, _: line.respond(200, [1]))
    assert "not a JSON object" in (await find(line, "detail", "shipments"))[1]


async def test_a_composite_shipment_cannot_be_asked_for() -> None:
    line = OddLine({"shipments": [{"sku": "a", "warehouse_id": 1}]})
    assert "detail" not in whats(await probe_line(line, "shipments"))


@pytest.mark.parametrize(("status", "told"), [(304, "304 when unchanged"), (200, "HTTP 200")])
async def test_an_etag_is_tried(status: int, told: str) -> None:

    def answer(request: Request, _: int) -> Response | None:
        return line.respond(status, None) if request.etag == '"x"' else None

    line = OddLine({"stock": stamped(1)}, answer=answer, headers={"etag": '"x"'})
    assert (await find(line, "ETag", "stock"))[0] == told


async def test_an_etag_that_no_request_is_left_for_is_told() -> None:
    line = OddLine({"stock": stamped(1)}, headers={"etag": '"x"'})
    assert (await find(line, "ETag", "stock", requests=1))[::2] == ("given", State.UNTOLD)


# The source ----------------------------------------------------------------------------------------------------------


async def test_a_source_tells_its_budget_its_other_users_and_its_speed() -> None:
    line = OddLine({"stock": stamped(1)})
    line.headers = {"x-ratelimit-limit": "120", "x-ratelimit-remaining": "100", "content-encoding": "gzip"}
    report = await probe_line(line, "stock")
    assert said(report, "budget").found == "120 requests per window"
    assert said(report, "other users").found == "0 requests"
    assert said(report, "gzip").found == "yes"
    assert said(report, "latency").found == "0 ms"
    assert said(report, "requests").found == f"{len(line.asked)} sent"


async def test_other_users_of_the_key_are_noticed() -> None:
    line = OddLine({"stock": stamped(1)})

    def answer(*_: object) -> None:
        left = 280 - 5 * len(line.asked)
        line.headers = {"x-ratelimit-limit": "300", "x-ratelimit-remaining": str(left)}

    line.answer = answer
    report = await probe_line(line, "stock")
    assert said(report, "other users").state is State.NOTE
    assert said(report, "other users").found == f"{4 * (len(line.asked) - 1)} requests"


async def test_one_answer_tells_nothing_of_other_users() -> None:
    line = OddLine({"stock": stamped(1)}, headers={"x-ratelimit-limit": "300", "x-ratelimit-remaining": "299"})
    assert said(await probe_line(line, "stock", requests=1), "other users").state is State.UNTOLD


async def test_without_rate_limit_headers_the_budget_is_assumed() -> None:
    assert said(await probe_line(OddLine({}), "stock"), "budget").state is State.NOTE


@pytest.mark.parametrize(
    ("skew", "told"),
    [
        (90, "1m29s ahead of the local clock"),
        (-90, "1m29s behind the local clock"),
        (0, "matches the local clock"),
        (None, "no Date"),
    ],
)
async def test_the_clock_is_told(skew: int | None, told: str) -> None:
    line = OddLine({"stock": stamped(1)})

    def answer(*_: object) -> None:
        date = (line.clock + timedelta(seconds=skew or 0)).replace(microsecond=0)
        line.headers = {"date": format_datetime(date, usegmt=True) if skew is not None else ""}

    line.answer = answer
    line.clock = START
    found = said(await probe_line(line, "stock"), "clock")
    assert found.found.replace("1m30s", "1m29s") == told
