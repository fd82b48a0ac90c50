"""What many tests need."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from tests import pooler, postgres
from tests.brokers import Broker, make_broker, started

# How long one example takes says more about what else the machine does, and about coverage, than about the code.
settings.register_profile("dockbell", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("dockbell")

_TESTS: Final = Path(__file__).parent
_FAST: Final = tuple(_TESTS / name for name in ("condition", "config", "core", "ports", "telemetry"))
"""Folders of tests that start no server and wait for nothing."""
_SLOW: Final = ("_fuzz", "_model")
"""How the names of files with long proofs by chance end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let proofs by chance go on for longer than CI has time for."""
    parser.addoption("--model-steps", type=int, default=0, help="steps of the model's machine; others every time")
    parser.addoption("--stress-seconds", type=float, default=30, help="how long the stress test goes on")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the other folders for ``-m fast``: importing them alone takes longer than the fast tests."""
    if config.option.markexpr != "fast" or _TESTS.is_relative_to(collection_path):
        return None
    return None if any(collection_path.is_relative_to(folder) for folder in _FAST) else True


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests of the fast folders, without the proofs by chance."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in _FAST) and not _is_slow(item):
            item.add_marker(pytest.mark.fast)


def _is_slow(item: pytest.Item) -> bool:
    is_by_chance = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    return is_by_chance or item.path.stem.endswith(_SLOW) or item.get_closest_marker("slow") is not None


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
def postgres_server() -> Iterator[postgres.Server]:
    """Return a running PostgreSQL."""
    with postgres.serving() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_pooler(postgres_server: postgres.Server) -> Iterator[pooler.Pooler]:
    """Return a running pgbouncer before it."""
    with pooler.pooling(postgres_server) as running:
        yield running


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> str:
    """Return the URL of an empty database."""
    return postgres_server.make_database()


@pytest.fixture(params=["sqlite", "postgres"])
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Path | str]:
    """Return what tells where a new store may be: always another file, or the same URL, where all is gone again.

    A module that asks for ``pgbouncer`` too has the same URL by way of a pooler.
    """
    if request.param == "sqlite":
        numbers = count(1)
        return lambda: tmp_path / f"{next(numbers)}.db"
    server: postgres.Server = request.getfixturevalue("postgres_server")
    if request.param == "pgbouncer":
        pool: pooler.Pooler = request.getfixturevalue("postgres_pooler")
        return lambda: pool.lead_to(server.lend_store())
    return server.lend_store


@pytest.fixture
def place(make_place: Callable[[], Path | str]) -> Path | str:
    """Return where a new store may be, in each kind of database; in PostgreSQL its tables are there already."""
    return make_place()


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
