"""``docs/reference/configuration.md``: types and defaults from the models, meanings from ``config.example.toml``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dockbell.config import (
    Config,
    NamedEventSettings,
    ResourceSettings,
    Secret,
    SecretUrl,
    SinkSettings,
    SourceSettings,
    StoreSettings,
    WebSettings,
)
from dockbell.config.expression import Condition
from dockbell.config.resources import BUILT_IN, Resources
from dockbell.config.values import BaseUrl, ConfigPath, Cron, Duration, Pointer, format_duration
from dockbell.sinks import find_sink_types, load_sink_type
from dockbell.sinks.webhook.settings import OAuth2
from tests.reference.markdown import code, escape, page, table

EXAMPLE: Final = (Path(__file__).parents[2] / "config.example.toml").read_text(encoding="utf-8")

_INTRODUCTION: Final = """\
The configuration is a TOML file, which may include others: `--config PATH`, else the environment variable
`DOCKBELL_CONFIG`, else `./dockbell.toml`. Paths in it count from its own folder. A key that is not known is an error,
with a suggestion; `dockbell check` tells every problem of a file at once.
[config.example.toml](../../config.example.toml) has all keys in one file that works as it is. An editor that knows TOML
completes and explains them by [their JSON Schema](../../src/dockbell/config/config.schema.json), which `dockbell
schema` prints; the first line of the file then is `#:schema dockbell.schema.json`.

- A *duration* is text: `"250ms"`, `"90s"`, `"5m"`, `"24h"`, `"7d"`, `"1h30m"`.
- A *JSON pointer* names a place in a record: `"/status"`, `"/lines/*/sku"`, where `*` is any element of an array.
- A *secret* is text, `{ env = "NAME" }` or `{ file = "path" }`. It is looked up when it is needed, and never shown.
- A *secret URL* is a secret whose text is a URL, of which a password, the path or a query may be secret. Of one that
  stands in the configuration as text, scheme, host and port are shown; of the others, where they come from.
- A *condition* is an expression in [CEL](https://cel.dev), such as `after.available < 10`: see [Choose what a sink
  gets](../how-to/choose-events.md#which-events).
- Where a list is wanted, one value may stand without brackets."""

_TYPES: Final[tuple[tuple[object, str], ...]] = (
    (Condition, "condition"),
    (Cron, "cron"),
    (Pointer, "JSON pointer"),
    (BaseUrl, "URL"),
    (ConfigPath, "path"),
    (Duration, "duration"),
)
_TABLES: Final = {
    "alert": "oncall",
    "amqp": "dock",
    "kafka": "stream",
    "mqtt": "floor",
    "nats": "bus",
    "redis": "lake",
    "webhook": "erp",
}
"""Where the example has each type of sink."""
_OF_SINKS: Final[Mapping[str, Mapping[str, tuple[type[BaseModel], str]]]] = {
    "webhook": {"oauth2": (OAuth2, "The receiver wants an access token of OAuth 2.0, the grant of client credentials.")}
}
"""The tables within the table of a sink."""
_INCLUDE: Final = """\
`include` names files, or patterns with `*`, `?` and `[…]` for them, which count from the folder of the configuration;
so do the paths in these files. Each holds `[sources.NAME]` tables and nothing else, and a source is in one file only. A
pattern may match nothing, but its folder must be there. Files whose name begins with a dot are left out."""
_SOURCE_DEFAULTS: Final = """\
What every source has that does not say otherwise: the keys of `[sources.NAME]`, and `[source_defaults.resources.NAME]`.
So a source may be an empty table: [Many sources](../how-to/many-sources.md).

`{source}` stands for the name of the source in each text of this table, its `resources` excepted. In the name of an
environment variable it is written in capitals, with `_` for `-`: of source `acme-eu`, `{ env = "KEY_{source}" }` is
`KEY_ACME_EU`."""
_RESOURCES: Final = """\
How a resource is read, for every source: `shipments`, `packages`, `items`, `stock`, `warehouses`. Without any such
table all five are read; otherwise those that are named. `[source_defaults.resources.NAME]` overrides it key by key, and
`[sources.X.resources.NAME]` overrides both for one source."""
_OTHERWISE: Final[Mapping[tuple[str, str], str]] = {
    ("resources.shipments", "every"): '`"auto"`, the default: as often as the budget allows; or not sooner than this',
    ("sinks.screen", "type"): '`"mqtt"`, `"webhook"`, `"alert"`, `"stdout"`, or that of a plug-in',
    ("sinks.floor", "url"): "`mqtts://HOST:PORT`; `mqtt://` without TLS",
    ("resources.shipments", "query"): 'filters of the listing, such as `{ status = "shipped" }`',
    (
        "sinks.screen",
        "start",
    ): 'where it begins: now, at the `"beginning"` of what is kept, or with the `"state"`: each record',
}
"""What is said of a key where the example's line leans on the value beside it."""
_PLAIN: Final[Mapping[object, str]] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    timedelta: "duration",
    Secret: "secret",
}
_BOUNDS: Final = ((Ge, "ge", "from"), (Gt, "gt", "above"), (Le, "le", "to"))


