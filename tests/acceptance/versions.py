"""A newer dockbell: a copy of this one with one more migration, code that works by it, and a key that only it knows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import dockbell
from dockbell._version import __version__

NEWER_VERSION: Final = "99.1.0"
NEW_KEY: Final = "motto"
OLD_COLUMN: Final = "taken_at"
NEW_COLUMN: Final = "claimed_at"
"""What takes the place of a column of ``leases`` into which each process writes when it claims a source."""
_MIGRATION: Final = """
    Migration(
        pre="ALTER TABLE leases ADD COLUMN claimed_at TIMESTAMPTZ;",
        post="UPDATE leases SET claimed_at = coalesce(claimed_at, taken_at); ALTER TABLE leases DROP COLUMN taken_at;",
    ),
)
"""


def make_newer(folder: Path) -> Mapping[str, str]:
    """Make it in a folder; return the environment in which ``python -m dockbell`` is that one."""
    package = folder / "dockbell"
    shutil.copytree(Path(dockbell.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    _edit(package / "_version.py", f'"{__version__}"', f'"{NEWER_VERSION}"')
    include = "    include: Patterns = ()\n"
    _edit(package / "config" / "tables.py", include, f'{include}    {NEW_KEY}: str = ""\n')
    for name in ("schema.sql", "leases.py"):
        _edit(package / "stores" / "postgres" / name, OLD_COLUMN, NEW_COLUMN)
    migrations = package / "stores" / "postgres" / "migrations.py"
    migrations.write_text(migrations.read_text().rstrip().removesuffix(")") + _MIGRATION)
    return {"PYTHONPATH": str(folder)}


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new))
