"""The first configuration, asked for by options and on a terminal, and what it is good for."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers import Broker, find_free_port
from tests.cli.programs import run, started
from tests.cli.terminal import on_terminal

KEY = {"DOCKBELL_API_KEY": "sandbox", "DOCKBELL_CONFIG": ""}
NO_KEY = {"DOCKBELL_API_KEY": "", "DOCKBELL_CONFIG": ""}
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a sandbox whose records move only when they are told to."""
    folder = tmp_path_factory.mktemp("api")
    with started(folder, "sandbox", "--port", "0", "--records", "120", "--requests-per-minute", "0") as program:
        yield program.until("http://[0-9.:]+")[0]


def init(folder: Path, *args: str, env: dict[str, str] = KEY, code: int = 0) -> subprocess.CompletedProcess[str]:
    result = run("init", *args, cwd=folder, env=env)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def read(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "dockbell.toml").read_text())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_options_make_a_configuration_whose_first_event_comes_on_standard_output(api: str, tmp_path: Path) -> None:
    page = f"127.0.0.1:{find_free_port()}"
    told = init(tmp_path, "--base-url", api, "--name", "acme", "--sink", "stdout", "--listen", page, "--yes").stdout
    assert "main/shipments" in told
    assert (
        told.rstrip().splitlines()[-1] == "each command needs the API key in the environment variable DOCKBELL_API_KEY"
    )
    assert run("check", cwd=tmp_path, env=KEY).returncode == 0
    assert run("once", cwd=tmp_path, env=KEY).returncode == 0
    edit = httpx.post(f"{api}/sandbox/edit/shipments", headers={"Authorization": "Bearer sandbox"}, trust_env=False)
    assert edit.status_code == 200
    once = run("once", cwd=tmp_path, env=KEY)
    assert once.returncode == 0, once.stderr
    events = [json.loads(line) for line in once.stdout.splitlines()]
    (event,) = [event for event in events if event["type"] != "dockbell.feed.reconciled"]
    assert (event["source"], event["type"]) == ("dockbell://acme/main/shipments", "dockbell.shipment.updated")


def test_what_was_found_is_set_and_every_line_says_why(api: str, tmp_path: Path) -> None:
    init(tmp_path, "--base-url", f"{api}/", "--yes")
    table = read(tmp_path)
    assert table["sources"]["main"]["api_key"] == {"env": "DOCKBELL_API_KEY"}
    assert table["resources"]["stock"] == {"every": "auto", "key": "/id", "updated_at": "/updated_at"}
    assert (table["name"], "sinks" in table) == ("dockbell", False)
    assert table["web"] == {"listen": "127.0.0.1:8470", "token": {"file": "dockbell.token"}}
    text = (tmp_path / "dockbell.toml").read_text()
    assert [line for line in text.splitlines() if " = " in line and "#" not in line] == []
    assert re.search(r"^# Measured with \d\d requests; ", text, re.MULTILINE)


def test_a_terminal_is_asked_and_the_key_is_neither_shown_nor_in_the_configuration(api: str, tmp_path: Path) -> None:
    with on_terminal(tmp_path, "init", env=NO_KEY) as terminal:
        terminal.answer("URL of the API, without /v1: ", "127.0.0.1")
        terminal.answer("(?s)Error: must be a URL.*URL of the API, without /v1: ", api)
        terminal.answer("API key .hidden; stored in dockbell.key.: ", "sandbox")
        terminal.until("probing the API")
        terminal.until(r"main/shipments +\d+ ")
        terminal.answer("Name of this dockbell.* .dockbell.: ", "acme")
        terminal.answer("Where to send events first .none, mqtt, webhook, stdout. .none.: ", "webhook")
        terminal.answer("Its URL, such as https://erp.*: ", f"{NOWHERE}/hook")
        terminal.answer(
            "(?s)! sink receiver: 127.0.0.1:9: connection refused.*Try again, or keep this sink.*: ", "keep"
        )
        terminal.answer("Serve a status page on http://127.0.0.1:8470. .Y/n.: ", "")
        terminal.until("written: dockbell.toml, dockbell.key, receiver.secret, dockbell.token")
        terminal.until(r'Webhook\(open\("receiver.secret"\)')
        terminal.until("dockbell check +see what would fail")
        assert terminal.finish() == 1
    assert "sandbox" not in terminal.shown
    assert "sandbox" not in (tmp_path / "dockbell.toml").read_text()
    assert {path.name: mode(path) for path in tmp_path.iterdir() if path.suffix != ".toml"} == {
        "dockbell.key": 0o600,
        "dockbell.token": 0o600,
        "receiver.secret": 0o600,
    }
    assert (tmp_path / "dockbell.key").read_text() == "sandbox\n"
    assert (tmp_path / "receiver.secret").read_text().startswith("whsec_")
    path = tmp_path / "dockbell.toml"
    path.write_text(path.read_text().replace(":8470", f":{find_free_port()}"))  # that one may be anybody's
    found = json.loads(run("check", "--json", cwd=tmp_path, env=NO_KEY).stdout)["findings"]
    assert [each["what"] for each in found if each["fails"]] == ["sink receiver"]
    assert [each["detail"] for each in found if each["warns"]] == []


