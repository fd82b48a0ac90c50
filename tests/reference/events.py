"""``docs/reference/events.md``: every type of event and every member, from the contract that events are tested by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from dockbell.core.model import RESOURCES
from dockbell.core.publishing.catalogue.messages import Message, Messages
from tests.reference.markdown import code, escape, page, table

GOLDEN: Final = Path(__file__).parents[1] / "golden"
CONTRACT: Final[dict[str, Any]] = json.loads((files("dockbell.core.publishing") / "event.schema.json").read_bytes())

_PARTS: Final[Mapping[str, Any]] = CONTRACT["$defs"]
_INTRODUCTION: Final = """\
Every event is a [CloudEvent 1.0](https://cloudevents.io) in structured JSON. The exact contract is a JSON Schema,
[event.schema.json](../../src/dockbell/core/publishing/event.schema.json); [tests/golden](../../tests/golden) has an
example of each kind; `dockbell catalogue` prints an AsyncAPI document of what *your* configuration publishes, with
the schemas of your records. To learn how to handle an event, see [Subscribe](../how-to/subscribe.md). To limit what a
sink gets, see [Choose what a sink gets](../how-to/choose-events.md)."""
_NOTES: Final = {
    "type": "See [the types](#types).",
    "before": "The record before the change, as the API wrote it; null if there is none, or if it is not known.",
    "after": "The record after the change, as the API wrote it; null if the record is gone.",
    "via": "Kind of reading that saw it; `signal`: of a feed that embeds it; `state`: sent to a sink when it begins.",
    "detected_at": "When dockbell saw it.",
}
_NOTICES: Final = {
    "crowded": ("the web server", "More connections came than there is room for; some were not accepted."),
    "dead_letter": ("a sink", "dockbell will not offer an event to it again, unless you request it."),
    "overrun": ("a sink", "It took nothing for so long that it lost events."),
    "unreachable": ("a sink or a source", "The receiver of a sink, or an API, has not been reached for a minute."),
    "paused": ("a sink", "It takes nothing until `dockbell resume`."),
    "refused": ("a feed, or a source", "It cannot be read; of a source, several feeds cannot, for the same reason."),
    "held": ("a feed", "Changes wait for your decision."),
    "died": ("a process", "It did not shut down cleanly; this process continues where it was."),
    "disk": ("the store", "Its disk is nearly full."),
    "gap": ("a source", "Its feeds were not read for a while."),
    "recovered": ("the subject of the earlier notice", "The problem is over; `data.resolves` names the kind."),
}
_NOTICES_SAID: Final = """\
Notices from dockbell to its operator, for sinks with `resources = ["notices"]`; their feed is `dockbell/notices`:"""
_NOTICE_KINDS: Final[list[str]] = _PARTS["notice"]["properties"]["statement"]["enum"]


def write() -> str:
    """Return the page."""
    messages = Messages(CONTRACT)
    change = next(iter(RESOURCES.values()))
    parts = [
        "## Types",
        "A change of a record is `dockbell.RECORD.CHANGE`. RECORD is "
        + ", ".join(f"`{each.singular}`" for each in RESOURCES.values())
        + ". CHANGE is one of these, or the name of [an event of your own](configuration.md#resourcesnameevents):",
        _list_types((each for each in messages.write_changes(change, ())), cut=f"dockbell.{change.singular}."),
        "Statements about a whole feed:",
        _list_types(messages.write_statements()),
        _NOTICES_SAID,
        table(
            ("type", "about", "meaning"), [(code(f"dockbell.notice.{kind}"), *_NOTICES[kind]) for kind in _NOTICE_KINDS]
        ),
        "`dockbell test SINK` sends `dockbell.test`.",
        "## Attributes",
        _describe(CONTRACT["properties"], CONTRACT["required"]),
        "## `data` of a change",
        "A named event has the same members, and `name`.",
        _describe(_PARTS["change"]["properties"], _PARTS["change"]["required"]),
        "An example:",
        _show("updated"),
    ]
    for kind in ("reconciled", "gap", "rebaselined", "held", "notice", "test"):
        part = _PARTS[kind]
        title = kind if kind in ("notice", "test") else f"feed.{kind}"
        parts += [
            f"## `data` of `dockbell.{title}`",
            escape(part["description"]),
            _describe(part["properties"], part["required"]),
        ]
    parts += ["## Common types", _list_common()]
    return page("Events", _INTRODUCTION, *parts)


def _list_types(messages: Iterable[Message], *, cut: str = "") -> str:
    rows = [(code(each.content["name"].removeprefix(cut)), escape(each.content["summary"])) for each in messages]
    return table(("type", "meaning"), rows)


def _describe(members: Mapping[str, Any], required: Iterable[str]) -> str:
    rows = []
    for name, schema in members.items():
        target = _PARTS.get(schema.get("$ref", "").removeprefix("#/$defs/"), {})
        meaning = schema.get("description") or _NOTES.get(name) or target.get("description", "")
        rows.append((code(name), _name_type(schema), "yes" if name in required else "", escape(meaning)))
    return table(("member", "type", "always", "meaning"), rows)


def _name_type(schema: Mapping[str, Any]) -> str:
    """Return a schema in a word or two."""
    if "const" in schema or "enum" in schema:
        return ", ".join(code(json.dumps(each)) for each in schema.get("enum", [schema.get("const")]))
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        return {"moment_or_null": "moment or null", "through_sequence": "count"}.get(name, name)
    if "anyOf" in schema:
        return " or ".join(map(_name_type, schema["anyOf"]))
    if "prefixItems" in schema:
        return f"[{', '.join(map(_name_type, schema['prefixItems']))}]"
    if schema.get("type") == "array":
        return f"list of {_name_type(schema['items'])}"
    kinds: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(
        {"string": "text", "boolean": "true or false", "integer": "whole number"}.get(each, each) for each in kinds
    )


def _list_common() -> str:
    wanted = ("moment", "key", "pointer", "resource", "component", "operation")
    words = {"component": "Whole number or text.", "operation": "`op` (`add`, `remove`, `replace`), `path`, `value`."}
    rows = []
    for name in wanted:
        schema = _PARTS[name]
        shown = ", ".join(code(each) for each in schema.get("enum", ()))
        rows.append((name, escape(schema.get("description") or words.get(name) or shown)))
    return table(("type", "meaning"), rows)


def _show(name: str) -> str:
    return f"```json\n{(GOLDEN / f'{name}.json').read_text(encoding='utf-8').strip()}\n```"
