"""How tables, JSON and events appear on a terminal and in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console

    from dockbell.core.model import Event

_COLOURS: Final = {
    "ok": "green",
    "warns": "yellow",
    "fails": "red",
    "created": "green",
    "updated": "yellow",
    "deleted": "red",
    "restored": "cyan",
    "snapshot": "bright_black",
    "reconciled": "bright_black",
    "gap": "red",
    "rebaselined": "cyan",
    "held": "red",
}
_PIPED_WIDTH: Final = 160
_NARROWEST: Final = 30


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, err: bool = False) -> None:
    """Print a table: wrapped to a terminal, otherwise one plain line for each row.

    Times are written in UTC; where there is nothing stands ``-``.
    """
    from rich.console import Console

    from dockbell.core.printable import printable

    are_numbers = [any(isinstance(row[place], int) for row in rows) for place in range(len(headings))]
    cells = [["-" if cell in (None, "") else printable(write_cell(cell)) for cell in row] for row in rows]
    console = Console(stderr=err, highlight=False)
    if console.is_terminal:
        _print_wrapped(console, headings, cells, are_numbers)
    else:
        click.echo("\n".join(_align([headings, *cells], are_numbers)), err=err)


def _print_wrapped(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], are_numbers: Sequence[bool]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for heading, is_number in zip(headings, are_numbers, strict=True):
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()), err=console.stderr)


def _align(rows: Sequence[Sequence[str]], are_numbers: Sequence[bool]) -> Iterator[str]:
    """Yield a line for each row, its cells two spaces apart, however many rows there are."""
    from rich.cells import cell_len

    sizes = [[cell_len(cell) for cell in row] for row in rows]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    for row, taken in zip(rows, sizes, strict=True):
        line = ""
        for cell, size, width, is_number in zip(row, taken, widths, are_numbers, strict=True):
            space = " " * (width - size)
            line += f"{space}{cell}  " if is_number else f"{cell}{space}  "
        yield line.rstrip()


def write_cell(value: object) -> str:
    """Return a value as tables show it: times in UTC, nothing for None."""
    from dockbell.admin.why import write_time

    return write_time(value) if isinstance(value, datetime) else "" if value is None else str(value)


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a JSON value; times as in events."""
    import json

    from dockbell.core.printable import escape_json

    click.echo(escape_json(json.dumps(value, indent=2, ensure_ascii=False, default=_write)), err=err)


def print_lines(text: str) -> None:
    """Print lines in which others have a say, such as an error with the words of a receiver."""
    from dockbell.core.printable import printable

    click.echo(printable(text, keep="\n"))


def print_raw(text: bytes) -> None:
    """Print JSON that is stored: to the byte in a pipe, and on a terminal with escapes for what it would obey."""
    from dockbell.core.printable import escape_json

    shown = escape_json(text.decode(errors="replace")) if sys.stdout.isatty() else text
    click.echo(shown)


def print_reasons(reasons: Sequence[str], *, err: bool = False, mark: str = "!", colour: str = "red") -> None:
    from dockbell.core.printable import printable

    for reason in reasons:
        click.echo(f"{click.style(mark, fg=colour)} {printable(reason)}", err=err)


def print_event(event: Event, *, with_source: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(format_event(event, width=width, with_source=with_source))


def format_event(event: Event, *, width: int | None, with_source: bool) -> str:
    """Return an event on one line: local time, type, key, what changed from what to what.

    A statement or a notice is about no record: its resource stands there. The width is the terminal's; None for a pipe.
    """
    from dockbell.core.document import decode
    from dockbell.core.moment import parse_moment
    from dockbell.core.printable import printable
    from dockbell.core.publishing.narrate import narrate

    document = decode(event.body)
    moment = parse_moment(document["time"])
    assert moment is not None
    time, kind = f"{moment.astimezone():%m-%d %H:%M:%S}", event.type.removeprefix("dockbell.")
    key = printable(event.key) if event.is_of_record else event.feed.resource
    key = f"{event.feed.source}/{key}" if with_source else key
    room = (width or _PIPED_WIDTH) - len(f"{time} {kind:<16} {key:<8} ")
    colour = _COLOURS.get(event.change)
    return f"{time} {click.style(f'{kind:<16}', fg=colour)} {key:<8} {narrate(document, width=max(_NARROWEST, room))}"


def _write(value: object) -> object:
    import msgspec

    from dockbell.core.moment import format_moment

    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return format_moment(value) if isinstance(value, datetime) else str(value)