def test_a_terminal_that_has_a_key_in_its_environment_is_asked_whether_to_take_it(api: str, tmp_path: Path) -> None:
    with on_terminal(tmp_path, "init", "--base-url", api, "--no-probe", "--sink", "none", env=KEY) as terminal:
        terminal.answer("Use the API key in the environment variable DOCKBELL_API_KEY. .Y/n.: ", "")
        terminal.answer("Name of this dockbell", "")
        terminal.answer("Serve a status page", "n")
        assert terminal.finish() == 0
    table = read(tmp_path)
    assert (table["sources"]["main"]["api_key"], "web" in table) == ({"env": "DOCKBELL_API_KEY"}, False)


def test_a_broker_is_tried_and_the_daemon_may_run_at_once(api: str, tmp_path: Path, mosquitto: Broker) -> None:
    url = f"mqtt://{mosquitto.host}:{mosquitto.port}"
    told = init(tmp_path, "--base-url", api, "--sink", "mqtt", "--sink-url", url, "--no-page", "--yes").stdout
    assert "sink broker: " in told
    assert "dockbell test broker" in told
    assert run("test", "broker", cwd=tmp_path, env=KEY).returncode == 0


def test_a_broker_that_is_away_is_a_problem_and_the_configuration_is_written(api: str, tmp_path: Path) -> None:
    url = f"mqtt://127.0.0.1:{find_free_port()}"
    result = init(tmp_path, "--base-url", api, "--sink", "mqtt", "--sink-url", url, "--yes", code=1)
    assert "! sink broker: " in result.stderr
    assert read(tmp_path)["sinks"]["broker"]["url"] == url


@pytest.mark.parametrize(
    ("args", "env", "told"),
    [
        (("--base-url", NOWHERE), KEY, "cannot connect to 127.0.0.1:9"),
        (("--base-url", "{api}"), KEY | {"DOCKBELL_API_KEY": "wr0ng"}, "the API does not accept the key"),
    ],
)
def test_an_api_that_cannot_be_read_is_told_and_nothing_is_written(
    api: str, tmp_path: Path, args: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    result = init(tmp_path, *(each.format(api=api) for each in args), "--yes", env=env, code=1)
    assert told in result.stderr
    assert result.stderr.startswith("error: ")
    assert "--no-probe writes the configuration" in result.stderr
    assert "wr0ng" not in result.stdout + result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("answer", "code"), [("write", 0), ("stop", 1)])
def test_what_cannot_be_measured_is_written_if_one_wants_it(tmp_path: Path, answer: str, code: int) -> None:
    args = ("--base-url", NOWHERE, "--name", "acme", "--sink", "none", "--no-page")
    with on_terminal(tmp_path, "init", *args, env=KEY) as terminal:
        terminal.answer("Use the API key", "y")
        terminal.until("! .*cannot connect to 127.0.0.1:9")
        terminal.answer("Try again, write the configuration anyway, or stop. .again, write, stop. .again.: ", answer)
        assert terminal.finish() == code
    assert (tmp_path / "dockbell.toml").exists() == (code == 0)
    if code == 0:
        text = (tmp_path / "dockbell.toml").read_text()
        assert "# Not measured: " in text
        assert "cannot connect to 127.0.0.1:9" in text
        assert set(read(tmp_path)["resources"]) == {"shipments", "packages", "items", "stock", "warehouses"}


