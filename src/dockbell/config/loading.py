"""From a file to a :class:`Config`, or to every problem that it has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from dockbell.config.places import Place, name_place
from dockbell.config.secret import Secret
from dockbell.config.tables import Config, SinkSettings
from dockbell.config.values import Table
from dockbell.config.wording import describe
from dockbell.errors import ConfigError

DEFAULT: Final = "dockbell.toml"
VARIABLE: Final = "DOCKBELL_CONFIG"
_NO_DRAFTS: Final[Mapping[str, Path]] = {}


def find(option: str | None, environ: Mapping[str, str]) -> Path:
    """Return where the configuration is: ``--config``, else ``DOCKBELL_CONFIG``, else ``./dockbell.toml``."""
    return Path(option or environ.get(VARIABLE) or DEFAULT)


def load(path: Path, sink_types: Callable[[str], type[SinkSettings]]) -> Config:
    """Read, check and merge a configuration file; relative paths in it count from its folder.

    Args:
        path: The TOML file.
        sink_types: Returns the model of a ``type`` of sinks; raises ConfigError when there is none.

    Raises:
        ConfigError: Every problem of the file, one complete line each.
    """
    return validate(_parse(path), sink_types, folder=path.parent.absolute(), label=str(path)).read_from(str(path))


def validate(
    table: Table,
    sink_types: Callable[[str], type[SinkSettings]],
    *,
    folder: Path | None = None,
    label: str = "configuration",
) -> Config:
    """Check a configuration that is parsed already.

    Args:
        table: As TOML gives it.
        sink_types: As for :func:`load`.
        folder: What relative paths count from; the working folder when left out.
        label: What each problem begins with.

    Raises:
        ConfigError: Every problem, one complete line each.
    """
    try:
        return Config.model_validate({"store": {}} | table, context={"folder": folder, "sink_types": sink_types})
    except ValidationError as error:
        lines = [f"{label}: {name_place(_keep_keys(line['loc'], table))}: {describe(line)}" for line in error.errors()]
    raise ConfigError(*dict.fromkeys(lines))


def check_secrets(config: Config, drafts: Mapping[str, Path] = _NO_DRAFTS) -> None:
    """Look every secret up once.

    Args:
        config: Whose they are.
        drafts: Files that are not in their place yet, by their absolute paths, each with where its text stands.

    Raises:
        ConfigError: Those that cannot be looked up, each with its file and its place in it.
    """
    problems, origin = [], f"{config.origin}: " if config.origin else ""
    for place, secret in find_secrets(config):
        draft = drafts.get(secret.file or "")
        try:
            (secret if draft is None else Secret(file=str(draft))).reveal()
        except ConfigError as error:
            problems.append(f"{origin}{name_place(place)}: {error}")
    if problems:
        raise ConfigError(*problems)


def find_secrets(config: Config) -> Iterator[tuple[Place, Secret]]:
    """Return every secret of a configuration, with its place."""
    return _find_secrets(config, ())


def _find_secrets(value: object, place: tuple[str | int, ...]) -> Iterator[tuple[Place, Secret]]:
    match value:
        case Secret():
            yield place, value
        case BaseModel():
            for name in type(value).model_fields:
                yield from _find_secrets(getattr(value, name), (*place, name))
        case dict():
            for name, item in value.items():
                yield from _find_secrets(item, (*place, name))
        case tuple() | list():
            for index, item in enumerate(value):
                yield from _find_secrets(item, (*place, index))


def _parse(path: Path) -> Table:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return tomllib.loads(text)
    except FileNotFoundError:
        shown = f"./{path}" if path == Path(path.name) else path
        remedy = 'run "dockbell init" to make one, or "dockbell demo" to look around'
        raise ConfigError(f"{shown}: not found; {remedy}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line}: not UTF-8; save it as UTF-8") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {_say_where(str(error))}") from None


def _say_where(problem: str) -> str:
    """Put the place, which tomllib says last, first."""
    match = re.fullmatch(r"(.*) \(at (?:end of document|(line \d+, column \d+))\)", problem)
    what, place = (match[1], match[2] or "end of the file") if match else (problem, "not TOML")
    return f"{place}: {what[:1].lower()}{what[1:]}"


def _keep_keys(place: Place, table: Table) -> Place:
    """Return the keys of a place in a configuration; pydantic puts marks of its own between and behind them."""
    keys: list[str | int] = []
    value: object = table
    for key in place:
        match value:
            case dict() if key in value:
                value = value[key]
            case list() if isinstance(key, int):
                value = value[key]
            case dict() if key == place[-1] != "[key]":  # missing
                value = None
            case _:
                continue
        keys.append(key)
    return keys
