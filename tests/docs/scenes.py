"""What must be there before a document can be walked through, what must come of it, and what is not run, with reasons.

Every ``toml`` block of every document is loaded by the real loader, every ``sh`` and ``console`` command is given to a
shell, every ``python`` and ``js`` block runs, in the order in which a reader meets them, in one folder with the servers
that the document speaks of (:mod:`tests.docs.stage`). A block that is a file of ``docs/examples`` is run by
``tests/test_examples.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from dockbell.subscriber import RevisionGaps, State, parse
from tests.brokers import find_free_port
from tests.docs.machines import use_containers, use_systemd
from tests.docs.markdown import ROOT, Block
from tests.docs.stage import KEY, SECRET, Stage


@dataclass(frozen=True)
class NotRun:
    """What is shown and not run.

    Attributes:
        document: Where, as a pattern.
        shown: A pattern that the command begins with, or the block.
        reason: Why not, and what is done instead.
    """

    document: str
    shown: str
    reason: str


NOT_RUN: Final = (
    NotRun("README.md", r"/opt/dockbell/bin/pip ", "installs: .ci/run does it as it stands"),
    NotRun("README.md", r"python3 -m venv|\.venv/bin/", "installs, or runs all tests: .ci/run does it as it stands"),
    NotRun("docs/tutorial.md", r"(python3 -m venv |\. )?~/\S*\.venv", "installs: .ci/run does it from the README"),
    NotRun("docs/benchmarks.md", r"python -m tests\.bench", "measures for minutes; prints figures, asserts nothing"),
    NotRun("docs/how-to/add-a-sink.md", r"\[project\]", "is a pyproject.toml: tests/plugin installs one like it"),
    NotRun(
        "docs/how-to/add-a-sink.md",
        r"class PrinterSettings|from dockbell\.testing",
        "an outline: tests/plugin has the whole",
    ),
    NotRun(
        "docs/how-to/many-sources.md",
        r"include = |\[sources\.",
        "are files that belong together: tests/config/test_including.py and test_sharing.py load such",
    ),
    NotRun(
        "docs/how-to/many-sources.md",
        r"dockbell sources ",
        "wants a database that processes share: both test_sources.py, of tests/cli and of tests/acceptance, have one",
    ),
    NotRun(
        "docs/how-to/many-processes.md",
        r"sudo |pip install |export PGPASSWORD",
        "installs, and makes a user of the machine's PostgreSQL: the tests have one of their own, without a password",
    ),
    NotRun(
        "docs/operations/store.md",
        r"sudo |pg_dump |pg_restore ",
        "wants the machine's PostgreSQL: tests/stores/postgres/test_schema.py has a restored store",
    ),
    NotRun(
        "docs/operations/systemd.md",
        r"install .*(pgpass|dockbell@)|install -g dockbell -m 0640 api-key|systemctl .*dockbell@",
        "changes users of files, and starts a template: tests/acceptance/test_systemd.py reads it",
    ),
    NotRun("docs/reference/commands.md", r"dockbell ", "parsed by the command's own parser; the how-tos run them"),
    NotRun(
        "docs/operations/systemd.md",
        r"useradd |python3 -m venv |/opt/dockbell/bin/pip ",
        "makes a user of the machine, and installs: .ci/run does it from the README",
    ),
    NotRun(
        "docs/operations/container.md",
        r"docker build |docker compose --file ",
        "needs a container engine: tests/acceptance/test_container.py reads what it would be built from, and would run",
    ),
)


@dataclass(frozen=True)
class Scene:
    """What a document needs, and what must come of it.

    Attributes:
        prepare: Makes what is there before the first line.
        waits: Before a command that begins so, wait until another has printed a pattern.
        codes: Exit codes other than 0, by how the command begins.
        expected: What must be printed in the end, by how the command begins.
        names: What snippets in Python find.
    """

    prepare: Callable[[Stage], None] = lambda _: None
    waits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Any] = field(default_factory=dict)


def find_reason(block: Block, shown: str) -> str:
    """Return why a command or a block is not run; empty where it is."""
    rows = (row for row in NOT_RUN if re.fullmatch(row.document, block.document) and re.match(row.shown, shown))
    return next((row.reason for row in rows), "")


_RUNNING: Final = """
name = "acme"

