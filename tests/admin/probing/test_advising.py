from __future__ import annotations

import tomllib
from datetime import timedelta
from typing import Any

import pytest

from dockbell.admin.probing import Report, probe
from dockbell.config import Config, validate
from dockbell.core.reading.request import Request
from dockbell.core.reading.response import Response
from dockbell.sinks import load_sink_type
from tests.admin.probing.odd import OddLine, Records, probe_line, stamped

MANY = stamped(*(f"stk_{number:05}" for number in range(1000)))


def load(toml: str) -> Config:
    """Return what dockbell's own loader makes of a text."""
    return validate(tomllib.loads(toml), lambda kind: load_sink_type(kind).Settings)


def table(report: Report, resource: str) -> dict[str, Any]:
    """Return what is advised for a resource."""
    assert load(report.toml)
    advised: dict[str, Any] = tomllib.loads(report.toml)["sources"]["main"]["resources"][resource]
    return advised


def reason(report: Report, key: str) -> str:
    """Return the reason on the first line that sets a key."""
    line = next(line for line in report.toml.splitlines() if line.startswith(f"{key} = "))
    return line.partition(" # ")[2]


async def test_every_setting_has_a_reason() -> None:
    report = await probe_line(OddLine({"items": MANY[:9], "shipments": MANY[:9]}), "items", "shipments", "stock")
    for line in report.toml.splitlines():
        assert not line or line.startswith(("#", "[")) or line.partition(" # ")[2].strip()


async def test_what_was_found_is_set() -> None:
    def serve(_: Request, number: int, records: Records) -> Records:
        return [each | {"seen": number, "tags": ["a", "b"][:: 1 if number == 1 else -1]} for each in records]

    report = await probe_line(OddLine({"items": MANY[:9]}, serve=serve), "items")
    advised = table(report, "items")
    assert advised["key"] == "/id"
    assert advised["updated_at"] == "/updated_at"
    assert (advised["ignore"], advised["unordered"]) == (["/seen"], ["/tags"])
    assert advised["query"] == {"status": "all"}
    assert reason(report, "key") == "string, present in 9 of 9 records, unique"
    assert reason(report, "ignore").startswith(
        "changed although the record's timestamp did not: /seen in 9 of 9 records"
    )


async def test_what_is_configured_already_is_kept() -> None:
    settings = {"key": ["/id"], "ignore": ["/x"], "unordered": ["/y"], "expand": ["stock"], "every": "7m"}
    report = await probe_line(OddLine({"items": MANY[:3]}), "items", settings=settings)
    advised = table(report, "items")
    assert {name: advised[name] for name in ("ignore", "unordered", "expand", "every")} == {
        "ignore": ["/x"],
        "unordered": ["/y"],
        "expand": ["stock"],
        "every": "7m",
    }


async def test_a_schedule_by_cron_is_kept() -> None:
    report = await probe_line(OddLine({"stock": MANY[:3]}), "stock", settings={"cron": "30 6 * * mon-fri"})
    assert table(report, "stock")["cron"] == "30 6 * * mon-fri"
    assert "every" not in table(report, "stock")


async def test_a_composite_key_is_a_list() -> None:
    records = [{"sku": f"s{number}", "warehouse_id": 1} for number in range(3)]
    assert table(await probe_line(OddLine({"stock": records}), "stock"), "stock")["key"] == ["/sku", "/warehouse_id"]


async def test_what_was_not_read_twice_is_assumed() -> None:
    report = await probe_line(OddLine({"items": MANY}), "items", requests=1)
    assert reason(report, "every") == "as often as the budget allows; a full read takes at least 1 page"
    for key in ("unordered", "ignore", "query", "reconcile", "lookback"):
        assert reason(report, key).startswith("assumed: "), key
    assert load(report.toml)


async def test_a_guessed_key_is_assumed_and_none_is_not_set() -> None:
    guessed = await probe_line(OddLine({"items": [{"art_no": 1}, {"art_no": 2}]}), "items")
    assert reason(guessed, "key").startswith("assumed: ")
    none = await probe_line(OddLine({"items": [{"x": 1}, {"x": 1}]}), "items")
    assert "# no key here: found no field" in none.toml
    assert "key" not in table(none, "items")
    empty = await probe_line(OddLine({}), "items")
    assert "# no key here: no records to learn it from" in empty.toml
    assert "key" not in table(empty, "items")


@pytest.mark.parametrize(("total", "at_most"), [(1000, None), (100_000, None), (10_000_000, "1d")])
async def test_no_more_is_promised_of_a_long_list_than_the_budget_carries(total: int, at_most: str | None) -> None:
    report = await probe_line(OddLine({"stock": MANY}, extra={"total": total}), "stock")
    advised = table(report, "stock")
    assert (advised["every"], advised.get("at_most")) == ("auto", at_most)
    assert reason(report, "every") == f"as often as the budget allows; a full read takes {total // 200} pages"
    assert load(report.toml)


