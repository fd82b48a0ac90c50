"""The daemon as a service manager knows it: started before the others, told to stop at any moment, never talking."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import Broker, Subscriber, find_free_port, make_broker
from tests.cli.programs import Program, run, started
from tests.oracle import Account
from tests.receivers import Receiver

pytestmark = pytest.mark.acceptance

API_KEY = "canary-api-key-8f2b"
PASSWORD = "canary-password-77c1"
SECRET = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"

CONFIG = """
name = "acme"

[sources.main]
base_url = "http://127.0.0.1:{api}"
api_key = {{ env = "DOCKBELL_API_KEY" }}
requests_per_minute = 6000

[resources]
shipments = {{ every = "500ms", first_pass = "emit" }}
stock = {{ every = "1s", key = "{key}" }}

[sinks.floor]
type = "mqtt"
url = "{broker}"
username = "dockbell"
password = {{ env = "MQTT_PASSWORD" }}

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = {{ env = "ERP_WEBHOOK_SECRET" }}
headers = {{ authorization = {{ env = "MQTT_PASSWORD" }} }}
"""
SECRETS = {"DOCKBELL_API_KEY": API_KEY, "MQTT_PASSWORD": PASSWORD, "ERP_WEBHOOK_SECRET": SECRET}


class Surroundings:
    """What a daemon needs, none of it there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api_port = find_free_port()
        self.broker: Broker = make_broker(folder)
        self.account = Account()
        self.receiver = Receiver(SECRET, self.account)
        self.sandbox = Sandbox(SandboxOptions(records=150, activity=10, api_keys=(API_KEY,), requests_per_minute=0))

    def configure(self, *, key: str = "/id") -> None:
        """Write the configuration."""
        config = CONFIG.format(api=self.api_port, broker=self.broker.url, receiver=self.receiver.url, key=key)
        (self.folder / "dockbell.toml").write_text(config)

    def stored_events(self, resource: str) -> int:
        """Return how many events of a resource the store has."""
        with sqlite3.connect(f"file:{self.folder}/dockbell.db?mode=ro", uri=True) as connection:
            statement = "SELECT count(*) FROM events JOIN feeds ON feeds.id = feed WHERE resource = ?"
            (count,) = connection.execute(statement, (resource,)).fetchone()
        connection.close()
        return int(count)


@pytest.fixture
def there(tmp_path: Path) -> Surroundings:
    surroundings = Surroundings(tmp_path)
    surroundings.configure()
    return surroundings


@pytest.fixture
async def daemon(there: Surroundings) -> AsyncIterator[Program]:
    with started(there.folder, "run", "--verbose", env=SECRETS) as program:
        program.until("dockbell acme runs")
        yield program


async def until_heard(there: Surroundings, count: int = 1) -> None:
    with anyio.fail_after(30):
        while there.account.deliveries < count:  # noqa: ASYNC110  # the receiver's account has no event to wait for
            await anyio.sleep(0.05)


async def test_it_waits_for_api_receiver_and_broker_and_loses_nothing(there: Surroundings, daemon: Program) -> None:
    daemon.until("main: .*connection refused")
    async with serve(there.sandbox, port=there.api_port):
        with anyio.fail_after(30):
            while there.stored_events("shipments") < 30:  # noqa: ASYNC110  # another process fills it
                await anyio.sleep(0.1)
        async with there.receiver.listening():
            await until_heard(there, 30)
            there.broker.start()
            with Subscriber(there.broker, "dockbell/event/main/shipments/#") as subscriber:
                await subscriber.until(lambda received: len(received) >= 30)
            there.broker.stop()
            assert daemon.end() == 0
    assert there.account.problems == []


async def test_it_stops_within_seconds_while_nobody_is_there(daemon: Program) -> None:
    began = time.monotonic()
    assert daemon.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 8


async def test_a_feed_that_cannot_be_read_is_named_and_the_others_go_on(there: Surroundings) -> None:
    there.configure(key="/nowhere")
    async with serve(there.sandbox, port=there.api_port), there.receiver.listening():
        with started(there.folder, "run", env=SECRETS) as daemon:
            await until_heard(there, 30)
            daemon.until("main/stock: .*key /nowhere")
            daemon.end()


async def test_a_store_has_one_daemon(there: Surroundings, daemon: Program) -> None:
    second = run("run", cwd=there.folder, env=SECRETS)
    assert second.returncode == 1
    assert "held by process" in second.stderr
    once = run("once", cwd=there.folder, env=SECRETS)
    assert once.returncode == 1
    assert daemon.end() == 0


async def test_its_log_is_json_where_nobody_looks(daemon: Program) -> None:
    daemon.end()
    lines = [json.loads(line) for line in daemon.err.splitlines()]
    assert {"time", "level", "text"} <= lines[0].keys()
    assert {"Started", "Stopping"} <= {line.get("fact") for line in lines}
