"""The commands around a daemon and its store, each the real program."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.cli.run import FeedTally, SinkTally, Tally
from dockbell.core.model import DELIVERED, Delivery, Event, Feed, Outcome, OutcomeKind, RunKind
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import DeliverySettled, EventDied, FeedFails, RunEnded, SinkFails, Stopping
from tests.cli.programs import Program, run, started
from tests.cli.terminal import on_terminal
from tests.fakes import NOON
from tests.stores.pages import FEED, commit
from tests.strangers import STRANGER, act, needs_root, share

Configure = Callable[..., Path]


@pytest.fixture
def daemon(configure: Configure, sandbox: str) -> Iterator[Program]:
    """Return a daemon that has read everything and published something."""
    with started(configure(sandbox), "run") as program:
        program.until("dockbell dockbell runs: 2 feeds, sinks out")
        program.until('"type":"dockbell.shipment.')
        program.until("main/shipments: pass complete")
        program.until("main/stock: pass complete")
        yield program


def test_a_daemon_logs_publishes_and_ends_well(daemon: Program) -> None:
    log = [json.loads(line) for line in daemon.err.splitlines()]
    assert {"Started", "RunEnded"} <= {entry["fact"] for entry in log}
    assert all(json.loads(line)["specversion"] == "1.0" for line in daemon.out.splitlines()[:5])
    began = time.monotonic()
    assert daemon.end() == 0
    assert time.monotonic() - began < 5
    assert "stopping" in daemon.err.splitlines()[-1]
    assert "Traceback" not in daemon.err


def test_ctrl_c_ends_a_daemon_well_too(daemon: Program) -> None:
    assert daemon.end(signal.SIGINT) == 0


def test_status_is_fine_while_a_daemon_runs_and_not_after(daemon: Program, tmp_path: Path) -> None:
    result = run("status", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(r"^daemon: process \d+$", result.stdout, re.MULTILINE)
    assert re.search(r"^main/shipments +\d+ +\d+ +\S+ +\S+ +\S+ +1m +/id, /updated_at$", result.stdout, re.MULTILINE)
    daemon.end()
    result = run("status", "--json", cwd=tmp_path)
    assert result.returncode == 1
    status = json.loads(result.stdout)
    assert (status["daemon"], status["well"]) == (None, False)
    assert status["reasons"] == ['daemon: is not running; start it with "dockbell run"']
    assert [feed["feed"] for feed in status["feeds"]] == ["main/shipments", "main/stock"]
    assert status["sinks"][0]["sink"] == "out"


def test_status_says_why_it_is_not_well(daemon: Program, tmp_path: Path) -> None:
    daemon.end()
    result = run("status", cwd=tmp_path)
    assert '✕ daemon: is not running; start it with "dockbell run"' in result.stdout.splitlines()


def test_check_is_fine_while_a_daemon_runs(daemon: Program, tmp_path: Path) -> None:
    result = run("check", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert 'api_key = "***"' in result.stdout
    assert re.search(r"^store +ok +.*, held by process \d+$", result.stdout, re.MULTILINE)
    assert re.search(r"^main/stock +ok +HTTP 200 in ", result.stdout, re.MULTILINE)
    assert re.search(r"^sink out +ok ", result.stdout, re.MULTILINE)


def test_once_refuses_while_a_daemon_runs(daemon: Program, tmp_path: Path) -> None:
    result = run("once", cwd=tmp_path)
    assert result.returncode == 1
    assert re.fullmatch(r"error: store .*: held by process \d+; .*\n", result.stderr)


def test_events_are_printed_for_people_and_as_they_were_published(daemon: Program, tmp_path: Path) -> None:
    changes = ("--change", "created", "--change", "updated")
    result = run("events", "--last", "3", "--resource", "shipments", *changes, cwd=tmp_path)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert 0 < len(lines) <= 3
    assert all(
        re.match(r"\d\d-\d\d \d\d:\d\d:\d\d shipment\.(created|updated) +shp_\d+ +\w+: ", line) for line in lines
    )
    for event in run("events", "--json", "--last", "3", cwd=tmp_path).stdout.splitlines():
        daemon.until(re.escape(event))


def test_events_are_followed_until_ctrl_c(daemon: Program, tmp_path: Path) -> None:
    with started(tmp_path, "events", "--follow", "--json", "--last", "0") as program:
        daemon.until(re.escape(program.until(r"\{.*\}\n")[0]))
        assert program.end(signal.SIGINT) == 0
        assert program.err == ""


def test_events_into_a_pipe_that_closes_are_quiet(daemon: Program, tmp_path: Path) -> None:
    command = f"{sys.executable} -m dockbell events --follow --json | head -1"
    result = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(result.stdout)["specversion"] == "1.0"
    assert result.stderr == ""


def test_a_daemon_ends_well_when_nobody_reads_its_events_any_more(configure: Configure, sandbox: str) -> None:
    command = f"{sys.executable} -m dockbell run | head -1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=configure(sandbox),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(result.stdout)["specversion"] == "1.0"
    assert json.loads(result.stderr.splitlines()[-1])["fact"] == "Stopping"


def test_once_reads_delivers_and_reports_beside_a_stdout_sink(configure: Configure, sandbox: str) -> None:
    sink = '[sinks.out]\ntype = "stdout"\nstart = "beginning"\n'
    folder = configure(sandbox, sink)
    first = run("once", cwd=folder)
    assert first.returncode == 0
    assert re.search(r"^main/shipments +pass \+ poll +\d+ +\d+ +\d+ +-$", first.stderr, re.MULTILINE)
    assert re.search(r"^main/stock +pass +\d+ +\d+ +\d+ +-$", first.stderr, re.MULTILINE)
    second = run("once", "--json", cwd=folder)
    report = json.loads(second.stderr)
    assert (second.returncode, report["settled"]) == (0, True)
    events = [json.loads(line) for line in (first.stdout + second.stdout).splitlines()]
    delivered = re.search(r"^out +(\d+) +0 +0 +0 +0 +-$", first.stderr, re.MULTILINE)
    assert delivered
    assert int(delivered[1]) + report["sinks"][0]["delivered"] == len(events)
    assert len({event["id"] for event in events}) == len(events)


def test_once_with_an_api_that_is_away_is_not_settled(configure: Configure) -> None:
    result = run("once", cwd=configure("http://127.0.0.1:9", ""))
    assert result.returncode == 1
    assert re.search(r"^main/shipments +pass +0 +0 +0 +.*cannot connect to 127.0.0.1:9", result.stdout, re.MULTILINE)


def test_check_prints_the_configuration_and_what_would_fail(configure: Configure) -> None:
    hook = '[sinks.erp]\ntype = "webhook"\nurl = "http://127.0.0.1:9/x"\nsecret = { env = "NOT_SET" }\n'
    folder = configure("http://127.0.0.1:9", hook)
    result = run("check", cwd=folder)
    assert result.returncode == 1
    assert '[sources.main.resources.shipments]\nevery = "500ms"' in result.stdout
    assert 'secret = [{ env = "NOT_SET" }]' in result.stdout
    assert re.search(r'^store +ok +.*, does not exist yet; "dockbell run" creates it$', result.stdout, re.MULTILINE)
    assert re.search(r"^source main +fails +.*cannot connect to 127.0.0.1:9", result.stdout, re.MULTILINE)
    assert re.search(r"^sink erp +fails +.*environment variable NOT_SET is not set", result.stdout, re.MULTILINE)
    assert not (folder / "dockbell.db").exists()


def test_check_in_json_holds_the_same(configure: Configure, sandbox: str) -> None:
    report = json.loads(run("check", "--json", cwd=configure(sandbox)).stdout)
    assert report["config"]["sources"]["main"]["api_key"] == "***"
    named = [finding["what"] for finding in report["findings"] if not finding["warns"]]
    assert named == ["store", "main/shipments", "main/stock", "sink out"]
    assert not any(finding["fails"] for finding in report["findings"])


def test_check_tries_the_address_of_the_daemon_unless_that_listens_there(configure: Configure, sandbox: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        folder = configure(sandbox, f'[sinks.out]\ntype = "stdout"\n[web]\nlisten = "{listen}"\n')
        busy, refused = run("check", cwd=folder), run("run", cwd=folder)
        assert (busy.returncode, refused.returncode) == (1, 2)
        told = f"[web] listen: address already in use, got {listen}; end what listens there, or choose another"
        assert re.search(rf"^web +fails +{re.escape(told)}$", busy.stdout, re.MULTILINE)
        assert refused.stderr.endswith(f"error: {told}\n")
    assert re.search(rf"^web +ok +{listen}, free$", run("check", cwd=folder).stdout, re.MULTILINE)
    with started(folder, "run") as program:
        program.until("web: answers at")
        beside = run("check", cwd=folder)
        assert beside.returncode == 0
        assert re.search(rf"^web +ok +{listen}, store held by process \d+, not tried$", beside.stdout, re.MULTILINE)


def test_a_daemon_does_not_start_without_its_secrets(configure: Configure) -> None:
    hook = '[sinks.erp]\ntype = "webhook"\nurl = "http://127.0.0.1:9/x"\nsecret = { env = "NOT_SET" }\n'
    result = run("run", cwd=configure("http://127.0.0.1:9", hook))
    assert result.returncode == 2
    told = result.stderr.splitlines()[-1]
    assert told.startswith("error: dockbell.toml: [sinks.erp] secret[0]: environment variable NOT_SET is not set")


@pytest.mark.parametrize(
    ("option", "told", "code"),
    [
        (("--resource", "shipment"), '--resource: unknown resource "shipment"; did you mean "shipments"?', 2),
        (("--source", "other"), '--source: unknown source "other"; available: main', 1),
        (("--change", "update"), '--change: unknown change "update"; did you mean "updated"?', 2),
    ],
)
def test_events_of_a_name_that_is_not_known_are_refused(
    configure: Configure, option: tuple[str, str], told: str, code: int
) -> None:
    result = run("events", *option, cwd=configure("http://127.0.0.1:9"))
    assert result.returncode == code
    assert told in result.stderr


def test_events_of_a_type_that_cannot_be_are_told_of_with_a_suggestion(daemon: Program, tmp_path: Path) -> None:
    result = run("events", "--type", "dockbell.shipment.update", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith(
        '--type: the configuration has no event type "dockbell.shipment.update"; did you mean "'
    )
    assert run("events", "--type", "dockbell.shipment.updated", cwd=tmp_path).stderr == ""


def test_status_shows_how_each_receiver_was_found(daemon: Program, tmp_path: Path) -> None:
    daemon.until('"type":"dockbell.stock.')
    assert re.search(r"^out +connected \d+s +", run("status", cwd=tmp_path).stdout, re.MULTILINE)


def test_with_json_an_error_is_an_object_too(configure: Configure, tmp_path: Path) -> None:
    folder = configure("http://127.0.0.1:9")
    missing = run("status", "--json", cwd=folder)
    assert (missing.returncode, missing.stderr) == (1, "")
    assert json.loads(missing.stdout)["error"].endswith('not found; "dockbell run" creates it')
    misused = run("why", "stok", "a", "--json", cwd=folder)
    assert json.loads(misused.stdout) == {
        "error": 'feed "stok" is not configured; did you mean "stock"?',
        "exit_code": misused.returncode,
    }
    (folder / "dockbell.toml").write_text("nam = 1\n[x]\n")
    wrong = run("check", "--json", cwd=folder)
    assert (wrong.returncode, wrong.stderr) == (2, "")
    assert len(json.loads(wrong.stdout)["error"].splitlines()) == 3


def test_status_before_the_first_start_says_what_to_do(configure: Configure) -> None:
    result = run("status", cwd=configure("http://127.0.0.1:9"))
    assert result.returncode == 1
    assert result.stderr.endswith('dockbell.db: not found; "dockbell run" creates it\n')


CONFIG = '[sources.main]\nbase_url = "http://127.0.0.1:9"\napi_key = { env = "KEY" }\n'


async def fill(path: Path) -> None:
    store = await SqliteStore.open(path, now=lambda: NOON)
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": f"{number}", "x": "x" * 2000} for number in range(200)))
    await store.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dockbell.toml").write_text(CONFIG)
    anyio.run(fill, tmp_path / "dockbell.db")
    return tmp_path


def count(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return int(number)


def test_it_prints_what_it_has_made(folder: Path) -> None:
    done = run("backup", "copy.db", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"copy\.db: \d\.\d MB, complete and checked\n", done.stdout)
    assert count(folder / "copy.db") == 200
    again = run("backup", "copy.db", cwd=folder)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "error: backup copy.db: already exists; name another file, or replace it with --force\n"
    forced = run("backup", "copy.db", "--force", "--json", cwd=folder)
    assert (forced.returncode, forced.stderr) == (0, "")
    assert json.loads(forced.stdout) == {"path": "copy.db", "bytes": (folder / "copy.db").stat().st_size}


@needs_root
def test_what_another_user_has_planted_is_told_and_left_as_it_is(folder: Path) -> None:
    shared, precious = share(folder / "shared"), folder / "precious"
    precious.write_text("kept")
    act(shared, f"ln -s {precious} copy.db.part")
    done = run("backup", str(shared / "copy.db"), cwd=folder)
    assert (done.returncode, done.stdout, precious.read_text()) == (1, "", "kept")
    assert done.stderr == (
        f"error: backup {shared}/copy.db: copy.db.part is not a folder: find out who created it, and remove it;"
        " check its disk, or name another file\n"
    )
    assert run("backup", str(shared / "other.db"), cwd=folder).returncode == 0
    shared.chmod(0o777)
    done = run("backup", str(shared / "third.db"), cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"everybody can replace the files in it; chmod o-w {shared}\n" in done.stderr


AS_ANOTHER = """
import os, sys
from click.testing import CliRunner
from dockbell.cli import main
user, *words, first, target = sys.argv[1:]
# First as root, which reads whatever is imported on the way: others may have no right to read the environment.
assert CliRunner().invoke(main, [*words, first, "--force"]).exit_code == 0
os.setgroups([])
os.setresgid(*[int(user)] * 3)
os.setresuid(*[int(user)] * 3)
main([*words, target])
"""


@needs_root
def test_a_user_without_rights_is_kept_from_the_trap_of_another_one(folder: Path) -> None:
    home, shared = share(folder / "home", 0o755), share(folder / "shared")
    victim, precious = STRANGER + 1, home / "precious"
    for each in (*(folder / name for name in ("dockbell.toml", "dockbell.db")), home):
        os.chown(each, victim, victim)
    os.chown(folder, victim, victim)
    act(home, "echo kept >precious; chmod 600 precious", user=victim)
    act(shared, f"ln -s {precious} copy.db.part; mkdir -m 0777 third.db.part")

    def back_up(target: Path) -> int:
        words = ["backup", "--config", str(folder / "dockbell.toml")]
        return subprocess.run(
            [sys.executable, "-c", AS_ANOTHER, str(victim), *words, str(folder / "first.db"), str(target)], check=False
        ).returncode

    assert back_up(shared / "copy.db") == 1
    assert back_up(shared / "third.db") == 1
    assert precious.read_text() == "kept\n"
    assert back_up(shared / "other.db") == 0
    assert (shared / "other.db").stat().st_uid == victim
    assert count(shared / "other.db") == 200


def test_without_a_store_there_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "dockbell.toml").write_text(CONFIG)
    done = run("backup", "copy.db", cwd=tmp_path)
    assert done.returncode == 1
    assert 'not found; "dockbell run" creates it' in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dockbell.toml"]


def test_a_terminal_shows_how_far_it_is(folder: Path) -> None:
    with on_terminal(folder, "backup", "copy.db") as terminal:
        terminal.until(r"copy\.db .* \d+ of \d+ MB")
        terminal.until(r"copy\.db: \d\.\d MB, complete and checked")


ITEMS = Feed("main", "items")
DELIVERY = Delivery(Event(ITEMS, 1, "a", "evt_1", "dockbell.item.created", "created", 1, b"{}"))


def test_the_runs_of_a_feed_add_up() -> None:
    tally = Tally([ITEMS], [])
    for kind, problem in ((RunKind.PASS, ""), (RunKind.POLL, "HTTP 503")):
        tally.hear(RunEnded(ITEMS, kind, 2, 300, 5, timedelta(seconds=1), problem))
    assert tally.feeds == {ITEMS: FeedTally(["pass", "poll"], 4, 600, 10, "HTTP 503")}


def test_a_feed_that_cannot_be_read_has_its_reason() -> None:
    tally = Tally([ITEMS], [])
    tally.hear(FeedFails(ITEMS, "the API does not accept the key"))
    assert tally.feeds[ITEMS].problem == "the API does not accept the key"


def test_the_deliveries_of_a_sink_add_up() -> None:
    tally = Tally([], ["erp", "idle"])
    tally.hear(Stopping())
    tally.hear(SinkFails("erp", "connection refused", timedelta(seconds=1)))
    assert tally.sinks["erp"].problem == "connection refused"
    for outcome in (DELIVERED, DELIVERED, Outcome(OutcomeKind.REFUSED, "HTTP 400")):
        tally.hear(DeliverySettled("erp", DELIVERY, outcome))
    tally.hear(EventDied("erp", ITEMS, "a", 1, "HTTP 400"))
    assert tally.sinks == {"erp": SinkTally(2, 1, 1, "HTTP 400"), "idle": SinkTally()}
