"""Node, and the packages of ``package.json``, which are installed outside of the tree.

CI does that, and insists on them by ``DOCKBELL_REQUIRE_NODE``. By hand: copy ``package.json`` into a folder, run
``npm install --no-package-lock --ignore-scripts`` there, and set ``DOCKBELL_NODE_MODULES`` to its ``node_modules``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent


def find_node_modules() -> Path:
    """Return where the packages are; skip the test where they, or node, are not, unless the environment insists."""
    modules = Path(os.environ.get("DOCKBELL_NODE_MODULES") or os.devnull)
    if shutil.which("node") and (modules / "standardwebhooks").is_dir():
        return modules
    lack = "node, and the packages of tests/node/package.json in DOCKBELL_NODE_MODULES"
    assert "DOCKBELL_REQUIRE_NODE" not in os.environ, f"not installed: {lack}"
    pytest.skip(f"needs {lack}")


def run_node(script: str, *args: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script of this folder to its end; ``given`` is its standard input."""
    modules = find_node_modules()
    return subprocess.run(
        ("node", str(FOLDER / script), *args),
        env=os.environ | {"DOCKBELL_NODE_MODULES": str(modules)},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
