from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import anyio.lowlevel
import httpx
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.admin import check as operation
from dockbell.admin.check import Finding, check, try_sink
from dockbell.app import load_config
from dockbell.config import Config, validate
from dockbell.core.model import DELIVERED, Delivery, Outcome, OutcomeKind
from dockbell.core.publishing.event import test_event as make_test_event
from dockbell.errors import ConfigError, SinkUnavailable, StoreError
from dockbell.ports import Sink
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.sinks import load_sink_type
from dockbell.sources import InventoryClient
from dockbell.telemetry import Telemetry
from tests.fakes import NOON, FakeSink

PROVISIONAL = " (provisional, because learned: no events until a complete pass proves it unique)"
NO_DATE = "no reliable Date: dockbell takes the time from"
RESOURCES = ("shipments", "packages", "items", "stock", "warehouses")


def configure(url: str, resources: tuple[str, ...] = RESOURCES, api_key: str = "sandbox", **settings: object) -> Config:
    return validate(
        {
            "sources": {"main": {"base_url": url, "api_key": api_key}},
            "resources": dict.fromkeys(resources, settings),
            "sinks": {"out": {"type": "stdout"}},
        },
        lambda kind: load_sink_type(kind).Settings,
    )


async def probe_store() -> str:
    return "/var/lib/dockbell.db, free"


async def run_check(
    config: Config,
    *,
    open_source: Callable[[str, Telemetry], InventoryClient] | None = None,
    open_sink: Callable[[str], Sink] = FakeSink,
) -> list[Finding]:
    def from_settings(name: str, telemetry: Telemetry) -> InventoryClient:
        return InventoryClient.from_settings(name, config.sources[name], telemetry)

    return [
        *await check(config, probe_store=probe_store, open_source=open_source or from_settings, open_sink=open_sink)
    ]


@pytest.fixture
async def sandbox() -> AsyncIterator[str]:
    async with serve(Sandbox(SandboxOptions(records=50, stock_key="composite"))) as url:
        yield url


async def test_store_feeds_and_sinks_are_found_in_this_order(sandbox: str) -> None:
    findings = await run_check(configure(sandbox))
    assert [finding.subject for finding in findings] == [
        "store",
        *(f"main/{resource}" for resource in RESOURCES),
        "sink out",
    ]
    assert not any(finding.fails for finding in findings)
    assert findings[-1].detail == "here"


async def test_a_feed_tells_its_answer_its_budget_and_what_identifies_its_records(sandbox: str) -> None:
    finding = (await run_check(configure(sandbox, ("stock",), key=["/sku", "/warehouse_id"])))[1]
    answer, *rest = finding.detail.split(", ")
    assert answer.startswith("HTTP 200 in ")
    assert rest == ['records in "stock"', "299 requests left", "key /sku + /warehouse_id", "timestamp /updated_at"]


async def test_a_key_that_is_not_configured_is_said_to_be_provisional(sandbox: str) -> None:
    finding = (await run_check(configure(sandbox, ("stock",))))[1]
    assert not finding.fails
    assert finding.detail.endswith(f", key /sku + /warehouse_id{PROVISIONAL}, timestamp /updated_at")


async def test_the_key_is_learned_from_the_whole_first_page_as_the_daemon_does_it() -> None:
    records = '[{"code": "a", "number": 1}, {"code": "a", "number": 2}]'
    assert f", key /number{PROVISIONAL}, timestamp none" in (await look_at(Api(records))).detail


async def test_a_key_that_is_not_accepted_fails(sandbox: str) -> None:
    finding = (await run_check(configure(sandbox, ("items",), api_key="wrong")))[1]
    assert finding.fails
    assert "the API does not accept the key" in finding.detail
    assert "wrong" not in finding.detail


async def test_an_api_that_is_away_fails_at_once() -> None:
    findings = await run_check(configure("http://127.0.0.1:9"))
    assert [(each.subject, each.fails) for each in findings[1:]] == [
        ("source main", True),
        ("sink out", False),
    ]
    assert findings[1].detail.startswith("no feed can be read: ")
    assert "cannot connect to 127.0.0.1:9" in findings[1].detail


