"""A TOML file, read into tables, or refused with the place of what is wrong in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dockbell.config.values import Table
from dockbell.errors import ConfigError


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
        raise ConfigError(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}") from None


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
        raise ConfigError(f"{label}: {_say_where(str(error))}") from None


def _say_where(problem: str) -> str:
    """Put the place, which tomllib says last, first."""
    match = re.fullmatch(r"(.*) \(at (?:end of document|(line \d+, column \d+))\)", problem)
    what, place = (match[1], match[2] or "end of the file") if match else (problem, "not TOML")
    return f"{place}: {what[:1].lower()}{what[1:]}"
