"""A TOML file, read into tables, or refused with the place of what is wrong in it."""

from __future__ import annotations

import re
import tomllib
from ast import literal_eval
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dockbell.config.place import KeyPath
from dockbell.config.values import Table
from dockbell.errors import ConfigError

_SEARCHED_MOST: Final = 200_000
"""Characters of a file in which the line of a mistake is looked for: each look reads the file up to there."""

_KEY: Final = r"(\(.*\))"
_PLAINLY: Final = {
    rf"Cannot declare {_KEY} twice|Cannot redefine namespace {_KEY}": (
        "[{}] is already defined; put all its keys in one table"
    ),
    rf"Cannot mutate immutable namespace {_KEY}": "{} already has a value in braces or brackets; add to that value",
    "Cannot overwrite a value": "this key already has a value; remove one of them",
    "Expected '=' after a key in a key/value pair": "expected key = value",
    "Expected newline or end of document after a statement": "expected the end of the line after the value",
    "Invalid value": "no TOML value; write one, text in quotes",
    r"Unescaped '\\' in a string": "unescaped backslash; double it, or put the text in single quotes",
    "Unclosed array": 'expected a comma or "]"',
    "Unclosed inline table": 'expected a comma or "}}"',
    "Unterminated string": "this text has no closing quotes; add them",
}
"""What tomllib says in terms of Python or of its own, and how to say it."""
_STRING: Final = re.compile(r"""(["'])\1\1.*?\1{3}|"(?:[^"\\]|\\.)*"|'[^']*'""")
_UNQUOTED: Final = re.compile(r"""([\w.-]+)\s*=\s*([^\s"'\[\]{},#=\0][^"'\[\]{},#=\0]*)""")
_VALUELESS: Final = re.compile(r"([\w.-]+)\s*=\s*(?:#.*)?$")
_CURLY_QUOTES: Final = "\u201c\u201d\u201e\u2018\u2019"
_TRUTHS: Final = ("true", "false", "yes", "no", "on", "off")


def read_toml(path: Path, *, absent: str) -> Table:
    """Return what a file holds; ``absent`` says what to do where there is none.

    Raises:
        ConfigError: It is not there, cannot be read, or is not TOML.
    """
    try:
        return read_text(decode_text(path.read_bytes(), str(path)), str(path))
    except FileNotFoundError:
        shown = f"./{path}" if path == Path(path.name) else path
        raise ConfigError(f"{shown}: {absent}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot be read, {reason}; make it readable, or choose another file") from None


def decode_text(content: bytes, label: str) -> str:
    """Return the text that bytes are; ConfigError where it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}: line {line}: not UTF-8; save it as UTF-8") from None


def read_text(text: str, label: str) -> Table:
    """Return what a text holds; ConfigError, which begins with ``label``, where it is not TOML."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{label}: {_say_where(str(error), text)}") from None


def find_line(path: str, place: KeyPath) -> int | None:
    """Return the line of a file on which a place is written, or the deepest part of it that is there.

    None where the file cannot be read any more, or is too long to look for it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None
    lines = [f"{line}\n" for line in text.split("\n")]  # as editors and tomllib count them
    if len(text) > _SEARCHED_MOST:
        return None
    place = _keep_written(read_text(text, path), place)
    return _find_statement(lines, place) if place else None


def _keep_written(table: Table, place: KeyPath) -> KeyPath:
    """Return the part of a place that a table has."""
    found: object = table
    for depth, key in enumerate(place):
        try:
            found = found[key]  # type: ignore[index]  # of a table or a list, by its own kind of key
        except (KeyError, IndexError, TypeError):
            return place[:depth]
    return place


def _find_statement(lines: Sequence[str], place: KeyPath) -> int:
    """Return the number of the line with which the statement begins that writes a place; lines count from 1.

    It is the first line without which the text up to there, or up to the end of its statement, lacks the place.
    """

    def has_place(line: int) -> bool:
        return _keep_written(_read_statements(lines, line + 1), place) == place

    return bisect_left(range(len(lines)), x=True, key=has_place) + 1


def _read_statements(lines: Sequence[str], count: int) -> Table:
    """Return what so many lines say, and those that follow until the last statement is complete."""
    for end in range(count, len(lines)):
        try:
            return tomllib.loads("".join(lines[:end]))
        except ValueError:  # a value of several lines
            continue
    return tomllib.loads("".join(lines))


def _say_where(problem: str, text: str) -> str:
    """Put the place, which tomllib says last, first, and say plainly what is wrong there."""
    match = re.fullmatch(r"(.*) \(at (?:end of document|line (\d+), column (\d+))\)", problem)
    if match is None:
        return f"not TOML: {problem[:1].lower()}{problem[1:]}"
    what, lines = match[1], text.replace("\r\n", "\n").split("\n")  # as tomllib counts them
    number, column = int(match[2] or 0), int(match[3] or 0)
    if what == "Unterminated string":  # tomllib tells the end of the file
        number, column = _find_open_text(lines)
    elif number:
        column, what = _find_mistake(lines[number - 1], column, what)
    place = f"line {number}, column {column}" if number else "end of the file"
    for pattern, words in _PLAINLY.items():
        if named := re.fullmatch(pattern, what):
            what = words.format(*(".".join(literal_eval(key)) for key in named.groups() if key))
            break
    return f"{place}: {what[:1].lower()}{what[1:]}"


def _find_open_text(lines: Sequence[str]) -> tuple[int, int]:
    """Return the line and the column of the quotes that nothing closes before the end of the file."""
    text = "\n".join(lines)
    for quotes in ('"""', "'''"):
        if text.count(quotes) % 2:
            start = text.rindex(quotes)
            return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return len(lines), _find_open_quote(_hide_texts(lines[-1])) + 1


def _find_mistake(line: str, column: int, what: str) -> tuple[int, str]:
    """Return where the mistake of a line begins, and what it is, without a value that may be secret."""
    plain = _hide_texts(line)
    if what == r"Illegal character '\n'":
        return _find_open_quote(plain) + 1, "this text has no closing quote; add it"
    if column > len(line) and plain.count("{") > plain.count("}"):
        return plain.rindex("{") + 1, "a table in braces must be on one line; close it there, or write [table]"
    if what == r"Unescaped '\' in a string":
        return max(column - 2, 1), what  # tomllib tells the place behind the letter that follows
    if found := _VALUELESS.search(plain):
        return column, f"{found[1]} has no value; add one"
    for found in _UNQUOTED.finditer(plain):
        key, value = found[1], found[2].rstrip()
        is_other = plain[found.end(2) :].startswith("=") or re.fullmatch(r"[\d.:+_-]+", value)
        if is_other or not found.start(2) < column <= found.end(2):
            continue
        wanted = f'text must be in quotes, {key} = "…"'
        if value.lower() in _TRUTHS:
            wanted = f"{key} must be true or false, got {value}"
        elif value[0] in _CURLY_QUOTES:
            wanted = f'quotes must be straight, {key} = "…"'
        return found.start(2) + 1, wanted
    return column, what


def _hide_texts(line: str) -> str:
    """Return a line in which each text in quotes is as long, and without meaning."""
    return _STRING.sub(lambda found: "\0" * len(found[0]), line)


def _find_open_quote(plain: str) -> int:
    return min(index for index, letter in enumerate(plain) if letter in "\"'")
