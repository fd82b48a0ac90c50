"""From a file to a :class:`Config`, or to every problem that it has; and back, for people, without the secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from dockbell.config.including import read_included
from dockbell.config.place import KeyPath, Origins, Written, split_place, write_keys, write_text
from dockbell.config.resources import Resources
from dockbell.config.secret import Secret
from dockbell.config.shared import SOURCES, decode, split_off_local
from dockbell.config.sharing import fill_in
from dockbell.config.tables import Config, SinkSettings, SourceDefaults
from dockbell.config.toml_file import find_line, read_toml
from dockbell.config.values import Table, redact_url
from dockbell.config.wording import describe, refuse
from dockbell.errors import ConfigError

_LINES_MOST: Final = 20
"""Of so many problems the lines are looked for: each takes up to half a second in a long file."""
_NO_FILE: Final = 'not found; run "dockbell init" to create one, or "dockbell demo" to try dockbell'


def find(option: str | None, environ: Mapping[str, str]) -> Path:
    """Return where the configuration is: ``--config``, else ``DOCKBELL_CONFIG``, else ``./dockbell.toml``."""
    return Path(option or environ.get("DOCKBELL_CONFIG") or "dockbell.toml")


def load(path: Path, sink_types: Callable[[str], type[SinkSettings]]) -> Config:
    """Read, check and merge a configuration and the files that it includes; relative paths count from its folder.

    ``sink_types`` returns the model of a ``type`` of sinks, and raises ConfigError when there is none. All problems of
    the files are in one ConfigError, one complete line each; those of included files come first, and alone.
    """
    table = read_toml(path, absent=_NO_FILE)
    table, included, sources = read_included(table, path, Config.model_fields)
    origins = Origins(str(path), tuple(included), sources)
    return _validate(table, sink_types, folder=path.parent.absolute(), origins=origins)


def validate(
    table: Table,
    sink_types: Callable[[str], type[SinkSettings]],
    *,
    folder: Path | None = None,
    label: str = "configuration",
) -> Config:
    """Check a configuration that is parsed already, and includes nothing; each problem begins with ``label``.

    Relative paths count from ``folder``, else from the working folder. Raises as :func:`load`.
    """
    config = _validate(table, sink_types, folder=folder, origins=Origins(label))
    return config.read_from(replace(config.origins, main=""))


def load_local(path: Path, sink_types: Callable[[str], type[SinkSettings]]) -> Config:
    """Read what a configuration says of its own process, as where its store is; neither sources nor what it includes.

    Raises as :func:`load`.
    """
    table = split_off_local(read_toml(path, absent=_NO_FILE))
    return _validate(table, sink_types, folder=path.parent.absolute(), origins=Origins(str(path)), needs_sources=False)


def load_shared(
    own: Config,
    content: str,
    sink_types: Callable[[str], type[SinkSettings]],
    *,
    label: str,
    places: Mapping[str, str] | None = None,
) -> Config:
    """Check what processes have in common as one of them reads it: with what its own file says of it alone.

    Raises as :func:`load`; each problem begins with ``label``, that of a source with its place, where that is known.
    """
    written = own.written
    table = split_off_local(written.table) | decode(content)
    origins = Origins(label, sources=places or {})
    config = _validate(table, sink_types, folder=written.folder, origins=origins)
    return config.written_as(written)


def _validate(
    table: Table,
    sink_types: Callable[[str], type[SinkSettings]],
    *,
    folder: Path | None,
    origins: Origins,
    needs_sources: bool = True,
) -> Config:
    filled = fill_in(table)
    origins = replace(origins, inherited=filled.inherited)
    found: list[tuple[KeyPath, str]] = list(filled.problems)
    try:
        config = Config.model_validate(
            {"store": {}} | _share_resources(filled.table),
            context={"folder": folder, "sink_types": sink_types, "needs_sources": needs_sources},
        )
    except ValidationError as error:
        found = [(_keep_keys(line["loc"], filled.table), describe(line)) for line in error.errors()] + found
    if not found:
        return config.read_from(origins).written_as(Written(table, folder))
    raise refuse(_tell(found, origins))


def _share_resources(table: Table) -> Table:
    """Return a configuration in which sources that say the same of their resources have one object of it.

    It is checked once; what does not fit is left as it is, to be told with its place.
    """
    sources = table.get(SOURCES)
    if not isinstance(sources, dict):
        return table
    known: dict[str, object] = {}

    def share(found: object) -> object:
        key = repr(found)
        if key not in known:
            try:
                known[key] = Resources.model_validate(found)
            except ValidationError:
                known[key] = found
        return known[key]

    shared = {
        name: each | {"resources": share(each.get("resources", {}))} if isinstance(each, dict) else each
        for name, each in sources.items()
    }
    return table | {SOURCES: shared}


def _tell(problems: Iterable[tuple[KeyPath, str]], origins: Origins) -> list[str]:
    """Return the lines of problems; what is wrong with a default is said once, not for each source."""
    told: dict[str, None] = {}
    shared: set[KeyPath] = set()
    for place, words in problems:
        key = origins.find_default(place)
        if key is None or key not in shared:
            file, name = origins.locate(place)
            line = find_line(file, key or place) if len(told) < _LINES_MOST else None
            told[": ".join([file, *([] if line is None else [f"line {line}"]), name, words])] = None
        shared.add(tuple(place) if key is None else key)
    return list(told)


def check_secrets(config: Config, drafts: Mapping[str, Path] | None = None) -> None:
    """Look every secret up once; ConfigError has those that cannot be, each with its file and its place in it.

    ``drafts`` are files that are not in their place yet, by their absolute paths, each with where its text stands.
    """
    problems = []
    for place, secret in find_secrets(config):
        draft = (drafts or {}).get(secret.file or "")
        try:
            (secret if draft is None else Secret(file=str(draft))).reveal()
        except ConfigError as error:
            problems.append(": ".join(filter(None, [*config.origins.locate(place), str(error)])))
    if problems:
        raise refuse(problems)


def find_secrets(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[KeyPath, Secret]]:
    """Yield every secret of a configuration, or of a part of it, with its place."""
    match value:
        case Secret():
            yield place, value
        case SourceDefaults():
            return  # each source has its own
        case BaseModel():
            for name in type(value).model_fields:
                yield from find_secrets(getattr(value, name), (*place, name))
        case dict():
            for name, item in value.items():
                yield from find_secrets(item, (*place, name))
        case tuple() | list():
            for index, item in enumerate(value):
                yield from find_secrets(item, (*place, index))


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


def redacted(config: Config) -> Table:
    """Return a configuration in effect as JSON-ready tables: each feed's settings merged, in its source's table.

    A secret is shown as ``***`` or by where it comes from, ``{"env": NAME}``; URLs lose user, password and query, and
    those that may hold a secret their path.
    """
    table: Table = config.model_dump(
        mode="json", exclude_none=True, exclude={"include", "source_defaults", "resources"}
    )
    table = _redact(table)
    for source in table["sources"].values():
        source["resources"] = {}
    settings: dict[int, Table] = {}  # by the object: most sources have the same
    for feed in config.feeds():
        if (known := id(feed.settings)) not in settings:
            dumped = feed.settings.model_dump(mode="json", exclude_none=True, exclude={"enabled"})
            settings[known] = _redact(dumped)
        table["sources"][feed.source]["resources"][feed.resource] = settings[known]
    return table


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
