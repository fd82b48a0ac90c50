"""Answers that are sound, and not true: a cache's, a part's, a page that comes again, stamps of another kind."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import RunKind
from dockbell.core.moment import parse_moment
from tests.acceptance.altering import Answer, alter
from tests.acceptance.deployment import START, Deployment, deploy
from tests.virtual_time import SkippingLoop

RESOURCES = ("shipments", "packages")
_TURNS = itertools.count()


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


def write_date(ahead: float = 0) -> bytes:
    return format_datetime(START + timedelta(seconds=anyio.current_time() + ahead), usegmt=True).encode()


async def live(dockbell: Deployment, *, rounds: int = 4, pause: float = 75) -> None:
    """Let records be created, changed and deleted."""
    for number in range(rounds):
        dockbell.sandbox.step(6)
        dockbell.edit(1)
        if number == 1:
            for resource in dockbell.resources:
                dockbell.sandbox.delete(resource)
        await dockbell.run(pause)


@pytest.mark.parametrize("is_dated_anew", [True, False])
async def test_what_a_cache_shows_for_five_minutes_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_dated_anew: bool
) -> None:
    copies: dict[tuple[str, str], Answer] = {}

    def cache(answer: Answer) -> None:
        if "updated_since" in answer.query:
            return
        copy = copies.get((answer.path, answer.query))
        if copy is None or answer.at - copy.at >= 300:
            copies[answer.path, answer.query] = Answer(
                answer.path, answer.query, answer.status, answer.body, dict(answer.headers), answer.at
            )
            return
        answer.status, answer.body, answer.headers = copy.status, copy.body, dict(copy.headers)
        answer.headers[b"age"] = b"%d" % round(answer.at - copy.at)
        if is_dated_anew:
            answer.headers = {name: value for name, value in answer.headers.items() if name.lower() != b"date"}
            answer.headers[b"date"] = write_date()

    async with deploy(tmp_path, monkeypatch, resources=RESOURCES, page_cap=200) as dockbell:
        await dockbell.run(60)
        alter(dockbell, cache)
        await live(dockbell, rounds=8)
        await dockbell.run(700)
        assert await dockbell.judge() == []


@pytest.mark.parametrize("status", [200, 206])
async def test_a_part_of_a_list_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def cut(answer: Answer) -> None:
        if answer.path == "/v1/packages" and "updated_since" not in answer.query and answer.at < 400:
            body = json.loads(answer.body)
            kept = {"packages": body["packages"][:-3], "next_cursor": None}
            answer.status, answer.body = status, json.dumps(kept | {"partial": status == 200}).encode()

    async with deploy(tmp_path, monkeypatch, resources=RESOURCES, page_cap=200) as dockbell:
        await dockbell.run(60)
        alter(dockbell, cut)
        await dockbell.run(340)
        (problem,) = dockbell.problems("packages", RunKind.PASS)
        assert "206" in problem if status == 206 else '"partial": true' in problem
        assert await dockbell.told("deleted") == []
        await live(dockbell)
        await dockbell.run(400)
        assert await dockbell.judge() == []


async def test_a_cursor_that_is_ignored_costs_few_requests_where_one_record_is_all_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = b""
    count = 0

    def ignore_cursor(answer: Answer) -> None:
        nonlocal first, count
        if "cursor=" not in answer.query:
            first = answer.body
        count += 1
        answer.status = 200
        answer.body = json.dumps(json.loads(first) | {"next_cursor": f"c{count}"}).encode()

    async with deploy(tmp_path, monkeypatch, resources=["packages"], packages=1, shipments=1) as dockbell:
        await dockbell.run(60)
        alter(dockbell, ignore_cursor)
        dockbell.edit(1)
        await dockbell.run(95)
        assert count < 100
        assert dockbell.problems("packages", RunKind.POLL) == {"the API returned the same page twice"}
        assert await dockbell.behind() == []


def compare_exclusively(answer: Answer) -> None:
    """Leave out what is dated as ``updated_since`` says."""
    _, asked, rest = answer.query.partition("updated_since=")
    if asked:
        since = parse_moment(rest.partition("&")[0].replace("%3A", ":"))
        body = json.loads(answer.body)
        (name,) = (name for name, value in body.items() if isinstance(value, list))
        body[name] = [record for record in body[name] if parse_moment(record["updated_at"]) != since]
        answer.body = json.dumps(body).encode()


def alternate_dates(answer: Answer) -> None:
    """Let two servers answer in turn, whose clocks are three minutes apart."""
    ahead = 90 if next(_TURNS) % 2 else -90
    answer.headers = {name: value for name, value in answer.headers.items() if name.lower() != b"date"}
    answer.headers[b"date"] = write_date(ahead)


@pytest.mark.parametrize("change", [compare_exclusively, alternate_dates])
async def test_stamps_that_are_compared_or_told_in_another_way_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Answer], None]
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=RESOURCES, timestamp_precision="s") as dockbell:
        alter(dockbell, change)
        await dockbell.run(60)
        await live(dockbell, pause=40)
        assert await dockbell.behind() == []
        await dockbell.run(400)
        assert await dockbell.judge() == []
