from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx

from tests.web.sites import Filled, Served, serve


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
async def following(filled: Filled, last_id: str = "", **parameters: Any) -> AsyncIterator[Reader]:
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
    async with filled.client.stream("GET", filled.events_url, params=parameters, headers=headers) as response:
        yield Reader(response)


async def test_events_come_as_they_are_stored_and_as_they_are_committed(shared: Served) -> None:
    filled = await shared.fill("a", "b")
    async with following(filled) as reader:
        assert reader.response.headers["content-type"] == "text/event-stream"
        read = [await reader.next(), await reader.next()]
        await filled.put("c", "d")
        read += [await reader.next(), await reader.next()]
    assert read == [event.body for event in await filled.events()]
    assert reader.last_id == f"{filled.store.epoch}.4"


async def test_a_reader_that_comes_back_goes_on_where_it_was(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    async with following(filled) as reader:
        assert await reader.sequences(2) == [1, 2]
    await filled.put("d")
    async with following(filled, reader.last_id, after=f"{filled.store.epoch}.0") as again:
        assert await again.sequences(2) == [3, 4]
    async with following(filled, after=f"{filled.store.epoch}.3") as other:
        assert await other.sequences(1) == [4]


async def test_more_than_one_portion_comes_whole(shared: Served) -> None:
    filled = await shared.fill(*(f"k{number}" for number in range(130)))
    async with following(filled) as reader:
        assert await reader.sequences(130) == list(range(1, 131))


async def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    async with serve(tmp_path, keep_alive=0.02) as served:
        filled = await served.fill("a")
        async with following(filled) as reader:
            await reader.sequences(1)
            await anyio.sleep(0.2)
            await filled.put("b")
            assert await reader.sequences(1) == [2]
            assert reader.comments >= 2


async def test_a_position_that_is_gone_is_said_before_the_stream_begins(shared: Served) -> None:
    filled = await shared.fill("a")
    for last_id in ("0123456789abcdef.0", f"{filled.store.epoch}.2"):
        async with following(filled, last_id) as reader:
            assert reader.response.status_code == 410
    async with following(filled, "7") as reader:
        assert reader.response.status_code == 400
        await reader.response.aread()
        assert reader.response.json()["detail"].startswith("Last-Event-ID: must be a position")


async def test_a_reader_that_pruning_overtakes_is_sent_to_the_state(served: Served) -> None:
    filled = await served.fill("a")
    async with following(filled) as reader:
        await reader.sequences(1)
        await served.until_waiting(1)
        # It is held up while the next events are written and pruned.
        held = served.site.long_polls._turns[filled.feed]
        async with held:
            served.store.outbox.ring()
            await filled.put("b", "c")
            await filled.prune(2)
        assert await reader.next() is None
    async with following(filled, reader.last_id) as again:
        assert again.response.status_code == 410


async def test_a_client_that_goes_away_leaves_its_place(shared: Served) -> None:
    filled = await shared.fill("a")
    async with following(filled) as reader:
        await reader.sequences(1)
        await shared.until_waiting(1)
    await shared.until_waiting(0)


async def test_a_feed_that_is_not_there_is_no_stream(shared: Served) -> None:
    answer = await shared.client.get("/feeds/main/nothing", headers={"accept": "Text/Event-Stream;q=0.9, */*"})
    assert answer.status_code == 404
