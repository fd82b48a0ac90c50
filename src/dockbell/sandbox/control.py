"""The sandbox's own endpoints, below ``/sandbox``: its change log, and its switches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dockbell.errors import ConfigError
from dockbell.sandbox.activity import Activity
from dockbell.sandbox.answers import answer_json, route
from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.edits import Edits
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.moments import format_micros, to_micros
from dockbell.sandbox.parameters import read_number, read_parameters
from dockbell.sandbox.refusal import Refusal, suggest
from dockbell.sandbox.settings import Settings, parse
from dockbell.sandbox.table import Row
from dockbell.sandbox.world import LoggedChange, World

_CHANGES_MOST: Final = 10_000
_STEP_MOST: Final = 100_000
_RATE_MOST: Final = 10_000
_ROWS_AT_A_TIME: Final = 500
_ROWS_MOST: Final = 10_000_000
_SEQUENCE_MOST: Final = 10**15


class Control:
    """Answers the requests about the sandbox itself."""

    def __init__(self, world: World, activity: Activity, edits: Edits, settings: Settings) -> None:
        self._world = world
        self._activity = activity
        self._edits = edits
        self._settings = settings

    def routes(self) -> list[Route]:
        """Return the endpoints."""
        return [
            route("/sandbox/changes", "GET", self._list_changes),
            route("/sandbox/records/{resource}", "GET", self._list_records),
            route("/sandbox/step", "POST", self._step),
            route("/sandbox/activity", "POST", self._set_activity),
            route("/sandbox/options", "GET", self._list_options),
            route("/sandbox/options", "POST", self._set_options),
            route("/sandbox/edit/{resource}", "POST", self._edit),
            route("/sandbox/touch/{resource}", "POST", self._touch),
            route("/sandbox/delete/{resource}", "POST", self._delete),
            route("/sandbox/restore", "POST", self._restore),
            route("/sandbox/deploy", "POST", self._deploy),
        ]

    async def _list_changes(self, request: Request) -> Response:
        given = read_parameters(request, ("after", "limit"))
        after = read_number(given, "after", 0, _SEQUENCE_MOST, 0)
        limit = read_number(given, "limit", 1, _CHANGES_MOST, 1000)
        try:
            changes = self._world.changes(after)[:limit]
        except LookupError as error:
            raise Refusal(410, "changes_gone", str(error), parameter="after") from None
        last = changes[-1].sequence if changes else after
        head = b'{"sequence":%d,"next_after":%d,"changes":[' % (self._world.sequence, last)
        return answer_json(head + b",".join(_encode_change(change) for change in changes) + b"]}")

    async def _list_records(self, request: Request) -> Response:
        read_parameters(request, ())
        rows = list(self._world.tables[_resource(request)].rows.values())
        headers = {"x-sandbox-sequence": str(self._world.sequence)}
        return StreamingResponse(
            _lines(rows, self._world.form.name), headers=headers, media_type="application/x-ndjson"
        )

    async def _step(self, request: Request) -> Response:
        given = read_parameters(request, ("n",))
        made = self._activity.step(read_number(given, "n", 1, _STEP_MOST, 1))
        return self._made(made)

    async def _set_activity(self, request: Request) -> Response:
        given = read_parameters(request, ("rate",))
        try:
            rate = float(given["rate"])
        except (KeyError, ValueError):
            rate = -1
        if not 0 <= rate <= _RATE_MOST:
            text = f"rate must be given, changes a second from 0 to {_RATE_MOST}"
            raise Refusal(400, "invalid_parameter", text, parameter="rate")
        self._activity.rate = rate
        return answer_json(b'{"rate":%s,"sequence":%d}' % (repr(rate).encode(), self._world.sequence))

    async def _list_options(self, request: Request) -> Response:
        read_parameters(request, ())
        return self._options()

    async def _set_options(self, request: Request) -> Response:
        try:
            self._settings.change(**parse(dict(request.query_params)))
        except ConfigError as error:
            raise _invalid(error) from None
        return self._options()

    def _options(self) -> Response:
        return answer_json(encode(asdict(self._settings.options)))

    async def _edit(self, request: Request) -> Response:
        return self._change_some(request, self._edits.edit)

    async def _touch(self, request: Request) -> Response:
        return self._change_some(request, self._edits.touch)

    async def _delete(self, request: Request) -> Response:
        return self._change_some(request, self._edits.delete)

    async def _restore(self, request: Request) -> Response:
        read_parameters(request, ())
        return self._made(self._world.restore())

    async def _deploy(self, request: Request) -> Response:
        given = read_parameters(request, ("field", "value", "dated"))
        if "field" not in given or given.get("dated", "false") not in ("true", "false"):
            text = "give the field, its value as JSON if it is not null, and dated=true if timestamps move"
            raise Refusal(400, "invalid_parameter", text, parameter="dated" if "field" in given else "field")
        try:
            value = json.loads(given.get("value", "null"))
            made = self._edits.deploy(given["field"], value, dated=given.get("dated") == "true")
        except ValueError:
            raise Refusal(400, "invalid_parameter", "value must be JSON", parameter="value") from None
        except ConfigError as error:
            raise _invalid(error) from None
        return self._made(made)

    def _change_some(self, request: Request, change: Callable[[str, int, str | None], int]) -> Response:
        given = read_parameters(request, ("n", "id"))
        resource = _resource(request)
        try:
            made = change(resource, read_number(given, "n", 1, _ROWS_MOST, 1), given.get("id"))
        except LookupError as error:
            raise Refusal(404, "not_found", str(error)) from None
        return self._made(made)

    def _made(self, changes: int) -> Response:
        return answer_json(b'{"changes":%d,"sequence":%d}' % (changes, self._world.sequence))


def _resource(request: Request) -> str:
    name = str(request.path_params["resource"])
    if name not in RESOURCES:
        raise Refusal(404, "not_found", f"unknown resource {name!r}{suggest(name, tuple(RESOURCES))}")
    return name


def _invalid(error: ConfigError) -> Refusal:
    return Refusal(400, "invalid_option", "; ".join(error.problems))


async def _lines(rows: list[Row], name: Callable[[Row], str]) -> AsyncIterator[bytes]:
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = rows[start : start + _ROWS_AT_A_TIME]
        yield b"".join(b'{"identity":%s,"record":%s}\n' % (encode(name(row)), row.body) for row in part)


def _encode_change(change: LoggedChange) -> bytes:
    head = {
        "sequence": change.sequence,
        "at": format_micros(to_micros(change.at)),
        "resource": change.resource,
        "identity": change.identity,
        "kind": change.kind,
    }
    return b'%s,"before":%s,"after":%s}' % (encode(head)[:-1], change.before or b"null", change.after or b"null")
