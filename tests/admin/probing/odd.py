"""An API that is as odd as a test needs it, behind a probe's line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from msgspec.structs import replace

from dockbell.admin.probing import Report, probe
from dockbell.admin.probing.findings import Finding
from dockbell.config import validate
from dockbell.core.moment import parse_moment
from dockbell.core.reading.request import Request
from dockbell.core.reading.response import Response

Records = list[dict[str, Any]]
START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def stamped(*ids: object, **more: Any) -> Records:
    """Return records a second apart, oldest first."""
    times = [(START + timedelta(seconds=number)).isoformat().replace("+00:00", "Z") for number in range(len(ids))]
    return [{"id": each, "updated_at": time} | more for each, time in zip(ids, times, strict=True)]


@dataclass
class OddLine:
    """Lists what it holds, in order, 200 on a page; the test bends it.

    Attributes:
        lists: The records of each resource; those that are not named are empty.
        serve: Called with a request, its number from 1, and the records that would be on its page; returns others.
        answer: Called with a request and its number; returns a whole answer, or None for the usual one; may raise.
        extra: Further members of each envelope.
        headers: Of each answer.
        asked: Every request.
    """

    lists: Mapping[str, Records]
    serve: Callable[[Request, int, Records], Records] = lambda _, __, records: records
    answer: Callable[[Request, int], Response | None] = lambda _, __: None
    extra: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    clock: datetime = START + timedelta(hours=1)

    async def ask(self, request: Request) -> Response:
        self.asked.append(request)
        self.clock += timedelta(milliseconds=10)
        if (given := self.answer(request, len(self.asked))) is not None:
            return replace(given, sent_at=self.clock, answered_at=self.clock, received_at=self.clock)
        if request.path.count("/") == 3:
            return self._one(request)
        return self.respond(200, self._body(request))

    def respond(self, status: int, body: object) -> Response:
        """Return an answer."""
        shown = {
            "content-type": "application/json",
            "date": format_datetime(self.clock.replace(microsecond=0), usegmt=True),
        }
        return Response(status, shown | self.headers, json.dumps(body).encode(), self.clock, self.clock, self.clock)

    def _one(self, request: Request) -> Response:
        _, _, resource, identity = request.path.split("/")
        found = [each for each in self.lists.get(resource, []) if str(each.get("id")) == identity]
        return self.respond(200, found[0]) if found else self.respond(404, {"error": "unknown"})

    def _body(self, request: Request) -> object:
        resource, params = request.path.split("/")[2], dict(request.params)
        records = self.lists.get(resource, [])
        if since := parse_moment(params.get("updated_since")):
            records = [each for each in records if (parse_moment(each.get("updated_at")) or START) >= since]
        start, limit = int(params.get("cursor", 0)), int(params["limit"])
        page = self.serve(request, len(self.asked), records[start : start + limit])
        cursor = str(start + limit) if start + limit < len(records) else None
        return {resource: page, "next_cursor": cursor} | self.extra


async def probe_line(
    line: OddLine, *resources: str, requests: int = 60, settings: Mapping[str, Any] | None = None
) -> Report:
    """Probe resources of a line, each with these settings."""
    config = validate(
        {
            "sources": {"main": {"base_url": "http://api", "api_key": "k"}},
            "resources": {name: settings or {} for name in resources},
        },
        lambda _: None,  # type: ignore[arg-type, return-value]  # there are no sinks
    )
    return await probe(
        "main", config.sources["main"], config.feeds(), line, requests=requests, apart=timedelta(milliseconds=1)
    )


def said(report: Report, what: str, subject: str | None = None) -> Finding:
    """Return the one finding of this name, of the first feed unless a subject is named."""
    return next(each for each in report.findings if each.what == what and (subject is None or each.subject == subject))


def whats(report: Report) -> Sequence[str]:
    """Return what was found, in order."""
    return [each.what for each in report.findings]
