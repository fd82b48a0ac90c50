from __future__ import annotations

import subprocess
import sys

import pytest

NEEDED_LATER = ("cel", "click", "h11", "httpcore", "httpx", "paho", "prometheus_client", "rich", "starlette", "uvicorn")
"""Libraries that a daemon imports when a source, a sink, the web server or a condition first needs them."""
RUNNING = ("apscheduler", "dockbell.delivery", "dockbell.detection", "dockbell.sources", "dockbell.web")
"""What only a running daemon needs, but no command that reads the store."""


def list_imported(module: str) -> set[str]:
    """Return the names of all modules that a new interpreter loads to import one."""
    program = f"import sys, {module}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("dockbell.app", (*NEEDED_LATER, *RUNNING)),
        ("dockbell.app.next_time", RUNNING),
        ("dockbell.app.process", NEEDED_LATER),
    ],
)
def test_importing_loads_no_library_that_is_needed_later_only(module: str, unneeded: tuple[str, ...]) -> None:
    assert list_imported(module).isdisjoint(unneeded)
