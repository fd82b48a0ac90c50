"""Another user of the machine, who may write where everybody may: a real one, of whom only root can make use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

STRANGER: Final = 12345
"""A user without a name or a right."""

needs_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user as well")


def act(folder: Path, script: str, *, user: int = STRANGER) -> None:
    """Let another user run a script of the shell in a folder."""
    subprocess.run(["sh", "-euc", script], cwd=folder, user=user, group=user, extra_groups=(), check=True)


def share(folder: Path, mode: int = 0o1777) -> Path:
    """Make a folder that others may write to, and let them through to it; return it."""
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    for each in folder.parents:
        if each.name.startswith(("pytest-", "popen-", "test_")):  # pytest keeps them to itself
            each.chmod(0o755)
    return folder
