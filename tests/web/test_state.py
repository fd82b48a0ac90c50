from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dockbell.core import key
from dockbell.core.model import Feed
from dockbell.stores.sqlite import SqliteReadStore
from tests.stores import pages
from tests.web.sites import Filled, Served


async def read_pages(filled: Filled, limit: int) -> list[httpx.Response]:
    answers = [await filled.client.get(filled.state_url, params={"limit": limit})]
    while "next" in answers[-1].links:
        answers.append(await filled.client.get(answers[-1].request.url.join(answers[-1].links["next"]["url"])))
    return answers


async def test_all_pages_together_are_the_stored_records(shared: Served) -> None:
    filled = await shared.fill(*"abcde")
    await filled.put("b", n=1)
    answers = [answer.json() for answer in await read_pages(filled, 2)]
    assert [len(answer["records"]) for answer in answers] == [2, 2, 1]
    records = {record["key"]: record for answer in answers for record in answer["records"]}
    assert records.keys() == set("abcde")
    assert records["b"]["record"] == {"id": "b", "n": 1}
    assert records["b"]["revision"] == records["a"]["revision"] + 1
    assert [answer["next"] is None for answer in answers] == [False, False, True]


async def test_a_page_that_takes_all_that_is_left_is_the_last(shared: Served) -> None:
    filled = await shared.fill(*"abcd")
    assert [len(answer.json()["records"]) for answer in await read_pages(filled, 2)] == [2, 2]


