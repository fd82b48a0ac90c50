"""A daemon with secrets of every kind is made to fail in every way, and all it says is searched.

Whoever it talks to is hostile: says back in its errors whatever it was told, and writes what terminals obey.
"""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest
from click.testing import CliRunner

from dockbell.cli import main
from tests.acceptance.canaries import Mirror, find, mirroring
from tests.brokers import MOSQUITTO, Mosquitto, Subscriber, find_free_port
from tests.brokers import started as started_broker
from tests.cli.programs import Program, run, started

pytestmark = pytest.mark.acceptance

SECRETS: Final = {
    "API key, by variable": "canary/api+variable=1",
    "API key, by file": "canary/api+file=2",
    "webhook secret": "Y2FuYXJ5LXdlYmhvb2stb25lLWNhbmFyeS0zMw==",
    "webhook secret, the next": "Y2FuYXJ5LXdlYmhvb2stdHdvLWNhbmFyeS00NA==",
    "webhook header": "canary/header+value=5",
    "webhook bearer": "canary/bearer+token=6",
    "webhook path": "canary-path-of-a-hook-7",
    "webhook query": "canary-query-of-a-hook-8",
    "broker password": "canary/broker+password=9",
    "good broker password": "canary/lawn+password=10",
    "web token": "canary/web+token=11",
    "API proxy password": "canary-proxy-password-12",
    "webhook proxy password": "canary-hook-proxy-password-13",
}
VARIABLES: Final = {
    "CANARY_API": SECRETS["API key, by variable"],
    "CANARY_HOOK": f"whsec_{SECRETS['webhook secret']}",
    "CANARY_HEADER": SECRETS["webhook header"],
    "CANARY_FLOOR": SECRETS["broker password"],
}
FILES: Final = {
    "api-key": SECRETS["API key, by file"],
    "hook-secret": f"whsec_{SECRETS['webhook secret, the next']}",
    "hook-bearer": SECRETS["webhook bearer"],
    "lawn-password": SECRETS["good broker password"],
    "web-token": SECRETS["web token"],
}

CONFIG: Final = """
name = "acme"

[web]
listen = "127.0.0.1:{web}"
token = {{ file = "web-token" }}

[resources]
shipments = {{ every = "300ms", first_pass = "emit", key = "/id", updated_at = "/updated_at" }}

[sources.main]
base_url = "{mirror}"
api_key = {{ env = "CANARY_API" }}
requests_per_minute = 6000

[sources.refused]
base_url = "{mirror}/refusing"
api_key = {{ env = "CANARY_API" }}

[sources.praised]
base_url = "{mirror}/praising"
api_key = {{ env = "CANARY_API" }}

[sources.named]
base_url = "{mirror}/naming"
api_key = {{ env = "CANARY_API" }}

[sources.sent]
base_url = "{mirror}/sending"
api_key = {{ env = "CANARY_API" }}

[sources.babbled]
base_url = "{mirror}/babbling"
api_key = {{ env = "CANARY_API" }}

[sources.tls]
base_url = "https://127.0.0.1:{port}"
api_key = {{ file = "api-key" }}

[sources.proxied]
base_url = "http://api.invalid"
api_key = {{ file = "api-key" }}
proxy = "http://user:{api_proxy}@127.0.0.1:{port}"

[sources.tunnelled]
base_url = "https://api.invalid"
api_key = {{ file = "api-key" }}
proxy = "http://user:{api_proxy}@127.0.0.1:{port}"

[sinks.hook]
type = "webhook"
url = "{mirror}/hooks/{path}?token={query}"
secret = [{{ env = "CANARY_HOOK" }}, {{ file = "hook-secret" }}]
headers = {{ x-canary = {{ env = "CANARY_HEADER" }} }}
bearer = {{ file = "hook-bearer" }}

[sinks.tls]
type = "webhook"
url = "https://127.0.0.1:{port}/hooks/{path}?token={query}"
secret = {{ env = "CANARY_HOOK" }}
bearer = {{ file = "hook-bearer" }}

[sinks.proxied]
type = "webhook"
url = "https://hooks.invalid/{path}"
secret = {{ env = "CANARY_HOOK" }}
proxy = "http://user:{hook_proxy}@127.0.0.1:{port}"

[sinks.floor]
type = "mqtt"
url = "{broker}"
username = "floor"
password = {{ env = "CANARY_FLOOR" }}

[sinks.lawn]
type = "mqtt"
url = "{broker}"
username = "lawn"
password = {{ file = "lawn-password" }}
resources = ["shipments", "notices"]
"""
HOSTILE: Final = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e\r\n"
RECORD: Final[dict[str, object]] = {
    "id": "shp_1",
    "status": "packed",
    "updated_at": "2026-11-21T12:00:00Z",
    "name": HOSTILE,
}
NOT_IN_CONFIG: Final = re.compile(
    r'^(base_url|proxy|url|bearer|secret|api_key|password|token) = "([^"]*)"$', re.MULTILINE
)


