"""A changed configuration is followed by the running daemon; what it does not change goes on untouched."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import Broker, find_free_port, make_broker
from tests.cli.programs import Program, run, started
from tests.oracle import Account
from tests.receivers import Receiver
from tests.stores.places import Place, url_of
from tests.stores.standings import read

pytestmark = pytest.mark.acceptance

SECRET = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"
TOKEN = "a-token-of-these-tests"
CONFIG = """
name = "acme"
[store]
url = "{store}"
[web]
listen = "127.0.0.1:{port}"
token = "{token}"
[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000
[resources]
shipments = {{ every = "{every}", first_pass = "emit" }}
stock = {{ every = "10m" }}
[sinks.floor]
type = "mqtt"
url = "{broker}"
"""
SINK = """
[sinks.erp]
type = "webhook"
url = "{url}"
secret = "{secret}"
start = "beginning"
resources = ["shipments"]
{more}
"""


@dataclass
class Yard:
    """A daemon, and what surrounds it."""

    folder: Path
    place: Place
    api: str
    broker: Broker
    receiver: Receiver
    account: Account
    daemon: Program = field(init=False)
    port: int = field(default_factory=find_free_port)

    def write(self, more: str = "", *, every: str = "300ms", token: str = TOKEN, port: int | None = None) -> None:
        """Write a configuration."""
        given = {"store": url_of(self.place), "api": self.api, "broker": self.broker.url}
        given |= {"port": str(port or self.port), "every": every, "token": token}
        (self.folder / "dockbell.toml").write_text(CONFIG.format(**given) + more)

    def sink(self, more: str = "") -> str:
        """Return the table of a webhook."""
        return SINK.format(url=self.receiver.url, secret=SECRET, more=more)

    async def reload(self, code: int = 0) -> dict[str, Any]:
        """Have the daemon reload; return what came of it."""
        result = await to_thread.run_sync(partial(run, "reload", "--json", cwd=self.folder))
        assert result.returncode == code, result.stdout + result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    async def reload_and_tell(self) -> str:
        """Have the daemon reload; return what changed, without the number of the revision that processes share."""
        return re.sub(r"^revision \d+: ", "", (await self.reload())["detail"])

    def facts(self, name: str) -> list[dict[str, Any]]:
        """Return the facts of one kind that the daemon has logged."""
        lines = [json.loads(line) for line in self.daemon.err.splitlines() if line.endswith("}")]
        return [line for line in lines if line.get("fact") == name]

    async def until_heard(self, count: int) -> None:
        """Wait until the webhook has so many events."""
        with anyio.fail_after(30):
            while self.account.deliveries < count:  # noqa: ASYNC110  # the receiver's account has no event to wait for
                await anyio.sleep(0.02)

    async def ask(self, token: str, port: int | None = None, *, path: str = "/feeds") -> int:
        """Ask the daemon's web server for something."""
        async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {token}"}) as client:
            return (await client.get(f"http://127.0.0.1:{port or self.port}{path}")).status_code


@pytest.fixture
async def yard(tmp_path: Path, place: Place) -> AsyncIterator[Yard]:
    account = Account()
    broker = make_broker(tmp_path)
    broker.start()
    sandbox = Sandbox(SandboxOptions(records=60, activity=40, requests_per_minute=0))
    try:
        async with serve(sandbox) as api:
            yard = Yard(tmp_path, place, api, broker, Receiver(SECRET, account), account)
            yard.write()
            with started(tmp_path, "run", "--verbose") as yard.daemon:
                await to_thread.run_sync(yard.daemon.until, "main/stock: pass complete")
                async with yard.receiver.listening():
                    yield yard
    finally:
        broker.stop()


async def test_only_what_changed_begins_anew(yard: Yard) -> None:
    yard.write(yard.sink(), every="400ms")
    assert await yard.reload_and_tell() == "feed main/shipments changed, sink erp added"
    await yard.until_heard(30)
    connected = [fact["sink"] for fact in yard.facts("SinkConnected")]
    assert connected.count("floor") == 1, "its connection is the one from the start"
    passes = "SELECT 1 FROM runs JOIN feeds ON feeds.id = feed WHERE kind = 'pass' AND resource = 'stock'"
    assert len(read(yard.place, passes)) == 1
    yard.write(every="450ms")
    assert await yard.reload_and_tell() == "feed main/shipments changed, sink erp removed"
    heard = yard.account.deliveries
    yard.write(every="350ms")
    await yard.reload()
    assert yard.account.deliveries == heard
    assert yard.account.problems == []
    assert await yard.reload_and_tell() == "nothing changed"


async def test_nothing_is_lost_or_invented_by_ever_new_configurations(yard: Yard) -> None:
    for turn in range(6):
        yard.write(yard.sink(f"timeout = '{10 + turn}s'"), every=f"{200 + 10 * turn}ms")
        yard.daemon.tell(signal.SIGHUP)
        await to_thread.run_sync(yard.daemon.until, rf"(?s)(reloaded: .*){{{turn + 1}}}")
        await yard.until_heard(30 + 15 * turn)
    yard.daemon.end()
    assert yard.account.problems == []
    assert yard.account.deliveries >= 105


async def test_a_configuration_that_cannot_be_used_changes_nothing(yard: Yard) -> None:
    yard.write(yard.sink() + "[sinks.shop]\ntype = 'webhok'\n")
    yard.daemon.tell(signal.SIGHUP)
    await to_thread.run_sync(yard.daemon.until, "not reloaded: .*did you mean")
    result = await to_thread.run_sync(partial(run, "reload", cwd=yard.folder))
    assert result.returncode == 2
    assert 'did you mean "webhook"' in result.stderr
    yard.write(yard.sink() + '[sinks.shop]\ntype = "mqtt"\nurl = "mqtts://127.0.0.1"\nca_file = "absent.pem"\n')
    answer = await yard.reload(code=1)
    assert answer["outcome"] == "failed"
    assert "absent.pem" in answer["detail"]
    assert yard.account.deliveries == 0
    yard.write(yard.sink())
    assert await yard.reload_and_tell() == "sink erp added"
    await yard.until_heard(30)


async def test_what_needs_a_restart_is_refused(yard: Yard) -> None:
    path = yard.folder / "dockbell.toml"
    path.write_text(path.read_text().replace('"acme"', '"other"'))
    answer = await yard.reload(code=1)
    of_one = 'name: cannot change while dockbell runs, got "other", it is "acme"; restart dockbell'
    of_several = 'name: must be "acme", as in the other processes on this store, got "other"'
    assert (of_one if isinstance(yard.place, Path) else of_several) in answer["detail"]


async def test_the_web_server_keeps_its_door_open_while_its_settings_change(yard: Yard) -> None:
    assert await yard.ask(TOKEN) == HTTPStatus.OK
    refused = 0

    async def knock() -> None:
        nonlocal refused
        while not done.is_set():
            try:
                await yard.ask("-", path="/healthz")
            except httpx.ConnectError:
                refused += 1

    done = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(knock)
        yard.write(token="another-token-of-these-tests")
        assert await yard.reload_and_tell() == "[web] changed"
        done.set()
    assert refused == 0
    assert await yard.ask(TOKEN) == HTTPStatus.UNAUTHORIZED
    assert await yard.ask("another-token-of-these-tests") == HTTPStatus.OK
    other = find_free_port()
    yard.write(port=other)
    await yard.reload()
    assert await yard.ask(TOKEN, other) == HTTPStatus.OK
    with pytest.raises(httpx.ConnectError):
        await yard.ask(TOKEN)


async def test_without_a_daemon_there_is_nothing_to_reload(tmp_path: Path) -> None:
    (tmp_path / "dockbell.toml").write_text('[sources.main]\nbase_url = "http://127.0.0.1:1"\napi_key = "k"\n')
    result = run("reload", cwd=tmp_path)
    assert result.returncode == 1
    assert "no daemon uses sqlite:///" in result.stdout
    assert "with another [store] url" in result.stdout