async def test_a_page_ends_where_it_grows_too_large(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = await shared.fill(*(f"k{number}" for number in range(120)))
    monkeypatch.setattr("dockbell.web.state._BYTES_MOST", 500)
    answers = await read_pages(filled, 1000)
    assert [len(answer.json()["records"]) for answer in answers] == [50, 50, 20]


async def test_every_page_has_the_position_of_the_first(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    first = await filled.client.get(filled.state_url, params={"limit": 1})
    await filled.put("d", "a", n=1)
    second = await filled.client.get(first.request.url.join(first.json()["next"]))
    expected = f"{filled.store.epoch}.3"
    for answer in (first, second):
        assert answer.json()["position"] == answer.headers["dockbell-position"] == expected
        follow = await filled.client.get(answer.request.url.join(answer.json()["feed"]))
        assert [int(event["sequence"]) for event in follow.json()] == [4, 5]
        assert follow.request.url == answer.request.url.join(answer.links["monitor"]["url"])


async def test_a_record_is_shown_byte_for_byte(shared: Served) -> None:
    filled = await shared.fill()
    raw = b'{"id": "a",\n  "n": 1.0, "big": 123456789012345678901234567890, "t": "\\u00fc"}'
    await pages.commit(filled.store, filled.state, raw)
    assert raw in (await filled.client.get(filled.state_url)).content
    assert raw in (await filled.client.get(f"{filled.state_url}/a")).content


async def test_a_page_says_whether_a_whole_pass_stands_behind_it(shared: Served) -> None:
    filled = await shared.fill("a")

    async def is_complete() -> bool:
        page = (await filled.client.get(filled.state_url)).json()
        assert [record["key"] for record in page["records"]] == ["a"]
        return bool(page["complete"])

    assert not await is_complete()
    await pages.close_pass(filled.store, filled.state)
    assert await is_complete()
    await filled.store.feed(filled.state.feed).save_read_settings(
        {}, rebaseline=pages.a_statement(parts=["query"]), compose=pages.COMPOSE
    )
    assert not await is_complete()


@pytest.mark.parametrize("is_before", [True, False])
async def test_records_that_were_read_as_the_feed_began_to_be_read_differently_are_not_complete(
    shared: Served, monkeypatch: pytest.MonkeyPatch, *, is_before: bool
) -> None:
    filled = await shared.fill("a", "b")
    await pages.close_pass(filled.store, filled.state)
    read_records = SqliteReadStore.read_records

    async def rebaseline() -> None:
        statement = pages.a_statement(parts=["key"])
        await filled.store.feed(filled.state.feed).save_read_settings({}, rebaseline=statement, compose=pages.COMPOSE)

    async def read_meanwhile(*args: Any) -> Any:
        if is_before:
            await rebaseline()
        found = await read_records(*args)
        if not is_before:
            await rebaseline()
        return found

    monkeypatch.setattr(SqliteReadStore, "read_records", read_meanwhile)
    page = (await filled.client.get(filled.state_url)).json()
    assert page["complete"] is False


async def test_records_that_were_read_before_the_first_pass_ended_are_not_complete(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = await shared.fill("a")
    read_records = SqliteReadStore.read_records

    async def read_and_close(*args: Any) -> Any:
        found = await read_records(*args)
        await filled.put("b")
        await pages.close_pass(filled.store, filled.state)
        return found

    monkeypatch.setattr(SqliteReadStore, "read_records", read_and_close)
    page = (await filled.client.get(filled.state_url)).json()
    assert ([each["key"] for each in page["records"]], page["complete"]) == (["a"], False)


async def test_a_feed_without_records_has_a_position_too(shared: Served) -> None:
    filled = await shared.fill()
    answer = (await filled.client.get(filled.state_url)).json()
    assert (answer["records"], answer["position"], answer["next"]) == ([], f"{filled.store.epoch}.0", None)


async def test_the_notices_are_a_feed_without_records(shared: Served) -> None:
    state = await shared.store.feed(Feed("dockbell", "notices")).open()
    await shared.store.feed(state.feed).publish([pages.a_statement()], pages.COMPOSE)
    assert len((await shared.client.get("/feeds/dockbell/notices")).json()) == 1
    page = (await shared.client.get("/state/dockbell/notices")).json()
    assert (page["records"], page["complete"]) == ([], True)


@pytest.mark.parametrize(
    ("cursor", "status"), [("x", 400), ("7.7", 400), ("{epoch}.1.x", 400), ("other.1.1", 410), ("{epoch}.9.1", 410)]
)
async def test_a_cursor_that_was_not_given_is_refused(shared: Served, cursor: str, status: int) -> None:
    filled = await shared.fill("a")
    parameters = {"cursor": cursor.format(epoch=filled.store.epoch)}
    assert (await filled.client.get(filled.state_url, params=parameters)).status_code == status


async def test_pages_whose_position_was_pruned_begin_anew(served: Served) -> None:
    filled = await served.fill(*"abc")
    first = await filled.client.get(filled.state_url, params={"limit": 1})
    await filled.put("d", "e")
    await filled.prune(4)
    answer = await filled.client.get(first.request.url.join(first.json()["next"]))
    assert answer.status_code == 410
    assert answer.request.url.join(answer.json()["state"]).path == filled.state_url


# One record -----------------------------------------------------------------------------------------------------------


async def test_a_record_is_answered_with_its_revision_and_the_position(shared: Served) -> None:
    filled = await shared.fill("a")
    await filled.put("a", n=1)
    answer = await filled.client.get(f"{filled.state_url}/a")
    assert answer.json() == {
        "position": f"{filled.store.epoch}.2",
        "key": "a",
        "revision": (await filled.events())[-1].revision,
        "record": {"id": "a", "n": 1},
    }


async def test_a_deleted_record_is_gone_and_an_unknown_one_was_never_there(shared: Served) -> None:
    filled = await shared.fill("a")
    _, record = await shared.read_store.read_record(filled.feed, "a")
    assert record is not None
    await filled.delete(record.row)
    gone = await filled.client.get(f"{filled.state_url}/a")
    assert (gone.status_code, gone.json()["revision"]) == (410, record.revision + 1)
    assert gone.json()["type"] == "urn:dockbell:problem:record-gone"
    assert gone.json()["position"] == f"{filled.store.epoch}.2"
    for unknown in ("b", "%FF", "%2", "a%2Fb", "é"):
        answer = await filled.client.get(f"{filled.state_url}/{unknown}")
        assert answer.status_code == 404
        assert answer.json()["type"] == "urn:dockbell:problem:unknown-record"


@pytest.mark.parametrize("place", ["/state/main/nothing", "/state/main/nothing/a"])
async def test_an_unknown_feed_is_said_to_be_so(shared: Served, place: str) -> None:
    assert (await shared.client.get(place)).json()["type"] == "urn:dockbell:problem:unknown-feed"


KEYS = ["a/b", "a%2Fb", "100%", "%", "a,b", "a%2Cb", ".", "..", "ü b", "a?b#c", "a+b", "\x00", "//", "%25"]
KEYS += ["&=;:@!$'()*", "\\"]


async def test_every_key_is_found_as_a_part_of_a_path(shared: Served) -> None:
    filled = await shared.fill(*KEYS)
    for text in KEYS:
        answer = await filled.client.get(f"{filled.state_url}/{quote(key.encode([text]), safe='')}")
        assert answer.json()["record"]["id"] == text


# httpx writes these once more than they are; so does every browser with the dots.
@pytest.mark.parametrize("text", sorted({*KEYS} - {"a%2Fb", "a%2Cb", "%25", ".", ".."}))
async def test_a_key_string_may_be_pasted_as_it_is(shared: Served, text: str) -> None:
    filled = await shared.fill(text)
    pasted = quote(key.encode([text]), safe="%,&=;:@!$'()*")
    assert (await filled.client.get(f"{filled.state_url}/{pasted}")).json()["record"]["id"] == text


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1, max_size=4))
async def test_no_key_is_taken_for_another(shared: Served, texts: list[str]) -> None:
    filled = await shared.fill(*texts)
    for text in texts:
        answer = await filled.client.get(f"{filled.state_url}/{quote(key.encode([text]), safe='')}")
        assert answer.json()["record"]["id"] == text


# State, then feed -----------------------------------------------------------------------------------------------------


class Copy:
    """The records of a feed as a reader has them who reads the state and follows the feed from there."""

    def __init__(self, filled: Filled) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self._filled = filled
        self._revisions: dict[str, int] = {}
        self._next: str | None = "?limit=2"
        self._base = filled.client.base_url.join(filled.state_url)

    async def read_page(self) -> None:
        """Read one page of the state, or, once there are no more, one of the feed."""
        answer = await self._filled.client.get(self._base.join(self._next or "?"))
        assert answer.status_code == 200, answer.text
        if "records" in (page := answer.json()):
            for found in page["records"]:
                self._apply(found["key"], found["revision"], found["record"])
            self._next = page["next"]
            if self._next is None:
                self._base = self._base.join(page["feed"])
                self._next = f"?{self._base.query.decode()}&limit=2"
            return
        for event in page:
            self._apply(event["data"]["key"], event["data"]["revision"], event["data"]["after"])
        self._next = answer.links["next"]["url"]
        self.is_done = not page

    is_done = False

    def _apply(self, text: str, revision: int, record: dict[str, Any] | None) -> None:
        if revision <= self._revisions.get(text, -1):
            return
        self._revisions[text] = revision
        if record is None:
            self.records.pop(text, None)
        else:
            self.records[text] = record


STEPS = st.one_of(
    st.just(("read", "", 0)),
    st.tuples(st.just("put"), st.sampled_from("abcdefg"), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.sampled_from("abcdefg"), st.just(0)),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=25))
async def test_a_reader_of_state_and_feed_ends_up_with_what_is_stored(
    shared: Served, steps: list[tuple[str, str, int]]
) -> None:
    filled = await shared.fill(*"abcd")
    copy = Copy(filled)
    for what, text, n in steps:
        _, record = await shared.read_store.read_record(filled.feed, text)
        if what == "read":
            await copy.read_page()
        elif what == "put":
            await filled.put(text, n=n)
        elif record is not None and record.body is not None:
            await filled.delete(record.row)
    copy.is_done = False
    while not copy.is_done:
        await copy.read_page()
    _, stored = await shared.read_store.read_records(filled.feed, 0, 100)
    assert copy.records == {record.key: json.loads(record.body or b"") for record in stored}
