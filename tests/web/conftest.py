"""A site over a real store, asked over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.web.sites import Served, serve


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Return a site whose store is empty."""
    async with serve(tmp_path) as site:
        yield site


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Return a site for all tests of a module, each of which fills a feed of its own."""
    async with serve(tmp_path_factory.mktemp("web")) as site:
        yield site
