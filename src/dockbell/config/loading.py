"""From a file to a :class:`Config`, or to every problem that it has; and back, for people, without the secrets."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from dockbell.config.secret import Secret
from dockbell.config.tables import Config, SinkSettings
from dockbell.config.values import Table, redact_url
from dockbell.config.wording import describe
from dockbell.errors import ConfigError

KeyPath: TypeAlias = Sequence[str | int]
"""The keys, and indexes into lists, that lead to a value."""


def find(option: str | None, environ: Mapping[str, str]) -> Path:
    """Return where the configuration is: ``--config``, else ``DOCKBELL_CONFIG``, else ``./dockbell.toml``."""
    return Path(option or environ.get("DOCKBELL_CONFIG") or "dockbell.toml")


def load(path: Path, sink_types: Callable[[str], type[SinkSettings]]) -> Config:
    """Read, check and merge a configuration file; relative paths in it count from its folder.

    ``sink_types`` returns the model of a ``type`` of sinks, and raises ConfigError when there is none. All problems of
    the file are in one ConfigError, one complete line each.
    """
    return validate(_parse(path), sink_types, folder=path.parent.absolute(), label=str(path)).read_from(str(path))


def validate(
    table: Table,
    sink_types: Callable[[str], type[SinkSettings]],
    *,
    folder: Path | None = None,
    label: str = "configuration",
) -> Config:
    """Check a configuration that is parsed already; each problem begins with ``label``.

    Relative paths count from ``folder``, else from the working folder. Raises as :func:`load`.
    """
    try:
        return Config.model_validate({"store": {}} | table, context={"folder": folder, "sink_types": sink_types})
    except ValidationError as error:
        lines = [f"{label}: {name_place(_keep_keys(line['loc'], table))}: {describe(line)}" for line in error.errors()]
    raise ConfigError(*dict.fromkeys(lines))


def check_secrets(config: Config, drafts: Mapping[str, Path] | None = None) -> None:
    """Look every secret up once; ConfigError has those that cannot be, each with its file and its place in it.

    ``drafts`` are files that are not in their place yet, by their absolute paths, each with where its text stands.
    """
    problems, origin = [], f"{config.origin}: " if config.origin else ""
    for place, secret in find_secrets(config):
        draft = (drafts or {}).get(secret.file or "")
        try:
            (secret if draft is None else Secret(file=str(draft))).reveal()
        except ConfigError as error:
            problems.append(f"{origin}{name_place(place)}: {error}")
    if problems:
        raise ConfigError(*problems)


def find_secrets(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[KeyPath, Secret]]:
    """Yield every secret of a configuration, or of a part of it, with its place."""
    match value:
        case Secret():
            yield place, value
        case BaseModel():
            for name in type(value).model_fields:
                yield from find_secrets(getattr(value, name), (*place, name))
        case dict():
            for name, item in value.items():
                yield from find_secrets(item, (*place, name))
        case tuple() | list():
            for index, item in enumerate(value):
                yield from find_secrets(item, (*place, index))


def _parse(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
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


def _keep_keys(place: KeyPath, table: Table) -> KeyPath:
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


# For people ----------------------------------------------------------------------------------------------------------


def split_place(place: KeyPath) -> tuple[KeyPath, KeyPath]:
    """Return a place's part that is written as a table's header, and its part below that table."""
    match place:
        case ["sources", _, "resources", _, *_]:
            depth = 4
        case ["sources" | "resources" | "sinks", _, *_]:
            depth = 2
        case ["store" | "web" | "sources" | "resources" | "sinks", *_]:
            depth = 1
        case _:
            depth = 0
    return place[:depth], place[depth:]


def name_place(place: KeyPath) -> str:
    """Return a place as an operator looks for it: ``[sources.main] api_key.env``."""
    header, key = split_place(place)
    return " ".join(filter(None, [f"[{write_keys(header)}]" if header else "", write_keys(key)]))


def write_keys(keys: KeyPath) -> str:
    """Return dotted keys, each bare where TOML permits it."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += "." * bool(text) + (key if re.fullmatch("[A-Za-z0-9_-]+", key) else write_text(key))
    return text


def write_text(text: str) -> str:
    """Return a text as TOML writes it: as JSON does, but for one control character more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def redacted(config: Config) -> Table:
    """Return a configuration in effect as JSON-ready tables: each feed's settings merged, in its source's table.

    A secret is shown as ``***`` or by where it comes from, ``{"env": NAME}``; URLs lose user, password and query, and
    those that may hold a secret their path.
    """
    table: Table = config.model_dump(mode="json", exclude_none=True, exclude={"resources": True})
    for source in table["sources"].values():
        source["resources"] = {}
    for feed in config.feeds():
        settings = feed.settings.model_dump(mode="json", exclude_none=True, exclude={"enabled"})
        table["sources"][feed.source]["resources"][feed.resource] = settings
    return _redact(table)  # type: ignore[no-any-return]  # a table stays one


def _redact(value: Any) -> Any:
    match value:
        case dict():
            return {key: _redact(item) for key, item in value.items()}
        case list() | tuple():
            return [_redact(item) for item in value]
        case str() if "://" in value:
            return redact_url(value)
    return value


def to_toml(table: Table) -> str:
    return "\n".join(_write_table(table, ())).strip() + "\n"


def _write_table(table: Table, place: tuple[str, ...]) -> Iterator[str]:
    places = {key: (*place, key) for key, value in table.items() if isinstance(value, dict)}
    headed = {key for key, each in places.items() if not split_place(each)[1] or each[2:] == ("resources",)}
    below = {key: value for key, value in table.items() if key in headed}
    own = table.keys() - below.keys()
    if place and (own or not below):
        yield f"\n[{write_keys(place)}]"
    for key in table:
        if key in own:
            yield f"{write_keys([key])} = {write_value(table[key])}"
    for key, value in below.items():
        yield from _write_table(value, (*place, key))


def write_value(value: Any) -> str:
    match value:
        case dict():
            items = ", ".join(f"{write_keys([key])} = {write_value(item)}" for key, item in value.items())
            return f"{{ {items} }}" if items else "{}"
        case list() | tuple():
            return f"[{', '.join(map(write_value, value))}]"
        case str():
            return write_text(value)
    return json.dumps(value)
