"""Two processes on one PostgreSQL follow what ``dockbell sources`` does with their sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import anyio
import pytest
from anyio import to_thread

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.acceptance.sharing import Ledger
from tests.cli.programs import run
from tests.oracle import Story
from tests.receivers import Receiver
from tests.services import Daemon

pytestmark = pytest.mark.acceptance

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEYS: Final = ("acme", "globex", "initech")
CONFIG: Final = """
name = "acme"

[store]
url = "{store}"

[source_defaults]
base_url = "{api}"
api_key = {{ env = "KEY_{{source}}" }}

[resources]
shipments = {{ every = "1s", stale_window = "0s", first_pass = "emit" }}

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = "{secret}"
"""
START: Final = 60
"""Within so many seconds both processes run: they begin at once, on a machine that may have other work."""
SOON: Final = 15
"""Within so many seconds all processes have followed a command, and told what it brings."""


class Trial:
    """Two folders with one configuration, whose processes tell one receiver."""

    def __init__(self, sandbox: Sandbox, folders: tuple[Path, Path], ledger: Ledger) -> None:
        self.env = {f"KEY_{key.upper()}": key for key in KEYS}
        self.ledger = ledger
        self._folders = folders
        self._sandbox = sandbox
        self._initial = {"shipments": sandbox.records("shipments")}

    async def run(self, *args: str, where: int = 0) -> CompletedProcess[str]:
        """Run a command of ``dockbell sources`` beside a process."""
        done = await to_thread.run_sync(lambda: run("sources", *args, cwd=self._folders[where], env=self.env))
        assert done.returncode == 0, done
        return done

    async def until(self, holds: Callable[[], bool], *, within: float = SOON) -> None:
        with anyio.move_on_after(within):
            while not holds():  # noqa: ASYNC110  # what is waited for is told to nobody
                await anyio.sleep(0.1)
            return
        raise AssertionError("\n".join(map(self.read_log, self._folders)))

    async def until_logged(self, text: str, *, within: float = SOON) -> None:
        """Return when both processes have logged a text."""
        await self.until(lambda: all(text in self.read_log(folder) for folder in self._folders), within=within)

    def read_log(self, folder: Path) -> str:
        return (folder / "dockbell.log").read_text()

    async def until_told(self, *sources: str) -> None:
        """Return when the receiver has the records of some sources as they are."""
        final = self.story.final()
        await self.until(lambda: all(self.ledger.sources[source].state() == final for source in sources))

    @property
    def story(self) -> Story:
        return Story(self._initial, self._sandbox.changes())

    def edit(self) -> None:
        """Change a record; all sources show the same ones."""
        self._sandbox.edit("shipments", identity=min(self._initial["shipments"]))


async def test_processes_follow_what_is_done_with_sources(tmp_path: Path, postgres_url: str) -> None:
    sandbox = Sandbox(SandboxOptions(shipments=12, packages=0, items=10, stock=0, warehouses=3, api_keys=KEYS))
    folders = (tmp_path / "one", tmp_path / "other")
    trial = Trial(sandbox, folders, Ledger())
    receiver = Receiver(SECRET, trial.ledger)
    with ExitStack() as stack:
        async with serve(sandbox) as api, receiver.listening():
            for folder in folders:
                folder.mkdir()
                config = CONFIG.format(store=postgres_url, api=api, receiver=receiver.url, secret=SECRET)
                (folder / "dockbell.toml").write_text(config)
                stack.enter_context(Daemon(folder, trial.env)).start()
            await trial.until_logged(" runs: 0 feeds", within=START)

            await trial.run("add", "acme")
            await trial.until_told("acme")
            async with anyio.create_task_group() as group:  # at once, from two machines
                group.start_soon(partial(trial.run, "add", "globex", where=0))
                group.start_soon(partial(trial.run, "add", "initech", where=1))
            await trial.until_told("globex", "initech")

            await trial.run("pause", "acme")
            await trial.until_logged("reloaded: revision 5: ")
            before = trial.ledger.sources["acme"].state()
            trial.edit()
            await trial.until_told("globex", "initech")
            assert trial.ledger.sources["acme"].state() == before
            listed = json.loads((await trial.run("list", "--json", where=1)).stdout)["sources"]
            assert {each["source"]: each["paused"] for each in listed} == {
                "acme": True,
                "globex": False,
                "initech": False,
            }
            assert all(each["process"].startswith("process ") for each in listed)

            await trial.run("resume", "acme", where=1)
            await trial.until_told("acme")

            await trial.run("remove", "globex", "--yes")
            await trial.until_logged("reloaded: revision 7: ")
            before = trial.ledger.sources["globex"].state()
            trial.edit()
            await trial.until_told("acme", "initech")
            assert trial.ledger.sources["globex"].state() == before
            await trial.run("add", "globex")
            await trial.until_told("globex")
    assert trial.ledger.problems == []
    for source in ("acme", "globex", "initech"):
        assert trial.ledger.sources[source].judge(trial.story) == [], source
