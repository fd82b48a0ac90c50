"""What many tests need."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run on asyncio, as the program does."""
    return "asyncio"