[web]
listen = "127.0.0.1:{web}"

[sources.main]
base_url = "{api}"
api_key = "{key}"
requests_per_minute = 6000

[resources]
shipments = {{ every = "500ms", key = "/id", updated_at = "/updated_at" }}
packages = {{ every = "500ms", key = "/id", updated_at = "/updated_at" }}

[sinks.erp]
type = "webhook"
url = "http://127.0.0.1:{receiver}/"
secret = [{{ file = "erp.secret" }}, {{ file = "erp.secret.next" }}]
start = "beginning"
"""


def run_daemon(stage: Stage) -> None:
    """Let a daemon run whose events a receiver takes, all but those of three shipments."""
    refused: set[str] = set()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_known = event.get("subject") in refused
            if len(refused) < 3 and str(event.get("subject")).startswith("shp_"):
                refused.add(event["subject"])
                is_known = True
            self.send_response(422 if is_known else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    stage.stack.callback(server.server_close)
    stage.stack.callback(server.shutdown)
    for name in ("erp.secret", "erp.secret.next"):
        (stage.folder / name).write_text(SECRET)
    stage.config = _RUNNING.format(
        api=stage.start_api(), key=KEY, web=stage.ports["8470"], receiver=server.server_address[1]
    )
    (stage.folder / "dockbell.toml").write_text(stage.config)
    stage.perform("dockbell run")
    stage.until("dockbell run", "web: answers")
    stage.wait(lambda: len(_read(stage, "shipments")) > 3, "there are no events")


def run_plain_daemon(stage: Stage) -> None:
    """Let a daemon run that reads by the defaults, and delivers nothing."""
    write_plain_config(stage)
    stage.perform("dockbell run")


def write_plain_config(stage: Stage) -> None:
    """Write a configuration with nothing but a source."""
    config = f'[sources.main]\nbase_url = "{stage.start_api()}"\napi_key = {{ env = "DOCKBELL_API_KEY" }}\n'
    (stage.folder / "dockbell.toml").write_text(config)


_SYSTEMCTL: Final = """\
#!/bin/sh
case $1 in
start) setsid dockbell run >>daemon.log 2>&1 & echo $! >daemon.pid ;;
stop) kill "$(cat daemon.pid)"; while kill -0 "$(cat daemon.pid)" 2>/dev/null; do sleep 0.05; done ;;
esac
"""


def run_service(stage: Stage) -> None:
    """Let a daemon run that a stand-in for systemd starts and stops."""
    write_plain_config(stage)
    systemctl = stage.folder / "bin" / "systemctl"
    systemctl.write_text(_SYSTEMCTL)
    systemctl.chmod(0o755)
    stage.stack.callback(stage.perform, "systemctl stop dockbell")
    stage.perform("systemctl start dockbell")
    stage.wait(lambda: " runs: " in (stage.folder / "daemon.log").read_text(), "the daemon does not run")


def run_service_beside_a_database(stage: Stage) -> None:
    """Let such a daemon run, and have an empty database at hand."""
    stage.replaced["postgresql://dockbell@localhost/dockbell"] = stage.make_database()
    run_service(stage)


def run_daemon_with_letters(stage: Stage) -> None:
    """Let a daemon run that has dead letters, and call them as the document does."""
    run_daemon(stage)
    letters: list[Any] = []

    def found() -> bool:
        letters[:] = stage.ask("dead", "erp")["letters"]  # type: ignore[index]
        return len(letters) > 2

    stage.wait(found, "there are no dead letters")
    first, second = letters[:2]
    stage.replaced |= {
        "evt_0f3a…": _read(stage, "shipments")[0]["id"],
        "shipments 42": f"shipments {first['sequence']}",
        "--sequence 100-250": "--sequence 1-5",
        "--sequence 42": f"--sequence {first['sequence']}",
        "shp_000123": second["key"],
    }


def show_a_record(stage: Stage) -> None:
    """Let a daemon run, and call one of its records as the document does."""
    run_daemon(stage)
    page = stage.get("/state/main/shipments?limit=1").json()
    stage.replaced["shp_371"] = page["records"][0]["key"]


def run_daemon_with_events(stage: Stage) -> None:
    """Let a daemon run that has told of a shipment, and call it and its event as the document does."""
    run_daemon(stage)
    events: list[Any] = []

    def found() -> bool:
        events[:] = [each for each in _read(stage, "shipments") if "key" in each["data"]]
        return bool(events)

    stage.wait(found, "there are no events")
    stage.replaced |= {
        "shipments#42": f"shipments#{int(events[0]['sequence'])}",
        "shp_000123": events[0]["data"]["key"],
    }


def _read(stage: Stage, resource: str) -> list[Any]:
    answer = stage.get(f"/feeds/main/{resource}")
    return list(answer.json()) if answer.status_code == 200 else []


_PKILL: Final = """\
#!/bin/sh
for pid in $(pgrep -f "$3"); do
  if [ "$pid" != $$ ] && [ "$(readlink "/proc/$pid/cwd")" = "$PWD" ]; then kill "$1" "$pid"; fi
