from __future__ import annotations

import subprocess
import sys

import pytest

import dockbell.subscriber


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules, and those of dockbell, that a fresh interpreter has after a statement."""
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_subscriber_loads_nothing_of_the_daemon_and_no_client() -> None:
    loaded = modules_after("import dockbell.subscriber")
    assert loaded.isdisjoint({"anyio", "asyncio", "httpx", "paho", "pydantic", "starlette"})
    ours = {name.split(".")[1] for name in loaded if name.startswith("dockbell.")}
    assert ours == {"_version", "core", "errors", "subscriber"}


def test_only_repair_needs_a_client() -> None:
    assert "httpx" in modules_after("import dockbell.subscriber.repair")


@pytest.mark.parametrize("name", dockbell.subscriber.__all__)
def test_all_that_is_offered_is_documented(name: str) -> None:
    assert getattr(dockbell.subscriber, name).__doc__
