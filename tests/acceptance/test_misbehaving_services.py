"""Services that mislead a client: what they do wrong is an option of the sandbox, and costs no more than it must.

Each case is a whole dockbell over a sandbox with such an option. No change is lost and none is invented, each is told
in time, and what cannot be seen is named to the operator.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from dockbell.app import opening
from dockbell.core.model import Feed
from dockbell.sources import connection_pool
from tests.acceptance.at_work import at_work, reasons
from tests.acceptance.deployment import Clock, Deployment, deploy
from tests.oracle import Place
from tests.virtual_time import SkippingLoop

DAY: Final = 86_400.0
HOUR: Final = 3600.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


def places(dockbell: Deployment, resource: str, count: int) -> list[Place]:
    """Return the oldest records of a resource, as places."""
    return [(resource, name) for name in names(dockbell, resource)[:count]]


def names(dockbell: Deployment, resource: str) -> list[str]:
    """Return the ids of a resource's records, the oldest first."""
    return sorted(dockbell.sandbox.records(resource), key=lambda name: int(name.rpartition("_")[2]))


async def events(dockbell: Deployment, *kinds: str) -> list[dict[str, Any]]:
    """Return the data of events about records."""
    account = await dockbell.account()
    found = [event["data"] for one in account.events.values() for event in one.values()]
    return [data for data in found if data["change"] in kinds]


async def reached(dockbell: Deployment) -> dict[Feed, int]:
    """Return the number of the last event of each feed."""
    return {feed: (await each.tracked.state()).sequence for feed, each in dockbell.agents.feeds.items()}


async def told_within(
    dockbell: Deployment, wanted: Sequence[Place], kind: str, seconds: float, *, after: dict[Feed, int] | None = None
) -> float:
    """Wait until changes that were just made are told; return how many seconds that took, at most so many.

    Args:
        dockbell: Tells them.
        wanted: What was changed.
        kind: How.
        seconds: How long to wait at most.
        after: What :func:`reached` gave before they were made; None: just now.
    """
    began, missing, read = anyio.current_time(), set(wanted), dict(after or await reached(dockbell))
    while missing:
        assert anyio.current_time() - began < seconds, f"{kind} not told within {seconds:g} s: {sorted(missing)[:5]}"
        await anyio.sleep(1)
        for feed, last in (await reached(dockbell)).items():
            new = await dockbell.agents.store.read_events(feed, read[feed], 100_000) if last > read[feed] else ()
            for event in new:
                data = json.loads(event.body)["data"]
                if event.key and data["change"] == kind:
                    missing.discard((feed.resource, data["key"]))
            read[feed] = last
    return anyio.current_time() - began


# The service's clock -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [-2, 1500])
async def test_a_service_whose_clock_is_days_off_is_read_and_never_asked_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Another client uses most of the key's requests, which only x-ratelimit-remaining shows."""
    async with deploy(
        tmp_path, monkeypatch, clock_skew=days * DAY, requests_per_minute=60, per_minute=60, page_cap=2
    ) as dockbell:
        other = httpx.AsyncClient(
            transport=httpx.ASGITransport(dockbell.sandbox.app),
            base_url="http://sandbox",
            headers={"Authorization": "Bearer sandbox"},
        )
        async with other, at_work(dockbell):
            for minute in range(6):
                left = 60
                while left > 2:
                    left = int((await other.get("/v1/warehouses?limit=1")).headers["x-ratelimit-remaining"])
                dockbell.edit(1)
                await anyio.sleep(60 * (minute + 1) - anyio.current_time() + 0.5)
            await anyio.sleep(240)
        assert 429 not in dockbell.wire.statuses
        assert await dockbell.judge() == []


# What is new ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skew", "created_at"),
    [
        (-8 * HOUR, "as_timestamp"),
        (-8 * HOUR, "missing"),
        (-600.0, "as_timestamp"),
        (-600.0, "true"),
        (8 * HOUR, "as_timestamp"),
    ],
)
async def test_what_is_created_after_the_start_is_told_whatever_clock_dates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: float, created_at: str
) -> None:
    settings = {"first_pass": "baseline", "reconcile": "24h"}
    options: dict[str, Any] = {"timestamp_offset": "none", "timestamp_skew": skew, "created_at": created_at}
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), settings=settings, **options) as dockbell:
        await dockbell.run(40)
        for _ in range(5):
            dockbell.sandbox.activity.orders.arrive()
            await dockbell.run(31)
        made = sorted((each.resource, each.identity) for each in dockbell.changes() if each.kind == "created")
        assert len(made) == 5
        assert await dockbell.told("created") == made


