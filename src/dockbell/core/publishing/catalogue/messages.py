"""The events of a resource, statements about a feed, and notices: the schema of each, and its message.

They are made from ``event.schema.json``, which is exact and one; here each type of event has a plain schema of its own,
with the record in it, as generators of code want it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dockbell.core.model import JSON, ChangeKind, Resource, StatementKind

EVENT_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
RECORD_TYPE: Final = "application/json"

_NAMES_MOST: Final = 100
"""An object with more members, over all records, is a map: its names are data."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_KINDS: Final = {type(None): "null", bool: "boolean", str: "string", int: "integer", list: "array", dict: "object"}
_FRACTION: Final = "number"
_SHARED: Final = (
    *("component", "count", "key", "moment", "moment_or_null", "operation", "pointer", "resource", "through_sequence"),
)
"""The parts of the contract that the schemas of events refer to."""

_OWN: Final = {"event": ("type", "dataschema", "data"), "change": ("resource", "change", "before", "after", "name")}
"""The members that each event describes for itself."""

_SUMMARIES: Final = {
    "created": "A new record",
    "updated": "A record whose content changed",
    "deleted": "A record that is gone, or no longer among those that dockbell requests",
    "restored": "A deleted record that is back",
    "snapshot": "A record as dockbell first saw it, or as it is stored when a sink starts; not a change",
    "reconciled": "A pass over the whole list is complete",
    "gap": "dockbell was blind for a while",
    "rebaselined": "dockbell reads the feed with other settings from now on",
    "held": "Changes wait for an operator",
}


def point(name: str) -> dict[str, JSON]:
    return {"$ref": f"#/components/schemas/{name}"}


