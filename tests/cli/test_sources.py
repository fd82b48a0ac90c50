from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from dockbell.cli import main
from dockbell.stores.postgres import PostgresStore
from tests.fakes import NOON

CONFIG = """
[store]
url = "{url}"
[source_defaults]
base_url = "http://127.0.0.1:1"
api_key = {{ file = "keys/{{source}}" }}
[resources]
stock = {{}}
[sinks.erp]
type = "stdout"
"""


class Folder:
    """A configuration for a database, without sources, and the keys of some."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        (path / "dockbell.toml").write_text(CONFIG.format(url=url))
        (path / "keys").mkdir()
        for name in ("acme", "globex", "eu-1", "eu-2"):
            (path / "keys" / name).write_text("k")

    def run(self, *args: str, code: int = 0, given: str = "") -> str:
        """Run a command of ``dockbell sources``, which must end with this exit code, and return what it prints."""
        args = ("sources", *args, "--config", str(self.path / "dockbell.toml"))
        result = CliRunner(catch_exceptions=False).invoke(main, args, input=given)
        assert result.exit_code == code, result.output
        return result.output

    def ask(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json"))

    def settings(self) -> dict[str, Any]:
        return {each["source"]: each["settings"] for each in self.ask("list")["sources"]}


@pytest.fixture
def folder(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Folder:
    async def make() -> None:
        await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()

    anyio.run(make)
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, postgres_url)


def test_sources_are_added_changed_paused_and_removed(folder: Folder) -> None:
    assert folder.run("add", "acme") == "added: acme\nrevision 2; all processes follow it within seconds\n"
    folder.run("add", "globex", "requests_per_minute=600", "resources.stock.every=1m")
    assert folder.run("set", "globex", "--unset", "resources", "share=0.5").startswith("changed: globex\nrevision 4")
    assert folder.settings() == {"acme": {}, "globex": {"requests_per_minute": 600, "share": 0.5}}
    assert folder.run("pause", "*").startswith("paused: acme, globex\nrevision 5")
    assert folder.run("pause", "acme") == "unchanged: acme\nnothing changed\n"
    assert [each["paused"] for each in folder.ask("list", "--paused")["sources"]] == [True, True]
    assert folder.run("resume", "acme").startswith("resumed: acme\n")
    assert folder.ask("remove", "globex", "--yes") == {
        "revision": 7,
        "dry_run": False,
        "added": [],
        "changed": [],
        "unchanged": [],
        "removed": ["globex"],
    }
    assert folder.run("list").splitlines() == [
        "source  base URL            paused  process  own settings",
        "acme    http://127.0.0.1:1  -       -        -",
        "",
        "1 source, 0 paused",
    ]


def test_keys_of_many_sources_are_set_at_once_or_none(folder: Folder) -> None:
    for name in ("acme", "eu-1", "eu-2"):
        folder.run("add", name)
    assert folder.run("set", "acme", "eu-*", "share=0.5").startswith("changed: acme, eu-1, eu-2\nrevision 5")
    assert 'no source "acne"; did you mean "acme"?' in folder.run("set", "acne", "eu-*", "share=0.1", code=2)
    assert folder.settings() == {"acme": {"share": 0.5}, "eu-1": {"share": 0.5}, "eu-2": {"share": 0.5}}
    assert "pass the NAME of at least one source" in folder.run("set", "share=0.1", code=2)
    assert "pass at least one KEY=VALUE" in folder.run("set", "acme", code=2)


def test_who_removes_without_a_terminal_must_say_yes(folder: Folder) -> None:
    folder.run("add", "acme")
    assert "remove cannot ask for confirmation without a terminal; add --yes" in folder.run("remove", "acme", code=2)
    assert folder.settings() == {"acme": {}}


def test_a_secret_is_not_written_into_the_database(folder: Folder) -> None:
    for pair in ("api_key=s3cret", "proxy=http://user:s3cret@127.0.0.1:1"):
        refused = folder.run("add", "acme", pair, code=2)
        key = pair.partition("=")[0]
        assert f"[sources.acme] {key}: must not be given as plain text, since the database would store it" in refused
        assert f"use {key}.file=PATH or {key}.env=NAME" in refused
        assert "s3cret" not in refused
    assert folder.settings() == {}


def test_a_source_whose_secret_is_missing_is_refused_unless_it_is_on_other_machines(folder: Folder) -> None:
    assert "keys/initech: no such file" in folder.run("add", "initech", code=2)
    assert folder.run("add", "initech", "--no-look-up").startswith("added: initech\n")


def test_the_whole_configuration_is_checked_and_nothing_changed_where_it_cannot_be_used(folder: Folder) -> None:
    refused = folder.run("add", "acme", "request_per_minute=600", code=2)
    assert "[sources.acme] request_per_minute: unknown key" in refused
    assert "did you mean" in refused
    assert "[sources.acme] share: must be" in folder.run("add", "acme", "share=7", code=2)
    assert folder.settings() == {}


def test_many_are_imported_at_once_or_none(folder: Folder) -> None:
    rows = "name,requests_per_minute\nacme,600\nglobex,many\n"
    refused = folder.run("import", "-", "--format", "csv", given=rows, code=2)
    assert "standard input: line 3: [sources.globex] requests_per_minute: must be" in refused
    assert 'got "many"' in refused
    assert folder.settings() == {}
    (folder.path / "new.csv").write_text(rows.replace("many", "300"))
    tried = folder.run("import", "new.csv", "--dry-run")
    assert tried == "added: acme, globex\nnothing was written\n"
    assert folder.settings() == {}
    folder.run("import", "new.csv")
    (folder.path / "new.toml").write_text("[sources.globex]\nrequests_per_minute = 60\n[sources.eu-1]\n")
    assert folder.run("import", "new.toml").startswith("added: eu-1\nchanged: globex\nrevision 3")
    assert folder.settings()["globex"] == {"requests_per_minute": 60}


def test_a_file_that_is_not_there_is_named(folder: Folder) -> None:
    assert "new.csv: cannot be read, no such file or directory" in folder.run("import", "new.csv", code=2)


def test_a_file_with_other_sources_is_not_followed_any_more(folder: Folder) -> None:
    folder.run("add", "acme")
    path = folder.path / "dockbell.toml"
    path.write_text(path.read_text() + "[sources.globex]\n")
    args = ("apply", "--config", str(path))
    refused = CliRunner().invoke(main, args)
    assert refused.exit_code == 1
    assert 'has other sources than revision 2, which "dockbell sources" changed' in refused.output
    assert "which drops 1 source" in refused.output
    assert CliRunner().invoke(main, [*args, "--force"]).exit_code == 0
    assert folder.settings() == {"globex": {}}


def test_thousands_are_imported_within_seconds(folder: Folder) -> None:
    """A secret is looked up for each of them: one file serves them all here."""
    names = [f"s{number:05}" for number in range(10_000)]
    rows = "".join(f"{name},keys/acme\n" for name in names)
    began = time.monotonic()
    told = folder.run("import", "-", "--format", "csv", given=f"name,api_key.file\n{rows}")
    took = time.monotonic() - began
    assert told.startswith(f"added: 10,000 sources, {', '.join(names[:10])} and 9,990 more\n")
    assert folder.ask("list")["total"] == 10_000
    assert took < 60, "it takes 2 s where nothing else runs"


def test_a_store_in_sqlite_has_its_sources_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    path = tmp_path / "dockbell.toml"
    path.write_text(CONFIG.format(url="sqlite:///dockbell.db") + "[sources.acme]\n")

    def run(*args: str) -> tuple[int, str]:
        result = CliRunner(catch_exceptions=False).invoke(main, ["sources", *args, "--config", str(path)])
        return result.exit_code, result.output

    code, refused = run("add", "globex")
    assert code == 1
    assert "it follows only its configuration file; edit that, or the files that it includes" in refused
    assert 'then run "dockbell reload"' in refused
    code, listed = run("list", "--json")
    assert [each["source"] for each in json.loads(listed)["sources"]] == ["acme"]