async def test_a_creation_is_told_after_passes_that_showed_a_record_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"first_pass": "baseline"}
    options: dict[str, Any] = {"timestamp_offset": "none", "timestamp_skew": -HOUR, "created_at": "missing"}
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), settings=settings, **options) as dockbell:
        await dockbell.run(40)

        async def move(request: httpx.Request) -> None:
            if "cursor" in request.url.params and "updated_since" not in request.url.params:
                dockbell.sandbox.delete("shipments", 0)

        dockbell.sandbox.set(cursors="offset", order="updated_at")
        dockbell.wire.before = move
        for _ in range(5):
            dockbell.sandbox.edit("shipments", 3)
            dockbell.sandbox.activity.orders.arrive()
            await dockbell.run(130)
        made = sorted((each.resource, each.identity) for each in dockbell.changes() if each.kind == "created")
        assert await dockbell.told("created") == made


@pytest.mark.parametrize("body", ["cut_list", "empty_list"])
async def test_a_first_listing_that_ended_early_makes_no_flood_of_creations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    options: dict[str, Any] = {"items": 50, "stock": 250, "warehouses": 5, "page_cap": 100, "timestamp_field": None}
    fault: dict[str, Any] = {"bad_body_rate": 1.0, "bad_body": body, "fault_most": 1}
    settings = {"first_pass": "baseline"}
    async with deploy(tmp_path, monkeypatch, resources=("stock",), settings=settings, **options, **fault) as dockbell:
        await dockbell.run(400)
        assert dockbell.sandbox.options.fault_most == 0
        assert await dockbell.told("created") == []
        dockbell.sandbox.edit("stock", 3)
        await dockbell.run(400)
        assert await dockbell.told("updated", "created") == places(dockbell, "stock", 3)


# What is gone ---------------------------------------------------------------------------------------------------------


async def test_pages_by_number_that_cannot_be_read_delete_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller page is read instead, and the same cursor means another place in the list then."""
    options: dict[str, Any] = {"cursors": "page", "packages": 6000, "page_cap": 200}
    settings = {"first_pass": "baseline"}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), settings=settings, **options) as dockbell:
        await dockbell.run(40)
        fault: dict[str, Any] = {"bad_body_rate": 1.0, "bad_body": "truncated", "fault_kind": "pass"}
        for _ in range(3):
            dockbell.sandbox.set(**fault, fault_record="packages/pkg_3100", fault_most=2)
            await dockbell.run(130)
        assert await dockbell.told("deleted") == []
        certificates = await dockbell.certificates("packages")
        assert {each["records"] for each in certificates if each["verdict"] == "equal"} <= {6000}


async def test_a_replica_that_lags_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes and single requests go to a replica that is seconds behind, polls to the first."""
    async with deploy(
        tmp_path, monkeypatch, resources=("shipments",), replicas=2, replica_lag=25.0, replica_for="pass"
    ) as dockbell:

        async def choose(request: httpx.Request) -> None:
            is_single = request.url.path.startswith("/v1/shipments/")
            dockbell.sandbox.set(replica_for="single" if is_single else "pass")

        dockbell.wire.before = choose
        await dockbell.run(40)
        for _ in range(40):
            dockbell.sandbox.activity.orders.arrive()
            await dockbell.run(29)
        assert await dockbell.told("deleted", "restored") == []
        await dockbell.run(200)
        assert await dockbell.judge() == []


async def test_many_deleted_shipments_are_told_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"shipments": 1600, "page_cap": 200}
    settings = {"reconcile": "24h", "first_pass": "baseline"}
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), settings=settings, **options) as dockbell:
        async with at_work(dockbell):
            await anyio.sleep(60)
            gone, before = places(dockbell, "shipments", 150), await reached(dockbell)
            dockbell.sandbox.delete("shipments", 150)
            await dockbell.agents.feeds[Feed("main", "shipments")].reconciler.reconcile()
            await told_within(dockbell, gone, "deleted", 600, after=before)
        assert sorted(await dockbell.told("deleted")) == sorted(gone)


