"""A sandbox, served by the command, and a configuration for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.filled import Filled, fill
from tests.cli.programs import started


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a sandbox with few records that move quickly."""
    with started(
        tmp_path_factory.mktemp("sandbox"),
        *("sandbox", "--port", "0", "--records", "200", "--activity", "5", "--requests-per-minute", "0"),
    ) as program:
        yield program.until("http://[0-9.:]+")[0]


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a configuration and returns its folder."""

    def write(url: str, sinks: str = '[sinks.out]\ntype = "stdout"\n') -> Path:
        source = f'[sources.main]\nbase_url = "{url}"\napi_key = "sandbox"\nrequests_per_minute = 6000\n'
        resources = '[resources]\nshipments = { every = "500ms" }\nstock = { every = "1s" }\n'
        (tmp_path / "dockbell.toml").write_text(source + resources + sinks)
        return tmp_path

    return write


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    """Return a store with some events that no daemon holds."""
    return fill(tmp_path)
