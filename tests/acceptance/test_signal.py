"""Stock that items show: the real agents over a sandbox whose items are bumped when their stock moves, or are not."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import anyio
import pytest

from dockbell.core.reading.signal_state import Phase
from tests.acceptance.altering import Answer, alter
from tests.acceptance.deployment import START
from tests.acceptance.shop import ITEMS, PASS_EVERY, POLL_EVERY, STOCK, opened
from tests.virtual_time import SkippingLoop


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


async def test_where_items_are_bumped_stock_is_known_within_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        assert shop.phase is Phase.USED
        used_at = timedelta(seconds=anyio.current_time())
        assert set(await shop.vias()) <= {"first_pass", "pass"}  # it is only tried until then
        before = fmean(await shop.delays())
        await shop.live(1200)
        await shop.settle()
        after = await shop.delays(used_at)
        assert before > PASS_EVERY / 3
        assert fmean(after) < POLL_EVERY
        assert max(after) <= PASS_EVERY + POLL_EVERY
        assert (await shop.vias())["signal"] > 0.9 * len(after)
        assert shop.signal.state.missed == 0
        assert await shop.events(ITEMS) == []
        assert await shop.dockbell.judge() == []


async def test_where_items_are_not_bumped_nothing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, monkeypatch) as shop:
        await shop.live(1200)
        assert shop.phase is Phase.MEASURING
        assert shop.signal.state.best.changes > 100
        assert shop.signal.state.best.moved == 0
        assert not any("expand" in path for path in shop.dockbell.wire.paths)
        await shop.settle()
        assert set(await shop.vias()) <= {"first_pass", "pass"}
        assert await shop.dockbell.judge() == []


async def test_where_half_the_items_are_bumped_there_is_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=0.5) as shop:
        await shop.live(1500)
        best = shop.signal.state.best
        assert shop.phase is Phase.MEASURING
        assert 0.3 < best.moved / best.changes < 0.8
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_a_signal_that_is_configured_may_miss_half_of_the_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=0.5, settings={"signal": "items"}) as shop:
        await shop.live(1800)
        assert shop.phase is Phase.USED
        vias = await shop.vias()
        assert vias["signal"] > 50
        assert shop.signal.state.missed > 20
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_a_service_that_stops_bumping_is_read_by_passes_again_and_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        await shop.live(400)
        workload = shop.dockbell.agents.feeds[STOCK].tracked.workload
        assert workload.plan.lead.changes > 50
        low = workload.plan.rate.per_second
        shop.dockbell.sandbox.set(bump_most=0)
        await shop.live(2 * PASS_EVERY, until=lambda: shop.signal.state.missed > 0)
        assert shop.signal.state.missed > 0
        assert workload.plan.lead.changes < 10  # full rate at once
        assert workload.plan.rate.per_second > 1.5 * low
        await shop.live(1500)
        assert shop.phase is Phase.MEASURING
        await shop.settle()
        assert await shop.dockbell.judge() == []


@pytest.mark.parametrize("lag", [20.0, 90.0])
async def test_embedded_records_that_lag_behind_invent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: float
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0, embed_lag=lag, stock=120, items=50) as shop:
        await shop.live(1800)
        await shop.settle()
        assert await shop.dockbell.judge() == []
        if lag == 20:  # the lookback shows each item for a minute
            assert shop.phase is Phase.USED
            assert (await shop.vias())["signal"] > 100


async def test_stock_without_timestamps_has_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is embedded may be an older state that was never stored, and nothing would tell."""

    def forget_dates(answer: Answer) -> None:
        if answer.status != 200 or answer.path not in ("/v1/items", "/v1/stock"):
            return
        body = json.loads(answer.body)
        levels = body.get("stock", [level for item in body.get("items", ()) for level in item.get("stock", ())])
        for level in levels:
            del level["updated_at"]
        answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, embed_lag=20.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, forget_dates)
        await shop.live(600)
        assert shop.phase is Phase.DROPPED
        assert not any("expand" in path for path in shop.dockbell.wire.paths)
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_embedded_stock_that_is_partly_older_is_found_out_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 20 s after a change one member is from another cache, under the new timestamp."""

    def mix(answer: Answer) -> None:
        if answer.path != "/v1/items" or "expand" not in answer.query or answer.status != 200:
            return
        body = json.loads(answer.body)
        for level in [level for item in body["items"] for level in item["stock"]]:
            changed_at = datetime.fromisoformat(level["updated_at"])
            if START + timedelta(seconds=answer.at) - changed_at < timedelta(seconds=20):
                level["available"] = -1
        answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, mix)
        await shop.live(1200, until=lambda: shop.phase is Phase.DROPPED)
        assert shop.phase is Phase.DROPPED
        assert shop.signal.state.reason.endswith("differently from the signal")
        await shop.settle()
        assert "signal" not in await shop.vias()
        assert await shop.dockbell.judge() == []


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_items_are_polled_on_where_the_api_refuses_to_embed_stock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    def refuse(answer: Answer) -> None:
        if answer.path == "/v1/items" and "expand" in answer.query:
            answer.status, answer.body = status, b'{"error": "no"}'

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, refuse)
        items = list(shop.dockbell.sandbox.records("items"))
        changed = 0

        def change() -> None:
            nonlocal changed
            changed += 1
            shop.dockbell.sandbox.edit("items", identity=items[changed % len(items)])

        await shop.live(1, lambda: None)  # the first pass makes no events
        await shop.live(120, change)
        await shop.settle()
        assert len(await shop.events(ITEMS)) == changed
        assert (await shop.dockbell.state("items")).problem == ""


async def test_a_stock_list_that_lags_behind_the_items_invents_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"replicas": 2, "replica_lag": 20.0, "replica_for": "pass"}
    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}, **options) as shop:
        await shop.live(2400)
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_business_as_usual_comes_out_right_with_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels are created, deleted and restored; arrays and members come in any order."""
    shuffled = {"shuffle_members": True, "numbers": "mixed"}
    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}, **shuffled) as shop:

        def change() -> None:
            shop.change()
            shop.dockbell.sandbox.step(1)

        await shop.live(1000, change)
        assert (await shop.vias())["signal"] > 100
        await shop.settle()
        await shop.settle()
        assert [each for each in await shop.dockbell.judge() if "untold" not in each] == []


