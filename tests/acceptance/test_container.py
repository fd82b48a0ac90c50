"""What docs/operations has for containers, without an engine: each file is read by whom it is for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from dockbell.app import load_config
from tests.brokers import MOSQUITTO, Mosquitto, Subscriber, find_free_port
from tests.brokers import started as started_broker
from tests.cli.programs import run, started

pytestmark = pytest.mark.acceptance

OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations"
COMPOSE: Final = yaml.safe_load((OPERATIONS / "compose.yaml").read_text(encoding="utf-8"))
SHARED: Final = yaml.safe_load((OPERATIONS / "compose-postgres.yaml").read_text(encoding="utf-8"))
SERVICES: Final = [(each, name) for each in (COMPOSE, SHARED) for name in each["services"]]

# https://github.com/compose-spec/compose-spec/blob/main/schema/compose-spec.json, what of it is used here.
_TEXTS: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DURATION: Final = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
_SIZE: Final = {"type": "string", "pattern": "^[0-9]+[bkmg]$"}
_SHAPE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["services"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": {"$ref": "#/$defs/service"}},
        "volumes": {"type": "object", "additionalProperties": {"type": "object", "maxProperties": 0}},
        "secrets": {
            "type": "object",
            "additionalProperties": {"properties": {"file": {"type": "string"}}, "additionalProperties": False},
        },
    },
    "$defs": {
        "service": {
            "type": "object",
            "required": ["image", "read_only", "cap_drop", "security_opt", "restart", "mem_limit", "pids_limit"],
            "additionalProperties": False,
            "properties": {
                "image": {"type": "string", "minLength": 1},
                "build": {
                    "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
                    "additionalProperties": False,
                },
                "user": {"type": "string", "pattern": "^[1-9][0-9]*:[1-9][0-9]*$"},
                "read_only": {"const": True},
                "init": {"type": "boolean"},
                "cap_drop": {"const": ["ALL"]},
                "security_opt": {"const": ["no-new-privileges:true"]},
                "restart": {"enum": ["always", "on-failure", "unless-stopped"]},
                "stop_grace_period": _DURATION,
                "volumes": _TEXTS,
                "tmpfs": _TEXTS,
                "secrets": _TEXTS,
                "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                "entrypoint": _TEXTS,
                "command": _TEXTS,
                "ports": {"type": "array", "items": {"pattern": r"^127\.0\.0\.1:[0-9]+:[0-9]+$"}},
                "mem_limit": _SIZE,
                "pids_limit": {"type": "integer", "minimum": 1},
                "ulimits": {"type": "object", "properties": {"nofile": {"type": "integer"}}},
                "logging": {
                    "required": ["driver", "options"],
                    "properties": {
                        "driver": {"type": "string"},
                        "options": {"additionalProperties": {"type": "string"}},
                    },
                },
                "healthcheck": {
                    "required": ["test"],
                    "additionalProperties": False,
                    "properties": {
                        "test": {"type": "array", "prefixItems": [{"enum": ["CMD", "CMD-SHELL"]}]},
                        "interval": _DURATION,
                        "timeout": _DURATION,
                        "retries": {"type": "integer"},
                    },
                },
            },
        }
    },
}


@pytest.mark.parametrize("compose", [COMPOSE, SHARED], ids=["alone", "shared"])
def test_compose_has_the_shape_that_compose_wants_and_nobody_has_privileges(compose: dict[str, Any]) -> None:
    jsonschema.validate(compose, _SHAPE)


@pytest.mark.parametrize(("compose", "name"), SERVICES, ids=[name for _, name in SERVICES])
def test_whatever_compose_mounts_is_declared_or_in_the_tree(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    assert set(service["secrets"]) <= compose["secrets"].keys()
    for source in (mount.split(":")[0] for mount in service["volumes"]):
        assert (OPERATIONS / source).exists() if source.startswith(".") else source in compose["volumes"], name


def test_processes_in_containers_share_a_configuration_that_loads_and_have_a_port_each(tmp_path: Path) -> None:
    processes = [each for name, each in SHARED["services"].items() if name.startswith("dockbell-")]
    assert len(processes) == len({*(port for each in processes for port in each["ports"])}) == 3
    assert [each["volumes"] for each in processes] == [["./compose/shared:/etc/dockbell:ro"]] * 3
    config = load_config(OPERATIONS / "compose" / "shared" / "dockbell.toml")
    assert config.store.url == "postgresql://dockbell@database/dockbell"
    copy_files(tmp_path)
    subprocess.run(["sh", "prepare-postgres.sh"], cwd=tmp_path, input="k\n", text=True, check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert made.keys() == {Path(secret["file"]).name for secret in SHARED["secrets"].values()}
    assert made["pgpass"] == f"database:5432:dockbell:dockbell:{made['database-password']}\n"


def test_the_configuration_is_mounted_by_its_folder_so_that_one_that_replaces_it_is_seen() -> None:
    mounts = [mount.split(":") for mount in COMPOSE["services"]["dockbell"]["volumes"] if mount.startswith(".")]
    assert mounts == [["./compose/config", "/etc/dockbell", "ro"]]
    assert (OPERATIONS / mounts[0][0] / "dockbell.toml").is_file()
    assert "DOCKBELL_CONFIG=/etc/dockbell/dockbell.toml" in (OPERATIONS / "Containerfile").read_text(encoding="utf-8")


def test_a_build_sees_what_it_copies_and_nothing_else() -> None:
    lines = (OPERATIONS / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = [name for line in instructions("COPY") if "--from" not in line for name in line.split()[1:-1]]
    assert rules[0] == "*"
    assert [rule.removeprefix("!") for rule in rules if rule.startswith("!")] == copied


def test_the_image_is_built_from_files_that_are_there_and_holds_no_others() -> None:
    build = COMPOSE["services"]["dockbell"]["build"]
    top = (OPERATIONS / build["context"]).resolve()
    copied = [line.split()[1:-1] for line in instructions("COPY") if "--from" not in line]
    parts = ("", "-alert", "-amqp", "-ed25519", "-kafka", "-nats", "-postgres", "-redis", "-build")
    pins = [f"docs/operations/requirements{part}.txt" for part in parts]
    assert copied == [pins, ["pyproject.toml", "README.md", "LICENSE"], ["src"]]
    assert [name for names in copied for name in names if not (top / name).exists()] == []
    assert (top / build["dockerfile"]).samefile(OPERATIONS / "Containerfile")
    assert instructions("USER") == ["USER 10001:10001"]
    assert instructions("ARG") == ["ARG PYTHON=3.11"], "a build argument stays in the image's history"


def instructions(word: str) -> list[str]:
    """Return the lines of the Containerfile that begin with an instruction."""
    text = (OPERATIONS / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith(f"{word} ")]


@dataclass
class Deployed:
    """The files of compose in a folder, with the places of containers replaced by places there."""

    folder: Path
    broker: Mosquitto
    web_port: int

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.folder / "config" / "dockbell.toml"

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text().strip()


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Return what compose would run, with its secrets made; the broker runs."""
    if MOSQUITTO is None or shutil.which("mosquitto_passwd") is None:
        pytest.skip("needs mosquitto")
    folder = tmp_path_factory.mktemp("compose")
    copy_files(folder)
    subprocess.run(["sh", "prepare.sh"], cwd=folder, input="sandbox\n", text=True, check=True, capture_output=True)
    lines = (folder / "mosquitto.conf").read_text()
    lines = lines.replace("listener 1883\n", "").replace("/run/secrets", f"{folder}/secrets")
    lines = lines.replace("/mosquitto/config", str(folder)).replace("/mosquitto/data", str(folder))
    broker = Mosquitto(folder, tuple(lines.splitlines()))
    there = Deployed(folder, broker, find_free_port())
    config = there.config.read_text().replace("/var/lib/dockbell", str(folder))
    config = config.replace("/run/secrets", f"{folder}/secrets").replace("mqtt://broker:1883", broker.url)
    there.config.write_text(config.replace("0.0.0.0:8470", f"127.0.0.1:{there.web_port}"))
    with started_broker(broker):
        yield there


