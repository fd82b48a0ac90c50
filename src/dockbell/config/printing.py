"""A configuration as it is in effect, merged, for people to read; without its secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dockbell.config.places import split_place, write_keys, write_text
from dockbell.config.tables import Config
from dockbell.config.values import Table, redact_url


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
        case list():
            return [_redact(item) for item in value]
        case str() if "://" in value:
            return redact_url(value)
    return value


def to_toml(table: Table) -> str:
    """Return tables, as :func:`redacted` gives them, as TOML."""
    return "\n".join(_write_table(table, ())).strip() + "\n"


def _write_table(table: Table, place: tuple[str, ...]) -> Iterator[str]:
    below = {key: value for key, value in table.items() if isinstance(value, dict) and _has_header((*place, key))}
    own = table.keys() - below.keys()
    if place and (own or not below):
        yield f"\n[{write_keys(place)}]"
    for key in table:
        if key in own:
            yield f"{write_keys([key])} = {_write_value(table[key])}"
    for key, value in below.items():
        yield from _write_table(value, (*place, key))


def _has_header(place: tuple[str, ...]) -> bool:
    return not split_place(place)[1] or place[2:] == ("resources",)


def _write_value(value: Any) -> str:
    match value:
        case dict():
            items = ", ".join(f"{write_keys([key])} = {_write_value(item)}" for key, item in value.items())
            return f"{{ {items} }}" if items else "{}"
        case list():
            return f"[{', '.join(map(_write_value, value))}]"
        case str():
            return write_text(value)
    return json.dumps(value)
