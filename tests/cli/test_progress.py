"""What a terminal shows of long work, and that nothing else does."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.programs import started
from tests.cli.terminal import on_terminal

STOCK: Final = 2200
READ: Final = r"main/stock +\S+ +(\d+) pages, ([\d,]+) records"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a sandbox whose stock takes a second to read."""
    options = ("--stock", str(STOCK), "--shipments", "3", "--latency", "0.1", "--requests-per-minute", "0")
    with started(tmp_path_factory.mktemp("slow"), "sandbox", "--port", "0", *options) as program:
        yield program.until("http://[0-9.:]+")[0]


@pytest.fixture
def folder(tmp_path: Path, slow: str) -> Path:
    """Return a folder with a configuration for it."""
    source = f'[sources.main]\nbase_url = "{slow}"\napi_key = "sandbox"\nrequests_per_minute = 60000\n'
    resources = '[resources]\nshipments = { every = "1h" }\nstock = { every = "1h", key = "/id" }\n'
    (tmp_path / "dockbell.toml").write_text(source + resources)
    return tmp_path


def lines(shown: str) -> list[str]:
    """Return what stood on the lines of a terminal at one time or another."""
    return re.split(r"[\r\n]+", shown)


def test_the_first_passes_of_a_daemon_are_shown_below_its_log(folder: Path) -> None:
    with on_terminal(folder, "run") as terminal:
        early = terminal.until(READ)
        terminal.until(READ)
        terminal.until(rf"\n?\d\d:\d\d:\d\d main/stock: pass complete: 11 pages, {STOCK} records")
        terminal.signal(signal.SIGTERM)
        assert terminal.finish() == 0
    assert int(early[1]) * 200 == int(early[2].replace(",", ""))
    logged = [line for line in lines(terminal.shown) if re.search(r"complete|runs:|stopping|reconciled", line)]
    assert logged
    assert all(re.match(r"\d\d:\d\d:\d\d \S", line) for line in logged)


def test_once_and_reconcile_show_how_far_they_are_and_wipe_it(folder: Path) -> None:
    with on_terminal(folder, "once") as terminal:
        terminal.until(READ)
        terminal.until("feed +│?.*records")
        assert terminal.finish() == 0
    with on_terminal(folder, "reconcile", "stock") as terminal:
        terminal.until("no daemon is running: running the command here")
        found = terminal.until(READ + r"[^\r\n]*")
        terminal.until("main/stock +complete")
        assert terminal.finish() == 0
    assert found[1] != "11"


def test_what_a_daemon_reads_for_one_is_shown_as_far_as_it_is_saved(folder: Path) -> None:
    with started(folder, "run") as daemon:
        daemon.until("main/stock: pass complete")
        with on_terminal(folder, "reconcile", "stock") as terminal:
            terminal.until("main/stock +.*waiting for the daemon")
            terminal.until("main/stock +complete")
            assert terminal.finish() == 0
