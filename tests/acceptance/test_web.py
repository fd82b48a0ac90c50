"""The pull feeds of the real daemon: a reader that nobody pushes anything to knows as much as the store."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import pytest

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import find_free_port
from tests.cli.programs import Program, run, started
from tests.oracle import Account, read_content
from tests.stores.places import Place, url_of
from tests.stores.standings import read

pytestmark = pytest.mark.acceptance

TOKEN = "canary-web-token-51d7"
CONFIG = """
[store]
url = "{store}"

[web]
listen = "127.0.0.1:{web}"
token = {{ env = "DOCKBELL_WEB_TOKEN" }}

[sources.main]
base_url = "http://127.0.0.1:{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "500ms" }}
"""
SECRETS = {"DOCKBELL_WEB_TOKEN": TOKEN}
STATE = "/state/main/shipments"


class Deployment:
    """A daemon with nothing but a source and a web server."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder
        self.place = place
        self.api, self.port = find_free_port(), find_free_port()
        (folder / "dockbell.toml").write_text(CONFIG.format(store=url_of(place), api=self.api, web=self.port))
        self.sandbox = Sandbox(SandboxOptions(records=300, activity=40, requests_per_minute=0))

    @contextmanager
    def running(self) -> Iterator[Program]:
        """Let the daemon run inside."""
        with started(self.folder, "run", env=SECRETS) as program:
            program.until(f"web: answers at http://127.0.0.1:{self.port}")
            yield program

    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {TOKEN}"}
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=70)

    def stored(self) -> dict[str, Any]:
        query = (
            "SELECT records.key, body FROM records JOIN bodies USING (feed, row) JOIN feeds ON feeds.id = feed"
            " WHERE resource = 'shipments' AND gone_at IS NULL"
        )
        return {str(key): read_content(cast("bytes", body)) for key, body in read(self.place, query)}


@pytest.fixture
def deployment(tmp_path: Path, place: Place) -> Deployment:
    return Deployment(tmp_path, place)


class Copy:
    """The records as a reader has them who began with the state and follows the feed."""

    def __init__(self) -> None:
        self.account = Account()
        self.records: dict[str, Any] = {}
        self.revisions: dict[str, int] = {}
        self.next = httpx.URL()

    async def begin(self, client: httpx.AsyncClient) -> None:
        """Read the stored records."""
        answer = await client.get(STATE, params={"limit": 7})
        while True:
            for found in answer.json()["records"]:
                self._note(found["key"], found["revision"], found["record"])
            if (following := answer.links.get("next")) is None:
                break
            answer = await client.get(answer.request.url.join(following["url"]))
        self.next = answer.request.url.join(answer.json()["feed"] + "&wait=1s")

    async def follow(self, client: httpx.AsyncClient) -> int:
        """Read the next events; return how many there were."""
        answer = await client.get(self.next)
        assert answer.status_code == 200, answer.text
        for event in answer.json():
            self.account.hear(event)
            data = event["data"]
            if "statement" not in data and data["revision"] > self.revisions.get(data["key"], -1):
                self._note(data["key"], data["revision"], data["after"])
        self.next = answer.request.url.join(answer.links["next"]["url"])
        return len(answer.json())

    def _note(self, key: str, revision: int, record: dict[str, Any] | None) -> None:
        self.revisions[key] = revision
        self.records.pop(key, None)
        if record is not None:
            self.records[key] = read_content(record)


async def test_a_reader_knows_what_the_store_does_through_a_restart(deployment: Deployment) -> None:
    copy = Copy()
    async with serve(deployment.sandbox, port=deployment.api), deployment.client() as client:
        with anyio.fail_after(60):
            with deployment.running() as daemon:
                while len(deployment.stored()) < 30:  # noqa: ASYNC110  # another process fills it
                    await anyio.sleep(0.05)
                await copy.begin(client)
                while copy.account.deliveries < 20:
                    await copy.follow(client)
                assert daemon.end() == 0
            with deployment.running() as daemon:
                while copy.account.deliveries < 40:
                    await copy.follow(client)
                deployment.sandbox.activity.rate = 0
                while copy.records != deployment.stored():
                    await copy.follow(client)
                assert daemon.end() == 0
    assert copy.account.problems == []
    assert TOKEN not in daemon.out + daemon.err


async def test_ten_readers_that_wait_are_told_the_end(deployment: Deployment) -> None:
    answers: list[httpx.Response] = []
    asked: list[str] = []

    async def trace(step: str, _: object) -> None:
        if step == "http11.send_request_headers.complete":
            asked.append(step)

    async with serve(deployment.sandbox, port=deployment.api), deployment.client() as client:
        with deployment.running() as daemon, anyio.fail_after(60):
            deployment.sandbox.activity.rate = 0
            while not deployment.stored():  # noqa: ASYNC110  # another process fills it
                await anyio.sleep(0.05)

            async def follow(**headers: str) -> None:
                parameters, extensions = {"wait": "60s"}, {"trace": trace}
                url = "/feeds/dockbell/notices"
                answers.append(await client.get(url, params=parameters, headers=headers, extensions=extensions))

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(follow)
                    group.start_soon(partial(follow, accept="text/event-stream"))
                while len(asked) < 10:  # noqa: ASYNC110  # httpx tells it step by step
                    await anyio.sleep(0.01)
                await client.head("/healthz")
                assert answers == []
                began = time.monotonic()
                assert await anyio.to_thread.run_sync(daemon.end) == 0
            assert time.monotonic() - began < 5
    assert sorted(answer.content for answer in answers) == [b":\n\n"] * 5 + [b"[]"] * 5


def test_an_address_that_is_taken_is_told_before_anything_is_read(deployment: Deployment) -> None:
    with socket.create_server(("127.0.0.1", deployment.port)):
        ended = run("run", cwd=deployment.folder, env=SECRETS)
    assert ended.returncode == 2
    assert f"[web] listen: address already in use, got 127.0.0.1:{deployment.port}" in ended.stderr
    assert "main/" not in ended.stderr