class Surroundings:
    """What a daemon needs, all of it hostile but the broker, which knows one of two passwords."""

    def __init__(self, folder: Path, mirror: Mirror) -> None:
        self.folder = folder
        self.mirror = mirror
        self.web_port = find_free_port()
        self.told: dict[str, str] = {}
        passwords = folder / "passwords"
        passwords.write_text(f"floor:another\nlawn:{SECRETS['good broker password']}\nreader:reader\n")
        subprocess.run(["mosquitto_passwd", "-U", passwords], check=True)
        passwords.chmod(0o644)
        self.broker = Mosquitto(folder, ("allow_anonymous false", f"password_file {passwords}"))
        for name, text in FILES.items():
            (folder / name).write_text(text + "\n")
        self.config = CONFIG.format(
            web=self.web_port,
            mirror=mirror.url,
            port=mirror.port,
            broker=self.broker.url,
            api_proxy=SECRETS["API proxy password"],
            hook_proxy=SECRETS["webhook proxy password"],
            path=SECRETS["webhook path"],
            query=SECRETS["webhook query"],
        )
        self.write(self.config)

    def write(self, config: str) -> None:
        (self.folder / "dockbell.toml").write_text(config)

    def ask(self, *words: str) -> int:
        """Run a command, note all that it says, and return its exit code."""
        said = CliRunner().invoke(main, words, env=VARIABLES | {"DOCKBELL_CONFIG": str(self.folder / "dockbell.toml")})
        assert said.exception is None or isinstance(said.exception, SystemExit), words
        self.told[" ".join(words)] = said.output
        return said.exit_code

    def fetch(self, place: str, *, bearer: str = SECRETS["web token"], accept: str = "*/*") -> httpx.Response:
        """Ask the daemon's own web server, note all that it says but what follows for ever, and return the answer."""
        headers = {"authorization": f"Bearer {bearer}", "accept": accept}
        url = f"http://127.0.0.1:{self.web_port}{place}"
        with httpx.Client(trust_env=False, timeout=10) as client, client.stream("GET", url, headers=headers) as answer:
            body = b""
            for chunk in answer.iter_raw():
                body += chunk
                if "event-stream" in answer.headers.get("content-type", "") and b"ready" in body:
                    break
            self.told[f"{place} {accept} {bearer[:6]}"] = f"{answer.headers} {body.decode(errors='replace')}"
        return answer


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


