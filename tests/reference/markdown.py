"""Words as Markdown: what would mean something in it is escaped, cells stay on one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

COMMAND: Final = "python -m tests.reference"
"""What writes the reference."""

_SPECIAL: Final = re.compile(r"([*<])")
_CODE: Final = re.compile(r"(`+[^`]*`+)")


def escape(text: str) -> str:
    """Return text that shows as it is, but for what stands in backticks already; on one line."""
    parts = _CODE.split(" ".join(text.split()).replace("``", "`"))
    return "".join(part if index % 2 else _SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts))


def code(text: object) -> str:
    """Return text as code; nothing of nothing."""
    return f"`{text}`" if str(text) else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a pipe in a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def page(title: str, introduction: str, *parts: str) -> str:
    """Return a whole page, which says how it came to be."""
    made = f"Made from the code by `{COMMAND}`; a test compares the two."
    return "\n\n".join([f"# {title}", introduction, made, *parts]) + "\n"
