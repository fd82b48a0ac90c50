"""Tools that turn a polled service into events, side by side on one sandbox, and what each loses and invents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.bench.hostile.hazards import Hazard
from tests.bench.hostile.script import SINCE
from tests.bench.hostile.verdict import Verdict, judge
from tests.oracle import Place, Story, read_content

Told = tuple[Place, Any]
_CONFIG: Final = """\
name = "bench"
[store]
url = "sqlite:///dockbell.db"
[sources.main]
base_url = "{url}"
api_key = "bench"
requests_per_minute = 3000
[sinks.told]
type = "stdout"
"""
_RESOURCE: Final = """\
[resources.{name}]
every = "{every}s"
"""
_RECONCILED: Final = """\
reconcile = "15s"
confirm_after = "5s"
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that prints what it finds; ``read`` returns what a line tells, None where that is of no record."""

    name: str
    command: Callable[[str, Path], Sequence[str]]
    read: Callable[[Any], Told | None]
    ask: Sequence[str] = ()
    """What prints a JSON object whose ``feeds`` each have a ``read_at`` once the tool knows all lists."""


@dataclass(frozen=True, slots=True)
class Times:
    """Of one hazard, in seconds."""

    learn: float = 15  # before anything changes
    change: float = 30
    drain: float = 80  # until all should have been told
    every: float = 2  # between two polls of a tool
    rate: float = 5  # changes a second


def _read_line(line: Any) -> Told:
    resource, key, record = line
    return (resource, key), None if record is None else read_content(record)


def _read_event(event: Any) -> Told | None:
    data = event["data"]
    if "statement" in data:
        return None
    return (data["resource"], data["key"]), None if data["after"] is None else read_content(data["after"])


def list_tools(every: float) -> list[Tool]:
    """Return the tools that are here; dlt is one where it is installed."""

    def run(module: str, *options: str) -> Callable[[str, Path], Sequence[str]]:
        return lambda url, _: [
            sys.executable,
            "-m",
            f"tests.bench.hostile.{module}",
            url,
            *options,
            "--every",
            str(every),
        ]

    def run_dockbell(url: str, folder: Path) -> Sequence[str]:
        parts = [_CONFIG.format(url=url)]
        for name, has_since in SINCE.items():
            parts += [_RESOURCE.format(name=name, every=every), _RECONCILED if has_since else 'confirm_after = "5s"\n']
        (folder / "dockbell.toml").write_text("".join(parts))
        return [sys.executable, "-m", "dockbell", "run"]

    tools = [
        Tool("script, `updated_since`", run("script"), _read_line),
        Tool("script, whole lists", run("script", "--whole"), _read_line),
        Tool("dlt", run("connector"), _read_line),
        Tool("dockbell", run_dockbell, _read_event, (sys.executable, "-m", "dockbell", "status", "--json")),
    ]
    return [tool for tool in tools if tool.name != "dlt" or find_spec("dlt") is not None]


class _Process:
    """A tool at work in a folder of its own."""

    def __init__(self, tool: Tool, url: str, folder: Path) -> None:
        folder.mkdir()
        self._tool = tool
        self._folder = folder
        self._command = tool.command(url, folder)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))))
        with (self._folder / "out").open("ab") as out, (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=os.environ | {"PYTHONPATH": path}, stdout=out, stderr=log
            )

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        self._process.kill()
        self._process.wait()

    async def wait_until_ready(self) -> None:
        """Wait until the tool knows the lists, where it can be asked that."""
        with anyio.fail_after(60):
            while self._tool.ask:
                said = await anyio.run_process(self._tool.ask, cwd=self._folder, check=False)
                feeds = json.loads(said.stdout)["feeds"] if said.stdout else []
                if feeds and all(feed["read_at"] for feed in feeds):
                    return
                await anyio.sleep(0.5)

    def read(self) -> Iterator[Told]:
        """Yield what it has told."""
        for line in (self._folder / "out").read_text(encoding="utf-8").splitlines():
            told = self._tool.read(json.loads(line))
            if told is not None and told[0][0] in SINCE:
                yield told


async def try_hazard(hazard: Hazard, tools: Sequence[Tool], times: Times) -> Mapping[str, Verdict]:
    """Let the tools work while the service changes its records; return what is wrong with what each told."""
    options = SandboxOptions(records=1500, requests_per_minute=0, api_keys=("bench",), **hazard.options)
    sandbox = Sandbox(options)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="dockbell-hostile-")))
        async with serve(sandbox) as url:
            processes = {tool.name: _Process(tool, url, folder / str(n)) for n, tool in enumerate(tools)}
            for process in processes.values():
                stack.callback(process.kill)
            await anyio.sleep(times.learn)
            for process in processes.values():
                await process.wait_until_ready()
            first = {resource: sandbox.records(resource) for resource in SINCE}
            before = len(sandbox.changes())
            sandbox.activity.rate = times.rate
            for _ in range(hazard.kills + 1):
                await anyio.sleep(times.change / (hazard.kills + 1))
                if hazard.kills:
                    for process in processes.values():
                        process.kill()
                        process.start()
            sandbox.activity.rate = 0
            await anyio.sleep(times.drain)
            changes = [each for each in sandbox.changes(before) if each.resource in SINCE]
        return {name: judge(Story(first, changes), process.read()) for name, process in processes.items()}