COMMANDS: Final = (
    ("check",),
    ("check", "--json"),
    ("status", "--verbose"),
    ("status", "--json"),
    ("events", "--last", "100"),
    ("events", "--json", "--last", "100"),
    ("why", "main/shipments", "shp_1"),
    ("why", "main/shipments", "shp_1", "--json"),
    ("dead",),
    ("dead", "--json"),
    ("test", "hook"),
    ("test", "tls"),
    ("test", "proxied"),
    ("test", "floor"),
    ("test", "lawn"),
    ("replay", "hook", "--all", "--dry-run", "--json"),
    ("deletes", "--json"),
    ("drift", "--json"),
    ("catalogue",),
    ("probe", "--requests", "2", "--apart", "100ms", "--source", "refused"),
    ("probe", "--requests", "2", "--apart", "100ms", "--source", "praised", "--json"),
    ("probe", "--requests", "2", "--apart", "100ms", "--source", "named"),
)
BROKEN: Final = (
    ('url = "{broker}"', 'url = "mqtt://user:{canary}@127.0.0.1"'),
    ('proxy = "http://user:', 'proxy = "http://user:{canary}/'),  # which should have been escaped
    ('secret = {{ env = "CANARY_HOOK" }}', 'secret = "{canary}"'),  # not a whsec_
    ('bearer = {{ file = "hook-bearer" }}', 'beerer = "{canary}"'),
    ('token = {{ file = "web-token" }}', 'token = "{canary}\\n{canary}"'),
)
PLACES: Final = (
    "/",
    "/healthz",
    "/readyz",
    "/status",
    "/metrics",
    "/events",
    "/feeds/main/shipments",
    "/openapi.json",
    "/live",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return all that a daemon and its commands said, stored and published, by where."""
    if MOSQUITTO is None or shutil.which("mosquitto_passwd") is None:
        pytest.skip("needs mosquitto")
    with mirroring(Mirror()) as mirror:
        there = Surroundings(tmp_path_factory.mktemp("canary"), mirror)
        with started_broker(there.broker), started(there.folder, "run", "--verbose", env=VARIABLES) as daemon:
            fail(there, daemon)
            refuse_deliveries(there, daemon)
            for command in COMMANDS:
                assert there.ask(*command) in (0, 1), command
            look(there)
            reload(there, daemon)
            arguments = b" ".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
            assert daemon.end() == 0
    there.told |= {"log": daemon.err, "output": daemon.out, "arguments": arguments.decode(errors="replace")}
    for path in there.folder.glob("dockbell.db*"):
        there.told[path.name] = path.read_bytes().decode("latin-1")
    return there.told


def test_no_secret_gets_out(told: dict[str, str]) -> None:
    assert len(told) > 50
    leaks = [
        f"{name} in {place}, {form}"
        for place, text in told.items()
        for name, secret in SECRETS.items()
        for form in find(secret, text)
    ]
    assert leaks == []


def test_no_command_says_what_a_terminal_would_obey(told: dict[str, str]) -> None:
    exact = "events --json --last 100"  # in a pipe
    said = {place: text for place, text in told.items() if place.split()[0] in {"log", *(each[0] for each in COMMANDS)}}
    assert len(said) > 20
    assert "\u202e" in said.pop(exact)
    assert {place for place, text in said.items() if not text.replace("\n", "").isprintable()} == set()
    assert "[2J" in said["events --last 100"]


def is_heard(subscriber: Subscriber, words: str) -> bool:
    return any(words.encode() in each.payload for each in subscriber.received)


def is_refused(daemon: Program, before: int) -> bool:
    return daemon.err.count("ReloadRefused") > before


def fail(there: Surroundings, daemon: Program) -> None:
    """Let everything fail that can."""
    daemon.until("refused/shipments: .*401")
    for source in ("praised", "named", "babbled"):
        daemon.until(f"source {source}: ")
    daemon.until("sent/shipments: .*redirect")
    daemon.until("source tls: .*TLS")
    daemon.until("source proxied: .*401|proxied/shipments: .*401")
    daemon.until("source tunnelled: .*cannot connect|tunnelled/shipments: .*cannot connect")
    daemon.until("sink floor: .*(?:not authorized|bad user name)")
    heard = " ".join(there.mirror.heard)
    assert SECRETS["API key, by variable"] in heard
    assert SECRETS["API key, by file"] in heard  # through the proxy


def refuse_deliveries(there: Surroundings, daemon: Program) -> None:
    """Let changes be recorded, and the receivers but one refuse them."""
    with Subscriber(there.broker, username="reader", password="reader") as subscriber:
        for status in (400, 401):
            there.mirror.status = status
            changed = {"status": f"after {status}", "updated_at": f"2026-11-21T12:{status // 60:02}:{status % 60:02}Z"}
            there.mirror.records = [RECORD | {"id": f"shp_{status}\u202e"} | changed]
            until(partial(is_heard, subscriber, f"after {status}"))
            daemon.until(f"sink hook: .*HTTP {status}")
        publications = [f"{each.topic} {each.payload.decode()} {each.properties}" for each in subscriber.received]
        there.told["publications"] = "\n".join(publications)
    heard = " ".join(there.mirror.heard)
    for name in ("webhook header", "webhook bearer", "webhook path", "webhook query"):
        assert SECRETS[name] in heard, name
    with closing(sqlite3.connect(f"file:{there.folder}/dockbell.db?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone()[0] >= 3


def look(there: Surroundings) -> None:
    """Ask the daemon's web server for everything, with the token and without."""
    for place in PLACES:
        assert there.fetch(place).status_code == (503 if place == "/readyz" else 200), place
        there.fetch(place, bearer="wrong", accept="text/html")
    there.fetch("/", accept="text/html")


def reload(there: Surroundings, daemon: Program) -> None:
    """Give it configurations that cannot be used, and secrets that are gone."""
    canary = SECRETS["broker password"]
    for number, (old, new) in enumerate(BROKEN):
        line = old.format(broker=there.broker.url)
        assert line in there.config, line
        broken = there.config.replace(line, new.format(canary=canary))
        (there.folder / f"broken-{number}.toml").write_text(broken)
        assert there.ask("check", "--config", str(there.folder / f"broken-{number}.toml")) in (1, 2)
        there.write(broken)
        told = daemon.err.count("ReloadRefused")
        daemon.tell(signal.SIGHUP)
        until(partial(is_refused, daemon, told))
    there.write(there.config)
    began = run("run", "--config", "broken-0.toml", cwd=there.folder, env=VARIABLES)
    there.told["run"] = began.stdout + began.stderr
    (there.folder / "hook-bearer").write_text(f"two\n{canary}\n")
    (there.folder / "web-token").write_bytes(b"\xff" + canary.encode())
    daemon.until("sink hook: headers or bearer changed and cannot be used")
    assert there.fetch("/status").status_code == 503
    there.ask("check", "--no-show")
