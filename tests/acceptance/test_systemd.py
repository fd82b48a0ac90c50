"""The daemon under systemd: its unit file as systemd reads it, and what the real process tells by ``NOTIFY_SOCKET``."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dockbell.web.connection import count_connections
from tests.brokers import find_free_port
from tests.cli.programs import Program, run, started

pytestmark = pytest.mark.acceptance

UNIT: Final = Path(__file__).parents[2] / "docs" / "operations" / "dockbell.service"
TEMPLATE: Final = UNIT.with_name("dockbell@.service")
INSTALLED: Final = "/opt/dockbell/bin/dockbell"
CONFIG: Final = """
[sources.main]
base_url = "http://127.0.0.1:{port}"
api_key = "k"

[resources]
shipments = {{}}
"""


# What the process tells ----------------------------------------------------------------------------------------------


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return what a service manager listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(15)
        yield sock


@pytest.fixture
def daemon(tmp_path: Path, manager: socket.socket) -> Iterator[Program]:
    """Return the daemon as it begins, watched over."""
    (tmp_path / "dockbell.toml").write_text(CONFIG.format(port=find_free_port()))
    variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "600000"}
    with started(tmp_path, "run", env=variables) as program:
        yield program


def hear(manager: socket.socket, word: str) -> list[str]:
    """Return the lines of the next datagram that begins with a word; before it, only the watchdog's may come."""
    while (lines := manager.recv(4096).decode().split("\n"))[0] != word:
        assert lines[0] == "WATCHDOG=1"
    return lines


def test_it_is_ready_once_it_runs_and_tells_that_it_stops(daemon: Program, manager: socket.socket) -> None:
    assert hear(manager, "READY=1") == ["READY=1", "STATUS=1 feed, 0 sinks"]
    assert "dockbell dockbell runs: 1 feed" in daemon.err
    assert daemon.end() == 0
    assert hear(manager, "STOPPING=1") == ["STOPPING=1", "STATUS=stopping: finishing the deliveries in flight"]


def test_what_cannot_start_is_never_ready_and_is_not_started_again(tmp_path: Path, manager: socket.socket) -> None:
    (tmp_path / "dockbell.toml").write_text("[sources.main]\n")
    ended = run("run", cwd=tmp_path, env={"NOTIFY_SOCKET": manager.getsockname()})
    assert f"RestartPreventExitStatus={ended.returncode}\n" in UNIT.read_text(encoding="utf-8")
    assert select.select([manager], [], [], 0)[0] == []


@pytest.mark.parametrize(("addition", "status"), [("stock = {}", "2 feeds, 0 sinks"), ("stock =", "1 feed, 0 sinks")])
def test_a_reload_is_told_from_beginning_to_end_well_or_not(
    tmp_path: Path, daemon: Program, manager: socket.socket, addition: str, status: str
) -> None:
    hear(manager, "READY=1")
    with (tmp_path / "dockbell.toml").open("a") as file:
        file.write(addition)
    daemon.tell(signal.SIGHUP)
    assert hear(manager, "RELOADING=1")[1].startswith("MONOTONIC_USEC=")
    assert hear(manager, "READY=1") == ["READY=1", f"STATUS={status}"]


def test_the_watchdog_is_answered_only_while_the_process_works(daemon: Program, manager: socket.socket) -> None:
    assert hear(manager, "READY=1")
    hear(manager, "WATCHDOG=1")
    daemon.tell(signal.SIGSTOP)
    while select.select([manager], [], [], 0.6)[0]:  # what was told before
        manager.recv(4096)
    assert select.select([manager], [], [], 0.6)[0] == []
    daemon.tell(signal.SIGCONT)
    hear(manager, "WATCHDOG=1")


# The unit file -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[UNIT, TEMPLATE], ids=["unit", "template"])
def unit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the unit file, or an instance of the template, for the dockbell of this environment."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    file: Path = request.param
    path = tmp_path / file.name.replace("@", "@1")
    program = Path(sys.executable).with_name("dockbell")
    path.write_text(file.read_text(encoding="utf-8").replace(INSTALLED, str(program)))
    return path


def test_systemd_understands_the_unit(unit: Path) -> None:
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_systemd_finds_the_service_well_shut_in(unit: Path) -> None:
    """Its own measure goes from 0 to 10; from 4 on it speaks of medium exposure."""
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=True,
    )
    exposure = re.search(r"exposure level for dockbell\S*.service: ([0-9.]+)", judged.stdout)
    assert exposure is not None
    assert float(exposure[1]) <= 1.5


def test_strangers_cannot_take_all_files_and_connections_that_the_unit_allows() -> None:
    (limit,) = re.findall(r"(?m)^LimitNOFILE=(\d+)$", UNIT.read_text(encoding="utf-8"))
    assert sum(count_connections(int(limit))) < 1_000


def test_every_command_of_the_unit_exists() -> None:
    for command in re.findall(rf"^Exec\w+={INSTALLED} (\w+)", UNIT.read_text(encoding="utf-8"), re.MULTILINE):
        assert run(command, "--help").returncode == 0


# What it needs -------------------------------------------------------------------------------------------------------

_SHUT_IN: Final = """
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
for place in $(awk '{print $5}' /proc/self/mountinfo | sort -r); do
  [ "$place" = "$1" ] || mount -o remount,bind,ro "$place" 2>/dev/null || true
done
cd "$1"
shift
exec setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
"""Everything is read-only but one folder, and nobody has a privilege or a name."""


@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")), reason="needs root, and util-linux"
)
def test_it_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-", tmp_path.name)):  # pytest keeps them to itself
            folder.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12345, 12345)
    (tmp_path / "dockbell.toml").write_text(
        CONFIG.format(port=find_free_port()) + '[store]\nurl = "sqlite:///state/dockbell.db"\n'
    )
    inside = ["unshare", "--mount", "sh", "-c", _SHUT_IN, "sh", str(state)]
    program = [sys.executable, "-m", "dockbell"]
    if subprocess.run([*inside, *program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("others must not read this environment")
    probe = subprocess.run(
        [*inside, "sh", "-c", f"touch here && ! touch {tmp_path}/there /tmp/x /var/tmp/x && id -u"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.stdout == "12345\n", probe.stderr
    program += ["run", "--config", str(tmp_path / "dockbell.toml")]
    shut_in = subprocess.Popen([*inside, *program], stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    with shut_in:
        assert shut_in.stderr is not None
        try:
            assert any("dockbell dockbell runs" in line for line in shut_in.stderr)
        finally:
            shut_in.terminate()
        assert shut_in.wait(10) == 0
    assert {path.name for path in state.iterdir()} >= {"dockbell.db"}
