"""What many tests need."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.brokers import Broker, make_broker, started

# How long one example takes says more about what else the machine does, and about coverage, than about the code.
settings.register_profile("dockbell", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("dockbell")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let proofs by chance go on for longer than CI has time for."""
    parser.addoption("--model-steps", type=int, default=0, help="steps of the model's machine; others every time")
    parser.addoption("--stress-seconds", type=float, default=60, help="how long the stress test goes on")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run on asyncio, as the program does."""
    return "asyncio"


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Broker]:
    """Return a running broker: Mosquitto where it is installed, else that of the ``demo`` extra."""
    with started(make_broker(tmp_path)) as broker:
        yield broker


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a PEM file with a self-signed certificate for ``localhost`` and its key."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {path} -out {path}.crt".split(),
        check=True,
        capture_output=True,
    )
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path
