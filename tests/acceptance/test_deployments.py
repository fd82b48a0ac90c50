"""Whatever a deployment of the API does where its description is silent: nothing is missed, nothing is invented.

Each case is a dockbell, whole, over a sandbox with some options, while its records are created, changed, deleted,
brought back, and changed all at once. What a deployment makes impossible is told to the operator instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from dockbell.core.model import RunKind
from dockbell.core.reading.listing_profile import ListingProfile
from tests.acceptance.deployment import Deployment, deploy
from tests.virtual_time import SkippingLoop

ALL_FIVE: Final = ("shipments", "packages", "items", "stock", "warehouses")
RESOURCES: Final = ("shipments", "packages", "stock")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


async def live(dockbell: Deployment, *, prompt: bool = True) -> None:
    """Let records be created, changed, deleted, brought back, and changed all at once.

    Args:
        dockbell: What watches them.
        prompt: The next poll shows each change of a polled resource, and two passes what is gone.
    """
    sandbox, two_passes = dockbell.sandbox, 200 if prompt else 360
    await dockbell.run(40)
    sandbox.step(12)
    await dockbell.run(40)
    assert not (prompt and await dockbell.behind())
    dockbell.edit()
    sandbox.step(8)
    await dockbell.run(40)
    assert not (prompt and await dockbell.behind())
    for resource in dockbell.resources:
        sandbox.delete(resource, 2 if resource != "warehouses" else 1)
        dockbell.edit()
    await dockbell.run(two_passes)
    assert not prompt or (await dockbell.account()).state() == dockbell.story().final()
    for _ in dockbell.resources:
        sandbox.restore()
    await dockbell.run(60)
    dockbell.edit(1000)
    await dockbell.run(30)
    sandbox.step(5)
    await dockbell.run(two_passes)


async def assert_well(dockbell: Deployment) -> None:
    """Nothing is missed or invented, and nothing waits for an operator."""
    assert await dockbell.judge() == []
    for resource in dockbell.resources:
        state = await dockbell.state(resource)
        assert (state.problem, state.held, state.holds, state.quarantined, state.drift) == ("", 0, 0, 0, None)
    assert await dockbell.statements() == []


# Deployments on which the next poll shows each change, and passes and single reads find what is gone ------------------

PROMPT: Final[dict[str, dict[str, Any]]] = {
    "all five": {"resources": ALL_FIVE},
    "envelope data": {"envelope": "data"},
    "envelope as labelled": {"envelope": "{label}"},
    "wrapper": {"wrapper": "result"},
    "wrapper as labelled": {"wrapper": "result", "envelope": "{label}"},
    "end absent": {"end_of_list": "absent"},
    "end empty": {"end_of_list": "empty"},
    "trailing page": {"trailing_page": True},
    "one page": {"page_cap": 200},
    "single records": {"page_cap": 1},
    "short pages": {"short_pages": 0.5},
    "empty pages": {"empty_pages": 0.4},
    **{f"offset, {form}": {"cursors": "offset", "cursor_form": form} for form in ("opaque", "digits", "integer")},
    **{f"keyset, {form}": {"cursor_form": form} for form in ("digits", "integer")},
    **{f"order {order}": {"order": order} for order in ("updated_at", "id", "warehouse", "shuffled")},
    **{
        f"order {order}, descending, offset": {"order": order, "descending": True, "cursors": "offset"}
        for order in ("creation", "updated_at", "id", "warehouse")
    },
    "order random, one page": {"order": "random", "page_cap": 200},
    "integer ids": {"id_form": "integer"},
    "id in another field": {"id_field": "uuid"},
    "composite": {"stock_key": "composite"},
    "composite, integers": {"stock_key": "composite", "id_form": "integer"},
    "no timestamp": {"timestamp_field": None},
    "no timestamp, composite, offset": {"timestamp_field": None, "stock_key": "composite", "cursors": "offset"},
    "timestamp in another field": {"timestamp_field": "modified_at"},
    **{f"precision {unit}": {"timestamp_precision": unit} for unit in ("ms", "s", "min")},
    **{f"epoch {unit}": {"timestamp_form": "epoch", "timestamp_precision": unit} for unit in ("us", "ms", "s", "min")},
    **{f"zone {zone}": {"timestamp_offset": zone} for zone in ("+00:00", "+02:00", "-09:30", "none")},
    **{
        f"naive, {hours} hours off": {"timestamp_offset": "none", "timestamp_skew": hours * 3600.0}
        for hours in (2, -9.5)
    },
    **{f"skew {skew:g}": {"timestamp_skew": skew} for skew in (3.0, -3.0, 45.0, -45.0, 600.0, -600.0)},
    "future": {"future_share": 0.2},
    "members in any order": {"shuffle_members": True},
    "numbers float": {"numbers": "float"},
    "numbers mixed": {"numbers": "mixed"},
    "arrays in any order": {
        "shuffle_arrays": True,
        "sorts": True,
        "settings": {
            "shipments": {"unordered": ["/lines", "/tags"]},
            "packages": {"unordered": ["/contents"]},
            "stock": {"unordered": ["/lots"]},
        },
    },
    "no Date": {"date": "missing"},
    "no Date, no rates": {"date": "missing", "rate_headers": "missing"},
    "no rates": {"rate_headers": "missing"},
    **{f"Date skew {skew:g}": {"date_skew": skew} for skew in (2.0, -2.0, 90.0, -90.0, 7200.0, -7200.0)},
    "Date and timestamps apart": {"date_skew": 1800.0, "timestamp_skew": -1800.0},
    "ETag strong": {"etag": "strong"},
    "ETag weak": {"etag": "weak"},
    "gzip": {"gzip": True, "page_cap": 200},
    "slow": {"latency": 0.7},
}


@pytest.mark.parametrize("options", PROMPT.values(), ids=PROMPT.keys())
async def test_every_change_is_told_with_the_next_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    async with deploy(tmp_path, monkeypatch, **options) as dockbell:
        await live(dockbell)
        await assert_well(dockbell)
        missed = {one["missed"] for name in dockbell.resources for one in await dockbell.certificates(name)}
        assert missed == {0}


# Deployments on which changes are seen later, but surely --------------------------------------------------------------

LATER: Final[dict[str, dict[str, Any]]] = {
    "silent": {"silent_share": 0.4},
    "all silent": {"silent_share": 1.0},
    "late within the lookback": {"late_visibility": 40.0},
    "late for trailing polls": {"late_visibility": 150.0, "late_share": 0.3},
    "late beyond them": {"late_visibility": 240.0},
    "a replica that lags": {"replicas": 2, "replica_lag": 25.0},
    "one of three replicas that lags": {"replicas": 3, "replica_lag": 35.0},
    "a replica that lags, no timestamp": {"replicas": 2, "replica_lag": 25.0, "timestamp_field": None},
    "pages repeated at times": {"repeated_pages": 0.05},
    "errors": {"error_rate": 0.1},
    "broken connections": {"reset_rate": 0.1},
    "bad bodies": {"bad_body_rate": 0.1},
    "a small budget": {"requests_per_minute": 40, "per_minute": 40},
    "a budget smaller than believed": {"requests_per_minute": 40, "per_minute": 300},
}


@pytest.mark.parametrize("options", LATER.values(), ids=LATER.keys())
async def test_every_change_is_told_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    async with deploy(tmp_path, monkeypatch, **options) as dockbell:
        await live(dockbell, prompt=False)
        await assert_well(dockbell)
        if "per_minute" in options:
            assert dockbell.wire.most_in_a_minute() <= 40
            assert 429 not in dockbell.wire.statuses


# Lists that move, end or begin again while they are read --------------------------------------------------------------


@pytest.mark.parametrize("order", ["creation", "updated_at"])
@pytest.mark.parametrize("descending", [False, True])
async def test_records_that_move_between_the_pages_of_a_drifting_list_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, *, descending: bool
) -> None:
    options: dict[str, Any] = {"cursors": "offset", "order": order, "descending": descending}
    async with deploy(tmp_path, monkeypatch, **options) as dockbell:
        moves = 0

        async def move(request: httpx.Request) -> None:
            nonlocal moves
            if "cursor" in request.url.params and moves < 60:
                moves += 1
                dockbell.sandbox.edit(request.url.path.removeprefix("/v1/"))
                dockbell.sandbox.step()

        dockbell.wire.before = move
        await live(dockbell, prompt=False)
        assert moves == 60
        await assert_well(dockbell)


@pytest.mark.parametrize("status", [400, 404, 410, 422])
async def test_a_run_whose_cursor_expired_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async with deploy(tmp_path, monkeypatch, cursor_lifetime=5.0, cursor_expired=status) as dockbell:
        waits = 0

        async def wait(request: httpx.Request) -> None:
            nonlocal waits
            if "cursor" in request.url.params:
                waits += 1
                if waits % 7 == 1:
                    await anyio.sleep(6)

        dockbell.wire.before = wait
        await live(dockbell, prompt=False)
        assert dockbell.wire.statuses.count(status) >= 4
        await assert_well(dockbell)


async def test_passes_whose_cursors_always_expire_are_told_and_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(cursor_lifetime=1.0, latency=2.0)
        dockbell.sandbox.delete("packages", 2)
        dockbell.sandbox.edit("packages", 2)
        await dockbell.run(900)
        problems = dockbell.problems("packages", RunKind.PASS)
        assert {problem.partition(": page ")[0] for problem in problems} == {"the API forgot the cursor"}
        assert await dockbell.told("updated", "deleted", "created") == [("packages", "pkg_3"), ("packages", "pkg_4")]
        dockbell.sandbox.set(cursor_lifetime=0.0, latency=0.0)
        await dockbell.run(1200)
        assert await dockbell.judge() == []


async def test_pages_that_always_come_twice_are_told_and_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(repeated_pages=1.0)
        dockbell.sandbox.delete("stock", 2)
        dockbell.sandbox.edit("stock", 2)
        await dockbell.run(300)
        state = await dockbell.state("stock")
        assert state.last_failure in ("the API returned the same page twice", "the API returned the same cursor twice")
        assert await dockbell.told("updated", "deleted") == [("stock", "stk_3"), ("stock", "stk_4")]
        dockbell.sandbox.set(repeated_pages=0.0)
        await dockbell.run(900)
        assert await dockbell.judge() == []


async def test_a_list_in_another_order_for_each_page_makes_no_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(order="random")
        gone = [("shipments", name) for name in list(dockbell.sandbox.records("shipments"))[:2]]
        for resource in dockbell.resources:
            dockbell.sandbox.delete(resource, 2)
        await dockbell.run(1200)
        assert await dockbell.told("deleted") == sorted(gone)  # asking for one shipment needs no order
        assert await dockbell.told("created", "restored", "updated") == []
        assert (await dockbell.certificates("stock"))[-1]["verdict"] == "doubtful"
        dockbell.sandbox.set(order="creation")
        await dockbell.run(600)
        assert await dockbell.judge() == []


# Answers that are none ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "html",
        "truncated",
        "nan",
        "duplicate_members",
        "duplicate_fields",
        "invalid_utf8",
        "deep",
        "null",
        "empty",
        "error_200",
        "gzip_bomb",
        "endless",
        "drip",
    ],
)
async def test_a_bad_body_in_the_middle_of_a_list_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    async with deploy(tmp_path, monkeypatch, backoff=1) as dockbell:
        await dockbell.run(59)
        dockbell.sandbox.set(bad_body_rate=1.0, bad_body=body, fault_skip=1, fault_most=1, fault_resource="stock")
        dockbell.edit()
        await dockbell.run(30)
        assert dockbell.sandbox.options.fault_most == 0
        assert await dockbell.told("updated", "deleted") == sorted(
            (resource, name) for resource in RESOURCES for name in list(dockbell.initial[resource])[:2]
        )
        await assert_well(dockbell)


@pytest.mark.parametrize("body", ["cut_list", "empty_list"])
@pytest.mark.parametrize("resource", RESOURCES)
async def test_a_list_that_ends_early_once_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, resource: str
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(59)
        await dockbell.run(150 if resource != "stock" else 0)
        dockbell.sandbox.set(bad_body_rate=1.0, bad_body=body, fault_most=1, fault_resource=resource)
        await dockbell.run(600)
        assert dockbell.sandbox.options.fault_most == 0
        assert await dockbell.told("updated", "created", "deleted", "restored") == []
        assert await dockbell.judge() == []
        assert {(await dockbell.state(name)).held for name in RESOURCES} == {0}


@pytest.mark.parametrize(("status", "reason"), [(401, "refused"), (403, "refused"), (503, "unavailable")])
async def test_what_changed_while_nobody_was_let_in_is_told_and_so_is_the_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(70)
        dockbell.sandbox.set(refuse_with=status, refuse_for=400.0)
        dockbell.edit()
        dockbell.sandbox.delete("packages")
        await dockbell.run(300)
        problem = (await dockbell.state("packages")).problem
        assert (f"HTTP {status}" in problem) == (reason == "refused")
        dockbell.edit()
        await dockbell.run(900)
        assert await dockbell.statements() == [f"{resource} gap {reason}" for resource in RESOURCES]
        assert await dockbell.judge() == []
        assert {(await dockbell.state(name)).problem for name in RESOURCES} == {""}


# Records that cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["poisoned", "keyless", "doubled"])
async def test_a_bad_record_is_in_quarantine_and_the_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    keys = {name: {"key": "/id"} for name in RESOURCES}
    async with deploy(tmp_path, monkeypatch, settings=keys) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.set(**{fault: "stock/stk_3"})
        dockbell.sandbox.edit("stock", 2)
        dockbell.sandbox.edit("stock", identity="stk_7")
        dockbell.sandbox.delete("stock", identity="stk_9")
        await dockbell.run(600)
        state = await dockbell.state("stock")
        assert (bool(state.failing), state.quarantined) == ((True, 0) if fault == "poisoned" else (False, 1))
        assert state.problem == ""
        # The cursor to what comes after a page that is no JSON cannot be read either.
        reached = ["stk_1", "stk_2", "stk_7"] if fault != "poisoned" else ["stk_1", "stk_2"]
        # What vanished when a record lost its key may be that record.
        reached += ["stk_9"] if fault == "doubled" else []
        assert await dockbell.told("updated", "created", "deleted", "restored") == [("stock", key) for key in reached]
        dockbell.sandbox.set(**{fault: ""})
        await dockbell.run(3600)
        assert await dockbell.judge() == []
        assert await dockbell.told("deleted") == [("stock", "stk_9")]
        assert (await dockbell.state("stock")).quarantined == 0


# The service is deployed with a new field -----------------------------------------------------------------------------


async def test_a_new_field_in_every_record_is_held_and_other_changes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.deploy("channel", "web")
        await dockbell.run(400)
        # Polls read the newest record alone: one record says nothing of a deploy, so that is a change.
        alone = [("packages", "pkg_14"), ("shipments", "shp_12")]
        assert await dockbell.told("updated", "created", "deleted", "restored") == alone
        assert sorted(await dockbell.statements()) == [f"{resource} held drift" for resource in sorted(RESOURCES)]
        dockbell.edit()
        await dockbell.run(60)
        edited = [(resource, name) for resource in RESOURCES for name in list(dockbell.initial[resource])[:2]]
        assert await dockbell.told("updated") == sorted(alone + edited)


async def test_a_new_field_that_moves_every_timestamp_is_a_change_of_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch) as dockbell:
        await dockbell.run(60)
        dockbell.sandbox.deploy("channel", "web", dated=True)
        await dockbell.run(100)
        await assert_well(dockbell)
        assert len(await dockbell.told("updated")) == sum(map(len, dockbell.initial.values()))


# The first pass -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skew", [0.0, -30.0, -300.0, -7200.0, 28_800.0])
@pytest.mark.parametrize("quiet", [0.0, 4000.0])
async def test_after_the_first_pass_polls_tell_every_creation_whatever_the_records_clock_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, skew: float, quiet: float
) -> None:
    settings = {"first_pass": "baseline", "reconcile": "24h"}
    options: dict[str, Any] = {"timestamp_skew": skew, "timestamp_offset": "none"}
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), settings=settings, **options) as dockbell:
        await anyio.sleep(quiet)
        await dockbell.run(31)
        created: set[str] = set()
        while len(created) < 10:
            dockbell.sandbox.step(3)
            created |= {each.identity for each in dockbell.changes() if each.kind == "created"}
            await dockbell.run(31)
            assert await dockbell.told("created") == sorted(("shipments", name) for name in created)
        assert (await dockbell.state("shipments")).passes == 1


# Much at once ---------------------------------------------------------------------------------------------------------


async def test_ten_thousand_records_changed_on_one_tick_are_told_once_each_and_hold_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many: dict[str, Any] = {
        "packages": 10_000,
        "page_cap": 200,
        "settings": {"first_pass": "baseline", "reconcile": "24h"},
    }
    async with deploy(tmp_path, monkeypatch, resources=("packages",), **many) as dockbell:
        await dockbell.run(20)
        dockbell.sandbox.edit("packages", 10_000)
        await dockbell.run(100)
        events = await dockbell.agents.store.read_events(next(iter(dockbell.agents.feeds)), 0, 1_000_000)
        assert len({event.key for event in events if event.key}) == 10_000
        assert len([event for event in events if event.key]) == 10_000
        asked = len(dockbell.wire.paths)
        dockbell.sandbox.edit("packages", 1)
        await dockbell.run(31)
        assert len(dockbell.wire.paths) - asked <= 4  # polls start after the tick now
        assert (await dockbell.state("packages")).sequence == len(events) + 1


# What is learned ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, {"timestamps": "written with Z", "precision": "whole microseconds", "key": "text"}),
        ({"envelope": "{label}"}, {"envelope": '"Stock levels"'}),
        ({"wrapper": "result"}, {"envelope": '"result.stock"'}),
        ({"id_form": "integer"}, {"key": "integer"}),
        ({"stock_key": "composite", "id_form": "integer"}, {"key": "text, integer"}),
        ({"timestamp_field": None}, {"timestamps": None, "records' clock": None}),
        ({"timestamp_precision": "s"}, {"precision": "whole seconds"}),
        ({"timestamp_precision": "min"}, {"precision": "whole minutes"}),
        ({"timestamp_offset": "-09:30"}, {"timestamps": "written with an offset"}),
        ({"timestamp_offset": "none"}, {"timestamps": "written without a zone"}),
        ({"timestamp_form": "epoch"}, {"timestamps": "written as microseconds since 1970"}),
        (
            {"timestamp_form": "epoch", "timestamp_precision": "ms"},
            {"timestamps": "written as milliseconds since 1970"},
        ),
        ({"timestamp_form": "epoch", "timestamp_precision": "s"}, {"timestamps": "written as seconds since 1970"}),
        ({"date": "missing"}, {"service's time": "from x-ratelimit-reset"}),
        ({"date": "missing", "rate_headers": "missing"}, {"service's time": "from the local clock"}),
        ({"date_skew": 7200.0}, {"service's time": "from Date"}),
    ],
)
async def test_what_is_learned_of_a_deployment_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: dict[str, str | None]
) -> None:
    async with deploy(
        tmp_path, monkeypatch, resources=("stock",), page_cap=200, items=20, stock=40, **options
    ) as dockbell:
        await dockbell.run(60)
        known = dict(ListingProfile.from_json((await dockbell.state("stock")).listing_profile).describe())
        assert {name: known.get(name) for name in words} == words


async def test_changes_are_told_with_their_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relations = ("packages", "line_items", "invoices")
    settings = {"detail": relations}
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), settings=settings, apart=relations) as dockbell:
        await live(dockbell)
        await assert_well(dockbell)
        events = [event["data"] for place in (await dockbell.account()).events.values() for event in place.values()]
        assert not [data["key"] for data in events if data.get("detail_missing")]


async def test_a_replica_that_lags_for_long_is_not_believed_where_records_are_dated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch, replicas=2, replica_lag=100.0) as dockbell:
        await dockbell.run(60)
        for _ in range(6):
            dockbell.edit()
            await dockbell.run(130)
        await dockbell.run(600)
        assert await dockbell.judge() == []
        assert {len(events) for events in (await dockbell.account()).events.values()} == {1, 7}


async def test_a_replica_that_lags_for_long_where_records_are_not_dated_is_right_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(
        tmp_path, monkeypatch, resources=("stock",), replicas=2, replica_lag=200.0, timestamp_field=None
    ) as dockbell:
        await dockbell.run(60)
        for _ in range(3):
            dockbell.edit()
            await dockbell.run(250)
        await dockbell.run(600)
        account = await dockbell.account()
        assert account.state() == dockbell.story().final()
        assert await dockbell.told("created", "deleted", "restored") == []


async def test_records_that_no_name_tells_from_other_things_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch, wrapper="result", envelope="records") as dockbell:
        await dockbell.run(60)
        assert {(await dockbell.state(name)).problem for name in RESOURCES} == {
            f'resource "{name}": the response has no array of objects, got fields result; check base_url'
            for name in RESOURCES
        }
        assert await dockbell.told("created", "snapshot") == []


@pytest.mark.parametrize("shape", ["json", "html", "empty", "410", "null"])
async def test_a_shipment_that_is_gone_is_found_out_in_whatever_way_the_api_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=("shipments",), unknown_shipment=shape) as dockbell:
        await live(dockbell)
        await assert_well(dockbell)
        account = await dockbell.account()
        told = [event["data"] for events in account.events.values() for event in events.values()]
        reasons = {data["reason"] for data in told if data["change"] == "deleted"}
        assert reasons == ({"absent"} if shape == "null" else {"not_found"})
