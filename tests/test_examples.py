"""The examples for subscribers, each run as it is against a real daemon."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from dockbell.core.publishing.signature import parse_secret, sign
from dockbell.subscriber import SeenIds, parse
from tests.brokers import MOSQUITTO, Broker, find_free_port, make_broker
from tests.brokers import started as started_broker
from tests.cli.programs import started
from tests.node.packages import find_node_modules

pytestmark = pytest.mark.acceptance

ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = ROOT / "docs" / "examples"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN: Final = "canary-web-token-77aa"
UPDATED: Final = json.loads((ROOT / "tests" / "golden" / "updated.json").read_bytes())

CONFIG: Final = """
[web]
listen = "127.0.0.1:{web}"
token = "{token}"

[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "500ms" }}

[sinks.python]
type = "webhook"
url = "http://127.0.0.1:{python}/"
secret = "{secret}"
payload = "thin"

[sinks.javascript]
type = "webhook"
url = "http://127.0.0.1:{javascript}/"
secret = "{secret}"

[sinks.floor]
type = "mqtt"
url = "{broker}"
"""


@dataclass
class Example:
    """An example that runs; what it prints goes to a file."""

    process: subprocess.Popen[bytes]
    printed: Path
    port: int = 0

    def until(self, pattern: str) -> re.Match[str]:
        """Return the first match in what it has printed, once there is one."""
        end = time.monotonic() + 30
        while (match := re.search(pattern, self.printed.read_text(encoding="utf-8"), re.MULTILINE)) is None:
            assert self.process.poll() is None, self.printed.read_text(encoding="utf-8")
            assert time.monotonic() < end, f"no {pattern!r} in {self.printed.read_text(encoding='utf-8')}"
            time.sleep(0.05)
        return match

    def post(self, event: Any, secret: str = SECRET) -> int:
        """Deliver an event as a webhook, beside the daemon; return the status."""
        body, now = json.dumps(event).encode(), int(time.time())
        signature = sign([parse_secret(secret)], event["id"], now, body)
        headers = {"webhook-id": event["id"], "webhook-timestamp": str(now), "webhook-signature": signature}
        return httpx.post(f"http://127.0.0.1:{self.port}/", content=body, headers=headers, trust_env=False).status_code


@dataclass
class Scene:
    """A daemon, a broker, and the examples around them.

    Attributes:
        ports: Where the receivers listen, which the daemon posts to from the start.
    """

    folder: Path
    broker: Broker
    stack: ExitStack
    ports: dict[str, int] = field(
        default_factory=lambda: {name: find_free_port() for name in ("receiver.py", "receiver.mjs")}
    )
    web: int = field(default_factory=find_free_port)
    _running: dict[str, Example] = field(default_factory=dict)

    def run(self, name: str, command: Sequence[str]) -> Example:
        """Return an example that runs until the tests are over; started when it is asked for first."""
        if name not in self._running:
            port = self.ports.get(name, 0)
            env = os.environ | {
                "ERP_WEBHOOK_SECRET": SECRET,
                "DOCKBELL_URL": f"http://127.0.0.1:{self.web}",
                "DOCKBELL_WEB_TOKEN": TOKEN,
                "PORT": str(port),
            }
            printed = self.folder / f"{name}.out"
            with printed.open("wb") as out:
                process = subprocess.Popen(
                    command, cwd=self.folder, env=env, stdout=out, stderr=out, start_new_session=True
                )
            self.stack.callback(process.wait)
            self.stack.callback(os.killpg, process.pid, signal.SIGKILL)  # a shell's pipe has programs of its own
            self._running[name] = Example(process, printed, port)
        return self._running[name]

    def python(self, name: str) -> Example:
        return self.run(name, (sys.executable, str(EXAMPLES / name)))

    def javascript(self, name: str) -> Example:
        modules = self.folder / "node_modules"
        if not modules.exists():
            modules.symlink_to(find_node_modules())
            shutil.copy(EXAMPLES / name, self.folder)
        return self.run(name, ("node", name))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("examples")
    with ExitStack() as stack:
        broker = stack.enter_context(started_broker(make_broker(folder)))
        sandbox = stack.enter_context(started(folder, "sandbox", "--port", "0", "--records", "100", "--activity", "10"))
        scene = Scene(folder, broker, stack)
        config = CONFIG.format(
            api=sandbox.until("http://[0-9.:]+")[0],
            broker=broker.url,
            javascript=scene.ports["receiver.mjs"],
            python=scene.ports["receiver.py"],
            secret=SECRET,
            token=TOKEN,
            web=scene.web,
        )
        (folder / "dockbell.toml").write_text(config)
        daemon = stack.enter_context(started(folder, "run"))
        daemon.until("web: answers")
        yield scene


def changed(**data: Any) -> Any:
    """Return an event of a feed of its own."""
    place = {"partitionkey": "other/shipments/shp_123", "source": "dockbell://acme/other/shipments"}
    return UPDATED | place | {"id": f"evt_{data['revision']:032x}", "data": UPDATED["data"] | data}


def test_the_python_receiver_takes_what_a_sink_delivers_and_mends_what_it_lacks(scene: Scene) -> None:
    receiver = scene.python("receiver.py")
    receiver.until(r"^dockbell\.shipment\.updated shp_\d+ incomplete ")
    receiver.until(r"(?s)(shp_\d+) incomplete .*\1 incomplete ")
    # Thin events leave each record to be read, and each could be; nothing that came before it is said to be missing.
    assert re.findall(r"^/.*|.*Missing.*", receiver.printed.read_text(encoding="utf-8"), re.MULTILINE) == []


def test_the_javascript_receiver_takes_what_a_sink_delivers(scene: Scene) -> None:
    scene.javascript("receiver.mjs").until(r"^dockbell\.shipment\.updated main/shipments/shp_\d+ \w+$")


@pytest.mark.parametrize("name", ["receiver.py", "receiver.mjs"])
def test_a_receiver_believes_only_signatures_and_takes_each_revision_once(scene: Scene, name: str) -> None:
    receiver = scene.python(name) if name.endswith(".py") else scene.javascript(name)
    receiver.until("^dockbell")
    assert receiver.post(changed(revision=1), "whsec_" + "A" * 32) == 401
    assert [receiver.post(changed(revision=each)) for each in (7, 7, 3, 8)] == [204] * 4
    lines = [line for line in receiver.printed.read_text(encoding="utf-8").splitlines() if "shp_123 " in line]
    if name.endswith(".py"):
        assert [line.split()[2] for line in lines] == ["applied", "old", "applied"]
    else:
        assert len(lines) == 2


@pytest.mark.parametrize("name", ["receiver.py", "receiver.mjs"])
def test_a_receiver_does_not_take_more_than_an_event_can_be(scene: Scene, name: str) -> None:
    receiver = scene.python(name) if name.endswith(".py") else scene.javascript(name)
    receiver.until("^dockbell")
    for size in (b"1000001", b"9" * 15):
        with socket.create_connection(("127.0.0.1", receiver.port), timeout=10) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %s\r\n\r\n" % size)
            assert client.recv(100).split()[1] == b"413"


def test_a_client_of_the_python_receiver_that_says_nothing_more_holds_up_nobody(scene: Scene) -> None:
    receiver = scene.python("receiver.py")
    receiver.until("^dockbell")
    with socket.create_connection(("127.0.0.1", receiver.port)) as silent:
        silent.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
        assert receiver.post(changed(revision=2), "whsec_" + "A" * 32) == 401
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=10) as odd:
        odd.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n")
        assert odd.recv(100).split()[1] == b"411"


def test_the_javascript_receiver_reads_a_record_that_an_event_does_not_tell(scene: Scene) -> None:
    receiver = scene.javascript("receiver.mjs")
    receiver.until("^dockbell")
    url = f"http://127.0.0.1:{scene.web}/state/main/shipments"
    page = httpx.get(url, params={"limit": 1}, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False)
    record = page.json()["records"][0]
    there = f"{url}/{record['key']}"
    event = changed(revision=record["revision"], omitted=["before", "after", "patch", "changed"])
    for name in event["data"]["omitted"]:
        del event["data"][name]
    for number, dataref in ((1, {"dataref": there}), (2, {"dataref": url + "/nothing"}), (3, {})):
        place = {"id": f"evt_{number:032}", "partitionkey": f"other/shipments/large_{number}"}
        assert receiver.post(event | place | dataref) == 204
    receiver.until(r"^read other/shipments/large_1 \w+$")
    receiver.until(r"^other/shipments/large_2 HTTP 404$")
    receiver.until(r"^other/shipments/large_3 is not told in full")


def test_the_durable_memory_keeps_ids_with_what_was_done_or_neither(tmp_path: Path) -> None:
    durable = runpy.run_path(str(EXAMPLES / "durable.py"))
    event = parse(json.dumps(UPDATED))

    def take() -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "erp.db")) as connection:
            seen: SeenIds = durable["SeenInDatabase"](connection)
            with suppress(sqlite3.OperationalError):
                durable["take"](connection, seen, event)
            known = event.id in seen
            connection.execute("CREATE TABLE IF NOT EXISTS alerts (text TEXT)")
            return [known, *connection.execute("SELECT text FROM alerts")]

    assert take() == [False]
    assert take() == take() == [True, (f"{event.type} shp_123",)]


def test_the_mirror_reads_all_records_and_then_each_event(scene: Scene) -> None:
    mirror = scene.python("mirror.py")
    assert int(mirror.until(r"^(\d+) records at \w+\.\d+$")[1]) > 10
    mirror.until(r"^dockbell\.shipment\.updated shp_\d+$")


def test_the_shell_subscriber_shows_changes_of_shipments(scene: Scene) -> None:
    if shutil.which("mosquitto_sub") is None:
        assert "DOCKBELL_REQUIRE_MOSQUITTO" not in os.environ, "mosquitto_sub is not installed"
        pytest.skip("needs mosquitto_sub")
    address = ("-h", scene.broker.host, "-p", str(scene.broker.port))
    watch = scene.run("watch.sh", ("sh", str(EXAMPLES / "watch.sh"), *address))
    watch.until(r"^shipment shp_\d+: updated$")
    if MOSQUITTO is not None and (publish := shutil.which("mosquitto_pub")):
        for number, key in ((1, "shp_777"), (1, "shp_777"), (2, "shp_777"), (3, "shp_778")):
            topic, payload = f"dockbell/event/main/shipments/{key}/updated", json.dumps({"id": f"evt_{number:032x}"})
            subprocess.run((publish, "-V", "5", *address, "-q", "1", "-t", topic, "-m", payload), check=True)
        watch.until("shp_778")
        assert watch.printed.read_text(encoding="utf-8").count("shp_777") == 2
