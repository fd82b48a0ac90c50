"""``docs/reference/web-api.md``: every place of the web server, from the OpenAPI document that it serves."""

from __future__ import annotations

import inspect
import json
import socket
from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import MagicMock

import anyio
import httpx

from dockbell.config import WebSettings
from dockbell.web import Site
from tests.reference.markdown import code, escape, page, table

_INTRODUCTION: Final = """\
If the configuration has `[web]`, the daemon serves a status page, an API to read events and records, and actions for
operators. `GET /openapi.json` describes the API in OpenAPI 3.1. [Read events and records over
HTTP](../how-to/pull-events.md) shows how to use it. If dockbell cannot answer a request, it returns a
[problem](errors.md#problems-of-the-web-api).

If `[web] token` is set, clients send it as `Authorization: Bearer TOKEN`. The status page sends it once to start a
session, and then sends a cookie and, for actions, the header `X-Dockbell-CSRF`. Without a configured token, every
client that can reach the address can read, and no client can change anything."""
_ACCESS: Final = {
    "[]": "everyone",
    '["", "session", "token"]': "everyone; more with the token",
    '["session", "token"]': "with the token, if one is set",
    '["session word", "token"]': "with the token",
}
_WIDTH: Final = 100


def write() -> str:
    """Return the page."""
    document = anyio.run(_ask)
    rows, parts = [], []
    for path, methods in document["paths"].items():
        for method, place in methods.items():
            request = f"{method.upper()} {path}"
            rows.append((code(request), _name_access(place["security"]), escape(place["summary"])))
            parts += [f"## {code(request)}", *_describe(place, document["components"])]
    return page("The web API", _INTRODUCTION, table(("request", "access", "description"), rows), *parts)


async def _ask() -> Any:
    """Return the document as a site serves it; nothing else of the site is asked."""
    needed = inspect.signature(Site.__init__).parameters.values()
    stand_ins = {
        each.name: MagicMock() for each in needed if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    }
    stand_ins["read_store"].epoch = "of a store"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        site = Site(WebSettings(), listener=listener, **stand_ins)
        transport = httpx.ASGITransport(site._app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{site.port}") as client:
            return (await client.get("/openapi.json")).raise_for_status().json()


def _name_access(security: list[dict[str, Any]]) -> str:
    return _ACCESS[json.dumps(sorted(" ".join(way) for way in security))]


def _describe(place: dict[str, Any], components: dict[str, Any]) -> Iterator[str]:
    yield escape(place["summary"])
    rows = [(code(each["name"]), each["in"], _name(each["schema"], components)) for each in place["parameters"]]
    if rows:
        yield table(("parameter", "in", "type"), rows)
    if "requestBody" in place:
        schema = place["requestBody"]["content"]["application/json"]["schema"]
        yield f"Request body:\n\n```text\n{_draw(schema, components)}\n```"
    for status, answer in place["responses"].items():
        if "$ref" in answer:
            continue
        for media_type, content in (answer.get("content") or {"": {}}).items():
            kind = f", {code(media_type)}" if media_type not in ("", "*/*") else ""
            yield f"**{status}**{kind}: {escape(answer['description'])}"
            schema = _find(content.get("schema", {}), components)
            if media_type != "application/problem+json" and (schema.get("properties") or schema.get("items")):
                yield f"```text\n{_draw(schema, components)}\n```"


def _find(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Return a schema, followed where it points elsewhere."""
    while "$ref" in schema:
        schema = components["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _name(schema: dict[str, Any], components: dict[str, Any]) -> str:
    """Return a plain schema in words."""
    schema = _find(schema, components)
    if "anyOf" in schema:
        return " or ".join(_name(each, components) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(code(each) for each in schema["enum"])
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(schema.get("type", ""), "")
    words = {"date-time": "time"}.get(schema.get("format", ""), words or schema.get("type", "any value"))
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f" {low} to {high}" if high is not None else ""
    default = f", default {code(json.dumps(schema['default']))}" if "default" in schema else ""
    pattern = f" like {code(schema['pattern'])}" if "pattern" in schema and "format" not in schema else ""
    return words + bounds + pattern + default


def _draw(schema: dict[str, Any], components: dict[str, Any], margin: str = "") -> str:
    """Return the members of a schema, one below the other where they need the room."""
    schema = _find(schema, components)
    if "anyOf" in schema:
        return " | ".join(_draw(each, components, margin) for each in schema["anyOf"])
    if schema.get("items"):
        return f"[{_draw(schema['items'], components, margin)} …]"
    more = schema.get("additionalProperties")
    members = dict(schema.get("properties", {})) | ({"NAME": more} if isinstance(more, dict) else {})
    if not members:
        if "const" in schema or "enum" in schema:
            return " | ".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
        return _name(schema, components).replace("`", "").partition(" like ")[0]
    inner = margin + "  "
    needed = schema.get("required", members)
    drawn = [
        f'"{name}"{"" if name in needed or name == "NAME" else "?"}: {_draw(each, components, inner)}'
        for name, each in members.items()
    ]
    line = f"{{{', '.join(drawn)}}}"
    if len(margin) + len(line) <= _WIDTH and "\n" not in line:
        return line
    return "{\n" + ",\n".join(inner + each for each in drawn) + f"\n{margin}}}"
