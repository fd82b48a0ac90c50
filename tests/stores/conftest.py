"""What the tests of both stores need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.places import Place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return where a new store may be, in each kind of database; in PostgreSQL its tables are there already."""
    if request.param == "sqlite":
        return tmp_path / "dockbell.db"
    url: str = request.getfixturevalue("postgres_store")
    return url