class Api:
    """An API as odd as a test needs it."""

    def __init__(self, records: str = '[{"id": 1}]', *, envelope: str = "items", **headers: str) -> None:
        self._records = records
        self._envelope = envelope
        self._headers = headers

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = f'{{"{self._envelope}": {self._records}, "next_cursor": null}}'
        return httpx.Response(200, text=body, headers={"content-type": "application/json"} | self._headers)

    def open_source(self, name: str, telemetry: Telemetry) -> InventoryClient:
        transport = httpx.MockTransport(self)
        return InventoryClient("http://api", "key", name=name, telemetry=telemetry, transport=transport)


async def look_at(api: Api, **settings: object) -> Finding:
    config = configure("http://api", ("items",), "key", **settings)
    return (await run_check(config, open_source=api.open_source))[1]


async def test_an_api_without_headers_is_said_to_have_none() -> None:
    detail = (await look_at(Api(), key=["/id"])).detail
    assert detail.endswith(
        f'records in "items", no rate limit headers, {NO_DATE} the local clock, key /id, timestamp none'
    )


async def test_what_fails_some_feeds_by_one_cause_is_told_once() -> None:
    class Partial(Api):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            return super().__call__(request) if request.url.path.endswith("/stock") else httpx.Response(503)

    config = configure("http://api", ("items", "stock", "shipments"), "key", key=["/id"])
    findings = await run_check(config, open_source=Partial(envelope="stock").open_source)
    assert [(each.subject, each.fails) for each in findings[1:3]] == [("source main", True), ("main/stock", False)]
    assert findings[1].detail.startswith("shipments, items cannot be read: GET /v1/shipments: HTTP 503")


async def test_without_a_date_the_reset_tells_the_time() -> None:
    reset = str(int(datetime.now(UTC).timestamp()) + 30)
    detail = (await look_at(Api(**{"x-ratelimit-reset": reset}))).detail
    assert f", {NO_DATE} x-ratelimit-reset, " in detail


async def test_a_date_that_is_absurd_and_not_confirmed_is_not_said_to_be_missing() -> None:
    class Wandering(Api):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            self._headers["date"] = format_datetime(datetime.now(UTC) + timedelta(days=next(years)), usegmt=True)
            return super().__call__(request)

    years = itertools.count(365, 365)
    detail = (await look_at(Wandering())).detail
    assert f", {NO_DATE} the local clock, " in detail


@pytest.mark.parametrize(("skew", "told"), [(90, "ahead of"), (-90, "behind")])
async def test_a_clock_that_is_off_is_told(skew: int, told: str) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=skew), usegmt=True)
    finding = await look_at(Api(date=date))
    assert not finding.fails
    assert re.search(rf"API clock 1m\S+ {told} the local clock", finding.detail)


async def test_a_clock_that_is_right_is_not_mentioned() -> None:
    assert "clock" not in (await look_at(Api(date=format_datetime(datetime.now(UTC), usegmt=True)))).detail


async def test_a_listing_without_records_is_fine() -> None:
    finding = await look_at(Api("[]"))
    assert not finding.fails
    assert finding.detail.endswith("no records")


async def test_records_that_nothing_identifies_fail_with_the_remedy() -> None:
    finding = await look_at(Api('[{"colour": "red"}]'))
    assert finding.fails
    assert finding.detail.endswith("set key in [resources.items]")


async def test_a_configured_key_that_leads_to_nothing_fails() -> None:
    finding = await look_at(Api(), key=["/nr"])
    assert finding.fails
    assert "/nr" in finding.detail


async def test_a_source_that_cannot_be_made_fails_as_one() -> None:
    def refuse(name: str, telemetry: Telemetry) -> InventoryClient:
        raise ConfigError("ca_file: no certificates")

    findings = await run_check(configure("http://api"), open_source=refuse)
    assert findings[1] == Finding("source main", fails=True, detail="ca_file: no certificates")
    assert len(findings) == 3


async def test_a_paused_source_is_not_asked() -> None:
    config = configure("http://api")
    paused = config.sources["main"].model_copy(update={"paused": True})
    findings = await run_check(config.model_copy(update={"sources": {"main": paused}}))
    assert findings[1] == Finding("source main", fails=False, detail="paused, not checked")