def copy_files(folder: Path) -> None:
    """Copy what stands in compose, without secrets that somebody may have made there."""
    shutil.copytree(OPERATIONS / "compose", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("secrets"))


def test_the_secrets_are_made_once_and_hidden_from_others(deployed: Deployed) -> None:
    secrets = deployed.folder / "secrets"
    made = {path.name: path.read_text() for path in secrets.iterdir()}
    subprocess.run(["sh", "prepare.sh"], cwd=deployed.folder, stdin=subprocess.DEVNULL, check=True)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == made
    assert made.keys() >= {Path(secret["file"]).name for secret in COMPOSE["secrets"].values()}
    assert secrets.stat().st_mode & 0o77 == 0
    assert len({len(made[name]) for name in ("web-token", "mqtt-password", "subscriber-password")}) == 1
    assert made["mqtt-password"] not in made["mosquitto-passwords"]


_ENGINE: Final = """\
#!/bin/sh
echo "$(basename "$0") $1" >>"{log}"
while [ "$1" != sh ]; do shift; done
PATH={path} exec "$@"
"""


@pytest.mark.parametrize(
    ("installed", "engine", "used"),
    [
        (["podman", "docker"], "", "podman run"),
        (["docker"], "", "docker run"),
        (["podman", "docker", "nerdctl"], "nerdctl", "nerdctl run"),
    ],
)
def test_an_engine_hashes_the_passwords_where_no_mosquitto_is_installed(
    tmp_path: Path, installed: list[str], engine: str, used: str
) -> None:
    """An engine that runs what it is given right here stands in for one that would run it in the broker's image."""
    hasher = shutil.which("mosquitto_passwd")
    if hasher is None:
        pytest.skip("needs mosquitto")
    copy_files(tmp_path)
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    for name in ("sh", "od", "tr", "cat", "mkdir", "chmod", "mv", "dirname", "basename"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for name in installed:
        (programs / name).write_text(_ENGINE.format(log=log, path=f"{Path(hasher).parent}:/usr/bin:/bin"))
        (programs / name).chmod(0o755)
    variables = {"PATH": str(programs)} | ({"ENGINE": engine} if engine else {})
    subprocess.run(["sh", "prepare.sh"], cwd=tmp_path, env=variables, input="k\n", text=True, check=True)
    assert log.read_text() == f"{used}\n"
    hashed = (tmp_path / "secrets" / "mosquitto-passwords").read_text()
    assert re.findall(r"(?m)^(\w+):\$7\$", hashed) == ["dockbell", "subscriber"]
    assert not any(path.name == "hashed" for path in (tmp_path / "secrets").iterdir())


async def test_events_go_from_the_api_to_a_subscriber_who_can_only_listen(deployed: Deployed) -> None:
    folder = deployed.folder
    password = deployed.secret("subscriber-password")
    with started(folder, "sandbox", "--port", "0", "--records", "20", "--activity", "20") as sandbox:
        url = sandbox.until("http://[0-9.:]+")[0]
        text = deployed.config.read_text().replace("https://api.example.com", url)
        text = text.replace("[sinks.broker]", '[resources.shipments]\nevery = "300ms"\n\n[sinks.broker]')
        deployed.config.write_text(text)
        variables = {"DOCKBELL_CONFIG": str(deployed.config)}
        assert load_config(deployed.config).sinks.keys() == {"broker"}
        with (
            started(folder, "run", env=variables) as daemon,
            Subscriber(deployed.broker, username="subscriber", password=password) as subscriber,
        ):
            daemon.until("web: answers")
            assert healthcheck(deployed.web_port) == 0
            await subscriber.until(
                lambda got: {each.topic.split("/")[1] for each in got} >= {"event", "state", "status"}
            )
            assert run("test", "broker", cwd=folder, env=variables).returncode == 0
        assert healthcheck(deployed.web_port) != 0
    event = next(each for each in subscriber.received if each.topic.startswith("dockbell/event/main/"))
    assert json.loads(event.payload)["source"].startswith("dockbell://acme/main/")
    assert "dockbell/positions" not in {each.topic.rpartition("/")[0] for each in subscriber.received}


def healthcheck(port: int) -> int:
    """Run what the image's HEALTHCHECK runs, and return its exit code."""
    (line,) = [line for line in instructions("HEALTHCHECK") if "CMD" in line]
    match = re.search(r"CMD (\[.*\])", line)
    assert match is not None
    program, *arguments = json.loads(match[1])
    assert program == "python"
    arguments = [each.replace("8470", str(port)) for each in arguments]
    return subprocess.run([sys.executable, *arguments], check=False, capture_output=True, timeout=30).returncode


@pytest.mark.parametrize("login", [{}, {"username": "subscriber", "password": "wrong"}])
def test_strangers_are_refused(deployed: Deployed, login: dict[str, str]) -> None:
    words = [word for name, value in login.items() for word in (f"--{'pw' if name == 'password' else name}", value)]
    assert publish(deployed, *words).returncode != 0


def test_a_subscriber_cannot_publish(deployed: Deployed) -> None:
    words = ("--username", "subscriber", "--pw", deployed.secret("subscriber-password"))
    assert "Not authorized" in publish(deployed, *words).stderr


def publish(deployed: Deployed, *words: str) -> subprocess.CompletedProcess[str]:
    """Publish as somebody to where events go."""
    port = str(deployed.broker.port)
    line = ["mosquitto_pub", "-p", port, "-V", "5", "-q", "1", "-t", "dockbell/event/x", "-m", "x", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)
