"""The store that most relays are tried with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dockbell.stores.sqlite import SqliteStore
from tests.relaying import opened


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Yield a store with two feeds, in which a sink has a place."""
    async with opened(tmp_path) as store:
        yield store