def adapt(schema: JSON) -> JSON:
    """Return a schema of the contract as draft 7 has it, where nothing may stand beside a reference."""
    if isinstance(schema, list):
        return [adapt(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    adapted = {name: adapt(each) for name, each in schema.items() if name not in ("$ref", "prefixItems")}
    if "prefixItems" in schema:
        adapted["items"], adapted["additionalItems"] = adapt(schema["prefixItems"]), adapted.pop("items")
    if "$ref" in schema:
        reference = point(schema["$ref"].removeprefix("#/$defs/"))
        adapted = reference if not adapted else {**adapted, "allOf": [reference]}
    return adapted


class Message(msgspec.Struct, frozen=True):
    """One type of event, or of another message; ``schemas`` are those that it has for itself."""

    name: str
    content: dict[str, JSON]
    schemas: Mapping[str, JSON]


class Messages:
    """Writes messages; ``contract`` is ``event.schema.json``, decoded."""

    def __init__(self, contract: JSON) -> None:
        self._contract = contract
        self._parts = contract["$defs"]

    @property
    def shared(self) -> dict[str, JSON]:
        found = {name: self._parts[name] for name in _SHARED}
        rooms = {"event": self._contract["properties"], "change": self._parts["change"]["properties"]}
        for room, properties in rooms.items():
            found |= {f"{room}.{name}": schema for name, schema in properties.items() if name not in _OWN[room]}
        return {name: {"title": name_type(name), **adapt(schema)} for name, schema in found.items()}

    def write_changes(self, resource: Resource, named: Iterable[str], *, prefix: str = "") -> list[Message]:
        """Return the messages of a resource's changes and of the operator's own events, which are ``named``.

        ``prefix`` stands before the names of all messages and schemas, where a sink sees records in a way of its own.
        """
        kinds = [(str(kind), self._describe_change(resource, kind, prefix)) for kind in ChangeKind]
        own = [(name, self._describe_named(resource, name, prefix)) for name in named]
        return [
            self._write(f"{resource.singular}.{name}", data, key=True, prefix=prefix, summary=_SUMMARIES.get(name))
            for name, data in kinds + own
        ]

    def write_statements(self) -> list[Message]:
        return [
            self._write(f"feed.{kind}", adapt(self._parts[kind]), summary=_SUMMARIES[kind]) for kind in StatementKind
        ]

    def write_notices(self) -> list[Message]:
        notice = adapt(self._parts["notice"])
        return [
            self._write(
                f"notice.{name}",
                notice | {"properties": notice["properties"] | {"statement": {"const": name}}},
                summary=f"Notice to the operator: {name.replace('_', ' ')}",
            )
            for name in notice["properties"]["statement"]["enum"]
        ]

    def _describe_change(self, resource: Resource, kind: ChangeKind, prefix: str) -> dict[str, JSON]:
        special = self._parts[kind]
        properties = {}
        for name, schema in self._parts["change"]["properties"].items():
            more = special["properties"].get(name, {})
            if more is False or name == "name":
                continue
            properties[name] = adapt({**schema, **more}) if more else point(f"change.{name}")
        record = point(f"{prefix}{resource.singular}.record")
        for name in ("before", "after"):
            match properties[name].get("type"):
                case "object":
                    properties[name] = record
                case None:
                    properties[name] = {"anyOf": [record, {"type": "null"}]}
        properties["resource"] = {"const": resource.name}
        required = [*self._parts["change"]["required"], *special.get("required", ())]
        return _object(properties, required, description=special["description"])

    def _describe_named(self, resource: Resource, name: str, prefix: str) -> dict[str, JSON]:
        record = {"anyOf": [point(f"{prefix}{resource.singular}.record"), {"type": "null"}]}
        properties = {each: point(f"change.{each}") for each in self._parts["change"]["properties"]}
        properties |= {
            "resource": {"const": resource.name},
            "change": {"enum": [str(kind) for kind in ChangeKind]},
            "before": record,
            "after": record,
            "name": {"const": name},
        }
        required = [*self._parts["change"]["required"], "name"]
        return _object(properties, required, description=self._parts["named"]["description"])

    def _write(
        self, name: str, data: dict[str, JSON], *, key: bool = False, prefix: str = "", summary: str | None
    ) -> Message:
        full, type_ = prefix + name, f"dockbell.{name}"
        title = name_type(full)
        room = name.partition(".")[0]
        properties = {each: point(f"event.{each}") for each in self._contract["properties"]}
        properties |= {
            "type": {"const": type_},
            "dataschema": {"const": f"urn:dockbell:schema:{room}:1"},
            "data": point(f"{full}.data"),
        }
        required = [*self._contract["required"]]
        if key:
            required.append("subject")
        else:
            properties = {each: schema for each, schema in properties.items() if each not in ("subject", "dataref")}
        summary = summary or f"Named event {name.partition('.')[2]!r}, defined by the operator"
        payload = _object(properties, required, title=title, description=summary + ".")
        return Message(
            full,
            {
                "name": type_,
                "title": title,
                "summary": summary + ".",
                "contentType": EVENT_TYPE,
                "payload": point(full),
                "bindings": {"$ref": "#/components/messageBindings/event"},
            },
            {full: payload, f"{full}.data": {"title": f"{title}Data", **data}},
        )


def write_state(resource: Resource, prefix: str) -> Message:
    record = f"{prefix}{resource.singular}.record"
    content = {"summary": f"A stored record of {resource.name}.", "contentType": RECORD_TYPE}
    return _write_plain(f"{prefix}{resource.singular}.state", content, record, {})


def write_batch(resource: Resource, events: Iterable[Message]) -> Message:
    name = f"{resource.singular}.batch"
    schema = {"title": name_type(name), "type": "array", "items": {"anyOf": [point(each.name) for each in events]}}
    content = {"summary": f"Events of {resource.name}, in order.", "contentType": f"{BATCH_TYPE}; charset=utf-8"}
    return _write_plain(name, content, name, {name: schema})


def write_page(resource: Resource) -> Message:
    name = f"{resource.singular}.page"
    members = {
        "key": point("key"),
        "revision": {"type": "integer", "minimum": 0},
        "record": point(f"{resource.singular}.record"),
    }
    record = {"title": f"{name_type(name)}Record", "type": "object", "required": [*members], "properties": members}
    schema = {
        "title": name_type(name),
        "type": "object",
        "required": ["position", "records", "next", "feed"],
        "properties": {
            "position": {"type": "string", "description": "The position in the feed to start at after the last page."},
            "records": {"type": "array", "items": record},
            "next": {"type": ["string", "null"], "description": "The next page, relative to this one."},
            "feed": {"type": "string", "description": "The feed from that position, relative to this page."},
        },
    }
    content = {"summary": f"Stored records of {resource.name}.", "contentType": RECORD_TYPE}
    return _write_plain(name, content, name, {name: schema})


def write_status() -> Message:
    schema = {
        "title": "Status",
        "type": "object",
        "required": ["online", "timestamp"],
        "properties": {"online": {"type": "boolean"}, "timestamp": point("moment")},
    }
    summary = "Whether dockbell is connected. If the broker loses the connection, it reports that."
    return _write_plain("status", {"summary": summary, "contentType": RECORD_TYPE}, "status", {"status": schema})


def _write_plain(name: str, content: dict[str, JSON], payload: str, schemas: Mapping[str, JSON]) -> Message:
    return Message(name, {"name": name, "title": name_type(name), **content, "payload": point(payload)}, schemas)


def _object(properties: dict[str, JSON], required: Sequence[str], **said: str) -> dict[str, JSON]:
    closed = {"type": "object", "required": required, "properties": properties, "additionalProperties": False}
    return said | closed


class Learned:
    """The values seen at one place of the records: names and kinds, never a value."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._times = 0
        self._members: dict[str, Learned] = {}
        self._values: Learned | None = None
        self._elements: Learned | None = None

    def see(self, value: JSON) -> None:
        kind = _KINDS.get(type(value), _FRACTION)
        self._kinds[kind] += 1
        if isinstance(value, str):
            self._times += _TIME.fullmatch(value) is not None
        elif isinstance(value, list):
            self._elements = self._elements or Learned()
            for element in value:
                self._elements.see(element)
        elif isinstance(value, dict):
            for name, member in value.items():
                self._find_member(name).see(member)

    def _find_member(self, name: str) -> Learned:
        if self._values is None and name not in self._members and len(self._members) == _NAMES_MOST:
            self._become_map()
        return self._members.setdefault(name, Learned()) if self._values is None else self._values

    def _become_map(self) -> Learned:
        self._values = self._values or Learned()
        for member in self._members.values():
            self._values.join(member)
        self._members = {}
        return self._values

    def join(self, other: Learned) -> None:
        self._kinds += other._kinds
        self._times += other._times
        for name, member in other._members.items():
            self._find_member(name).join(member)
        if other._values is not None:
            self._become_map().join(other._values)
        if other._elements is not None:
            self._elements = self._elements or Learned()
            self._elements.join(other._elements)

    def describe(self, title: str) -> dict[str, JSON]:
        """Return a JSON Schema of the values; each object in it has a title that begins with ``title``.

        Members are required where every object had them. Others may come at any time, as the API grows. Where only null
        was seen, anything may stand: it says nothing of the kind that a value will have.
        """
        kinds = sorted(self._kinds)
        if _FRACTION in kinds and "integer" in kinds:
            kinds.remove("integer")
        if kinds in ([], ["null"]):
            return {}
        schema: dict[str, JSON] = {"type": kinds if len(kinds) > 1 else kinds[0]}
        if "object" in kinds:
            schema = {"title": title, **schema, **self._describe_members(title)}
        if self._elements is not None:
            schema["items"] = self._elements.describe(f"{title}Element")
        if "string" in kinds and self._times == self._kinds["string"]:
            schema["format"] = "date-time"
        return schema

    def _describe_members(self, title: str) -> dict[str, JSON]:
        if self._values is not None:
            return {"additionalProperties": self._values.describe(f"{title}Value")}
        required = [name for name, member in self._members.items() if member.count() == self._kinds["object"]]
        members = {name: member.describe(f"{title}{name_type(name)}") for name, member in self._members.items()}
        return {"properties": members} | ({"required": required} if required else {})

    def count(self) -> int:
        return self._kinds.total()


def name_type(name: str) -> str:
    """Return a name as types are called, ``LineItems`` for ``line_items``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name))