async def test_a_sink_that_cannot_be_reached_or_made_fails() -> None:
    class Away(FakeSink):
        async def probe(self) -> str:
            raise SinkUnavailable("127.0.0.1:1: connection refused")

    def refuse(name: str) -> Sink:
        raise ConfigError("environment variable X is not set")

    for open_sink, told in ((Away, "127.0.0.1:1: connection refused"), (refuse, "environment variable X is not set")):
        finding = (await run_check(configure("http://127.0.0.1:9"), open_sink=open_sink))[-1]
        assert finding == Finding("sink out", fails=True, detail=told)


async def test_a_sink_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(FakeSink):
        async def probe(self) -> str:
            raise TimeoutError

    finding = (await run_check(configure("http://127.0.0.1:9"), open_sink=Mute))[-1]
    assert finding == Finding("sink out", fails=True, detail="no answer within a minute")


async def test_a_store_that_cannot_be_opened_fails() -> None:
    async def refuse() -> str:
        raise StoreError("store a.db: permission denied")

    config = configure("http://127.0.0.1:9")
    findings = await operation.check(
        config,
        probe_store=refuse,
        open_source=lambda name, telemetry: InventoryClient.from_settings(name, config.sources[name], telemetry),
        open_sink=FakeSink,
    )
    assert findings[0] == Finding("store", fails=True, detail="store a.db: permission denied")


async def test_a_dockbell_without_sinks_is_told_so() -> None:
    config = configure("http://127.0.0.1:9").model_copy(update={"sinks": {}})
    finding = (await run_check(config))[-1]
    assert (finding.subject, finding.state) == ("sinks", "warns")
    assert finding.detail.startswith("no sinks: dockbell records events, and clients can only pull them")


def with_sinks(**sinks: dict[str, object]) -> Config:
    return validate(
        {"sources": {"main": {"base_url": "http://127.0.0.1:9", "api_key": "k"}}, "sinks": sinks},
        lambda kind: load_sink_type(kind).Settings,
    )


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ({"url": "mqtt://broker", "client_id": "a"}, {"url": "mqtt://broker:1883", "client_id": "a"}, True),
        ({"url": "mqtt://broker", "client_id": "a"}, {"url": "mqtt://broker", "client_id": "b"}, False),
        ({"url": "mqtt://broker", "client_id": "a"}, {"url": "mqtt://other", "client_id": "a"}, False),
        ({"url": "mqtt://broker"}, {"url": "mqtt://broker"}, False),
        ({"url": "mqtt://broker", "client_id": "dockbell-two"}, {"url": "mqtt://broker"}, True),
    ],
)
async def test_two_sinks_that_throw_each_other_out_fail(
    one: dict[str, object], other: dict[str, object], clash: bool
) -> None:
    findings = await run_check(with_sinks(one={"type": "mqtt", **one}, two={"type": "mqtt", **other}))
    sinks = {finding.subject: finding for finding in findings if finding.subject.startswith("sink ")}
    assert [sink.fails for sink in sinks.values()] == [clash, clash]
    if clash:
        assert "sink two also uses client_id" in sinks["sink one"].detail


@pytest.mark.parametrize(
    ("where", "state", "said"),
    [
        ("after.id == 1", "ok", "holds"),
        ("after.id == 1 && after.n > 5", "ok", "does not hold"),
        ("after.id == 1 && after.clour == 'red'", "warns", "after.clour == 'red' names a member that is not there"),
        ("after.colour", "fails", "after.colour is text, neither true nor false"),
        ("after.id > 'a'", "fails", "after.id > 'a' combines values of kinds that do not go together"),
    ],
)
async def test_conditions_are_tried_on_a_real_record(where: str, state: str, said: str) -> None:
    api = Api('[{"id": 1, "n": 2, "colour": "red"}]')
    events = [{"name": "odd", "when": where}]
    config = configure("http://api", ("items",), "key", key=["/id"], events=events)
    sinks = {name: sink.model_copy(update={"where": where}) for name, sink in config.sinks.items()}
    findings = await run_check(config.model_copy(update={"sinks": sinks}), open_source=api.open_source)
    judged = {finding.subject: (finding.state, finding.detail) for finding in findings[2:4]}
    assert judged == {
        "main/items event odd": (state, f"for items 1: {said}"),
        "sink out where": (state, f"for items 1: {said}"),
    }


