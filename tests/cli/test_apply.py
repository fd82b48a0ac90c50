from __future__ import annotations

import json
from pathlib import Path

import anyio
from click.testing import CliRunner, Result

from dockbell.cli import main
from dockbell.stores.postgres import PostgresStore
from tests.fakes import NOON

CONFIG = """
[store]
url = "{url}"
[sources.main]
base_url = "http://127.0.0.1:1"
api_key = "k"
[sinks.{sink}]
type = "stdout"
"""


def run(path: Path, *args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--config", str(path)])


def test_a_file_is_applied_and_an_outdated_one_by_force(tmp_path: Path, postgres_url: str) -> None:
    async def make() -> None:
        await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()

    anyio.run(make)
    path = tmp_path / "dockbell.toml"
    path.write_text(CONFIG.format(url=postgres_url, sink="a"))
    assert run(path, "apply").output == "revision 1, followed by 0 processes\n"
    assert run(path, "apply").output == "revision 1, followed by 0 processes\n"
    path.write_text(CONFIG.format(url=postgres_url, sink="b"))
    assert json.loads(run(path, "apply", "--json").output) == {
        "revision": 2,
        "outdated": None,
        "followed": True,
        "processes": 0,
        "drops": 0,
        "changes": 0,
    }
    path.write_text(CONFIG.format(url=postgres_url, sink="a"))
    refused = run(path, "apply")
    assert refused.output == (
        "the configuration file is revision 1, but revision 2 replaced it and is in use;"
        ' "dockbell apply --force" makes all processes use the file\n'
    )
    assert refused.exit_code == 1
    assert 'no sink "a"; available: b' in run(path, "pause", "a").output  # what is followed counts, not this file
    assert run(path, "apply", "--force").output == "revision 3, followed by 0 processes\n"


def test_a_store_in_sqlite_has_no_revisions(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.toml"
    path.write_text(CONFIG.format(url="sqlite:///dockbell.db", sink="a"))
    refused = run(path, "apply")
    assert refused.exit_code == 1
    assert "it follows only its configuration file; edit that, or the files that it includes" in refused.output
