"""Prometheus' own ``promtool``; CI installs it, and insists on it by ``DOCKBELL_REQUIRE_PROMTOOL``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def run_promtool(*args: str | Path, text: str = "") -> str:
    """Return what it says of something that it is content with."""
    program = shutil.which("promtool", path="/usr/bin:/usr/local/bin")
    if program is None:
        assert "DOCKBELL_REQUIRE_PROMTOOL" not in os.environ, "not installed: promtool"
        pytest.skip("not installed: promtool")
    ended = subprocess.run((program, *args), input=text, capture_output=True, text=True, timeout=60, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    return said
