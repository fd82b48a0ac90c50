"""Three processes on one PostgreSQL are replaced by those of a newer version, one after the other, while they work."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import anyio
import pytest
from anyio import to_thread

from dockbell._version import __version__
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.stores.postgres.migrations import MIGRATIONS
from tests.acceptance.sharing import CONFIG, RESOURCES, SECRET, Ledger, Processes, change, judge_store
from tests.acceptance.versions import NEW_COLUMN, NEW_KEY, NEWER_VERSION, OLD_COLUMN, make_newer
from tests.cli.programs import run
from tests.oracle import Story
from tests.postgres import Server
from tests.receivers import Receiver
from tests.services import Daemon

pytestmark = pytest.mark.acceptance

SOURCES: Final = tuple(f"s{number}" for number in range(6))
DEFAULTS: Final = """
[source_defaults]
base_url = "{api}"

"""


class Upgrade(Processes):
    """Processes that are replaced one after the other.

    Attributes:
        newer: The environment of the newer version.
        folder: Where each process has its own.
    """

    def __init__(self, server: Server, url: str, folder: Path, stack: ExitStack) -> None:
        super().__init__(server, url, SOURCES)
        self.newer = make_newer(folder / "newer")
        self.folder = folder
        self._stack = stack

    def write(self, name: str, config: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "dockbell.toml").write_text(config)

    def start(self, name: str, env: Mapping[str, str] | None = None) -> None:
        self.daemons[name] = self._stack.enter_context(Daemon(self.folder / name, env))
        self.daemons[name].start()

    async def end(self, name: str) -> None:
        assert await to_thread.run_sync(self.daemons.pop(name).end, signal.SIGTERM) == 0

    def read_log(self, name: str) -> str:
        return (self.folder / name / "dockbell.log").read_text()

    async def await_line(self, pattern: str, *names: str) -> None:
        """Return when each of some processes has logged something."""
        with anyio.move_on_after(15):
            while not all(re.search(pattern, self.read_log(name)) for name in names):  # noqa: ASYNC110
                await anyio.sleep(0.1)
            return
        raise AssertionError("\n".join(self.read_log(name) for name in names))

    async def run(self, name: str, *args: str, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        """Run a command beside a process."""
        return await to_thread.run_sync(lambda: run(*args, cwd=self.folder / name, env=env))

    async def find_columns(self) -> set[str]:
        rows = await self.query("SELECT column_name FROM information_schema.columns WHERE table_name = 'leases'")
        return {column for (column,) in rows} & {OLD_COLUMN, NEW_COLUMN}


async def replace_all(upgrade: Upgrade, config: str, key: str) -> None:
    """Replace the processes a, b and c by d, e and f, and see what either version does meanwhile."""
    upgrade.start("d", upgrade.newer)
    await upgrade.settle(4)
    assert await upgrade.find_columns() == {OLD_COLUMN, NEW_COLUMN}
    for env in ({}, upgrade.newer):
        status = await upgrade.run("a", "status", env=env)
        assert status.stdout.count(f"  {__version__}\n") == 3, status
        assert status.stdout.count(f"  {NEWER_VERSION}\n") == 1, status
        why = await upgrade.run("a", "why", "s0/shipments", key, env=env)
        assert why.returncode == 0, why
    await upgrade.end("a")
    upgrade.start("e", upgrade.newer)
    await upgrade.settle(4)

    upgrade.write("d", f'{NEW_KEY} = "onward"\n{config}')
    applied = await upgrade.run("d", "apply", env=upgrade.newer)
    assert applied.stdout == "revision 2, followed by 4 processes\n", applied
    await upgrade.await_line("reloaded: revision 2: nothing changed", "d", "e")
    refused = f"not reloaded: revision 2: {NEW_KEY}: unknown key; .*made by dockbell {NEWER_VERSION}, this is"
    await upgrade.await_line(refused, "b", "c")
    status = await upgrade.run("b", "status")
    assert "acme" not in status.stderr
    assert f"warning: revision 2: {NEW_KEY}: unknown key" in status.stderr
    assert status.stdout.count(f"  {__version__}\n") == 2, status

    for name, successor in (("b", "f"), ("c", "")):
        assert await upgrade.find_columns() == {OLD_COLUMN, NEW_COLUMN}
        await upgrade.end(name)
        if successor:
            upgrade.start(successor, upgrade.newer)
            await upgrade.settle(4)
    with anyio.fail_after(10):
        while await upgrade.find_columns() != {NEW_COLUMN}:  # noqa: ASYNC110
            await anyio.sleep(0.1)
    await upgrade.settle(3)


async def test_processes_are_replaced_by_those_of_a_newer_version_one_after_the_other(
    tmp_path: Path, postgres_server: Server, postgres_url: str
) -> None:
    sandbox = Sandbox(
        SandboxOptions(seed=7, shipments=40, packages=0, items=10, stock=30, warehouses=3, api_keys=SOURCES)
    )
    initial = {resource: sandbox.records(resource) for resource in RESOURCES}
    ledger = Ledger()
    receiver = Receiver(SECRET, ledger)
    with ExitStack() as stack:
        upgrade = Upgrade(postgres_server, postgres_url, tmp_path, stack)
        async with serve(sandbox) as api, receiver.listening():
            config = CONFIG.format(store=postgres_url, receiver=receiver.url, secret=SECRET)
            config += DEFAULTS.format(api=api)
            config += "".join(f'[sources.{source}]\napi_key = "{source}"\n' for source in SOURCES)
            for name in "abcdef":
                upgrade.write(name, config)
            for name in "abc":
                upgrade.start(name)
            await upgrade.settle(3)
            async with anyio.create_task_group() as group:
                group.start_soon(partial(change, sandbox, RESOURCES, pause=0.6))
                await replace_all(upgrade, config, min(initial["shipments"]))
                group.cancel_scope.cancel()
            logs = {name: upgrade.read_log(name) for name in "abcdef"}
            assert sum("store: upgrade finished" in log for log in logs.values()) == 1
            story = Story(initial, [each for each in sandbox.changes() if each.resource in RESOURCES])
            with anyio.move_on_after(20):
                while any(ledger.sources[source].state() != story.final() for source in SOURCES):  # noqa: ASYNC110
                    await anyio.sleep(0.2)

            upgrade.start("a")
            assert await to_thread.run_sync(upgrade.daemons.pop("a").wait) == 1
            newer = f"version {len(MIGRATIONS) + 1}"
            refused = f"has schema {newer}, which needs a dockbell that knows {newer}, this dockbell"
            assert refused in upgrade.read_log("a")
            status = await upgrade.run("a", "status")
            assert (status.returncode, status.stdout) == (1, "")
            assert refused in status.stderr
            assert (await upgrade.run("d", "status", env=upgrade.newer)).returncode == 0
            for name in "def":
                await upgrade.end(name)
    assert ledger.problems == []
    for source in SOURCES:
        assert ledger.sources[source].judge(story) == [], source
    await judge_store(upgrade, ledger, story, SOURCES)
    assert [name for name, log in logs.items() if "Traceback" in log] == []
    print(f"{len(ledger.contents)} events, {ledger.repeats} repeats")