async def test_a_restart_goes_on_with_what_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        await shop.live(60)
        shop.restart()
        await shop.live(5)
        assert shop.phase is Phase.USED
        before = (await shop.vias()).get("signal", 0)
        await shop.live(200)
        assert (await shop.vias())["signal"] > before + 20
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_what_the_operator_has_embedded_is_used_and_left_in_the_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch, bump_share=1.0, items_settings={"expand": ["stock"]}) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        await shop.live(300)
        assert (await shop.vias())["signal"] > 50
        assert any(event["changed"] and "/stock" in event["changed"][0] for event in await shop.events(ITEMS))
        await shop.settle()
        problems = [each for each in await shop.dockbell.judge() if "'items'" not in each]
        assert problems == []


async def test_items_that_look_otherwise_with_their_stock_are_none_of_the_polls_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``expand`` they have a member more and another name, and some are missing."""

    def alter_items(answer: Answer) -> None:
        if answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                item |= {"links": {}, "name": item["name"].upper()}
            del body["items"][::7]
            answer.body = json.dumps(body).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, alter_items)
        await shop.live(900)
        assert (await shop.vias())["signal"] > 50
        await shop.settle()
        assert await shop.events(ITEMS) == []
        assert await shop.dockbell.judge() == []


async def test_an_api_that_embeds_nothing_is_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def alter_items(answer: Answer) -> None:
        if answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                del item["stock"]
            answer.body = json.dumps(body).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, alter_items)
        await shop.live(300)
        assert shop.phase is Phase.DROPPED
        assert shop.signal.state.reason == "items?expand=stock embeds nothing"


async def test_an_api_that_refuses_to_embed_is_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(answer: Answer) -> None:
        if "expand" in answer.query:
            answer.status, answer.body = 400, b'{"error": "expand is not for lists"}'

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, refuse)
        await shop.live(300)
        assert shop.phase is Phase.DROPPED
        assert shop.signal.state.reason.startswith("items?expand=stock is refused: ")
        await shop.settle()
        assert await shop.dockbell.judge() == []


async def test_embedded_records_of_another_form_are_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shorten(answer: Answer) -> None:
        if answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                for level in item["stock"]:
                    del level["lots"]
            answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0, settings={"signal": "items"}) as shop:
        alter(shop.dockbell, shorten)
        await shop.live(600)
        assert shop.phase is Phase.DROPPED
        await shop.settle()
        assert "signal" not in await shop.vias()
        assert await shop.dockbell.judge() == []


async def test_a_list_that_takes_back_what_the_signal_said_drops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service begins to embed levels that are wrong: the first one invents an event, and it is the last."""
    wrong = False

    def lie(answer: Answer) -> None:
        if wrong and answer.path == "/v1/items" and "expand" in answer.query and answer.status == 200:
            body = json.loads(answer.body)
            for item in body["items"]:
                for level in item["stock"][:1]:
                    level["on_hand"] += 1
                    level["updated_at"] = level["updated_at"].replace(".", ".9")[:26] + "Z"
            answer.body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    async with opened(tmp_path, monkeypatch, bump_share=1.0) as shop:
        await shop.live(1200, until=lambda: shop.phase is Phase.USED)
        alter(shop.dockbell, lie)
        wrong = True
        await shop.live(2 * PASS_EVERY, until=lambda: shop.phase is Phase.DROPPED)
        assert shop.phase is Phase.DROPPED
        assert "the list shows" in shop.signal.state.reason
        asked = sum("expand" in path for path in shop.dockbell.wire.paths)
        await shop.live(PASS_EVERY)
        assert sum("expand" in path for path in shop.dockbell.wire.paths) == asked