def write() -> str:
    """Return the page."""
    meanings = read_example()
    kinds = {kind: load_sink_type(kind).Settings for kind in sorted(find_sink_types())}
    common = {*SinkSettings.model_fields}
    parts = [
        "## The top of the file",
        _describe(Config, meanings[""], leave_out=("store", "web", "source_defaults", "sources", "resources", "sinks")),
        _INCLUDE,
        "## `[store]`",
        _describe(StoreSettings, meanings["store"]),
        "## `[web]`",
        "Without this table nothing listens. What is served stands in [The web API](web-api.md).",
        _describe(WebSettings, meanings["web"]),
        "## `[sources.NAME]`",
        "An account of the API; as many as there are.",
        _describe(SourceSettings, meanings["sources.main"], leave_out=("resources",)),
        "## `[source_defaults]`",
        _SOURCE_DEFAULTS,
        "## `[resources.NAME]`",
        _RESOURCES,
        _describe(
            ResourceSettings,
            meanings["resources.shipments"]
            | meanings["sources.main.resources.warehouses"]
            | {"signal": meanings["resources.stock"]["signal"]},
            leave_out=("events",),
        ),
        "Some defaults differ from resource to resource:",
        _describe_defaults(),
        "## `[[resources.NAME.events]]`",
        "An event of your own, on top of the change that it follows; as many as wanted.",
        _describe(NamedEventSettings, meanings["resources.stock.events"]),
        "## `[sinks.NAME]`",
        "Where events go; as many as wanted. A renamed sink is a new one. These keys are the same for every type:",
        _describe(SinkSettings, meanings["sinks.screen"]),
    ]
    for kind, settings in kinds.items():
        own = [name for name in settings.model_fields if name not in common]
        if own:
            section = f"sinks.{_TABLES[kind]}"
            left_out = (*common, *_OF_SINKS.get(kind, {}))
            parts += [f'### `type = "{kind}"`', _describe(settings, meanings[section], leave_out=left_out)]
        for name, (table_settings, words) in _OF_SINKS.get(kind, {}).items():
            meaning = meanings[f"{section}.{name}"]
            parts += [f"### `[sinks.NAME.{name}]` of a {kind}", words, _describe(table_settings, meaning)]
    parts += [
        '### `type = "stdout"`',
        "Has no keys of its own. A sink of your own brings its own keys: [Add a sink](../how-to/add-a-sink.md).",
    ]
    return page("Configuration", _INTRODUCTION, *parts)


def read_example() -> dict[str, dict[str, tuple[str, str]]]:
    """Return each key's value and meaning as the example has them, by table."""
    found: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    section, key = "", ""
    for line in EXAMPLE.splitlines():
        if match := re.match(r"(?:# )?\[+([a-z0-9_.]+)\]+", line):
            section = match[1]
            found.setdefault(section, {})
        elif match := re.match(r"(?:# )?([a-z_]+) = ([^#]+?)  +# (.+)", line):
            key = match[1]
            words = match[3].removesuffix("; no default")
            found[section][key] = match[2], _OTHERWISE.get((section, key)) or _quote(words)
        elif match := re.match(r"#\s{20,}# (.+)", line):
            value, words = found[section][key]
            found[section][key] = value, f"{words} {_quote(match[1])}"
    return found


def _describe(
    model: type[BaseModel], example: Mapping[str, tuple[str, str]], *, leave_out: tuple[str, ...] = ()
) -> str:
    """Return a table of the keys; a default is written as in the example, which a test holds equal to the model's."""
    hints = get_type_hints(model, include_extras=True)
    rows = []
    for name, field in model.model_fields.items():
        if name not in leave_out:
            value, meaning = example[name]
            kind = _name_type(hints[name], field.metadata)
            rows.append((code(name), kind, _show_default(field, value), meaning))
    return table(("key", "type", "default", "meaning"), rows)


def _quote(meaning: str) -> str:
    """Return the example's words, with what is code in them marked."""
    return escape(re.sub(r'(?<![`\w])(\{ env = "\w+" \}|"[^"]*"|\[[^\]]*\]|whsec_…)', r"`\1`", meaning))


def _name_type(hint: object, bounds: list[Any]) -> str:
    """Return a type in words."""
    for known, words in _TYPES:
        if hint == known:
            return words
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is Annotated:
            words = _name_type(arguments[0], [*arguments[1:], *bounds])
        case origin if origin is Literal:
            words = ", ".join(code(json.dumps(each)) for each in arguments)
        case origin if origin is tuple:
            few = " (at least one)" if any(isinstance(each, MinLen) for each in bounds) else ""
            words = f"list of {_plural(_name_type(arguments[0], []))}{few}"
        case origin if origin is dict:
            words = f"table of {_plural(_name_type(arguments[1], []))}"
        case None:
            words = _name_plain(hint, bounds)
        case _:
            words = " or ".join(_name_type(each, bounds) for each in arguments if each is not type(None))
    return words


def _name_plain(hint: object, bounds: list[Any]) -> str:
    if isinstance(hint, type) and issubclass(hint, SecretUrl):
        return "secret URL"
    words = _PLAIN.get(hint) or getattr(hint, "__name__", str(hint)).lower()
    limits = [
        f"{word} {_show(getattr(each, name))}" for kind, name, word in _BOUNDS for each in bounds if type(each) is kind
    ]
    return " ".join([words, *limits])


def _plural(words: str) -> str:
    return words if "`" in words or " or " in words or words == "text" else f"{words}s"


def _show_default(field: FieldInfo, written: str) -> str:
    if field.is_required():
        return "**needed**"
    return "" if field.get_default(call_default_factory=True, validated_data={}) is None else code(written)


def _show(value: object) -> str:
    if isinstance(value, timedelta):
        return json.dumps(format_duration(value))
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value, ensure_ascii=False)


def _describe_defaults() -> str:
    rows = []
    for name in Resources.model_fields:
        settings = BUILT_IN[name]
        query = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.query.items())
        reconcile = "" if settings.reconcile is None else code(_show(settings.reconcile))
        at_most = code(_show(settings.at_most))
        rows.append((code(name), at_most, reconcile, code(f"{{ {query} }}") if query else ""))
    return table(("resource", "`at_most`", "`reconcile`", "`query`"), rows)
