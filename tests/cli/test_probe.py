from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.programs import run, started

KEY = {"DOCKBELL_API_KEY": "sandbox", "DOCKBELL_CONFIG": ""}
QUICK = ("--apart", "100ms")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a sandbox whose records stand still."""
    folder = tmp_path_factory.mktemp("quiet")
    with started(folder, "sandbox", "--port", "0", "--records", "300", "--requests-per-minute", "0") as program:
        yield program.until("http://[0-9.:]+")[0]


def test_an_address_and_a_key_suffice(quiet: str, tmp_path: Path) -> None:
    result = run("probe", "--base-url", quiet, *QUICK, cwd=tmp_path, env=KEY)
    assert (result.returncode, result.stderr) == (0, "")
    account, table, *_ = result.stdout.split("\n\n")
    assert re.fullmatch(
        r"main: \d+ requests sent; budget: \d+ requests per window; clock: matches the local clock; latency: \d+ ms",
        account,
    )
    assert table.splitlines()[0].split() == ["feed", "records", "key", "updated_at", "updated_since"]
    assert re.search(r"^main/stock +\d+ +/id +/updated_at +-$", table, re.MULTILINE)
    toml = result.stdout[result.stdout.index('# Measured by "dockbell probe"') :]
    assert tomllib.loads(toml)["sources"]["main"]["base_url"] == quiet
    assert "Keep key set: a learned key is provisional" in toml


def test_every_finding_is_told_if_one_wants_it(quiet: str, tmp_path: Path) -> None:
    args = ("--base-url", quiet, "--resource", "warehouses", "--verbose", *QUICK)
    table = run("probe", *args, cwd=tmp_path, env=KEY).stdout.partition("\n\n")[0]
    assert table.splitlines()[0].split() == ["where", "what", "state", "found", "evidence"]
    assert re.search(r"^main/warehouses +page size +ok +", table, re.MULTILINE)


def test_what_is_written_is_a_configuration_that_check_finds_nothing_wrong_with(quiet: str, tmp_path: Path) -> None:
    result = run("probe", "--base-url", quiet, *QUICK, "-o", "dockbell.toml", cwd=tmp_path, env=KEY)
    assert (result.returncode, result.stderr) == (0, "written to dockbell.toml\n")
    assert "[sources.main]" not in result.stdout
    checked = run("check", "--json", cwd=tmp_path, env=KEY)
    assert checked.returncode == 0, checked.stdout
    shipments = json.loads(checked.stdout)["config"]["sources"]["main"]["resources"]["shipments"]
    assert (shipments["key"], shipments["updated_at"]) == (["/id"], "/updated_at")


def test_a_file_that_exists_is_not_overwritten_and_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    result = run("probe", "--base-url", "http://127.0.0.1:9", "-o", "mine.toml", cwd=tmp_path, env=KEY)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: mine.toml: already exists")
    assert (tmp_path / "mine.toml").read_text() == "mine"


def test_a_file_that_cannot_be_written_is_said_to_be(quiet: str, tmp_path: Path) -> None:
    args = ("--base-url", quiet, "--resource", "warehouses", *QUICK, "-o", "no/such/folder.toml")
    result = run("probe", *args, cwd=tmp_path, env=KEY)
    assert result.returncode == 2
    assert result.stderr == (
        "error: no/such/folder.toml: cannot be written, no such file or directory; choose another file with -o\n"
    )


def test_a_configuration_names_what_is_probed(quiet: str, configure: Callable[[str], Path]) -> None:
    folder = configure(quiet)
    result = run("probe", "--resource", "stock", *QUICK, "--json", cwd=folder)
    assert result.returncode == 0, result.stdout
    (source,) = json.loads(result.stdout)["sources"]
    assert (source["source"], source["requests"]) == ("main", 3)
    assert {each["subject"] for each in source["findings"]} == {"main", "main/stock"}
    assert source["findings"][0].keys() == {"subject", "what", "state", "found", "evidence"}
    assert tomllib.loads(source["toml"])["sources"]["main"]["resources"]["stock"]["every"] == "1s"
    assert "sandbox" not in source["toml"]


def test_all_resources_of_a_configuration_are_probed_by_default(quiet: str, configure: Callable[[str], Path]) -> None:
    result = run("probe", "--source", "main", "--requests", "2", *QUICK, "--json", cwd=configure(quiet))
    subjects = {each["subject"] for each in json.loads(result.stdout)["sources"][0]["findings"]}
    assert subjects == {"main", "main/shipments", "main/stock"}


@pytest.mark.parametrize(
    ("args", "told", "code"),
    [
        (("--source", "mian"), 'error: --source: unknown source "mian"; did you mean "main"?', 1),
        (("--resource", "items"), "error: --resource: not read from these sources", 2),
    ],
)
def test_what_the_configuration_does_not_have_is_refused(
    args: tuple[str, ...], told: str, code: int, configure: Callable[[str], Path]
) -> None:
    result = run("probe", *args, cwd=configure("http://127.0.0.1:9"))
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.startswith(told)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--api-key-env", "X"), "--api-key-env requires --base-url"),
        (("--base-url", "http://a", "--config", "b.toml"), "remove --config and --source"),
        (("--base-url", "http://a", "--source", "main"), "remove --config and --source"),
        (("--base-url", "http://a", "--apart", "soon"), "--apart must be a duration"),
        (("--base-url", "http://a", "--requests", "0"), "0 is not in the range"),
        (("--base-url", "ftp://a"), "must be a URL such as"),
        (("--base-url", "http://a", "--api-key-env", "NO_SUCH"), "environment variable NO_SUCH is not set"),
        ((), "./dockbell.toml: not found"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_asked(args: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = run("probe", *args, cwd=tmp_path, env=KEY)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in " ".join(result.stderr.split())


def test_a_key_that_is_not_accepted_is_a_problem_and_is_not_shown(quiet: str, tmp_path: Path) -> None:
    args = ("--base-url", quiet, "--api-key-env", "OTHER_KEY", "-o", "new.toml")
    result = run("probe", *args, cwd=tmp_path, env=KEY | {"OTHER_KEY": "wr0ng-key"})
    assert result.returncode == 1
    assert "the API does not accept the key, check api_key" in result.stdout
    assert "wr0ng-key" not in result.stdout + result.stderr
    assert not (tmp_path / "new.toml").exists()


def test_nobody_there_is_a_problem(tmp_path: Path) -> None:
    result = run("probe", "--base-url", "http://127.0.0.1:9", cwd=tmp_path, env=KEY)
    assert result.returncode == 1
    assert "cannot connect to 127.0.0.1:9" in result.stdout
    assert "[sources" not in result.stdout


def test_a_key_that_cannot_be_looked_up_in_a_configuration_is_a_problem(tmp_path: Path) -> None:
    source = '[sources.main]\nbase_url = "http://127.0.0.1:9"\napi_key = { env = "NO_SUCH" }\n'
    (tmp_path / "dockbell.toml").write_text(source)
    result = run("probe", cwd=tmp_path)
    assert result.returncode == 1
    assert 'source "main": environment variable NO_SUCH is not set' in result.stdout