async def test_shipments_that_leave_the_list_and_still_answer_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling window: the list shows the youngest, and GET all of them."""
    async with deploy(
        tmp_path, monkeypatch, resources=("shipments",), shipments=120, page_cap=200, listed_most=100
    ) as dockbell:
        await dockbell.run(40)
        for _ in range(12):
            for _ in range(5):
                dockbell.sandbox.activity.orders.arrive()
            await dockbell.run(130)
        state = await dockbell.state("shipments")
        assert (state.held, await dockbell.told("deleted")) == (0, [])
        gone = names(dockbell, "shipments")[-3]
        dockbell.sandbox.delete("shipments", identity=gone)
        await dockbell.run(400)
        assert await dockbell.told("deleted") == [("shipments", gone)]
        assert not [statement for statement in await dockbell.statements() if "held" in statement]


async def test_a_list_that_is_cut_to_a_window_at_once_holds_nothing_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), shipments=300, page_cap=200) as dockbell:
        await dockbell.run(40)
        dockbell.sandbox.set(listed_most=100)
        await dockbell.run(3600)
        assert await dockbell.told("deleted") == []
        gone = names(dockbell, "shipments")[-3]
        dockbell.sandbox.delete("shipments", identity=gone)
        await dockbell.run(900)
        assert await dockbell.told("deleted") == [("shipments", gone)]
        assert (await dockbell.state("shipments")).held == 0


async def test_after_a_pass_on_the_operator_s_word_what_is_gone_is_confirmed_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"resources": ("packages",), "settings": {"reconcile": "24h"}}
    async with deploy(tmp_path, monkeypatch, **options) as dockbell, at_work(dockbell):
        await anyio.sleep(600)
        gone, before = places(dockbell, "packages", 1), await reached(dockbell)
        dockbell.sandbox.delete("packages", 1)
        await dockbell.agents.feeds[Feed("main", "packages")].reconciler.reconcile()
        await told_within(dockbell, gone, "deleted", 120, after=before)


# What the operator is told --------------------------------------------------------------------------------------------


async def test_passes_that_always_fail_are_named_while_polls_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=("packages",)) as dockbell, at_work(dockbell):
        await anyio.sleep(60)
        assert await reasons(dockbell) == []
        dockbell.sandbox.set(error_rate=1.0, error_with=500, fault_record="packages/pkg_9", fault_kind="pass")
        gone = places(dockbell, "packages", 1)
        dockbell.sandbox.delete("packages", 1)
        await anyio.sleep(1800)
        dockbell.sandbox.edit("packages", 1)
        await told_within(dockbell, places(dockbell, "packages", 1), "updated", 35)
        assert [reason for reason in await reasons(dockbell) if "deletion" in reason]
        assert await dockbell.told("deleted") == []
        dockbell.sandbox.set(error_rate=0.0)
        await told_within(dockbell, gone, "deleted", 3600)
        assert await reasons(dockbell) == []


async def test_no_certificate_says_equal_while_readings_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passes come to a replica that is behind; what it shows is older than what is known."""
    settings = {"stale_window": "1h"}
    options: dict[str, Any] = {"replicas": 2, "replica_lag": 900.0, "replica_for": "poll"}
    async with deploy(tmp_path, monkeypatch, resources=("stock",), settings=settings, **options) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.edit("stock", 2)
        await dockbell.run(65)
        before = len(await dockbell.certificates("stock"))
        dockbell.sandbox.set(replica_for="pass")
        await dockbell.run(600)
        assert (await dockbell.state("stock")).holds == 2
        verdicts = [each["verdict"] for each in (await dockbell.certificates("stock"))[before:]]
        assert len(verdicts) > 2
        assert set(verdicts) == {"doubtful"}
        await dockbell.run(700)
        assert (await dockbell.certificates("stock"))[-1]["verdict"] == "equal"
        assert await dockbell.judge() == []


@pytest.mark.parametrize("status", [401, 403])
async def test_one_resource_that_is_refused_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        dockbell.sandbox.set(refuse_with=status, refuse_resource="packages")
        await anyio.sleep(300)
        for _ in range(5):
            dockbell.edit(1)
            await told_within(dockbell, places(dockbell, "shipments", 1) + places(dockbell, "stock", 1), "updated", 75)
        assert [reason for reason in await reasons(dockbell) if reason.startswith("main/packages: ")]
        assert not [reason for reason in await reasons(dockbell) if not reason.startswith("main/packages: ")]
        dockbell.sandbox.set(refuse_with=0)
        await told_within(dockbell, places(dockbell, "packages", 1), "updated", 150)


