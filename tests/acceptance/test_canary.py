"""A daemon with secrets of every kind is made to fail in every way, and all it says is searched.

Whoever it talks to is hostile: says back in its errors whatever it was told, and writes what terminals obey.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from io import StringIO
from pathlib import Path
from traceback import StackSummary, walk_tb
from typing import Final

import anyio
import httpx
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.pretty import Pretty

import dockbell
from dockbell.app import load_config
from dockbell.app.opening import open_sink, open_source
from dockbell.cli import main
from dockbell.config import Config, redacted, to_toml
from dockbell.config.loading import find_secrets
from dockbell.core.model import Delivery
from dockbell.sinks.webhook.secret_reload import Renewed
from dockbell.telemetry import Fact, RequestSent, SinkConnected, SinkFails, SourceWaits, Telemetry
from tests.acceptance.canaries import TOKEN, Mirror, find, mirroring
from tests.acceptance.secretive import SECRETS, hide_secrets, write_config
from tests.brokers import MOSQUITTO, Mosquitto, Subscriber, find_free_port
from tests.brokers import started as started_broker
from tests.cli.programs import Program, run, started
from tests.sinks.conftest import make_delivery

pytestmark = pytest.mark.acceptance

HOSTILE: Final = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e\r\n"
RECORD: Final[dict[str, object]] = {
    "id": "shp_1",
    "status": "packed",
    "updated_at": "2026-11-21T12:00:00Z",
    "name": HOSTILE,
}


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
        self.variables = hide_secrets(folder, mirror.url)
        self.config = write_config(mirror.url, broker=self.broker.url, web_port=self.web_port)
        self.write(self.config)

    def write(self, config: str) -> None:
        (self.folder / "dockbell.toml").write_text(config)

    def ask(self, *words: str) -> int:
        """Run a command, note all that it says, and return its exit code."""
        said = CliRunner().invoke(
            main, words, env=self.variables | {"DOCKBELL_CONFIG": str(self.folder / "dockbell.toml")}
        )
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
    ("test", "filed"),
    ("test", "named"),
    ("test", "granted"),
    ("test", "ungranted"),
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
    ('url = {{ file = "hook-url" }}', 'url = "htps://127.0.0.1/{canary}"'),
    ('url = {{ env = "CANARY_URL" }}', 'url = "127.0.0.1/{canary}"'),
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
        with started_broker(there.broker), started(there.folder, "run", "--verbose", env=there.variables) as daemon:
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
        for name, secret in (*SECRETS.items(), ("access token", TOKEN))
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
    daemon.until("source filed: .*cannot connect|filed/shipments: .*cannot connect")
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
        daemon.until("sink filed: .*HTTP 40")
        daemon.until("sink named: ")
        daemon.until("sink granted: .*HTTP 40")
        daemon.until("sink ungranted: .*no access token from .*: HTTP 40")
        publications = [f"{each.topic} {each.payload.decode()} {each.properties}" for each in subscriber.received]
        there.told["publications"] = "\n".join(publications)
    heard = " ".join(there.mirror.heard)
    for name in ("webhook header", "webhook bearer", "webhook path", "webhook query", "webhook path, by file"):
        assert SECRETS[name] in heard, name
    assert f"Bearer {TOKEN}" in heard
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
    began = run("run", "--config", "broken-0.toml", cwd=there.folder, env=there.variables)
    there.told["run"] = began.stdout + began.stderr
    (there.folder / "hook-bearer").write_text(f"two\n{canary}\n")
    (there.folder / "web-token").write_bytes(b"\xff" + canary.encode())
    (there.folder / "hook-url").write_text(f"htps://127.0.0.1/{SECRETS['webhook path, by file']}")
    daemon.until("sink hook: headers, bearer or basic changed, but the new value cannot be used")
    daemon.until("sink filed: url or proxy changed, but the new value cannot be used")
    assert there.fetch("/status").status_code == 503
    there.ask("check", "--no-show")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """Return a configuration with secrets of every kind, of which only the servers are there."""
    with mirroring(Mirror(status=200, is_discreet=True)) as mirror:
        for name, value in hide_secrets(tmp_path, mirror.url).items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "dockbell.toml"
        path.write_text(write_config(mirror.url, broker=f"mqtt://127.0.0.1:{find_free_port()}", web_port=0))
        yield load_config(path)


def find_leaks(text: str) -> list[str]:
    return [f"{name}, {form}" for name, secret in SECRETS.items() for form in find(secret, text)]


def test_a_whole_configuration_shows_no_secret_however_it_is_printed(config: Config) -> None:
    console = Console(file=StringIO(), width=200)
    console.print(Pretty(config), config.sources, config.sinks)
    assert isinstance(console.file, StringIO)
    forms = (
        f"{config} {config!r} {config.sources!r} {config.sinks} {vars(config)}",
        f"{config.model_dump()} {config.model_dump(mode='json')} {config.model_dump_json()}",
        to_toml(redacted(config)),
        console.file.getvalue(),
    )
    assert [find_leaks(form) for form in forms] == [[]] * len(forms)
    known = " ".join(secret.reveal() for _, secret in find_secrets(config))
    assert {leak.rpartition(",")[0] for leak in find_leaks(known)} == set(SECRETS)


async def raise_in_the_midst(config: Config) -> AsyncIterator[BaseException]:
    """Yield what comes of a bug, where each source and each sink has just used its secrets."""

    def fail(fact: Fact) -> None:
        if isinstance(fact, RequestSent | SourceWaits | SinkConnected | SinkFails | Renewed):
            raise ZeroDivisionError("a bug")

    def settle(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    for name in config.sources:
        async with open_source(config, name, Telemetry(fail)) as source:
            with pytest.raises(BaseException) as caught:  # noqa: PT011, PT012  # whatever task groups make of it
                await source.read_page("shipments")
                pytest.fail(name)
            yield caught.value
    for name in config.sinks:
        sink = open_sink(config, name, Telemetry(fail))
        send, receive = anyio.create_memory_object_stream[Delivery](1)
        send.send_nowait(make_delivery())
        with pytest.raises(BaseException) as caught, send, receive:  # noqa: PT011, PT012  # same
            await sink.run(receive, settle)
            pytest.fail(name)
        yield caught.value


def show_frames(error: BaseException) -> str:
    """Return the traceback of an error and of all that it comes of, with the variables of our own frames."""
    others = error.exceptions if isinstance(error, BaseExceptionGroup) else (error.__cause__, error.__context__)
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if is_ours(frame.f_code.co_filename)]
    shown = StackSummary.extract(frames, capture_locals=True).format()
    return "".join([*shown, *(show_frames(each) for each in others if each is not None)])


def is_ours(file: str) -> bool:
    return Path(file).is_relative_to(Path(dockbell.__file__).parent)


async def test_the_traceback_of_a_bug_shows_no_secret_though_it_shows_our_variables(config: Config) -> None:
    told = [show_frames(error) async for error in raise_in_the_midst(config)]
    assert len(told) == len(config.sources) + len(config.sinks)
    assert [text for text in told if text.count(" = ") < 10] == []
    assert [find_leaks(text) for text in told] == [[]] * len(told)
