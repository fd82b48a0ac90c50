"""The real program, started and ended as an operator would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PATIENCE: Final = 30
_COMMAND: Final = (sys.executable, "-m", "dockbell")


def run(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        (*_COMMAND, *args),
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _heed_ctrl_c() -> None:
    """Have what is started heed Ctrl-C: what a shell has started in its background does not, nor what that starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Program:
    """A command that goes on until it is told to end; what it prints goes to two files."""

    def __init__(
        self, folder: Path, *args: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> None:
        self._out = folder / f"{args[0]}.out"
        self._err = folder / f"{args[0]}.err"
        _heed_ctrl_c()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                (*prefix, *_COMMAND, *args), cwd=folder, env=os.environ | (env or {}), stdout=out, stderr=err
            )

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def out(self) -> str:
        """What it has printed."""
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        """What it has printed to standard error."""
        return self._err.read_text(encoding="utf-8")

    def until(self, pattern: str) -> re.Match[str]:
        """Return the first match of a pattern in what it prints, once there is one."""
        end = time.monotonic() + _PATIENCE
        while (match := re.search(pattern, self.out) or re.search(pattern, self.err)) is None:
            assert self._process.poll() is None, f"it ended: {self.err}"
            assert time.monotonic() < end, f"no {pattern!r} in {self.out} {self.err}"
            time.sleep(0.02)
        return match

    def tell(self, number: signal.Signals) -> None:
        """Send a signal that does not end it."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code, which must come within seconds."""
        self._process.send_signal(number)
        return self._process.wait(10)

    def close(self) -> None:
        """End it in any case."""
        self._process.kill()
        self._process.wait()


@contextmanager
def started(
    folder: Path, *args: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[Program]:
    """Start a command, after another that runs it where one is given, and end it with the block at the latest."""
    program = Program(folder, *args, env=env, prefix=prefix)
    try:
        yield program
    finally:
        program.close()