# Answers that cannot be believed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", ["surrogate", "nan", "invalid_utf8", "control"])
async def test_one_record_that_cannot_be_read_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poison: str
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=("packages",)) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(poisoned="packages/pkg_3", poison=poison)
        for identity in ("pkg_2", "pkg_3", "pkg_4"):
            dockbell.sandbox.edit("packages", identity=identity)
        await dockbell.run(40)
        assert await dockbell.told("updated") == [("packages", "pkg_2"), ("packages", "pkg_4")]
        assert [reason for reason in await reasons(dockbell) if "quarantine" in reason]
        dockbell.sandbox.set(poisoned="")
        await dockbell.run(400)
        assert await dockbell.judge() == []
        assert await reasons(dockbell) == []


@pytest.mark.parametrize("body", ["byte_order_mark", "mislabelled"])
async def test_sound_pages_that_are_sent_oddly_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    async with deploy(
        tmp_path, monkeypatch, resources=("packages", "stock"), bad_body_rate=1.0, bad_body=body
    ) as dockbell:
        await dockbell.run(40)
        dockbell.edit()
        await dockbell.run(65)
        dockbell.sandbox.delete("packages")
        await dockbell.run(300)
        assert await dockbell.judge() == []
        assert await reasons(dockbell) == []


@pytest.mark.parametrize("body", ["null_list", "message", "doubled_list", "html", "null"])
async def test_one_odd_answer_costs_no_more_than_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    options: dict[str, Any] = {"resources": ("packages",), "settings": {"reconcile": "24h"}}
    async with deploy(tmp_path, monkeypatch, **options) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        dockbell.sandbox.set(bad_body_rate=1.0, bad_body=body, fault_kind="poll", fault_most=1)
        dockbell.sandbox.edit("packages", 2)
        await told_within(dockbell, places(dockbell, "packages", 2), "updated", 40)
        assert dockbell.sandbox.options.fault_most == 0


async def test_after_a_bad_time_polls_are_back_within_a_few_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"resources": ("packages",), "settings": {"every": "5s", "reconcile": "24h"}}
    async with deploy(tmp_path, monkeypatch, **options) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        dockbell.sandbox.set(bad_body_rate=0.9, bad_body="null_list")
        await anyio.sleep(22)
        dockbell.sandbox.set(bad_body_rate=0.0)
        dockbell.sandbox.edit("packages", 2)
        await told_within(dockbell, places(dockbell, "packages", 2), "updated", 20)


async def test_an_envelope_that_a_deploy_renamed_is_learned_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(envelope="records", wrapper="")
        dockbell.edit(1)
        await dockbell.run(130)
        edited = sorted(place for name in dockbell.resources for place in places(dockbell, name, 1))
        assert await dockbell.told("updated") == edited
        assert await reasons(dockbell) == []
        await dockbell.run(300)
        assert await dockbell.judge() == []


async def test_one_absurd_retry_after_does_not_silence_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        dockbell.sandbox.set(error_rate=1.0, error_with=429, fault_most=1, retry_after=86_400)
        await anyio.sleep(40)
        assert 429 in dockbell.wire.statuses
        dockbell.edit(1)
        edited = [place for name in dockbell.resources for place in places(dockbell, name, 1)]
        await told_within(dockbell, edited, "updated", 400)


# How far lists go -----------------------------------------------------------------------------------------------------


async def test_what_cannot_be_read_whole_is_live_and_the_operator_is_told_in_the_api_s_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"packages": 300, "page_cap": 50, "result_window": 120}
    watched: dict[str, Any] = {"resources": ("packages",), "settings": {"first_pass": "baseline"}}
    async with deploy(tmp_path, monkeypatch, **watched, **options) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        for number in (3, 200):
            dockbell.sandbox.edit("packages", identity=f"pkg_{number}")
            await told_within(dockbell, [("packages", f"pkg_{number}")], "updated", 65)
        await anyio.sleep(1200)
        assert [reason for reason in await reasons(dockbell) if "result window is too large" in reason]
        assert await dockbell.told("created", "deleted", "restored") == []


