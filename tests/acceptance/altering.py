"""Answers of the sandbox, altered on their way to dockbell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.acceptance.deployment import Deployment


@dataclass
class Answer:
    """One answer, whole.

    Attributes:
        path: What was asked for, without the query.
        query: The query.
        at: When it was asked, in seconds since the loop began.
    """

    path: str
    query: str
    status: int
    body: bytes
    headers: dict[bytes, bytes] = field(default_factory=dict)
    at: float = 0


def alter(dockbell: Deployment, change: Callable[[Answer], None]) -> None:
    """Let all answers pass through a function first."""
    target = dockbell.wire._target

    async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
        answer = Answer(scope["path"], scope["query_string"].decode(), 0, b"", at=anyio.current_time())

        async def take(event: dict[str, Any]) -> None:
            if event["type"] == "http.response.start":
                answer.status, answer.headers = event["status"], dict(event["headers"])
            else:
                answer.body += event.get("body", b"")

        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
        await target(scope, receive, take)
        change(answer)
        kept = {name: value for name, value in answer.headers.items() if name.lower() != b"content-length"}
        await send({"type": "http.response.start", "status": answer.status, "headers": list(kept.items())})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    dockbell.wire._target = serve