done
"""


def share_a_database(stage: Stage) -> None:
    """Let processes share a database, and let ``pkill`` reach those of this folder alone."""
    stage.replaced |= {
        "postgresql://dockbell@localhost/dockbell": stage.make_database(),
        ":8471": f":{find_free_port()}",
    }
    pkill = stage.folder / "bin" / "pkill"
    pkill.write_text(_PKILL)
    pkill.chmod(0o755)


_EVENT: Final = r"^dockbell\.\w+\.\w+ "
_UPDATED: Final = (ROOT / "tests/golden/updated.json").read_bytes()

SCENES: Final[Mapping[str, Scene]] = {
    "README.md": Scene(
        expected={
            "python client.py": r"^[A-Z]{3}-[A-Z]{3}-\d{5} ",
            "mosquitto_sub": r"^dockbell/event/main/shipments/shp_\d+/updated \{",
            "python receiver.py": _EVENT,
        },
    ),
    "docs/tutorial.md": Scene(
        prepare=lambda stage: stage.replaced.update({"~/dockbell-tutorial": str(stage.folder)}),
        codes={"dockbell init": 1},  # the receiver is not there yet
        waits={"dockbell status": ("python receiver.py", r"^dockbell\.shipment\.")},
        expected={"python receiver.py": r"^dockbell\.test "},
    ),
    "docs/how-to/verify-webhooks.md": Scene(expected={"python receiver.py": r"^dockbell\.test "}),
    "docs/how-to/mqtt.md": Scene(expected={"mosquitto_sub": r"^dockbell/event/\S+ \{"}),
    "docs/how-to/subscribe.md": Scene(
        names={"State": State, "RevisionGaps": RevisionGaps, "parse": parse, "body": _UPDATED}
    ),
    "docs/how-to/pull-events.md": Scene(
        prepare=show_a_record, expected={"curl -N": r"^id: \w+\.\d+$", "python follow.py": _EVENT}
    ),
    "docs/how-to/choose-events.md": Scene(prepare=run_daemon),
    "docs/how-to/many-sources.md": Scene(prepare=run_plain_daemon),
    "docs/how-to/many-processes.md": Scene(
        prepare=share_a_database,
        waits={"dockbell status": ("dockbell run --config two.toml", "it now has 2")},
        expected={
            "dockbell status": r"^process \d+ on \S+ +1 +2 +\d+ +0 ",
            "dockbell run": r"claimed 2 sources \(2 from processes that died\), it now has 4",
        },
    ),
    "docs/how-to/replay.md": Scene(prepare=run_daemon_with_letters),
    "docs/how-to/look-after-sinks.md": Scene(prepare=run_daemon_with_events),
    "docs/operations/container.md": Scene(
        prepare=use_containers, expected={"docker compose exec dockbell dockbell reload": "^complete: "}
    ),
    "docs/operations/systemd.md": Scene(prepare=use_systemd, expected={"journalctl": " runs: "}),
    "docs/operations/personal-data.md": Scene(prepare=run_daemon),
    "docs/operations/store.md": Scene(prepare=run_service_beside_a_database),
    "docs/how-to/tune-freshness.md": Scene(prepare=run_plain_daemon, expected={"dockbell reload": "main/stock"}),
}
