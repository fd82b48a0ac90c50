"""What others' libraries for node make of what we send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from dockbell.core.publishing.signature import mint
from dockbell.sinks.webhook import WebhookSettings, WebhookSink
from tests.node.packages import run_node
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.receiver import receiving, respond

EVENT: Final = (Path(__file__).parents[1] / "golden" / "unicode.json").read_bytes()
OLD, NEW, OTHER = mint(b"o" * 24), mint(b"n" * 64), mint(b"x" * 32)

ASYNCAPI: Final = {
    "asyncapi": "3.0.0",
    "info": {"title": "a", "version": "1"},
    "channels": {"made": {"address": "a", "messages": {"Made": {"name": "Made"}}}},
}


@pytest.mark.parametrize("library", ["standardwebhooks", "svix"])
async def test_what_we_sign_is_verified_and_nothing_else(library: str) -> None:
    async with receiving(respond("204 No Content")) as receiver:
        settings = WebhookSettings.model_validate({"type": "webhook", "url": receiver.url, "secret": [NEW, OLD]})
        sink = WebhookSink("erp", settings, Facts().telemetry)
        async with running(sink) as run:
            run.deliver(make_delivery(body=EVENT))
            await run.until_settled(1)
    (request,) = receiver.requests
    headers, body = request.headers, request.body.decode()
    requests = [
        *({"secret": secret, "headers": headers, "body": body} for secret in (OLD, NEW, OTHER)),
        {"secret": OLD, "headers": headers, "body": body.replace("unicode", "x") + " "},
        {"secret": OLD, "headers": headers | {"webhook-id": "evt_0"}, "body": body},
    ]
    result = run_node("verify.mjs", library, given=json.dumps(requests))
    assert result.returncode == 0, result.stderr
    event_id = json.loads(EVENT)["id"]
    assert json.loads(result.stdout) == [event_id, event_id, None, None, None]


def test_the_parser_says_what_is_wrong_with_an_asyncapi_document(tmp_path: Path) -> None:
    wrong = {"operations": {"make": {"action": "shout", "channel": {"$ref": "#/channels/made"}}}}
    (tmp_path / "bad.json").write_text(json.dumps(ASYNCAPI | wrong))
    result = run_node("parse_asyncapi.mjs", str(tmp_path / "bad.json"))
    assert (result.returncode, result.stderr) == (1, "")
    first, *others = result.stdout.splitlines()
    assert first.startswith("error: ")
    assert "/operations/make/action" in first
    assert not any(line.startswith("error: ") for line in others)
