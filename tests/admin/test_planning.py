"""Whether a budget suffices: by what a store holds, by what is given, and with other settings."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.admin.plan_as_json import describe_plan
from dockbell.admin.plan_options import Setup, read_changes, read_records
from dockbell.admin.planning import FeedPlan, Origin, SourcePlan, assume_facts, give_facts, load_facts, make_plan
from dockbell.app import configure
from dockbell.app.next_time import next_time
from dockbell.config import Config, FeedSettings, validate
from dockbell.core.model import Feed
from dockbell.core.planning.supply import BackgroundKind
from dockbell.core.running.budget import Load
from dockbell.detection.planner import Planner
from dockbell.sinks import load_sink_type
from dockbell.stores.sqlite import SqliteReadStore
from tests.fakes import NOON
from tests.rig import PACKAGES, STOCK, Rig, open_rig

SECOND = timedelta(seconds=1)
WORLD = {"shipments": 1.5, "packages": 1.5, "items": 1.0, "stock": 0.9, "warehouses": 0.1}
FEEDS = [Feed("main", name) for name in WORLD]


def write(resources: dict[str, Any] | None = None, **source: Any) -> Config:
    """Return a configuration with one source."""
    base = {"base_url": "http://127.0.0.1:9", "api_key": "k"}
    table = {"sources": {"main": base | source}, "resources": resources or {}}
    return validate(table, lambda kind: load_sink_type(kind).Settings)


def with_two_keys(config: Config) -> Config:
    """Return the same for two sources, each with a key of its own."""
    main = config.sources["main"]
    other = main.model_copy(update={"base_url": "https://other.example.com"})
    return config.model_copy(update={"sources": {"a": main, "b": other}})


def plan(config: Config, *what_if: str, records: int = 50_000, rates: dict[str, float] | None = None) -> SourcePlan:
    """Return the plan of a source whose feeds change as in the world of the design."""
    setup = Setup.of(config).change(what_if)
    changes = {Feed("main", name): rate for name, rate in (WORLD | (rates or {})).items()}
    known = {Feed(each.source, each.resource) for each in setup.feeds}
    given = {feed: rate for feed, rate in changes.items() if feed in known}
    counts = {feed: records for feed in known if feed.resource == "stock"}
    facts = give_facts(assume_facts(setup.feeds), counts, given, NOON)
    (made,) = make_plan(setup, facts, at=NOON, next_time=next_time)
    return made


def find(made: SourcePlan, resource: str) -> FeedPlan:
    return next(each for each in made.feeds if each.feed.resource == resource)


# The plan ------------------------------------------------------------------------------------------------------------


def test_with_the_figures_of_a_busy_day_the_delay_is_near_the_floor() -> None:
    made = plan(write())
    assert made.reason == ""
    assert made.delay.mean.total_seconds() == pytest.approx(8.2, abs=0.2)
    assert made.floor.mean <= made.delay.mean <= made.floor.mean * 1.05
    assert made.supply.total == pytest.approx(made.division.used + made.supply.taken + made.supply.reserve + made.spare)
    assert made.advice.endswith("a second API key would halve its delay")
    assert [line.split()[0] for line in made.explain()] == list(WORLD)


def test_what_fits_as_configured_leaves_the_rest_spare() -> None:
    made = plan(write({"shipments": {"every": "15s"}, "stock": {"every": "5m"}}))
    assert made.reason == ""
    assert made.division.used * 60 == pytest.approx(4 + 50)
    assert made.spare * 60 > 200
    assert find(made, "stock").every == "5m"


def test_what_does_not_fit_has_a_reason_and_a_remedy() -> None:
    made = plan(write({"shipments": {"every": "5s"}, "stock": {"every": "1s"}}), records=3000)
    assert made.reason.startswith("needs 912 of 25")
    assert made.reason.endswith('requests a minute: stock every 1s takes 900 (15 pages); set every = "auto"')
    assert made.advice == made.reason


def test_a_crontab_line_is_background() -> None:
    made = plan(write({"shipments": {}, "stock": {"cron": "*/5 * * * *"}}))
    (cron,) = (each for each in made.supply.background if each.kind is BackgroundKind.CRON)
    assert cron.requests == pytest.approx(250 / 300)
    stock = find(made, "stock")
    assert (stock.planned, stock.delay, stock.every) == (None, None, "cron */5 * * * *")
    assert [each.demand.feed.resource for each in made.division.feeds] == ["shipments"]


def test_with_crontab_lines_alone_there_is_nothing_to_divide() -> None:
    made = plan(write({"stock": {"cron": "0 6 * * *"}}))
    assert (made.reason, made.delay.mean, made.floor.p99) == ("", timedelta(0), timedelta(0))


def test_details_reconciles_and_trailing_polls_are_background() -> None:
    made = plan(write({"shipments": {"detail": "lines"}}))
    per_minute = {each.kind: each.requests * 60 for each in made.supply.background}
    assert per_minute == {
        BackgroundKind.DETAIL: pytest.approx(90),
        BackgroundKind.TRAILING: pytest.approx(7 / 5),  # 15 minutes with 90 changes each, every 5 minutes
        BackgroundKind.RECONCILE: pytest.approx(50 / 1440),
    }


def test_details_that_take_all_requests_have_a_reason_and_a_remedy() -> None:
    made = plan(write({"shipments": {"detail": "lines"}}), rates={"shipments": 10.0})
    assert made.reason.startswith("needs 60")
    assert made.reason.endswith("detail of shipments takes 600; remove detail")
    assert made.spare == 0


def test_each_source_has_a_plan_of_its_own() -> None:
    config = write({"stock": {}})
    setup = Setup.of(with_two_keys(config)).change(["a/stock.every=1s", "b.share=0.5"])
    facts = give_facts(assume_facts(setup.feeds), {Feed("a", "stock"): 50_000}, {}, NOON)
    first, second = make_plan(setup, facts, at=NOON, next_time=next_time)
    assert [bool(first.reason), bool(second.reason)] == [True, False]
    assert [first.supply.allowed, second.supply.allowed] == [270, 150]


def test_a_paused_source_has_no_plan() -> None:
    config = write({"stock": {}})
    paused = {name: each.model_copy(update={"paused": True}) for name, each in config.sources.items()}
    setup = Setup.of(config.model_copy(update={"sources": paused}))
    assert make_plan(setup, {}, at=NOON, next_time=next_time) == ()
    with pytest.raises(ValueError, match="no source to plan: all are paused"):
        setup.change(["share=0.5"])


def test_sources_with_one_key_have_one_plan() -> None:
    config = write({"stock": {}})
    config = config.model_copy(update={"sources": dict.fromkeys(("a", "b"), config.sources["main"])})
    setup = Setup.of(config).change(["share=0.5"])
    facts = give_facts(assume_facts(setup.feeds), {Feed("a", "stock"): 50_000, Feed("b", "stock"): 50_000}, {}, NOON)
    (made,) = make_plan(setup, facts, at=NOON, next_time=next_time)
    assert (made.source, made.supply.allowed) == ("a, b", 150)
    half = pytest.approx(made.division.budget / 2)
    assert {str(each.feed): each.requests for each in made.feeds} == {"a/stock": half, "b/stock": half}


def test_the_json_adds_up() -> None:
    config = write({"shipments": {}, "stock": {"cron": "0 6 * * *"}})
    made, other = plan(config), plan(config, "share=1")
    model = describe_plan([made], [other], [])
    (source,), (changed,) = model.sources, model.what_if or []
    assert (model.fits, source.fits, source.limit_per_minute, source.share, changed.share) == (True, True, 300, 0.9, 1)
    shipments, stock = source.feeds
    assert shipments.delay is not None
    assert shipments.interval_seconds == pytest.approx(shipments.delay.mean_seconds * 2, abs=0.01)
    assert [(each.every, each.at_most, each.cron) for each in source.feeds] == [
        ("auto", "1m", None),
        (None, None, "0 6 * * *"),
    ]
    assert (stock.delay, stock.interval_seconds, stock.reason) == (None, None, None)
    assert (shipments.changes_from, shipments.records_from) == (Origin.GIVEN, Origin.ASSUMED)
    total = source.feeds_per_minute + source.background_per_minute + source.reserve_per_minute + source.spare_per_minute
    assert total == pytest.approx(source.budget_per_minute, abs=0.01)


# What is known -------------------------------------------------------------------------------------------------------


def feeds_of(*rigs: Rig) -> list[FeedSettings]:
    return [FeedSettings(rig.feed.source, rig.feed.resource, rig.tracked.settings) for rig in rigs]


async def test_the_daemon_asks_for_the_same(tmp_path: Path) -> None:
    auto: dict[str, Any] = {"every": "auto", "at_most": "60s"}
    async with open_rig(tmp_path, **auto) as polled:
        settings = {"every": "auto", "at_most": "15m", "reconcile": None}
        stock = Rig(polled.store, polled.clock, polled.source, feed=STOCK, settings=settings, ear=polled.ear)
        feeds = feeds_of(polled, stock)
        read_store = await SqliteReadStore.open(tmp_path / "dockbell.db")
        unread = await load_facts(read_store, feeds, polled.clock())
        assert {each.changes_from for each in unread.values()} == {Origin.ASSUMED}
        await polled.read_whole()
        await stock.read_whole()
        planner = Planner(
            lambda: [polled.tracked, stock.tracked],
            lambda: Load(limit=300, allowed=270, foreign=0.0, beside=0, pauses=0),
            telemetry=polled.ear.telemetry,
            clocks=polled.tracked.clocks,
        )
        for number in range(5):
            polled.source.put("a", status=f"{number}")
            await polled.poll(after=10)
            await planner.plan()
        polled.clock.pass_(60)
        await planner.plan()
        facts = await load_facts(read_store, feeds, polled.clock())
        await read_store.aclose()
        assert planner.division is not None
        setup = Setup(configure("http://127.0.0.1:9", "k").sources, tuple(feeds))
        (made,) = make_plan(setup, facts, at=NOON, next_time=next_time)
    asked = {each.demand.feed: each.demand for each in planner.division.feeds}
    # What is stored of the rate is rounded.
    told = {each.feed: replace(each.demand, rate=asked[each.feed].rate) for each in made.feeds}
    assert told == asked
    assert [each.demand.rate for each in made.feeds] == pytest.approx([each.rate for each in asked.values()], rel=1e-4)
    packages = find(made, "packages")
    assert (packages.cost_from, packages.facts.changes_from) == (Origin.LEARNED, Origin.LEARNED)
    assert (packages.facts.records, packages.facts.records_from) == (5, Origin.COUNTED)


async def test_what_is_given_counts_more_than_what_was_learned(tmp_path: Path) -> None:
    async with open_rig(tmp_path, every="15s") as polled:
        stock = Rig(polled.store, polled.clock, polled.source, feed=STOCK, settings={"every": "5m", "reconcile": None})
        for rig in (polled, stock):
            await rig.read_whole()
            await rig.tracked.store.save_plan(rig.tracked.workload.plan.to_json())
        read_store = await SqliteReadStore.open(tmp_path / "dockbell.db")
        feeds = feeds_of(polled, stock)
        facts = await load_facts(read_store, feeds, polled.clock())
        await read_store.aclose()
    assert facts[STOCK].plan.cost.mean is not None
    given = give_facts(facts, {STOCK: 50_000}, {PACKAGES: 10.0}, NOON)
    setup = Setup(configure("http://127.0.0.1:9", "k").sources, tuple(feeds))
    (made,) = make_plan(setup, given, at=NOON, next_time=next_time)
    packages, counted = find(made, "packages"), find(made, "stock")
    assert (counted.demand.cost, counted.cost_from) == (250, Origin.GIVEN)
    assert (packages.demand.rate, packages.cost_from, packages.facts.changes_from) == (10, Origin.GIVEN, Origin.GIVEN)
    assert packages.demand.cost > 1  # their window holds more than a page


# What the user says --------------------------------------------------------------------------------------------------


def test_records_and_changes_are_read() -> None:
    assert read_records(["stock=50000", "main/items=0"], FEEDS) == {FEEDS[3]: 50_000, FEEDS[2]: 0}
    assert read_changes(["stock=2/s", "items=90/min", "packages=1.8/h"], FEEDS) == {
        FEEDS[3]: 2,
        FEEDS[2]: 1.5,
        FEEDS[1]: pytest.approx(0.0005),
    }


@pytest.mark.parametrize("given", ["stock", "stock=", "stock=many", "stock=-1", "stock=1.5"])
def test_records_that_are_none_are_refused(given: str) -> None:
    told = f'must be a feed and how many records it has, such as stock=50000, got "{given}"'
    with pytest.raises(ValueError, match=told):
        read_records([given], FEEDS)


@pytest.mark.parametrize("given", ["stock", "stock=2", "stock=2/m", "stock=x/s", "stock=/s"])
def test_changes_that_are_none_are_refused(given: str) -> None:
    with pytest.raises(ValueError, match=f'such as stock=2/s, 90/min or 500/h, got "{given}"'):
        read_changes([given], FEEDS)


def test_a_feed_that_is_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match='feed "stok" is not configured; did you mean "stock"'):
        read_records(["stok=1"], FEEDS)


@pytest.mark.parametrize(
    ("configured", "what_if", "every"),
    [
        ({}, ["stock.every=30s"], "30s"),
        ({"every": "1m"}, ["stock.every=auto"], "auto ≤ 15m"),
        ({"every": "1m"}, ["stock.at_most=5m"], "auto ≤ 5m"),
        ({"at_most": "5m"}, ["stock.every=auto"], "auto ≤ 5m"),
        ({"at_most": "5m"}, ["stock.every=30s"], "30s"),
        ({"at_most": "5m"}, ["stock.weight=2"], "auto ≤ 5m"),
        ({"cron": "0 6 * * *"}, ["stock.every=30s"], "30s"),
        ({}, ["stock.every=auto", "main/stock.at_most=5m"], "auto ≤ 5m"),
    ],
)
def test_another_interval_takes_the_place_of_the_configured_one(
    configured: dict[str, str], what_if: list[str], every: str
) -> None:
    assert find(plan(write({"shipments": {}, "stock": configured}), *what_if), "stock").every == every


def test_what_matters_more_is_read_more_often_and_more_requests_make_all_fresher() -> None:
    before, weighted, richer = (plan(write(), *what_if) for what_if in ([], ["stock.weight=4"], ["share=1"]))
    for made, is_fresher in ((weighted, False), (richer, True)):
        assert (made.delay.mean < before.delay.mean) == is_fresher
        stock, stock_before = find(made, "stock").planned, find(before, "stock").planned
        assert stock is not None
        assert stock_before is not None
        assert stock.interval < stock_before.interval
    assert plan(write(), "main.requests_per_minute=600").supply.allowed == 540


@pytest.mark.parametrize(
    ("what_if", "told"),
    [
        (["stock"], 'must be a setting and its value, such as stock.every=30s or requests_per_minute=600, got "stock"'),
        (["stock.every="], 'got "stock.every="'),
        (["every=30s"], "every is a setting of a feed, such as stock.every=30s"),
        (["stock.evry=30s"], '"evry" cannot be changed here; did you mean "every"'),
        (["stok.every=30s"], 'feed "stok" is not configured; did you mean "stock"'),
        (["stock.every=30"], 'main/stock.every: must be "auto" or a duration such as .*, got "30"'),
        (["stock.every=0s"], "main/stock.every: must be longer than 0s"),
        (["stock.weight=much"], 'main/stock.weight: must be a number, got "much"'),
        (["stock.every=30s", "stock.at_most=5m"], 'main/stock.at_most: needs every = "auto"'),
        (["share=2"], "main.share: must be at most 1.0, got 2"),
        (["requests_per_minute=1.5"], "main.requests_per_minute: must be a whole number, got 1.5"),
        (["mian.share=1"], 'source "mian" is not configured; did you mean "main"'),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_plain_words(what_if: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Setup.of(write()).change(what_if)


def test_with_several_sources_the_one_is_to_be_named() -> None:
    config = with_two_keys(write())
    with pytest.raises(ValueError, match=r"share is a setting of a source; use one of a\.share, b\.share"):
        Setup.of(config).change(["share=1"])
    with pytest.raises(ValueError, match="name one of a/stock, b/stock"):
        Setup.of(config).change(["stock.every=30s"])