async def test_a_full_page_with_no_cursor_does_not_end_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first answer after an outage, so that the next poll would begin after most of the changes."""
    options: dict[str, Any] = {"packages": 700, "page_cap": 200}
    settings = {"reconcile": "24h", "first_pass": "baseline"}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), settings=settings, **options) as dockbell:
        await dockbell.run(40)
        dockbell.sandbox.set(refuse_with=503, refuse_for=185.0)
        dockbell.sandbox.edit("packages", 700)
        await dockbell.run(185)
        dockbell.sandbox.set(bad_body_rate=1.0, bad_body="full_list", fault_kind="poll", fault_most=1)
        await dockbell.run(65)
        assert dockbell.sandbox.options.fault_most == 0
        assert len(await dockbell.told("updated")) == 700


@pytest.mark.parametrize("outage", [0.0, 2400.0])
async def test_polls_go_on_where_updated_since_may_not_be_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outage: float
) -> None:
    options: dict[str, Any] = {"settings": {"every": "60s", "reconcile": "24h"}, "since_most": 1200.0}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), **options) as dockbell, at_work(dockbell):
        await anyio.sleep(2600)  # nothing changes
        if outage:
            dockbell.sandbox.set(refuse_with=503, refuse_for=outage)
            await anyio.sleep(outage / 2)
            dockbell.sandbox.edit("packages", identity="pkg_9")
            await anyio.sleep(outage / 2)
        dockbell.sandbox.edit("packages", 1)
        await told_within(dockbell, places(dockbell, "packages", 1), "updated", 200)
        for _ in range(3):
            dockbell.sandbox.edit("packages", identity="pkg_5")
            await told_within(dockbell, [("packages", "pkg_5")], "updated", 65)
        assert await reasons(dockbell) == []
        await dockbell.agents.feeds[Feed("main", "packages")].reconciler.reconcile()
        assert await dockbell.judge() == []


# Time -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["null", "date", "ctime"])
async def test_a_timestamp_that_comes_late_is_learned_and_a_touch_is_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=("packages",), timestamp_form=form) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(timestamp_form="iso")
        dockbell.sandbox.edit("packages", 12)
        await dockbell.run(300)
        before = len(await events(dockbell, "updated"))
        assert before == 12
        for _ in range(3):
            dockbell.sandbox.touch("packages", 10)
            await dockbell.run(40)
        await dockbell.run(200)
        assert len(await events(dockbell, "updated")) == before


async def test_local_time_ahead_costs_no_more_requests_than_utc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"packages": 120, "page_cap": 20, "settings": {"reconcile": "24h"}}
    asked = []
    for turn, naive in enumerate((0.0, 8 * HOUR)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        async with deploy(
            folder,
            monkeypatch,
            resources=("packages",),
            timestamp_offset="none",
            timestamp_skew=naive,
            **options,
        ) as dockbell:
            await dockbell.run(60)
            for _ in range(3):
                for number in range(0, 120, 10):
                    dockbell.sandbox.edit("packages", identity=f"pkg_{number + 1}")
                await dockbell.run(120)
            dockbell.sandbox.edit("packages", 120)
            await dockbell.run(400)
            before = len(dockbell.wire.paths)
            await dockbell.run(900)
            asked.append(len(dockbell.wire.paths) - before)
            assert await dockbell.judge() == []
    assert asked[1] <= asked[0] * 1.5


async def test_polls_go_on_between_the_tries_of_a_page_that_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the five tries of a page of the pass takes the 30 s that a request may take."""
    options: dict[str, Any] = {"packages": 60, "page_cap": 6, "settings": {"every": "10s", "reconcile": "5m"}}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), **options) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        dockbell.sandbox.set(latency=40.0, fault_kind="pass")
        for number in range(50):
            dockbell.sandbox.edit("packages", identity=f"pkg_{number + 1}")
            await told_within(dockbell, [("packages", f"pkg_{number + 1}")], "updated", 45)
            await anyio.sleep(7)


async def test_a_pass_is_due_from_start_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"settings": {"every": "72s"}, "stock": 18, "page_cap": 6}
    async with deploy(tmp_path, monkeypatch, resources=("stock",), **options) as dockbell, at_work(dockbell):
        await anyio.sleep(300)
        dockbell.sandbox.set(latency=22.0)
        await anyio.sleep(1500)
        pairs = zip(dockbell.wire.paths, dockbell.wire.times, strict=True)
        starts = [time for path, time in pairs if "cursor" not in path and time > 500]
        pauses = [later - earlier for earlier, later in pairwise(starts)]
        assert pauses
        assert max(pauses) <= 74


# Cursors and times that are not to be trusted -----------------------------------------------------------------------


@pytest.mark.parametrize("shuffled", [False, True])
async def test_one_record_without_a_key_lets_deletions_of_others_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shuffled: bool
) -> None:
    settings = {"key": "/id", "reconcile": "5m"}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), settings=settings) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(keyless="packages/pkg_3", shuffle_members=shuffled)
        await dockbell.run(1800)
        dockbell.sandbox.delete("packages", identity="pkg_7")
        await dockbell.run(1800)
        assert await dockbell.told("deleted") == [("packages", "pkg_7")]
        assert [reason for reason in await reasons(dockbell) if "quarantine" in reason]


