"""The real program on a terminal of its own, read and typed at as a person would."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PATIENCE: Final = 30
_MOVEMENT: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# The leader of a session gets the first terminal that it opens as its own: where passwords are asked for.
_OWN: Final = (
    "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Terminal:
    """A terminal with a program on it.

    Attributes:
        shown: Everything that it has shown, without colours and movements.
    """

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self._process = process
        self._end = end
        self._raw = ""
        self._read = 0
        self.shown = ""

    def until(self, pattern: str) -> re.Match[str]:
        """Return the first match in what is shown after the last match, once there is one."""
        deadline = time.monotonic() + _PATIENCE
        while (match := re.compile(pattern).search(self.shown, self._read)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown[self._read :]!r}"
            assert self._take(), f"it ended without {pattern!r}: {self.shown[self._read :]!r}"
        self._read = match.end()
        return match

    def answer(self, question: str, text: str) -> None:
        """Wait for a question, and type the answer."""
        self.until(question)
        os.write(self._end, f"{text}\n".encode())

    def finish(self) -> int:
        """Return the exit code."""
        while self._take():
            pass
        return self._process.wait(_PATIENCE)

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def _take(self) -> bool:
        """Take what is shown meanwhile; return whether more may come."""
        if not select.select([self._end], [], [], 1)[0]:
            return True
        try:
            found = os.read(self._end, 65_536)
        except OSError:  # Linux: the other end is closed
            return False
        self._raw += found.decode(errors="replace")
        whole, escape, rest = self._raw.rpartition("\x1b")
        ended = _MOVEMENT.match(escape + rest) or not escape
        self.shown = _MOVEMENT.sub("", self._raw if ended else whole)
        return bool(found)


@contextmanager
def on_terminal(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Start a command on a terminal, and end it with the block at the latest."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        (sys.executable, "-c", _OWN, "-m", "dockbell", *args),
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40", **(env or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
