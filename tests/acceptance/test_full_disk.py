"""The disk of the store is full: the real process waits, loses nothing, invents nothing, and goes on by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import find_free_port
from tests.cli.programs import Program, run, started
from tests.oracle import Account, Story
from tests.receivers import Receiver

pytestmark = pytest.mark.acceptance

SECRET: Final = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"
MEGABYTE: Final = 1024 * 1024
CONFIG: Final = """
[web]
listen = "127.0.0.1:{web}"

[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "300ms", first_pass = "emit", key = "/id" }}
packages = {{ every = "300ms", first_pass = "emit", key = "/id" }}

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = "{secret}"
"""


class Disk:
    """A small disk, and a file on it that takes all the room that is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filling = folder / "filling"

    def fill(self) -> None:
        """Leave no room at all."""
        file = os.open(self._filling, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for size in (MEGABYTE, 4096):
            with suppress(OSError):
                while os.write(file, bytes(size)) == size:
                    pass
        os.close(file)

    def clear(self) -> None:
        """Give the room back."""
        self._filling.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        assert "DOCKBELL_REQUIRE_MOUNT" not in os.environ, mounted.stderr
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)


@dataclass
class House:
    """An API that moves, a receiver, and a daemon's folder on a small disk."""

    disk: Disk
    sandbox: Sandbox
    account: Account
    web: int
    moving: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    still: anyio.Event = field(default_factory=anyio.Event)

    @property
    def folder(self) -> Path:
        return self.disk.folder

    async def move(self) -> None:
        """Let records change until nothing shall any more."""
        with self.moving:
            for resource, identity in cycle([(name, key) for name in self.initial for key in self.initial[name]]):
                self.sandbox.edit(resource, identity=identity)
                await anyio.sleep(0.02)
        self.still.set()

    def ready(self) -> tuple[int, Any]:
        """Return what the daemon says of itself."""
        answer = httpx.get(f"http://127.0.0.1:{self.web}/readyz")
        return answer.status_code, answer.json()["reasons"]

    async def until(self, holds: Callable[[], object], what: str) -> None:
        end = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < end, what
            await anyio.sleep(0.05)

    async def until_delivered(self, more: int) -> None:
        enough = self.account.deliveries + more
        await self.until(lambda: self.account.deliveries >= enough, "nothing is delivered")

    async def settle(self) -> list[str]:
        """Let everything come to rest; return what is wrong with what the receiver was told."""
        self.moving.cancel()
        await self.still.wait()
        resources = ("shipments", "packages")
        story = Story({}, [change for change in self.sandbox.changes() if change.resource in resources])
        for resource in resources:
            for identity, raw in self.initial[resource].items():
                versions = story.versions.setdefault((resource, identity), [None])
                versions[0] = Story({resource: {identity: raw}}, ()).versions[resource, identity][0]
        await self.until(lambda: self.account.state() == story.final(), "not everything is told")
        return self.account.judge(story)

    def __post_init__(self) -> None:
        self.initial = {resource: self.sandbox.records(resource) for resource in ("shipments", "packages")}


@pytest.fixture
async def house(disk: Disk) -> AsyncIterator[House]:
    sandbox = Sandbox(SandboxOptions(records=150, api_keys=("sandbox",), requests_per_minute=0, seed=5))
    account = Account()
    receiver = Receiver(SECRET, account)
    house = House(disk, sandbox, account, find_free_port())
    async with serve(sandbox) as api, receiver.listening():
        text = CONFIG.format(api=api, web=house.web, receiver=receiver.url, secret=SECRET)
        (disk.folder / "dockbell.toml").write_text(text)
        async with anyio.create_task_group() as group:
            group.start_soon(house.move)
            yield house
            group.cancel_scope.cancel()


def facts(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


def log_of(folder: Path) -> Path:
    """Return a folder for the log, which must not be on the disk that is full."""
    logs = folder.parent / "logs"
    logs.mkdir(exist_ok=True)
    return logs


def begin(house: House) -> Any:
    return started(log_of(house.folder), "run", "--verbose", env={"DOCKBELL_CONFIG": f"{house.folder}/dockbell.toml"})


def requests(program: Program) -> int:
    return len(re.findall('"RequestSent"', program.err))


async def test_all_waits_for_room_without_a_request_in_vain_and_goes_on_by_itself(house: House) -> None:
    with begin(house) as daemon:
        await house.until_delivered(40)
        house.disk.fill()
        await house.until(lambda: '"StoreFails"' in daemon.err, "the disk is not full")
        house.disk.fill()  # whoever has filled it takes what the daemon gives up, too
        await anyio.sleep(1)  # what was in flight
        asked, delivered = requests(daemon), house.account.deliveries
        await anyio.sleep(2)
        assert (requests(daemon), house.account.deliveries) == (asked, delivered)
        status, reasons = house.ready()
        assert (status, len(reasons)) == (503, 1)
        assert "disk full; free some space" in reasons[0]
        said = await anyio.to_thread.run_sync(lambda: run("status", cwd=house.folder))
        assert said.returncode == 1
        assert "0 MB left on its disk; free some space" in said.stdout
        house.disk.clear()
        cleared = time.monotonic()
        await house.until(lambda: '"StoreMended"' in daemon.err, "it does not notice that there is room")
        assert time.monotonic() - cleared < 8
        await house.until_delivered(20)
        assert await house.settle() == []
        assert house.ready() == (200, [])
        assert daemon.end() == 0
        told = facts(daemon.err)
    assert [each["fact"] for each in told if each.get("fact", "").startswith("Store")] == ["StoreFails", "StoreMended"]
    assert [
        each["text"] for each in told if "trace" in each or (each["level"] == "error" and "Store" not in each["fact"])
    ] == []
    assert len(house.account.events) == len({*house.account.events})


async def test_killed_on_a_full_disk_it_goes_on_from_there_under_no_id_twice(house: House) -> None:
    with begin(house) as daemon:
        await house.until_delivered(40)
        house.disk.fill()
        await house.until(lambda: '"StoreFails"' in daemon.err, "the disk is not full")
        daemon.end(signal.SIGKILL)
    house.disk.fill()
    with begin(house) as daemon:
        await house.until(lambda: '"Started"' in daemon.err, "it does not begin without room")
        await house.until(lambda: '"StoreFails"' in daemon.err, "it does not say what it lacks")
        house.disk.clear()
    with begin(house) as daemon:
        await house.until_delivered(20)
        assert await house.settle() == []
        assert daemon.end() == 0
        assert [each for each in facts(daemon.err) if "trace" in each] == []