@pytest.mark.parametrize(("total", "every"), [(1000, "5m"), (100_000, "10m"), (10_000_000, "1d")])
async def test_a_long_list_is_read_whole_less_often(total: int, every: str) -> None:
    line = OddLine({"stock": MANY}, extra={"total": total})
    report = await probe_line(line, "stock", settings={"every": "5m"})
    assert table(report, "stock")["every"] == every
    assert reason(report, "every") == f"every read covers the whole list; a full read takes {total // 200} pages"


async def test_a_list_of_unknown_length_is_assumed_to_be_short() -> None:
    report = await probe_line(OddLine({"stock": MANY}), "stock", settings={"every": "5m"})
    assert reason(report, "every") == "assumed: every read covers the whole list; a full read takes at least 3 pages"


async def test_a_listing_that_ignores_updated_since_is_read_whole_and_so_less_often() -> None:
    def answer(request: Request, _: int) -> Response | None:
        if "updated_since" not in dict(request.params):
            return None
        return line.respond(200, {"items": MANY[:200], "next_cursor": "200"})

    line = OddLine({"items": MANY}, answer=answer, extra={"total": 100_000})
    report = await probe_line(line, "items", settings={"every": "1m"})
    assert table(report, "items")["every"] == "10m"
    report = await probe_line(line, "items")
    assert table(report, "items")["at_most"] == "10m"


async def test_a_resource_that_is_refused_is_left_out_and_one_that_did_not_answer_is_not() -> None:
    statuses = {"/v1/stock": 403, "/v1/warehouses": 503}

    def answer(request: Request, _: int) -> Response | None:
        return line.respond(statuses[request.path], None) if request.path in statuses else None

    line = OddLine({"items": MANY[:3]}, answer=answer)
    report = await probe_line(line, "items", "stock", "warehouses")
    assert table(report, "stock") == {"enabled": False}
    assert "HTTP 403" in reason(report, "enabled")
    assert table(report, "warehouses") == {}
    assert "# not measured, all values assumed: GET /v1/warehouses: HTTP 503" in report.toml


async def test_nothing_is_advised_where_nothing_was_read() -> None:
    report = await probe_line(OddLine({}, answer=lambda *_: OddLine({}).respond(403, None)), "items", "stock")
    assert report.toml == ""
    assert report.fails


async def test_more_that_single_shipments_have_is_mentioned() -> None:
    def answer(request: Request, _: int) -> Response | None:
        return line.respond(200, {"id": "a", "route": []}) if request.path == "/v1/shipments/a" else None

    line = OddLine({"shipments": stamped("a")}, answer=answer)
    report = await probe_line(line, "shipments")
    assert "# no detail here, but a single shipment has more fields: route" in report.toml


async def test_the_budget_is_the_one_that_the_api_tells() -> None:
    headers = {"x-ratelimit-limit": "120", "x-ratelimit-remaining": "119"}
    told = load((await probe_line(OddLine({}, headers=headers), "stock")).toml)
    assert told.sources["main"].requests_per_minute == 120
    assumed = await probe_line(OddLine({}), "stock")
    assert reason(assumed, "requests_per_minute").startswith("assumed")


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("secret-key", {"env": "DOCKBELL_API_KEY"}),
        ({"env": "MY_KEY"}, {"env": "MY_KEY"}),
        ({"file": "/run/key"}, {"file": "/run/key"}),
    ],
)
async def test_where_the_key_is_from_is_written_and_never_the_key(given: object, written: dict[str, str]) -> None:
    config = validate(
        {"sources": {"main": {"base_url": "http://api", "api_key": given}}, "resources": {"stock": {}}},
        lambda kind: load_sink_type(kind).Settings,
    )
    source = config.sources["main"]
    report = await probe("main", source, config.feeds(), OddLine({}), requests=5, apart=timedelta(0))
    assert tomllib.loads(report.toml)["sources"]["main"]["api_key"] == written
    assert "secret-key" not in report.toml


async def test_odd_names_are_written_as_toml_has_them() -> None:
    """A member may be called anything; the text must still be TOML and lead to the same member."""
    name = 'tägs "a"\\b/~\x7f'

    def serve(_: Request, number: int, records: Records) -> Records:
        return [each | {name: [1, 2][:: 1 if number == 1 else -1]} for each in records]

    advised = table(await probe_line(OddLine({"stock": MANY[:2]}, serve=serve), "stock"), "stock")
    assert advised["unordered"] == ['/tägs "a"\\b~1~0\x7f']
