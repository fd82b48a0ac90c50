"""What the README shows is what works: its configuration, its commands, its receiver, its client."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dockbell.app import load_config
from dockbell.core.model import RESOURCES
from tests.brokers import Broker, find_free_port
from tests.cli.programs import run, started

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def block(language: str, having: str) -> str:
    """Return the code block that has a text in it."""
    (found,) = [text for text in blocks(language) if having in text]
    return found


def need(program: str) -> None:
    """Skip the test where a program is not installed; in CI everything is."""
    if shutil.which(program) is None:
        assert "DOCKBELL_REQUIRE_MOSQUITTO" not in os.environ, f"{program} is not installed"
        pytest.skip(f"needs {program}")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_first_commands_run_the_demo_and_the_second_the_tests() -> None:
    demo, tests = blocks("sh")
    assert demo.splitlines()[-1] == ".venv/bin/dockbell demo"
    assert tests.splitlines()[-1] == ".venv/bin/python -m pytest -n 3 --dist worksteal"


def test_every_command_that_is_shown_exists() -> None:
    shown = set(re.findall(r"`dockbell ([a-z]+)", README))
    assert shown == {
        *("demo", "check", "run", "once", "status", "events", "test", "secret", "sandbox"),
        *("why", "probe", "reconcile", "deletes", "dead", "replay", "pause", "catalogue"),
    }
    for command in sorted(shown):
        assert run(command, "--help").returncode == 0


def test_the_receiver_is_as_short_as_it_says() -> None:
    lines = [line for line in block("python", "BaseHTTPRequestHandler").splitlines() if line]
    assert f"in {len(lines)} lines" in README


def test_every_link_into_the_tree_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize(
    ("resource", "told"),
    [("shipments", "15 s"), ("packages", "15 s"), ("items", "60 s"), ("stock", "5 min"), ("warehouses", "hour")],
)
def test_the_table_of_delays_has_the_defaults(resource: str, told: str, tmp_path: Path) -> None:
    config = tmp_path / "dockbell.toml"
    config.write_text('[sources.main]\nbase_url = "https://api.example.com"\napi_key = "k"\n')
    (feed,) = [feed for feed in load_config(config).feeds() if feed.resource == resource]
    seconds = {"15 s": 15, "60 s": 60, "5 min": 300, "hour": 3600}[told]
    assert feed.settings.every is not None
    assert feed.settings.every.total_seconds() == seconds
    (row,) = [line for line in README.splitlines() if line.startswith("|") and resource in line.split("|")[1]]
    assert f"every {told}" in row


@pytest.mark.acceptance
def test_the_configuration_the_receiver_and_the_subscription_work_together(tmp_path: Path, mosquitto: Broker) -> None:
    need("mosquitto_sub")
    port = find_free_port()
    (tmp_path / "receiver.py").write_text(block("python", "BaseHTTPRequestHandler"))
    line = block("console", "mosquitto_sub").strip()
    line = line.replace("broker.example.com", f"{mosquitto.host} -p {mosquitto.port}")
    line = line.replace("shipments/+/updated", "+/+/+")
    secrets = {"ERP_WEBHOOK_SECRET": SECRET, "DOCKBELL_API_KEY": "sandbox", "PORT": str(port)}
    with (
        started(tmp_path, "sandbox", "--port", "0", "--records", "100", "--activity", "5") as sandbox,
        (tmp_path / "receiver.out").open("w") as receiver_out,
        (tmp_path / "subscriber.out").open("w") as subscriber_out,
        subprocess.Popen(
            [sys.executable, "receiver.py"],
            cwd=tmp_path,
            env=os.environ | secrets,
            stdout=receiver_out,
            stderr=receiver_out,
        ) as receiver,
        subprocess.Popen(shlex.split(line), stdout=subscriber_out) as subscriber,
    ):
        try:
            config = block("toml", "[sinks.floor]")
            config = config.replace("https://api.example.com", sandbox.until("http://[0-9.:]+")[0])
            config = config.replace("mqtt://broker.example.com:1883", mosquitto.url)
            config = config.replace("https://erp.example.com/hooks/dockbell", f"http://127.0.0.1:{port}/")
            (tmp_path / "dockbell.toml").write_text(config)
            with started(tmp_path, "run", env=secrets):
                heard = (tmp_path / "receiver.out").read_text
                until(lambda: "dockbell.shipment." in heard() or "dockbell.stock." in heard())
                seen = (tmp_path / "subscriber.out").read_text
                until(
                    lambda: (
                        re.search(r"^dockbell/event/main/shipments/shp_\d+/\w+ \{", seen(), re.MULTILINE) is not None
                    )
                )
                assert " 401 " not in heard()  # yet: a delivery that the end cuts short cannot be verified
        finally:
            receiver.kill()
            subscriber.kill()


@pytest.mark.acceptance
def test_the_probe_writes_a_configuration_with_a_reason_on_every_line(tmp_path: Path) -> None:
    command = shlex.split(block("console", "dockbell probe"))
    with started(tmp_path, "sandbox", "--port", "0", "--records", "300") as sandbox:
        url = sandbox.until("http://[0-9.:]+")[0]
        assert command.count("https://api.example.com") == 1
        args = [url if word == "https://api.example.com" else word for word in command[1:]]
        result = run(*args, cwd=tmp_path, env={"DOCKBELL_API_KEY": "sandbox"})
        assert result.returncode == 0, result.stdout + result.stderr
        requests = int(re.findall(r"with (\d+) of 40 requests", (tmp_path / "probed.toml").read_text())[0])
        assert requests <= 40
        assert (
            run("check", "--config", "probed.toml", cwd=tmp_path, env={"DOCKBELL_API_KEY": "sandbox"}).returncode == 0
        )
    settings = [line for line in (tmp_path / "probed.toml").read_text().splitlines() if " = " in line]
    assert settings
    assert [line for line in settings if "#" not in line] == []
    assert {feed.resource for feed in load_config(tmp_path / "probed.toml").feeds()} == set(RESOURCES)


@pytest.mark.acceptance
def test_the_sandbox_answers_curl_and_the_client(tmp_path: Path) -> None:
    need("curl")
    serve, curl = block("console", "dockbell sandbox").splitlines()
    client = block("python", "InventoryClient")
    command = shlex.split(serve.replace("--records 2000", "--records 50"))
    with started(tmp_path, *command[1:], "--port", "0") as sandbox:
        url = sandbox.until("http://[0-9.:]+")[0]
        answer = subprocess.run(
            shlex.split(curl.replace("http://127.0.0.1:8480", url)), capture_output=True, text=True, check=True
        )
        assert '"shipments"' in answer.stdout
        script = client.replace("http://127.0.0.1:8480", url)
        listing = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert len(listing.stdout.splitlines()) > 1
