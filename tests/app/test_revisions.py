"""Two daemons on one database follow one configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from dockbell.admin.reasons import find_reasons
from dockbell.app import load_config, open_configurations
from dockbell.app.agents import assemble
from dockbell.app.daemon import Daemon
from dockbell.app.revisions import Revisions, agree
from dockbell.app.scheduler import Scheduler
from dockbell.app.systemd import Supervisor
from dockbell.core.model import Feed
from dockbell.errors import ConfigError
from dockbell.ports import Bell
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.telemetry import ConfigurationOutdated, Fact, Reloaded, ReloadRefused, RunEnded
from tests.fakes import Ear

CONFIG = """
{name}
[store]
url = "{url}"
[sources.main]
base_url = "http://127.0.0.1:1"
api_key = "k"
[resources]
shipments = {{ every = "1h" }}
[sinks.{sink}]
type = "stdout"
resources = ["notices"]
{more}
"""
STOPPED_SECONDS = 20
_Fact = TypeVar("_Fact", bound=Fact)


class Machine:
    """A process with a file and a folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir()
        self.path = folder / "dockbell.toml"
        self.ear = Ear()
        self._url = url

    def find_facts(self, kind: type[_Fact]) -> list[_Fact]:
        """Return the facts of a kind that its daemon has told."""
        return [fact for fact in self.ear.facts if isinstance(fact, kind)]

    def write(self, sink: str, more: str = "", *, name: str = "") -> None:
        self.path.write_text(CONFIG.format(url=self._url, sink=sink, more=more, name=name))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Daemon]:
        config, stop = load_config(self.path), anyio.Event()
        revisions = Revisions(config, self.ear.telemetry)
        async with (
            assemble(config, self.ear.telemetry, shared=True, revisions=revisions) as agents,
            Scheduler() as scheduler,
        ):
            daemon = Daemon(
                agents,
                scheduler,
                config=revisions.followed,
                read_again=partial(load_config, self.path),
                revisions=revisions,
                supervisor=Supervisor(),
            )
            async with anyio.create_task_group() as group:
                group.start_soon(daemon.run, stop, Bell())
                yield daemon
                stop.set()


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> tuple[Machine, Machine]:
    return Machine(tmp_path / "one", postgres_url), Machine(tmp_path / "other", postgres_url)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(STOPPED_SECONDS):
        while not holds():  # noqa: ASYNC110  # what is waited for is told to nobody
            await anyio.sleep(0.02)


async def test_what_one_process_reads_all_follow_and_who_cannot_goes_on(machines: tuple[Machine, Machine]) -> None:
    one, other = machines
    one.write("a")
    other.write("a")
    async with one.working() as first, other.working() as second:
        assert first.config.sinks.keys() == second.config.sinks.keys() == {"a"}
        one.write("b")
        assert str(await first.reload()).startswith("complete: revision 2: sink b added, sink a removed")
        await until(lambda: any(isinstance(fact, Reloaded) for fact in other.ear.facts))
        told = [fact for fact in other.ear.facts if isinstance(fact, Reloaded)]
        assert [str(fact) for fact in told] == ["reloaded: revision 2: sink b added, sink a removed"]

        # The file of the other process still says what was replaced.
        outcome = str(await second.reload())
        assert "revision 2: nothing changed" in outcome
        assert 'is revision 1, but revision 2 replaced it and is in use; "dockbell apply --force"' in outcome
        assert ConfigurationOutdated(1, 2) in other.ear.facts
        assert second.config.sinks.keys() == {"b"}

        # A secret that only one machine has; before that can use it, nobody is asked to follow.
        one.write("b", '[sinks.c]\ntype = "webhook"\nurl = "http://127.0.0.1:1/"\nsecret = { file = "secret" }')
        (one.path.parent / "secret").write_text("k")
        assert "[sinks.c] secret: must be whsec_ followed by" in str(await first.reload())
        (one.path.parent / "secret").write_text("whsec_" + "a" * 32)
        assert "revision 3: sink c added" in str(await first.reload())
        await until(lambda: any(isinstance(fact, ReloadRefused) for fact in other.ear.facts))
        (refused,) = (fact for fact in other.ear.facts if isinstance(fact, ReloadRefused))
        assert f"revision 3: [sinks.c] secret[0]: file {other.path.parent / 'secret'}: no such file" in str(refused)
        assert second.config.sinks.keys() == {"b"}
        one.write("d")
        assert "revision 4: " in str(await first.reload())
        await until(lambda: second._relays.keys() == {"d"})


async def test_a_source_that_a_process_cannot_use_fails_alone(machines: tuple[Machine, Machine]) -> None:
    one, other = machines
    one.write("a")
    async with serve(Sandbox(SandboxOptions(records=20, requests_per_minute=0))) as api, one.working() as daemon:
        ill = {"key": 'api_key = { file = "absent.key" }', "trust": 'api_key = "sandbox"\nca_file = "absent.pem"'}
        tables = ill | {"fine": 'api_key = "sandbox"'}
        more = "".join(f'[sources.{name}]\nbase_url = "{api}"\n{keys}\n' for name, keys in tables.items())
        other.write("a", more)
        config = load_config(other.path)
        async with aclosing(await open_configurations(config)) as configurations:
            await agree(configurations, config)
        await until(lambda: Feed("fine", "shipments") in {each.feed for each in one.find_facts(RunEnded)})
        status = await daemon._load_status()
        with anyio.fail_after(STOPPED_SECONDS):
            while "ca_file" not in str(find_reasons(status)) or "fine/shipments" in str(find_reasons(status)):
                await anyio.sleep(0.1)  # the end of a run is told before it is stored
                status = await daemon._load_status()
        told = {reason.name: reason.words for reason in find_reasons(status)}
        assert "source: cannot use ca_file, no such file" in told["trust/shipments"]
        assert "absent.key: no such file" in told["key/shipments"]


async def test_a_process_that_starts_with_an_outdated_file_follows_the_newest_revision(
    machines: tuple[Machine, Machine],
) -> None:
    one, other = machines
    one.write("a")
    async with one.working() as first:
        one.write("b", '[web]\nlisten = "127.0.0.1:0"')
        await first.reload()
        other.write("a")
        async with other.working() as second:
            assert second.config.sinks.keys() == {"b"}
            assert second.config.web is None  # each has its own
            assert ConfigurationOutdated(1, 2) in other.ear.facts
        other.write("a", name='name = "another"')
        with pytest.raises(ConfigError, match='name: must be "dockbell", as in the other processes on this store, got'):
            async with other.working():
                pass
