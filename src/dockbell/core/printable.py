"""Text of others as a terminal may show it: with nothing in it that a terminal would obey.

Controls move the cursor, change colours and keys, and answer as if a user had typed; marks of writing direction
show a text as another than it is.
"""

from __future__ import annotations

from typing import Final

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with ``�`` for each character that is not shown as itself, but for those to ``keep``."""
    return text if text.isprintable() else "".join([c if c.isprintable() or c in keep else "�" for c in text])


def escape_controls(text: str) -> str:
    r"""Return a text with an escape, such as ``\n`` or ``\u001b``, for each character that is not shown as itself."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else _SHORT.get(c) or _escape(c) for c in text])


def escape_json(text: str) -> str:
    """Return a JSON text, the same in meaning, with an escape for each character that is not shown as itself."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c == "\n" else _escape(c) for c in text])


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join([f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4)])
