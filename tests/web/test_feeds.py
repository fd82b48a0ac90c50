from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from dockbell.stores.sqlite import SqliteReadStore
from tests.stores import pages
from tests.web.sites import Filled, Served, serve


def sequences(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [int(event["sequence"]) for event in answer.json()]


def following(answer: httpx.Response) -> str:
    """Return the URL that an answer names for what follows."""
    return str(answer.request.url.join(answer.links["next"]["url"]))


def position(filled: Filled, sequence: int) -> str:
    return f"{filled.store.epoch}.{sequence}"


async def test_events_are_answered_as_they_are_stored(shared: Served) -> None:
    filled = await shared.fill("a", "b", "ü ber/7")
    answer = await filled.ask()
    assert answer.content == b"[" + b",".join(event.body for event in await filled.events()) + b"]"
    assert answer.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"


async def test_a_reader_follows_the_links_to_the_end_and_beyond(shared: Served) -> None:
    filled = await shared.fill(*"abcde")
    answer = await filled.ask(limit=2)
    read = []
    while found := sequences(answer):
        read += found
        answer = await filled.client.get(following(answer))
    assert read == [1, 2, 3, 4, 5]
    assert answer.content == b"[]"
    await filled.put("f")
    assert sequences(await filled.client.get(following(answer))) == [6]


async def test_headers_say_where_the_reader_is_and_where_the_feed_ends(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    answer = await filled.ask(after=position(filled, 1), limit=1)
    assert answer.headers["dockbell-position"] == position(filled, 2)
    assert answer.headers["dockbell-last"] == position(filled, 3)
    end = await filled.ask(after=position(filled, 3), wait="0s")
    assert end.headers["dockbell-position"] == end.headers["dockbell-last"] == position(filled, 3)


async def test_a_link_keeps_what_was_asked_for(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    answer = await filled.ask(limit=2, wait="20s")
    assert following(answer).endswith(f"{filled.events_url}?after={position(filled, 2)}&limit=2&wait=20s")


async def test_an_answer_ends_where_it_grows_too_large_and_goes_on_there(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = await shared.fill(*(f"k{number}" for number in range(120)))
    monkeypatch.setattr("dockbell.web.feeds._BYTES_MOST", 10_000)
    answer = await filled.ask(limit=1000)
    assert sequences(answer) == list(range(1, 51))
    assert sequences(await filled.client.get(following(answer))) == list(range(51, 101))


async def test_head_says_the_same_without_the_events_and_without_waiting(shared: Served) -> None:
    filled = await shared.fill("a")
    began = time.monotonic()
    for accept in ("*/*", "text/event-stream"):
        parameters = {"after": position(filled, 1), "wait": "30s"}
        answer = await filled.client.head(filled.events_url, params=parameters, headers={"accept": accept})
        assert answer.headers["dockbell-position"] == position(filled, 1)
        assert answer.content == b""
    assert time.monotonic() - began < 5


# Waiting --------------------------------------------------------------------------------------------------------------


async def test_a_reader_who_waits_hears_of_a_commit_within_100_ms(shared: Served) -> None:
    filled = await shared.fill("a")
    delays = []
    answers: list[httpx.Response] = []

    async def ask(after: int) -> None:
        answers.append(await filled.ask(after=position(filled, after), wait="30s"))
        delays.append(time.monotonic() - committed_at)

    for after in range(1, 6):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, after)
            await shared.until_waiting(1)
            committed_at = time.monotonic() + 10
            await filled.put(f"k{after}")
            committed_at = time.monotonic()
    assert [sequences(answer) for answer in answers] == [[2], [3], [4], [5], [6]]
    assert sorted(delays)[2] < 0.1


async def test_a_commit_of_another_feed_wakes_nobody(shared: Served) -> None:
    filled, other = await shared.fill("a"), await shared.fill("a")

    async with anyio.create_task_group() as group:

        async def ask() -> None:
            assert sequences(await filled.ask(after=position(filled, 1), wait="30s")) == [2]

        group.start_soon(ask)
        await shared.until_waiting(1)
        await other.put("b")
        await filled.put("b")


async def test_who_waits_in_vain_is_told_so_in_time(shared: Served) -> None:
    filled = await shared.fill("a")
    began = time.monotonic()
    answer = await filled.ask(after=position(filled, 1), wait="200ms")
    assert answer.content == b"[]"
    assert answer.headers["dockbell-position"] == position(filled, 1)
    assert 0.2 <= time.monotonic() - began < 5


async def test_a_client_that_goes_away_leaves_its_place(shared: Served) -> None:
    filled = await shared.fill("a")
    with anyio.move_on_after(0.2):
        await filled.ask(after=position(filled, 1), wait="30s")
    await shared.until_waiting(0)


async def test_only_so_many_may_wait(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = await shared.fill("a")
    monkeypatch.setattr(shared.site.long_polls, "_most", 2)
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(lambda: filled.ask(after=position(filled, 1), wait="30s"))
        await shared.until_waiting(2)
        for accept in ("*/*", "text/event-stream"):
            parameters = {"after": position(filled, 1), "wait": "30s"}
            answer = await filled.client.get(filled.events_url, params=parameters, headers={"accept": accept})
            assert answer.status_code == 503
            assert "2 are waiting" in answer.json()["detail"]
            assert answer.headers["retry-after"] == "5"
        assert sequences(await filled.ask(after=position(filled, 1))) == []
        await filled.put("b")


# What cannot be answered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        ({"after": "7"}, 'after: must be a position, "<epoch>.<sequence>" as dockbell returned it, got "7"'),
        ({"limit": "0"}, 'limit: must be a whole number from 1 to 1000, got "0"'),
        ({"limit": "1001"}, 'limit: must be a whole number from 1 to 1000, got "1001"'),
        ({"limit": "\u0667"}, 'limit: must be a whole number from 1 to 1000, got "\u0667"'),
        ({"wait": "30"}, 'wait: must be a duration such as "90s", "5m", "24h" or "7d", got "30"'),
        ({"wait": "2m"}, 'wait: must be at most 1m, got "2m"; then send another request'),
        ({"afer": "e.1"}, 'parameter "afer": is not known; did you mean "after"?'),
        ({"after": ["e.1", "e.2"]}, "parameter after: appears twice; send it once"),
    ],
)
async def test_what_cannot_be_meant_is_said_so(shared: Served, parameters: Mapping[str, Any], detail: str) -> None:
    filled = await shared.fill("a")
    answer = await filled.client.get(filled.events_url, params=parameters)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:dockbell:problem:bad-request",
        "title": "Bad Request",
        "status": 400,
        "detail": detail,
    }


async def test_an_unknown_feed_is_answered_with_a_known_one(served: Served) -> None:
    answer = await served.client.get("/feeds/main/shipments")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        'feed "main/shipments": is not known; none has been read yet',
    )
    await served.store.feed(pages.FEED).open()
    answer = await served.client.get("/feeds/main/shipment")
    assert answer.json()["detail"] == 'feed "main/shipment": is not known; did you mean "main/shipments"?'


