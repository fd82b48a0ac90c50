"""The files that a configuration includes: which these are, and the sources that they hold."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import filter as filter_names
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from dockbell.config.place import name_place
from dockbell.config.toml_file import read_toml
from dockbell.config.values import Table, as_tuple, name_kind, show
from dockbell.config.wording import refuse
from dockbell.errors import ConfigError

_HELD: Final = "sources"
_NOT_THERE: Final = "not found; create it, or remove it from include"
_GONE: Final = "listed in its folder, but not found; try again, or remove a broken link"


def _check_pattern(pattern: str) -> str:
    if "**" in pattern:
        raise ValueError(f'must not contain "**", got {show(pattern)}; write each folder level, such as "a/*/*.toml"')
    return pattern


Patterns: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1), AfterValidator(_check_pattern)], ...], BeforeValidator(as_tuple)
]
"""Files, by name or with ``*``, ``?`` and ``[…]`` in it; relative ones count from the configuration's folder."""


def find_files(pattern: str, folder: Path) -> list[Path]:
    """Return the files that a pattern means, sorted; like a shell's, it leaves out those whose name begins with a dot.

    A name without a wildcard is returned whether it is there or not.

    Raises:
        ConfigError: A folder cannot be listed: what it holds must not look as if it had been removed.
    """
    start = find_start(pattern, folder)
    parts = Path(pattern).parts
    wild = next((index for index, part in enumerate(parts) if is_wild(part)), None)
    if wild is None:
        return [start]
    if not start.is_dir():
        raise ConfigError(f"include: {start}: no such folder; create it, or correct {show(pattern)}")
    return sorted(_match(start, parts[wild:]))


def find_start(pattern: str, folder: Path) -> Path:
    """Return the path up to the first wildcard of a pattern: the folder that is listed, or all of it."""
    path = folder
    for part in Path(pattern).parts:
        if is_wild(part):
            break
        path /= part
    return path


def read_included(table: Table, path: Path, known: Container[str]) -> tuple[Table, Sequence[str], Mapping[str, str]]:
    """Return a configuration with the sources of the files that it includes, these files, and which source is in which.

    ``path`` is that of the configuration, ``known`` are the keys that it may have. What ``include`` and ``sources`` may
    be is not checked here: where they are something else, nothing is included.

    Raises:
        ConfigError: A file cannot be read, holds something else, or a source is in two files.
    """
    own, wanted = table.get(_HELD, {}), as_tuple(table.get("include", ()))
    if not isinstance(own, dict) or not isinstance(wanted, tuple):
        return table, (), {}
    files = list(_list_files([each for each in wanted if _is_usable(each)], path))
    sources: dict[str, Any] = dict(own)
    homes: dict[str, str] = {}
    problems: list[str] = []
    for file, absent in files:
        try:
            held = read_toml(file, absent=absent)
        except ConfigError as error:
            problems += error.problems
            continue
        found = held.get(_HELD, {})
        problems += [f"{file}: {words}" for words in _find_misplaced(held, path, known)]
        if not isinstance(found, dict):
            problems.append(f"{file}: {name_place((_HELD,))}: must be a table, got {name_kind(found)}")
            continue
        for name, settings in found.items():
            if name in sources:
                place = name_place((_HELD, name))
                problems.append(f"{file}: {place}: also defined in {homes.get(name, path)}; rename or remove one")
            else:
                sources[name], homes[name] = settings, str(file)
    if problems:
        raise refuse(problems)
    return table | {_HELD: sources}, tuple(str(file) for file, _ in files), homes


def is_wild(part: str) -> bool:
    return any(sign in part for sign in "*?[")


def _is_usable(pattern: object) -> bool:
    return isinstance(pattern, str) and pattern != "" and "**" not in pattern


def _match(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    head, rest = parts[0], parts[1:]
    if not is_wild(head):
        names = [head] if (folder / head).exists() else []
    else:
        try:
            names = filter_names([each.name for each in folder.iterdir()], head)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise ConfigError(
                f"include: {folder}: cannot be listed, {(error.strerror or str(error)).lower()}"
            ) from None
        names = [name for name in names if head.startswith(".") or not name.startswith(".")]
    for name in names:
        if rest:
            yield from _match(folder / name, rest)
        else:
            yield folder / name


def _list_files(patterns: Iterable[str], path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each included file once, with what to say where it is not there; never the configuration itself."""
    seen = {path.absolute()}
    problems: list[str] = []
    for pattern in patterns:
        try:
            files = find_files(pattern, path.parent)
        except ConfigError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
            continue
        absent = _GONE if is_wild(pattern) else _NOT_THERE
        for file in files:
            if (known := file.absolute()) not in seen:
                seen.add(known)
                yield file, absent
    if problems:
        raise ConfigError(*problems)


def _find_misplaced(held: Table, path: Path, known: Container[str]) -> Iterator[str]:
    """Yield what an included file holds beside sources."""
    for key in held:
        if key != _HELD:
            remedy = f"move it to {path}" if key in known else "correct or remove it"
            words = f"not allowed in an included file, which may contain only [sources.NAME]; {remedy}"
            yield f"{name_place((key,))}: {words}"
