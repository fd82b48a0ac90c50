"""The real command, as a newcomer starts it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from dockbell.core.model import RESOURCES
from tests.cli.programs import run

COMMAND: Final = (sys.executable, "-m", "dockbell", "demo")
NO_MOSQUITTO: Final = "from dockbell.demo import receivers; receivers._ADMIN_FOLDERS = '/nowhere'; "
NO_BROKER: Final = NO_MOSQUITTO + "receivers.find_spec = lambda name: None; "
MAIN: Final = "from dockbell.cli import main; main()"
PAGE: Final = r"^  page +http://127\.0\.0\.1:(\d+)/  the status page(.*)$"
LINE: Final = r"^\d\d:\d\d:\d\d (mqtt hook|mqtt     |     hook|hook   ) [+~*-]?(\w+)\S* .* +\d+(\.\d+)?s$"


def start(folder: Path, *args: str, patch: str = "", **options: Any) -> subprocess.Popen[str]:
    """Start the demo; ``patch`` is run before it, and then there is no Mosquitto on the path."""
    command: Sequence[str] = COMMAND
    env = os.environ | {"TMPDIR": str(folder)}
    if patch:
        command = (sys.executable, "-c", patch + MAIN, "demo")
        env["PATH"] = "/nowhere"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen((*command, *args), cwd=folder, env=env, text=True, **pipes)


def read_until_events(process: subprocess.Popen[str]) -> str:
    """Return what is printed up to the second event."""
    return read_until(process, LINE, 2)


def read_until(process: subprocess.Popen[str], pattern: str, count: int = 1) -> str:
    """Return what is printed up to the line that matches a pattern, or to the last of so many."""
    assert process.stdout is not None
    text = ""
    while len(re.findall(pattern, text, re.MULTILINE)) < count:
        line = process.stdout.readline()
        assert line, text
        text += line
    return text


def read_account(text: str) -> dict[str, int]:
    """Return the figures of the account in the summary."""
    made = re.search(r"^account +([\d,]+) changes made", text, re.MULTILINE)
    assert made is not None, text
    parts = re.findall(r"^ +[=+] +([\d,]+) (\w+(?: \w+)*)  ", text, re.MULTILINE)
    return {name: int(figure.replace(",", "")) for figure, name in [(made[1], "made"), *parts]}


def check_nothing_is_left(folder: Path, text: str) -> None:
    assert list(folder.glob("dockbell-demo-*")) == []
    for port in re.findall(r"(?:http|mqtt)://127\.0\.0\.1:(\d+)", text):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(port))) != 0, port


@pytest.mark.acceptance
def test_in_a_pipe_it_shows_what_arrives_and_its_account_balances(tmp_path: Path) -> None:
    began = time.monotonic()
    process = start(tmp_path, "--seconds", "12", "--activity", "6", "--keep", "kept")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), out
    assert time.monotonic() - began < 30
    assert "\x1b" not in out
    shown = [line for line in out.splitlines() if re.match(LINE, line) and "the same event, later" not in line]
    assert sum(" mqtt hook " in line for line in shown) > len(shown) / 2, "nearly always both have it at once"
    assert re.search(rf"^arrived +mqtt {len(shown)}\n +hook {len(shown)}, every signature genuine$", out, re.MULTILINE)
    assert re.search(r"^requests +\d+, at most \d+ of 300 in a minute, 0 refused \(429\)$", out, re.MULTILINE)
    account = read_account(out)
    assert account["made"] == sum(account.values()) - account["made"] > 20
    assert account["arrived"] == len(shown)
    assert account["lost"] == 0
    assert f"{len(shown)} events arrived, 0 of them invented" in out
    check_nothing_is_left(tmp_path, out)
    kept = tmp_path / "kept" / "dockbell.toml"
    events = run("events", "--config", str(kept), "--last", "1000")
    changes = [line for line in events.stdout.splitlines() if " feed." not in line]
    assert (len(changes), events.stderr) == (len(shown), "")
    again = run("demo", "--keep", str(kept.parent))
    assert again.returncode == 2
    assert "already contains dockbell.db; choose another folder, or remove it" in again.stderr


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("patch", "wanted", "number"),
    [
        (NO_MOSQUITTO, "iotcore, and a subscriber", signal.SIGINT),
        (NO_BROKER, "no broker found; pip install 'dockbell[demo]' installs one", signal.SIGTERM),
    ],
    ids=["iotcore", "no broker"],
)
def test_a_signal_ends_it_cleanly_with_whatever_broker_there_is(
    tmp_path: Path, patch: str, wanted: str, number: signal.Signals
) -> None:
    process = start(tmp_path, patch=patch)
    head = read_until_events(process)
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (process.returncode, err) == (0, "")
    assert wanted in head
    assert re.search(r"^arrived +(mqtt \d+\n +)?hook \d+, every signature genuine$", out, re.MULTILINE)
    assert read_account(out)["lost"] == 0
    check_nothing_is_left(tmp_path, head + out)


@pytest.mark.acceptance
def test_its_page_answers_as_soon_as_its_address_is_shown_and_as_long_as_it_runs(tmp_path: Path) -> None:
    process = start(tmp_path)
    head = read_until(process, PAGE)
    url = f"http://127.0.0.1:{re.findall(PAGE, head, re.MULTILINE)[0][0]}"
    with httpx.Client(base_url=url, trust_env=False) as client:
        page = client.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "<title>dockbell</title>" in page.text
        files = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
        assert [client.get(f"/{name}").status_code for name in files] == [200] * len(files) != []
        status = client.get("/status").json()
        assert {feed["feed"] for feed in status["feeds"]} == {f"main/{resource}" for resource in RESOURCES}
        read_until_events(process)
        with client.stream("GET", "/live") as live:  # as a page that is open
            assert next(live.iter_lines())
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            assert time.monotonic() - began < 5
    assert (process.returncode, err) == (0, "")
    check_nothing_is_left(tmp_path, head + out)


@pytest.mark.acceptance
def test_where_the_port_of_its_page_is_in_use_it_takes_another_and_says_so(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with suppress(OSError):  # then it is in use already
            stack.enter_context(socket.create_server(("127.0.0.1", 8470)))
        process = start(tmp_path)
        head = read_until(process, PAGE)
        ((port, reason),) = re.findall(PAGE, head, re.MULTILINE)
        assert (8470 < int(port) < 8480, reason) == (True, "; port 8470 is in use")
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    check_nothing_is_left(tmp_path, head + out)


@pytest.mark.acceptance
def test_on_a_terminal_lines_scroll_above_a_live_header(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = start(tmp_path, "--seconds", "5", stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # so Linux says that the other end is closed
        pass
    os.close(ours)
    text = shown.decode()
    assert process.wait(10) == 0, text
    assert re.search(r"── dockbell demo ── 0:0\d ── http://127\.0\.0\.1:\d+/ ── Ctrl-C ends it ─", text)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.strip("\r") for line in plain.splitlines()]
    assert re.search(LINE, "\n".join(lines), re.MULTILINE)
    assert any(re.match(r" requests ━+ \d+ of 300 in the last minute, refused 0", line) for line in lines)
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    check_nothing_is_left(tmp_path, plain)


@pytest.mark.acceptance
def test_it_ends_quietly_when_nobody_reads_any_more(tmp_path: Path) -> None:
    process = start(tmp_path)
    text = read_until_events(process)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    check_nothing_is_left(tmp_path, text)


def test_options_that_cannot_be_used_are_refused() -> None:
    result = run("demo", "--records", "0")
    assert result.returncode == 2
    assert result.stderr.endswith("set records to 2 or more\n")
    assert run("demo", "--seconds", "-1").returncode == 2
    result = run("demo", "--keep", "/dev/null/here")
    assert (result.returncode, result.stderr) == (
        2,
        "error: --keep /dev/null/here: cannot be created, not a directory\n",
    )


def test_a_folder_in_which_others_could_replace_the_demo_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    result = run("demo", "--keep", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr.startswith(
        f"error: --keep {tmp_path}: not used, folder {tmp_path}: everybody can replace the files"
    )
    assert list(tmp_path.iterdir()) == []
