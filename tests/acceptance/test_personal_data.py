"""Personal data: what must not be stored, or not any more, is in no byte of the store's files, daemon or not."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import Broker, Subscriber, make_broker
from tests.cli.programs import Program, run, started

pytestmark = pytest.mark.acceptance

PAGE: Final = (Path(__file__).parents[2] / "docs" / "operations" / "personal-data.md").read_text(encoding="utf-8")
COMMANDS: Final = re.findall(r"```sh\ndockbell (.*)\n```", PAGE)
(DROP,) = re.findall(r"```toml\n\[resources.shipments\]\n(drop = .*)\n```", PAGE)
STATE: Final = "dockbell/state/main/shipments/shp_1"
CONFIG: Final = """
[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000
[resources.shipments]
every = "200ms"
first_pass = "emit"
stale_window = "0s"
key = "/id"
{more}
[sinks.floor]
type = "mqtt"
url = "{broker}"
"""


@dataclass
class House:
    """A quiet API, a broker, and a folder for a daemon."""

    folder: Path
    api: str
    broker: Broker
    sandbox: Sandbox

    def write(self, more: str = "") -> None:
        """Write a configuration."""
        (self.folder / "dockbell.toml").write_text(CONFIG.format(api=self.api, broker=self.broker.url, more=more))

    def find(self, *texts: str) -> list[str]:
        """Return which of these texts are in a byte of the store's files."""
        files = [path.read_bytes() for path in self.folder.glob("dockbell.db*")]
        assert files
        return [text for text in texts if any(text.encode() in file for file in files)]

    def read(self, key: str) -> dict[str, Any]:
        """Return a shipment."""
        found: dict[str, Any] = json.loads(self.sandbox.records("shipments")[key])
        return found

    async def ask(self, words: str, code: int = 0) -> str:
        """Run a command beside the servers of this process, and return what it prints."""
        result = await to_thread.run_sync(partial(run, *shlex.split(words), cwd=self.folder))
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so."""
        with anyio.fail_after(30):
            while not condition():  # noqa: ASYNC110  # other processes bring it about
                await anyio.sleep(0.02)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    broker = make_broker(tmp_path)
    broker.start()
    sandbox = Sandbox(SandboxOptions(shipments=40, packages=0, items=5, stock=0, activity=0, requests_per_minute=0))
    try:
        async with serve(sandbox) as api:
            house = House(tmp_path, api, broker, sandbox)
            house.write()
            yield house
    finally:
        broker.stop()


async def wait_for(daemon: Program, words: str) -> None:
    await to_thread.run_sync(daemon.until, words)


async def test_a_purged_record_is_in_no_byte_and_its_state_is_cleared_while_the_daemon_runs(house: House) -> None:
    texts = [house.read("shp_1")[name] for name in ("number", "order_reference")]  # no other shipment has these
    purge, why = COMMANDS
    with Subscriber(house.broker) as seen, started(house.folder, "run") as daemon:
        await wait_for(daemon, "pass complete")
        house.sandbox.edit("shipments", identity="shp_1")
        await seen.until(lambda all_: any("shp_1/updated" in each.topic for each in all_))
        house.sandbox.delete("shipments", identity="shp_1")  # of which no pass has told yet
        assert house.find(*texts) == texts
        assert await house.ask(purge.replace(" --anyway", ""), code=1) == ""
        assert house.find(*texts) == texts
        assert (await house.ask(purge)).startswith("main/shipments shp_1: erased, 2 kept events emptied")
        assert house.find(*texts) == []
        await seen.until(lambda all_: any("shp_1/deleted" in each.topic for each in all_))
        (deleted,) = [json.loads(each.payload) for each in seen.received if "shp_1/deleted" in each.topic]
        told = {name: deleted["data"][name] for name in ("reason", "before", "after", "revision")}
        assert told == {"reason": "purged", "before": None, "after": None, "revision": 2}
        await seen.until(lambda all_: [each.payload for each in all_ if each.topic == STATE][-1] == b"")
        assert "an operator purged its content at" in await house.ask(why)
        with Subscriber(house.broker, "dockbell/state/#") as late:
            await late.until(lambda all_: len(all_) == 39)
            assert STATE not in late.topics
        house.sandbox.restore()
        await house.ask("reconcile shipments")
        await seen.until(lambda all_: any("shp_1/restored" in each.topic for each in all_))
        await seen.until(lambda all_: [each.payload for each in all_ if each.topic == STATE][-1] != b"")
        assert daemon.end() == 0
    assert house.find(*texts) == texts
    await house.ask(purge)
    assert house.find(*texts) == []


async def test_what_is_dropped_from_now_on_is_in_no_byte_after_a_restart(house: House) -> None:
    addresses = [house.read(key)["ship_to"] for key in house.sandbox.records("shipments")]
    texts = sorted({address[name] for address in addresses for name in ("name", "street", "phone", "email")} - {None})
    with started(house.folder, "run") as daemon:
        await wait_for(daemon, "pass complete")
        house.sandbox.edit("shipments", 10)
        await house.until(lambda: len(list_events(house)) >= 50)
        assert daemon.end() == 0
    found = house.find(*texts)
    assert len(found) > 50
    ids = list_events(house)
    house.write(DROP)
    assert "/ship_to/email may still be stored" in await house.ask("status --verbose", code=1)
    with started(house.folder, "run") as daemon:
        await wait_for(daemon, r"/ship_to/email.* dropped from 40 records and 50 events")
        assert house.find(*texts) == []
        house.sandbox.edit("shipments", 5)
        await house.until(lambda: len(list_events(house)) >= 55)
        assert "may still be stored" not in await house.ask("status --verbose")
        assert daemon.end() == 0
    assert house.find(*texts) == []
    assert list_events(house)[:50] == ids
    assert len(list_events(house)) == 55, "an event was invented"


def list_events(house: House) -> list[str]:
    """Return the ids of the records' events, in order."""
    with closing(sqlite3.connect(house.folder / "dockbell.db")) as connection:
        return [each for (each,) in connection.execute("SELECT id FROM events WHERE key <> '' ORDER BY entry")]