def test_an_address_that_is_wrong_can_be_given_again(api: str, tmp_path: Path) -> None:
    with on_terminal(tmp_path, "init", "--base-url", NOWHERE, "--name", "acme", "--no-page", env=KEY) as terminal:
        terminal.answer("Use the API key", "y")
        terminal.answer("(?s)! .*cannot connect to 127.0.0.1:9.*Try again, write", "")
        terminal.answer(f"URL of the API, without /v1 .{NOWHERE}.: ", api)
        terminal.answer("Use the API key", "y")
        terminal.answer("Where to send events first", "webhook")
        terminal.answer("Its URL", f"{NOWHERE}/hook")
        terminal.answer("Try again, or keep this sink", "")
        terminal.answer("Where to send events first", "stdout")
        terminal.until("written: dockbell.toml")
        assert terminal.finish() == 0
    table = read(tmp_path)
    assert (table["sources"]["main"]["base_url"], [*table["sinks"]]) == (api, ["screen"])


def test_a_configuration_that_is_there_is_kept_unless_one_insists(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("mine")
    args = ("mine.toml", "--base-url", "http://api.example.com", "--no-probe", "--yes")
    result = init(tmp_path, *args, code=2)
    assert result.stderr.startswith("error: mine.toml: already exists; ")
    assert (config.read_text(), list(tmp_path.iterdir())) == ("mine", [config])
    (tmp_path / "dockbell.token").write_text("known to others\n")
    told = init(tmp_path, *args, "--force").stdout
    assert "dockbell check --config mine.toml" in told
    assert tomllib.loads(config.read_text())["sources"]["main"]["base_url"] == "http://api.example.com"
    assert (tmp_path / "dockbell.token").read_text() == "known to others\n"


def test_a_key_in_a_file_counts_from_the_configuration(api: str, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/my.key").write_text("sandbox")
    args = ("etc/dockbell.toml", "--base-url", api, "--api-key-file", "etc/my.key", "--no-page", "--yes")
    init(tmp_path, *args, env=NO_KEY)
    config = tomllib.loads((tmp_path / "etc/dockbell.toml").read_text())
    assert config["sources"]["main"]["api_key"] == {"file": "my.key"}
    assert run("check", "--config", "etc/dockbell.toml", cwd=tmp_path, env=NO_KEY).returncode == 0


@pytest.mark.parametrize(
    ("args", "env", "told"),
    [
        ((), KEY, "--base-url is missing"),
        (("--base-url", "ftp://a"), KEY, "--base-url: must be a URL such as"),
        (
            ("--base-url", "http://a"),
            NO_KEY,
            "--api-key-env or --api-key-file is missing; pass one, or set DOCKBELL_API_KEY",
        ),
        (("--base-url", "http://a", "--api-key-env", "X", "--api-key-file", "y"), KEY, "pass only one of them"),
        (
            ("--base-url", "http://a", "--listen", "x", "--no-page"),
            KEY,
            "--listen and --no-page: pass only one of them",
        ),
        (("--base-url", "http://a", "--listen", "x", "--no-probe"), KEY, "--listen: must be an address and a port"),
        (("--base-url", "http://a", "--sink-url", "mqtt://a", "--no-probe"), KEY, "--sink-url requires --sink"),
        (("--base-url", "http://a", "--sink", "mqtt", "--no-probe"), KEY, "--sink-url is missing"),
        (
            ("--base-url", "http://a", "--sink", "mqtt", "--sink-url", "http://b", "--no-probe"),
            KEY,
            "--sink-url: must be a URL",
        ),
    ],
)
def test_wrong_usage_writes_nothing(args: tuple[str, ...], env: dict[str, str], told: str, tmp_path: Path) -> None:
    result = init(tmp_path, *args, env=env, code=2)
    assert told in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    result = init(tmp_path, "no/such.toml", "--base-url", "http://a", "--no-probe", "--yes", code=2)
    assert result.stderr == "error: no/such.toml: cannot be written, no such file or directory; choose another file\n"
