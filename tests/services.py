"""The real daemon, as a service manager would run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self


class Daemon:
    """``dockbell run`` in a folder; it can be ended by any signal and started again.

    ``env`` has variables for it beside those of this process.
    """

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.env = dict(env or {})
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it says goes to a file."""
        with (self._folder / "dockbell.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dockbell", "run"],
                cwd=self._folder,
                env=os.environ | self.env,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self) -> int:
        """Return the exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(15)

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        assert self._process is not None
        assert self._process.poll() is None, "it had ended by itself"
        self._process.send_signal(number)
        return self._process.wait(15)
