"""The pull feeds and the stored records of a story, over HTTP as ``dockbell.web`` answers them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec

from dockbell.core.model import JSON
from tests.subscriber.stories import FEED, Story

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def problem(status: int, kind: str, **members: JSON) -> httpx.Response:
    """Return an answer as RFC 9457 has it."""
    body = {
        "type": f"urn:dockbell:problem:{kind}",
        "title": kind,
        "status": status,
        "detail": f"it is {kind}",
        **members,
    }
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json"})


class Web(httpx.AsyncBaseTransport):
    """One dockbell's, with one feed.

    Attributes:
        story: What happened; may go on between requests.
        pruned: Events up to this one are no longer kept.
        most: How many events or records an answer holds at most.
        requests: What was asked, in order.
        is_complete: Whether dockbell has read the whole list itself.
        before: Called before each answer.
    """

    def __init__(self, story: Story, *, pruned: int = 0, most: int = 3) -> None:
        self.story = story
        self.pruned = pruned
        self.most = most
        self.requests: list[httpx.Request] = []
        self.is_complete = True
        self.before: Callable[[], object] = lambda: None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.requests.append(request)
        self.before()
        place, source, resource, *key = request.url.raw_path.decode().partition("?")[0].strip("/").split("/")
        if f"{source}/{resource}" != str(FEED):
            return problem(404, "unknown-feed")
        given = dict(request.url.params)
        if key:
            return self._answer_one(unquote(key[0]))
        return self._answer_events(given) if place == "feeds" else self._answer_page(given)

    def _position(self, sequence: int) -> str:
        return f"{self.story.epoch}.{sequence}"

    def _refuse(self, position: str) -> httpx.Response | None:
        epoch, _, sequence = position.rpartition(".")
        if epoch == self.story.epoch and self.pruned <= int(sequence) <= self.story.last:
            return None
        return problem(410, "position-gone", oldest=self._position(self.pruned))

    def _answer_events(self, given: dict[str, str]) -> httpx.Response:
        after = given.get("after", self._position(self.pruned))
        if refusal := self._refuse(after):
            return refusal
        begin = int(after.rpartition(".")[2])
        events = [event for event in self.story.events if event.sequence > begin][: min(self.most, int(given["limit"]))]
        end = events[-1].sequence if events else begin
        body = b"[" + b",".join(event.body for event in events) + b"]"
        return httpx.Response(200, content=body, headers={"dockbell-position": self._position(end)})

    def _answer_page(self, given: dict[str, str]) -> httpx.Response:
        position, row = self._position(self.story.last), 0
        if "cursor" in given:
            position, _, text = given["cursor"].rpartition(".")
            row = int(text)
            if refusal := self._refuse(position):
                return refusal
        keys = list(self.story.revisions)  # a record never changes its place
        rows = [(place, key) for place, key in enumerate(keys, 1) if place > row and key in self.story.records]
        page, more = rows[: self.most], rows[self.most :]
        records = [self._describe(key) for _, key in page]
        following = f"?cursor={position}.{page[-1][0]}&limit={given['limit']}" if more else None
        whole = self.is_complete
        return self._json({"position": position, "complete": whole, "records": records, "next": following})

    def _answer_one(self, key: str) -> httpx.Response:
        position = self._position(self.story.last)
        if key not in self.story.revisions:
            return problem(404, "unknown-record")
        if key not in self.story.records:
            members: dict[str, Any] = {"key": key, "revision": self.story.revisions[key], "position": position}
            return problem(410, "record-gone", **members)
        return self._json({"position": position, **self._describe(key)})

    def _describe(self, key: str) -> dict[str, JSON]:
        return {"key": key, "revision": self.story.revisions[key], "record": self.story.records[key]}

    def _json(self, body: JSON) -> httpx.Response:
        return httpx.Response(200, content=_ENCODER.encode(body))


def answering(*answers: httpx.Response | Exception) -> httpx.MockTransport:
    """Return a transport that gives these answers in turn."""
    left = list(answers)

    def answer(_: httpx.Request) -> httpx.Response:
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    return httpx.MockTransport(answer)


def batch(*events: bytes, position: str = "e1.9") -> httpx.Response:
    """Return a batch as pull feeds answer."""
    return httpx.Response(200, content=b"[" + b",".join(events) + b"]", headers={"dockbell-position": position})


def page(**members: JSON) -> httpx.Response:
    """Return a page of records, or what is wrong with one."""
    return httpx.Response(200, content=json.dumps(members).encode())