@pytest.mark.parametrize("accepts", ["limit", "nothing"])
async def test_a_cursor_that_must_come_alone_is_given_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepts: str
) -> None:
    options: dict[str, Any] = {"items": 40, "packages": 40, "page_cap": 10, "cursor_with": accepts}
    async with deploy(tmp_path, monkeypatch, resources=("packages", "items"), **options) as dockbell:
        await dockbell.run(60)
        dockbell.edit(30)
        await dockbell.run(65)
        assert not await dockbell.behind()
        dockbell.sandbox.delete("items", 1)
        await dockbell.run(400)
        assert await dockbell.judge() == []
        assert await reasons(dockbell) == []


async def test_when_a_change_was_made_lies_within_the_time_that_its_event_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polls that show nothing, and replicas, make changes late; no event states a time without the truth."""
    options: dict[str, Any] = {"bad_body_rate": 0.5, "bad_body": "empty_list", "fault_kind": "poll", "page_cap": 3}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), **options) as dockbell:
        await dockbell.run(60)
        for number in range(60):
            dockbell.sandbox.edit("packages", identity=f"pkg_{number % 14 + 1}")
            await dockbell.run(17)
        dockbell.sandbox.set(bad_body_rate=0.0)
        await dockbell.run(300)
        made = {(each.identity, each.after): each.at for each in dockbell.changes()}
        by_content = {(name, _content(raw)): at for (name, raw), at in made.items()}
        wrong = []
        for data in await events(dockbell, "updated"):
            at = by_content[data["key"], _content(json.dumps(data["after"]))]
            since, until = map(datetime.fromisoformat, data["changed_between"])
            if not since <= at <= until + timedelta(seconds=1):
                wrong.append((data["key"], since, at, until))
        assert wrong == []


def _content(raw: Any) -> str:
    record = json.loads(raw)
    record.pop("updated_at", None)
    return json.dumps(record, sort_keys=True)


async def test_a_slow_pass_keeps_no_poll_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of passes do not come within the time that an answer has."""
    options: dict[str, Any] = {"packages": 60, "page_cap": 6, "settings": {"every": "10s", "reconcile": "5m"}}
    async with deploy(tmp_path, monkeypatch, resources=("packages",), **options) as dockbell, at_work(dockbell):
        await anyio.sleep(100)
        dockbell.sandbox.set(latency=45.0, fault_kind="pass")
        waits = []
        for number in range(40):
            dockbell.sandbox.edit("packages", identity=f"pkg_{number + 1}")
            waits.append(await told_within(dockbell, [("packages", f"pkg_{number + 1}")], "updated", 60))
            await anyio.sleep(7)
        assert max(waits) <= 40, "a try of a page takes 30 s at most, and polls go between the tries"


async def test_one_outage_is_one_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass asks for shipments, slowly, while a poll comes to its end."""
    async with deploy(tmp_path, monkeypatch, resources=("shipments",)) as dockbell, at_work(dockbell):
        await anyio.sleep(300)
        dockbell.sandbox.set(refuse_with=503, refuse_for=700.0)
        dockbell.sandbox.delete("shipments", 2)
        await anyio.sleep(600)
        dockbell.sandbox.set(latency=8.0)
        await anyio.sleep(900)
        assert sorted(await dockbell.statements()) == sorted(f"{name} gap unavailable" for name in dockbell.resources)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_step_of_our_clock_is_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    step = timedelta()

    class Stepped(Clock):
        def __call__(self) -> datetime:
            return super().__call__() + step

    async with deploy(tmp_path, monkeypatch) as dockbell:
        monkeypatch.setattr(opening, "now", Stepped())
        monkeypatch.setattr(connection_pool, "datetime", Stepped())
        for each in dockbell.agents.feeds.values():
            each.tracked.clocks.now = Stepped()
        async with at_work(dockbell):
            await anyio.sleep(200)
            step = timedelta(hours=hours)
            dockbell.edit(1)
            await anyio.sleep(200)
            gone = places(dockbell, "packages", 1)
            dockbell.sandbox.delete("packages", 1)
            await told_within(dockbell, gone, "deleted", 300)
        assert await dockbell.statements() == []
        assert await dockbell.judge() == []
