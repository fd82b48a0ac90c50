"""A backup that is made under load, and the real process that goes on from it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import closing
from http import HTTPStatus
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import find_free_port
from tests.cli.programs import run, started
from tests.serving import listening

pytestmark = pytest.mark.acceptance

PAGE: Final = (Path(__file__).parents[2] / "docs" / "operations" / "store.md").read_text(encoding="utf-8")
(BACKUP,) = re.findall(r"```sh\ndockbell (backup backup\.db)\n```", PAGE)
(RESTORE,) = re.findall(r"```sh\nsystemctl stop dockbell\n(cp .*)\nsystemctl start dockbell\n```", PAGE)
CONFIG: Final = """
[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "200ms", first_pass = "emit", key = "/id", stale_window = "0s" }}

[sinks.erp]
type = "webhook"
url = "http://127.0.0.1:{receiver}/"
secret = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"
"""


class House:
    """An API that moves, and a subscriber that keeps all that it was ever told.

    Attributes:
        told: Each event once, by its id, in the order of arrival.
        problems: What came twice under one id with another content.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: dict[str, dict[str, Any]] = {}
        self.problems: list[str] = []
        self.sandbox = Sandbox(SandboxOptions(records=100, api_keys=("sandbox",), requests_per_minute=0, seed=3))
        self.moving = anyio.CancelScope()

    async def move(self) -> None:
        """Let records change until nothing shall any more."""
        with self.moving:
            for identity in cycle(self.sandbox.records("shipments")):
                self.sandbox.edit("shipments", identity=identity)
                await anyio.sleep(0.01)

    async def take(self, request: Request) -> Response:
        """Take one delivery."""
        event = json.loads(await request.body())
        if self.told.setdefault(event["id"], event) != event:
            self.problems.append(f"{event['id']} came with two contents")
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def until_told(self, more: int) -> None:
        """Wait for some events that were never told before."""
        enough, end = len(self.told) + more, time.monotonic() + 30
        while len(self.told) < enough:
            assert time.monotonic() < end, "nothing is told"
            await anyio.sleep(0.05)

    def knows_all(self) -> bool:
        """Return whether the subscriber has the records as they are."""
        known = {
            event["data"]["key"]: event["data"]["after"] for event in self.told.values() if "after" in event["data"]
        }
        real = {key: json.loads(raw) for key, raw in self.sandbox.records("shipments").items()}
        return {key: strip(after) for key, after in known.items()} == {key: strip(after) for key, after in real.items()}


def strip(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "updated_at"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house, port = House(tmp_path), find_free_port()
    app = Starlette(routes=[Route("/", house.take, methods=["POST"])])
    async with serve(house.sandbox) as api, listening(app, port), anyio.create_task_group() as group:
        (tmp_path / "dockbell.toml").write_text(CONFIG.format(api=api, receiver=port))
        group.start_soon(house.move)
        yield house
        group.cancel_scope.cancel()


def count_events(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (number,) = connection.execute("SELECT max(entry) FROM events").fetchone()
    return int(number)


async def test_who_goes_on_from_a_backup_uses_no_id_twice_and_says_what_time_is_missing(house: House) -> None:
    with started(house.folder, "run") as daemon:
        await house.until_told(100)
        done = await to_thread.run_sync(lambda: run(*shlex.split(BACKUP), cwd=house.folder))
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"backup\.db: \d\.\d MB, complete and checked\n", done.stdout)
        held = count_events(house.folder / "backup.db")
        assert held >= 100
        await house.until_told(100)
        daemon.end(signal.SIGKILL)
    before = set(house.told)
    assert (house.folder / "dockbell.db-wal").stat().st_size > 0, "the log of the old store is left beside the new one"
    await to_thread.run_sync(lambda: subprocess.run(shlex.split(RESTORE), check=True, cwd=house.folder))
    with started(house.folder, "run") as daemon:
        await house.until_told(50)
        house.moving.cancel()
        end = time.monotonic() + 30
        while not house.knows_all():
            assert time.monotonic() < end, "the subscriber does not learn how the records are"
            await anyio.sleep(0.05)
        assert daemon.end() == 0
        assert '"trace"' not in daemon.err
    assert house.problems == []
    new = [event for id_, event in house.told.items() if id_ not in before]
    for source in {event["source"] for event in new}:
        first, *others = sorted(
            (event for event in new if event["source"] == source), key=lambda each: each["sequence"]
        )
        assert (first["type"], first["data"]["reason"]) == ("dockbell.feed.gap", "store_lost")
        assert [event["sequence"] for event in others if event["type"] == "dockbell.feed.gap"] == []
        assert len({event["sequence"] for event in (first, *others)}) == 1 + len(others)
    with started(house.folder, "run") as daemon:
        house.sandbox.edit("shipments", 5)
        await house.until_told(5)
        assert daemon.end() == 0
    last = list(house.told.values())[len(before) + len(new) :]
    assert [event["type"] for event in last if event["type"] == "dockbell.feed.gap"] == []
