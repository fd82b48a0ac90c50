"""The picture of the demo in the README, from a real run of it; ``python -m tests.pictures`` draws it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from unittest.mock import patch

import anyio
from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Span, Text

from dockbell.demo import stage
from dockbell.demo.lines import WIDE, Screen

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"

_INK: Final = (31, 35, 40)
_FADED: Final = (87, 96, 106)
_COLOURS: Final = [(164, 14, 38), (17, 99, 41), (125, 78, 0), (9, 105, 218), (130, 80, 223), (20, 110, 116), _FADED]
_THEME: Final = TerminalTheme((255, 255, 255), _INK, [_INK, *_COLOURS], [_FADED, *_COLOURS])
"""Bright, and each colour with a contrast of 4.5 and more: a picture is looked at smaller than a terminal."""
_SECONDS: Final = 20.0
_LINES: Final = 16
_GREY: Final = "bright_black"


class _Watched(Screen):
    """A screen whose lines and last header are kept."""

    lines: Final[list[RenderableType]] = []
    header: Final[list[Text]] = []

    @property
    def is_live(self) -> bool:
        """There is a header, whether or not there is a terminal."""
        return True

    @property
    def width(self) -> int:
        """As wide as there is room for words."""
        return WIDE

    def show(self, *things: RenderableType) -> None:
        """Keep lines."""
        self.lines.extend(things)

    def renew(self, header: Sequence[Text]) -> None:
        """Keep the header."""
        self.header[:] = header


def _undim(line: Text) -> Text:
    """Return a line whose dim parts are grey: dimmed colours are too pale."""
    spans = [Span(each.start, each.end, _GREY) if each.style == "dim" else each for each in line.spans]
    return Text(line.plain, _GREY if line.style == "dim" else line.style, spans=spans)


def draw(path: Path = PICTURE, *, seconds: float = _SECONDS) -> None:
    """Play the demo for some seconds, and draw its last lines."""
    options = stage.DemoOptions(seconds=seconds, activity=4.0, records=1500, seed=1, keep=None)
    with patch.object(stage, "Screen", _Watched):
        assert anyio.run(stage.play, options), "the account of the demo does not balance"
    events = [line for line in _Watched.lines if isinstance(line, Text) and re.match(r"\d\d:", line.plain)]
    heading = next(line for line in _Watched.lines if isinstance(line, Text) and line.plain.startswith("time "))
    console = Console(record=True, width=WIDE, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in (heading, *events[-_LINES:], *_Watched.header):
        console.print(_undim(line), no_wrap=True, crop=True)
    drawn = console.export_svg(title="dockbell demo", unique_id="demo", theme=_THEME)
    # No font is fetched: who looks has one.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")