async def test_a_condition_that_takes_too_long_of_a_real_record_is_a_warning() -> None:
    tags = ",".join(f'"tag-{number}"' for number in range(40_000))
    config = configure("http://api", ("items",), "key", key=["/id"])
    where = {"where": "after.tags.exists(t, !(t in before.tags))"}
    sinks = {name: sink.model_copy(update=where) for name, sink in config.sinks.items()}
    api = Api(f'[{{"id": 1, "tags": [{tags}]}}]')
    findings = await run_check(config.model_copy(update={"sinks": sinks}), open_source=api.open_source)
    judged = [(finding.state, finding.detail) for finding in findings if finding.subject == "sink out where"]
    assert judged == [("warns", "for items 1: takes too long to judge of so large a record")]


async def test_a_condition_of_a_sink_that_takes_other_feeds_is_not_tried() -> None:
    config = configure("http://api", ("items", "stock"), "key", key=["/id"])
    sinks = {
        name: sink.model_copy(update={"where": "true", "resources": ("stock",)}) for name, sink in config.sinks.items()
    }
    findings = await run_check(config.model_copy(update={"sinks": sinks}), open_source=Api().open_source)
    assert [finding.detail for finding in findings if finding.subject == "sink out where"] == ["for stock 1: holds"]


async def look_for_warnings(records: str, settings: Mapping[str, object], **sink: object) -> list[tuple[str, str]]:
    config = configure("http://api", ("shipments",), "key", key=["/id"], **settings)
    sinks = {name: each.model_copy(update=sink) for name, each in config.sinks.items()}
    api = Api(records, envelope="shipments")
    findings = await run_check(config.model_copy(update={"sinks": sinks}), open_source=api.open_source)
    assert not any(finding.fails for finding in findings)
    return [(finding.subject, finding.detail) for finding in findings if finding.warns]


@pytest.mark.parametrize("key", ["drop", "ignore", "unordered"])
async def test_a_pointer_that_no_record_has_is_a_warning(key: str) -> None:
    places = ["/ship_to/emial", "/ship_to/email", "/parts/*/sku", "/parts/*/size", "/parts/0", "/*", "/a~1b/*"]
    records = (
        '[{"id": 1, "ship_to": null, "parts": []}, {"id": 2, "ship_to": {"email": null}},'
        ' {"id": 3, "parts": [{}, {"sku": "a"}], "a/b": {"*": 1}}]'
    )
    unmet = "none of the 3 records checked has it; check the spelling"
    assert await look_for_warnings(records, {key: places}) == [
        ("main/shipments", f'{key} "{place}": {unmet}') for place in ("/ship_to/emial", "/parts/*/size", "/*")
    ]


async def test_a_pointer_into_a_lone_record_is_told_of_that_one() -> None:
    told = 'drop "/nmae": the one record checked does not have it; check the spelling'
    assert await look_for_warnings('[{"id": 1, "name": "a"}]', {"drop": ["/nmae", "/name"]}) == [
        ("main/shipments", told)
    ]


async def test_a_pointer_is_not_judged_without_records_nor_where_a_detail_brings_it() -> None:
    assert await look_for_warnings("[]", {"drop": ["/nmae"]}) == []
    detailed = {"detail": ["packages"], "drop": ["/packages/*/weight"]}
    assert await look_for_warnings('[{"id": 1}]', detailed, redact=("/packages/0/sku",)) == []


@pytest.mark.parametrize("key", ["fields", "redact"])
async def test_a_pointer_of_a_sink_is_looked_for_in_all_feeds_that_it_takes(key: str) -> None:
    config = configure("http://api", ("items", "stock"), "key", key=["/id"])
    update = {key: ("/colour", "/size", "/shape"), "resources": ("stock",)}
    sinks = {name: sink.model_copy(update=update) for name, sink in config.sinks.items()}

    class Two(Api):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            of_stock = request.url.path.endswith("stock")
            return Api('[{"id": 1, "colour": 1}]' if of_stock else '[{"id": 1, "size": 1}]')(request)

    async def find_warned() -> list[str]:
        findings = await run_check(config.model_copy(update={"sinks": sinks}), open_source=Two().open_source)
        return [f"{each.subject}: {each.detail.partition(':')[0]}" for each in findings if each.warns]

    assert await find_warned() == [f'sink out: {key} "/size"', f'sink out: {key} "/shape"']
    sinks = {name: sink.model_copy(update={"resources": None}) for name, sink in sinks.items()}
    assert await find_warned() == [f'sink out: {key} "/shape"']


