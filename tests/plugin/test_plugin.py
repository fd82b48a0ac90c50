"""A sink from another package: installed, found by its entry point, configured, run, and as good as our own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path

import anyio
import pytest

from dockbell.sandbox import Sandbox, SandboxOptions
from dockbell.testing import Receiver, SinkConformance
from tests.brokers import find_free_port
from tests.cli.programs import run
from tests.plugin.printer.dockbell_printer import PrinterSink
from tests.plugin.printers import PIN, PrinterReceiver
from tests.serving import listening

CONFIG = """
[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources.warehouses]
first_pass = "emit"

[sinks.table]
type = "printer"
host = "127.0.0.1"
port = {port}
pin = {{ env = "PRINTER_PIN" }}
"""


class TestPrinter(SinkConformance):
    sink_type = PrinterSink

    def make_receiver(self, folder: Path) -> Receiver:
        return PrinterReceiver()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder in which the plug-in is installed as any package is."""
    folder = str(tmp_path_factory.mktemp("packages"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
    source = Path(__file__).parent / "printer"
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-index", "--target", folder, source], check=True)
    return folder


@pytest.fixture
async def printer(tmp_path: Path) -> AsyncIterator[PrinterReceiver]:
    """Yield a printer, an API, and a configuration for both in the test's folder."""
    printer, port = PrinterReceiver(), find_free_port()
    await printer.start()
    config = CONFIG.format(api=f"http://127.0.0.1:{port}", port=printer.port)
    (tmp_path / "dockbell.toml").write_text(config)
    async with listening(Sandbox(SandboxOptions(warehouses=3, requests_per_minute=0)).app, port):
        yield printer
    await printer.stop()


async def dockbell(*args: str, folder: Path, installed: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the real program, which finds the plug-in among its packages."""
    env = {"PYTHONPATH": installed, "PRINTER_PIN": PIN}
    return await anyio.to_thread.run_sync(lambda: run(*args, cwd=folder, env=env))


def test_it_is_found_by_its_entry_point(installed: str) -> None:
    (distribution,) = metadata.distributions(path=[installed])
    (entry,) = distribution.entry_points
    assert (distribution.name, entry.group, entry.name) == ("dockbell-printer", "dockbell.sinks", "printer")


async def test_check_connects_to_it_and_prints_its_settings_without_the_secret(
    printer: PrinterReceiver, installed: str, tmp_path: Path
) -> None:
    result = await dockbell("check", folder=tmp_path, installed=installed)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"127.0.0.1:{printer.port} is ready" in result.stdout
    assert 'type = "printer"' in result.stdout
    assert PIN not in result.stdout
    assert printer.arrivals.took == []


async def test_once_delivers_to_it(printer: PrinterReceiver, installed: str, tmp_path: Path) -> None:
    result = await dockbell("once", folder=tmp_path, installed=installed)
    assert result.returncode == 0, result.stdout + result.stderr
    records = [arrival for arrival in printer.arrivals.took if arrival.key]
    assert [arrival.feed for arrival in records] == ["main/warehouses"] * 3


async def test_a_key_that_it_does_not_have_is_named(printer: PrinterReceiver, installed: str, tmp_path: Path) -> None:
    path = tmp_path / "dockbell.toml"
    path.write_text(path.read_text() + "prot = 1\n")
    result = await dockbell("check", folder=tmp_path, installed=installed)
    assert result.returncode == 2
    assert "sinks.table" in result.stderr
    assert '"port"' in result.stderr


async def test_without_the_package_the_type_is_unknown(printer: PrinterReceiver, tmp_path: Path) -> None:
    result = await dockbell("check", folder=tmp_path, installed="")
    assert result.returncode == 2
    assert '"printer": unknown' in result.stderr
