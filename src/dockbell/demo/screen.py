"""Where the demo is shown: on a terminal lines scroll above a live header, elsewhere they are plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

_PIPED_WIDTH: Final = 100


class _Outlet(Console):
    """A console that tells of a closed pipe as of any other error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Screen:
    """Standard output; entered, it may have a header.

    Args:
        on_lost: Called when nobody can see it any more: the pipe or the terminal is closed.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an arrow must not end the demo
        self._console = _Outlet(highlight=False)
        self._on_lost = on_lost
        self._live: Live | None = None
        if sys.stdout.isatty() and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
        elif "COLUMNS" not in os.environ:
            self._console.width = _PIPED_WIDTH

    def __enter__(self) -> Self:
        """Begin to show the header, where there can be one."""
        if self._live:
            self._try(self._live.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the header away."""
        if self._live:
            self._try(self._live.stop)

    @property
    def is_live(self) -> bool:
        """Whether there is a header that can be renewed."""
        return self._live is not None

    @property
    def width(self) -> int:
        """How many columns a line may have."""
        return self._console.width

    def show(self, *things: RenderableType) -> None:
        """Print lines; the header stays below them."""
        for thing in things:
            # Text has its length already; what else there is, such as tables, is fitted.
            self._try(partial(self._console.print, thing, soft_wrap=isinstance(thing, Text)))

    def renew(self, header: Sequence[Text]) -> None:
        """Show another header."""
        if self._live:
            for line in header:
                line.no_wrap, line.overflow = True, "crop"
            self._live.update(Group(*header))
            self._try(self._live.refresh)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            # What is still to be said, and what the interpreter flushes at its end, goes nowhere.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            self._on_lost()