async def test_a_whole_page_is_asked_for_by_one_request() -> None:
    asked = []

    class Counting(Api):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            asked.append(request.url.params["limit"])
            return super().__call__(request)

    await look_at(Counting(), key=["/id"])
    await look_at(Counting())
    assert asked == ["25", "200"]


@pytest.mark.parametrize("is_busy", [False, True])
async def test_the_address_to_listen_on_is_told_after_the_store(is_busy: bool) -> None:
    async def probe_web() -> str:
        if is_busy:
            raise ConfigError("[web] listen: address already in use")
        return "127.0.0.1:8470, free"

    config = configure("http://127.0.0.1:9").model_copy(update={"sources": {}})
    findings = await check(
        config, probe_store=probe_store, open_source=Api().open_source, open_sink=FakeSink, probe_web=probe_web
    )
    told = "[web] listen: address already in use" if is_busy else "127.0.0.1:8470, free"
    assert findings[:2] == [
        Finding("store", fails=False, detail="/var/lib/dockbell.db, free"),
        Finding("web", fails=is_busy, detail=told),
    ]


EVENT = make_test_event("acme", "erp", NOON, "nonce")


@pytest.mark.parametrize("outcome", [DELIVERED, Outcome(OutcomeKind.REFUSED, "HTTP 400")])
async def test_one_event_is_attempted_once_and_its_outcome_returned(outcome: Outcome) -> None:
    sink = FakeSink(answer=lambda _: outcome)
    assert await try_sink(sink, EVENT) == outcome
    assert sink.got == [Delivery(EVENT)]


class Mute(FakeSink):
    """Never comes to an end."""

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        await anyio.sleep_forever()


async def test_a_sink_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "_TRIAL_PATIENCE", operation._TRIAL_PATIENCE / 10_000)
    assert (await try_sink(Mute(), EVENT)).kind is OutcomeKind.UNREACHABLE


# Many sources --------------------------------------------------------------------------------------------------------


async def test_how_many_files_and_sources_were_read_is_told(tmp_path: Path) -> None:
    config_file, folder = tmp_path / "dockbell.toml", tmp_path / "sources.d"
    folder.mkdir()
    config_file.write_text('include = "sources.d/*.toml"\n[source_defaults]\nbase_url = "http://api"\napi_key = "k"\n')

    async def find_included() -> Finding:
        findings = await run_check(load_config(config_file), open_source=Api().open_source)
        (found,) = [each for each in findings if each.subject == "include"]
        return found

    none = "no file matches; 0 sources in total"
    assert await find_included() == Finding("include", fails=False, detail=none, warns=True)
    (folder / "a.toml").write_text("[sources.a]\n[sources.b]\n")
    assert await find_included() == Finding("include", fails=False, detail="1 file with 2 sources; 2 sources in total")


async def test_of_many_sources_a_part_is_asked_at_once_and_each_is_found_in_its_place() -> None:
    config = configure("http://api", ("items",), "key")
    names = [f"s{number:03}" for number in range(200)]
    config = config.model_copy(update={"sources": dict.fromkeys(names, config.sources["main"]), "sinks": {}})
    opened: list[str] = []
    most = 0

    class Counted(InventoryClient):
        async def aclose(self) -> None:
            opened.remove(self.name)
            await super().aclose()

    async def answer(request: httpx.Request) -> httpx.Response:
        await anyio.lowlevel.checkpoint()  # others may begin
        return Api()(request)

    def open_source(name: str, telemetry: Telemetry) -> InventoryClient:
        nonlocal most
        opened.append(name)
        most = max(most, len(opened))
        return Counted("http://api", "key", name=name, telemetry=telemetry, transport=httpx.MockTransport(answer))

    findings = await run_check(config, open_source=open_source)
    assert [each.subject for each in findings if each.subject.endswith("/items")] == [f"{name}/items" for name in names]
    assert most == 64
    assert not opened
