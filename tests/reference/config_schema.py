"""``config.schema.json``: the JSON Schema of the configuration, of its models, with the meanings of the example."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dockbell.config import Config, Secret, format_duration
from dockbell.sinks import find_sink_types, load_sink_type
from tests.reference.configuration import read_example

PATH: Final = Path(__file__).parents[2] / "src" / "dockbell" / "config" / "config.schema.json"
_DURATION: Final = {"type": "string", "pattern": r"^(\d+(ms|s|m|h|d))+$", "examples": ["90s", "5m", "24h"]}
_SECRET: Final = {
    "description": "Text, or where it is: in an environment variable or a file.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"env": {"type": "string"}, "file": {"type": "string"}},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        },
    ],
}


_HEAD: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:dockbell:schema:config:1",
    "title": "A dockbell configuration",
    "description": "What docs/reference/configuration.md describes; dockbell check tells what a schema cannot.",
}


class _Generator(GenerateJsonSchema):
    """Writes what TOML may hold: no nulls, durations as text, and one value where a list of one is meant."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return dict(_DURATION)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return dict(_SECRET) if issubclass(schema["cls"], Secret) else super().model_schema(schema)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        found = super().tuple_schema(schema)
        return {"anyOf": [found, found["items"]]} if "items" in found else found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        default = schema.get("default")
        if isinstance(default, timedelta):
            return {**self.generate_inner(schema["schema"]), "default": format_duration(default)}
        if default is None or isinstance(default, BaseModel):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


_SECTIONS: Final = {
    "": ("",),
    "StoreSettings": ("store",),
    "WebSettings": ("web",),
    "SourceSettings": ("sources.main",),
    "SourceDefaults": ("sources.main",),
    **dict.fromkeys(
        ("ResourceSettings", "ListedSettings", "PassedSettings"),
        ("resources.shipments", "sources.main.resources.warehouses", "resources.stock"),
    ),
    "NamedEventSettings": ("resources.stock.events",),
    "AlertSettings": ("sinks.oncall", "sinks.screen"),
    "MqttSettings": ("sinks.floor", "sinks.screen"),
    "StdoutSettings": ("sinks.screen",),
    "WebhookSettings": ("sinks.erp", "sinks.screen"),
}
"""The tables of the example in which the keys of each model have their meanings; the first that has one counts."""


def write() -> str:
    """Return the file."""
    document = Config.model_json_schema(schema_generator=_Generator)
    tables = document["$defs"]
    names = {}
    for kind in sorted(find_sink_types()):
        model = load_sink_type(kind).Settings
        own = model.model_json_schema(schema_generator=_Generator)
        tables |= own.pop("$defs", {}) | {model.__name__: own}
        names[kind] = model.__name__
    tables["SinkSettings"] = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"description": f"{', '.join(names)}, or that of a plug-in", "type": "string"}},
        "allOf": [
            {"if": {"properties": {"type": {"const": kind}}}, "then": {"$ref": f"#/$defs/{name}"}}
            for kind, name in names.items()
        ],
    }
    tables["SourceSettings"].pop("required")  # [source_defaults] may have what a source has not
    meanings = read_example()
    for name, sections in _SECTIONS.items():
        table = tables[name] if name else document
        table.pop("description", None)
        for key, found in table["properties"].items():
            known = next((meanings[each][key][1] for each in sections if key in meanings[each]), None)
            if known is not None:
                found["description"] = known.replace("`", "").replace("\\", "")
    body = _strip_titles({key: document[key] for key in sorted(document)})
    return json.dumps(_HEAD | body, indent=2, ensure_ascii=False) + "\n"


def _strip_titles(found: Any) -> Any:
    """Return a schema without the titles that pydantic makes of names."""
    if isinstance(found, list):
        return [_strip_titles(each) for each in found]
    if isinstance(found, dict):
        return {key: _strip_titles(each) for key, each in found.items() if key != "title" or not isinstance(each, str)}
    return found