async def judge_gone(filled: Filled, after: str, fact: str, oldest: int) -> None:
    """Check the answer to a position from which nobody can go on."""
    answer = await filled.ask(after=after, wait="30s")
    assert answer.status_code == 410
    problem = answer.json()
    assert problem["type"] == "urn:dockbell:problem:position-gone"
    assert fact in problem["detail"]
    assert problem["oldest"] == position(filled, oldest)
    first = await filled.client.get(answer.request.url.join(answer.links["first"]["url"]))
    assert sequences(first) == [event.sequence for event in await filled.events() if event.sequence > oldest]
    assert first.request.url == answer.request.url.join(problem["feed"])
    state = await filled.client.get(answer.request.url.join(problem["state"]))
    assert [record["key"] for record in state.json()["records"]] == ["a", "b", "c"]


async def test_a_position_of_another_life_is_gone(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    await judge_gone(filled, "0123456789abcdef.2", "belongs to another epoch of the store", 0)


async def test_a_position_beyond_the_end_is_gone(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    await judge_gone(filled, position(filled, 4), "is beyond the last event, 3", 0)


async def test_a_position_whose_events_are_pruned_is_gone(served: Served) -> None:
    filled = await served.fill(*"abc")
    await filled.prune(2)
    await judge_gone(filled, position(filled, 1), "is too old, events up to 2 are no longer kept", 2)
    assert sequences(await filled.ask()) == [3]
    assert sequences(await filled.ask(after=position(filled, 2))) == [3]


async def test_events_that_are_pruned_while_they_are_read_are_not_left_out_in_silence(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = await served.fill(*"abcdef")
    read_events = SqliteReadStore.read_events

    async def prune_and_read(*args: Any) -> Any:
        if len(await filled.events()) > 2:
            await filled.prune(2)
        return await read_events(*args)

    monkeypatch.setattr(SqliteReadStore, "read_events", prune_and_read)
    assert (await filled.ask(after=position(filled, 1))).status_code == 410
    assert sequences(await filled.ask()) == [5, 6]


async def test_a_restored_store_sends_its_readers_to_the_state(served: Served, tmp_path: Path) -> None:
    filled = await served.fill(*"abc")
    kept = (await filled.ask()).headers["dockbell-position"]
    other = tmp_path / "other"
    other.mkdir()
    async with serve(other) as again:
        feed = await again.fill(*"abcd")
        assert (await feed.ask(after=kept)).status_code == 410


async def test_the_cloudevents_library_reads_what_is_in_a_batch(shared: Served) -> None:
    filled = await shared.fill("a", "b")
    for event in (await filled.ask()).json():
        headers = {"content-type": "application/cloudevents+json"}
        assert from_http_event(HTTPMessage(headers, json.dumps(event).encode())).get_id() == event["id"]


class Reader:
    """Takes a stream apart as a browser's EventSource does."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id = ""
        self.comments = 0
        self._lines = response.aiter_lines()

    async def next(self) -> bytes | None:
        """Return the data of the next event; None at the end."""
        data: list[str] = []
        with anyio.fail_after(5):
            async for line in self._lines:
                match line.partition(": "):
                    case "", _, _:
                        if data:
                            return "\n".join(data).encode()
                    case "id", _, text:
                        self.last_id = text
                    case "data", _, text:
                        data.append(text)
                    case _:
                        assert line == ":"
                        self.comments += 1
        return None

    async def sequences(self, count: int) -> list[int]:
        """Return the numbers of the next events."""
        found = [await self.next() for _ in range(count)]
        return [int(json.loads(data)["sequence"]) for data in found if data is not None]


@asynccontextmanager
async def streaming(filled: Filled, last_id: str = "", **parameters: Any) -> AsyncIterator[Reader]:
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
    async with filled.client.stream("GET", filled.events_url, params=parameters, headers=headers) as response:
        yield Reader(response)


async def test_events_come_as_they_are_stored_and_as_they_are_committed(shared: Served) -> None:
    filled = await shared.fill("a", "b")
    async with streaming(filled) as reader:
        assert reader.response.headers["content-type"] == "text/event-stream"
        read = [await reader.next(), await reader.next()]
        await filled.put("c", "d")
        read += [await reader.next(), await reader.next()]
    assert read == [event.body for event in await filled.events()]
    assert reader.last_id == f"{filled.store.epoch}.4"


async def test_a_reader_that_comes_back_goes_on_where_it_was(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    async with streaming(filled) as reader:
        assert await reader.sequences(2) == [1, 2]
    await filled.put("d")
    async with streaming(filled, reader.last_id, after=f"{filled.store.epoch}.0") as again:
        assert await again.sequences(2) == [3, 4]
    async with streaming(filled, after=f"{filled.store.epoch}.3") as other:
        assert await other.sequences(1) == [4]


async def test_more_than_one_portion_comes_whole(shared: Served) -> None:
    filled = await shared.fill(*(f"k{number}" for number in range(130)))
    async with streaming(filled) as reader:
        assert await reader.sequences(130) == list(range(1, 131))


async def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    async with serve(tmp_path, keep_alive=0.02) as served:
        filled = await served.fill("a")
        async with streaming(filled) as reader:
            await reader.sequences(1)
            await anyio.sleep(0.2)
            await filled.put("b")
            assert await reader.sequences(1) == [2]
            assert reader.comments >= 2


async def test_a_position_that_is_gone_is_said_before_the_stream_begins(shared: Served) -> None:
    filled = await shared.fill("a")
    for last_id in ("0123456789abcdef.0", f"{filled.store.epoch}.2"):
        async with streaming(filled, last_id) as reader:
            assert reader.response.status_code == 410
    async with streaming(filled, "7") as reader:
        assert reader.response.status_code == 400
        await reader.response.aread()
        assert reader.response.json()["detail"].startswith("Last-Event-ID: must be a position")


async def test_a_reader_that_pruning_overtakes_is_sent_to_the_state(served: Served) -> None:
    filled = await served.fill("a")
    async with streaming(filled) as reader:
        await reader.sequences(1)
        await served.until_waiting(1)
        # It is held up while the next events are written and pruned.
        async with served.read_store._session._turn:
            await filled.put("b", "c")
            await filled.prune(2)
        assert await reader.next() is None
    async with streaming(filled, reader.last_id) as again:
        assert again.response.status_code == 410


async def test_a_client_of_a_stream_that_goes_away_leaves_its_place(shared: Served) -> None:
    filled = await shared.fill("a")
    async with streaming(filled) as reader:
        await reader.sequences(1)
        await shared.until_waiting(1)
    await shared.until_waiting(0)


async def test_a_feed_that_is_not_there_is_no_stream(shared: Served) -> None:
    answer = await shared.client.get("/feeds/main/nothing", headers={"accept": "Text/Event-Stream;q=0.9, */*"})
    assert answer.status_code == 404
