from __future__ import annotations

import pytest

from dockbell.admin.probing.asking import Asker, NoMore
from dockbell.core.reading.request import Request, list_request
from dockbell.core.reading.response import Response
from dockbell.errors import SourceRefused, SourceUnavailable
from tests.admin.probing.odd import OddLine

ITEMS = list_request("items")


def answering(*statuses: int | Exception, headers: dict[str, str] | None = None) -> OddLine:
    """Return a line that gives these answers one by one, the last for ever."""

    def answer(_: Request, number: int) -> Response:
        status = statuses[min(number, len(statuses)) - 1]
        if isinstance(status, Exception):
            raise status
        return line.respond(status, {"items": []})

    line = OddLine({}, answer=answer, headers=headers or {})
    return line


def asker(line: OddLine, requests: int = 10) -> Asker:
    return Asker(line, requests=requests, share=0.9)


async def test_no_more_than_the_allowed_requests_are_sent() -> None:
    line = answering(200)
    few = asker(line, requests=3)
    for _ in range(3):
        assert (await few.ask(ITEMS)).status == 200
    for _ in range(2):
        with pytest.raises(NoMore, match="all 3 requests are used; allow more with --requests"):
            await few.ask(ITEMS)
    assert (len(line.asked), few.sent, few.failed) == (3, 3, False)


@pytest.mark.parametrize("passing", [503, SourceUnavailable("connection lost")])
async def test_what_may_pass_is_asked_once_more(passing: int | Exception) -> None:
    patient = asker(answering(passing, 200))
    assert (await patient.ask(ITEMS)).status == 200
    assert patient.sent == 2


async def test_retries_count() -> None:
    line = answering(200, 503)
    few = asker(line, requests=2)
    await few.ask(ITEMS)
    with pytest.raises(NoMore):
        await few.ask(ITEMS)
    assert len(line.asked) == 2


async def test_what_does_not_pass_is_an_error_of_this_request_only() -> None:
    line = answering(200, 500, 500, 200)
    patient = asker(line)
    await patient.ask(ITEMS)
    with pytest.raises(SourceUnavailable, match="HTTP 500"):
        await patient.ask(ITEMS)
    assert (await patient.ask(ITEMS)).status == 200


async def test_an_answer_that_breaks_off_between_others_stops_nothing() -> None:
    line = answering(200, SourceUnavailable("lost"), SourceUnavailable("lost"), 200)
    patient = asker(line)
    await patient.ask(ITEMS)
    with pytest.raises(SourceUnavailable):
        await patient.ask(ITEMS)
    await patient.ask(ITEMS)
    assert not patient.stopped


async def test_nobody_there_stops_everything() -> None:
    alone = asker(answering(SourceUnavailable("cannot connect")))
    with pytest.raises(NoMore, match="cannot connect"):
        await alone.ask(ITEMS)
    assert (alone.sent, alone.failed, alone.answers) == (2, True, [])


async def test_a_key_that_cannot_be_looked_up_stops_everything() -> None:
    keyless = asker(answering(SourceRefused("environment variable X is not set")))
    with pytest.raises(NoMore, match="X is not set"):
        await keyless.ask(ITEMS)
    assert keyless.failed


@pytest.mark.parametrize(("status", "told"), [(401, "does not accept the key"), (429, "budget is used up")])
async def test_a_refused_key_or_a_spent_budget_stops_everything_at_once(status: int, told: str) -> None:
    line = answering(status)
    refused = asker(line)
    for _ in range(2):
        with pytest.raises(NoMore, match=told):
            await refused.ask(ITEMS)
    assert len(line.asked) == 1
    assert refused.failed


async def test_another_refusal_is_an_error_of_this_request_only() -> None:
    refused = asker(answering(403))
    with pytest.raises(SourceRefused):
        await refused.ask(ITEMS)
    assert not refused.stopped


async def test_any_status_can_be_looked_at() -> None:
    curious = asker(answering(404, 304))
    assert (await curious.look(ITEMS)).status == 404
    assert (await curious.ask(ITEMS)).status == 304


async def test_what_the_share_leaves_to_other_users_is_left() -> None:
    headers = {"x-ratelimit-limit": "300", "x-ratelimit-remaining": "30"}
    polite = asker(answering(200, headers=headers))
    await polite.ask(ITEMS)
    with pytest.raises(NoMore, match="30 of 300 requests are left in this window, for the key's other users"):
        await polite.ask(ITEMS)
    assert not polite.failed


async def test_bodies_are_not_kept() -> None:
    light = asker(answering(200))
    assert (await light.ask(ITEMS)).body
    assert [each.body for each in light.answers] == [b""]
