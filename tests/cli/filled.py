"""A store with some events in it that no daemon holds, and a configuration for it: what operators' commands work on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from click.testing import CliRunner, Result

from dockbell.cli import main
from dockbell.stores.sqlite import SqliteStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, commit
from tests.stores.standings import stand, waiting

NO_DAEMON: Final = 'no daemon is running: "dockbell run" starts one, which sends them'
_CONFIG: Final = """
[sources.main]
base_url = "http://127.0.0.1:9"
api_key = "sandbox"
[resources]
shipments = {}
stock = {}
[sinks.erp]
type = "stdout"
[sinks.floor]
type = "stdout"
resources = ["stock"]
"""


@dataclass
class Filled:
    """A folder with a configuration, and a store of six events, all of which the sink erp has settled."""

    folder: Path

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "dockbell.db"

    def run(self, *args: str, code: int = 0) -> str:
        """Run a command in this process, which must end with this exit code, and return what it prints."""
        result = self._invoke(args)
        assert (result.exit_code, result.stderr) == (code, ""), result.output
        return result.stdout

    def _invoke(self, args: Sequence[str]) -> Result:
        return CliRunner(catch_exceptions=False).invoke(main, [*args, "--config", str(self.folder / "dockbell.toml")])

    def ask(self, *args: str, code: int = 0) -> Any:
        """Run a command with ``--json``."""
        return json.loads(self.run(*args, "--json", code=code))

    def misuse(self, *args: str, code: int = 2) -> str:
        """Run a command that is wrong, and return the last line that it prints."""
        result = self._invoke(args)
        assert (result.exit_code, result.stdout) == (code, ""), result.stdout
        return result.stderr.splitlines()[-1]

    def waiting(self, sink: str = "erp") -> list[int]:
        """Return the sequences of the replays that wait."""
        return [sequence for _, sequence in waiting(self.store, sink)]


def fill(folder: Path) -> Filled:
    """Write both."""
    (folder / "dockbell.toml").write_text(_CONFIG)
    filled = Filled(folder)
    anyio.run(_fill, filled.store)
    stand(filled.store, "erp", 6)
    return filled


async def _fill(path: Path) -> None:
    store = await SqliteStore.open(path, now=lambda: NOON)
    state = await store.feed(FEED).open()
    await store.feed(OTHER).open()
    for number, key in enumerate(("a", "b", "c", "a", "b", "x/1")):
        await commit(store, state, {"id": key, "number": number, "weight": 1})
    await store.aclose()
