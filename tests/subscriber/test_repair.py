from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import anyio
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockbell.config import parse_duration
from dockbell.core.model import Event
from dockbell.core.publishing.statement import rebaselined
from dockbell.subscriber import Copy, NotAnEvent, PositionLost, PullRefused, PullUnavailable, RevisionGaps, State, parse
from dockbell.subscriber import Event as Parsed
from dockbell.subscriber.repair import PullFeeds, read_position
from dockbell.web.params import WAIT_MOST
from tests.subscriber.pulling import Web, answering, batch, page, problem
from tests.subscriber.stories import FEED, NOW, STEPS, Content, Story, deliver, render, same, store_lost, told

URL: Final = "http://127.0.0.1:8470"
PLACE: Final = "main/shipments/shp_1"
NAME: Final = str(FEED)


def story() -> Story:
    """Five changes of two records, one named event; the first is gone."""
    made = Story()
    for key, content in (
        ("shp_1", {"status": "open"}),
        ("shp/3 +", {"status": "open"}),
        ("shp_1", {"status": "shipped"}),
        ("shp_1", None),
        ("shp/3 +", {"status": "packed"}),
    ):
        made.tell(key, content)
    return made


def parsed(events: Sequence[Event]) -> list[Parsed]:
    return [parse(event.body) for event in events]


def lost_store() -> Story:
    lost = Story(epoch="e2")
    lost.state(store_lost())
    return lost


def is_right(state: State, story: Story) -> bool:
    records = {place.removeprefix(f"{FEED}/"): record for place, record in state.items()}
    exact = {place.removeprefix(f"{FEED}/"): copy.revision for place, copy in state.copies.items() if copy.is_exact}
    revisions = {key: story.revisions.get(key) for key in exact}
    return same(records, story.records) and exact == revisions and state.stale | state.unread == set()


# Any stream of changes -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(STEPS, STEPS, st.integers(0, 2**32), st.sampled_from(["full", "patch", "thin"]), st.sampled_from(["e1.0", None]))
def test_whatever_was_lost_repair_ends_in_the_true_state_and_no_gap_is_invented_after_it(
    steps: list[tuple[str, Content]], later: list[tuple[str, Content]], seed: int, payload: str, position: str | None
) -> None:
    async def live() -> None:
        truth, state = told(steps), State(gaps=RevisionGaps(from_beginning=True))
        for event in parsed(deliver(render(truth.events, payload), random.Random(seed), loss=0.4)):
            state.apply(event)
        async with PullFeeds(URL, transport=Web(truth)) as feeds:
            assert await feeds.catch_up(state, NAME, position) == f"e1.{truth.last}"
        assert is_right(state, truth)
        told_already = len(truth.events)
        for step in later:
            truth.tell(*step)
        found = [state.apply(event).missing for event in parsed(truth.events[told_already:])]
        assert (set(found) <= {None}, is_right(state, truth)) == (True, True)

    anyio.run(live)


@settings(max_examples=60)
@given(STEPS, STEPS, st.integers(0, 2**32), st.booleans())
def test_repair_ends_in_the_true_state_when_the_store_was_lost_too(
    steps: list[tuple[str, Content]], anew: list[tuple[str, Content]], seed: int, is_told: bool
) -> None:
    async def live() -> None:
        old, truth, state = told(steps), Story(epoch="e2"), State(gaps=RevisionGaps(from_beginning=True))
        truth.state(store_lost())
        for step in anew:
            truth.tell(*step)
        arrived = deliver(old.events, random.Random(seed), loss=0.4) + (truth.events if is_told else [])
        for event in parsed(arrived):
            state.apply(event)
        async with PullFeeds(URL, transport=Web(truth)) as feeds:
            assert await feeds.catch_up(state, NAME, f"e1.{old.last}") == f"e2.{truth.last}"
        assert is_right(state, truth)

    anyio.run(live)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 2**32), st.sampled_from(["full", "patch", "thin"]))
def test_mending_what_shows_makes_every_record_true_whose_last_change_came(
    steps: list[tuple[str, Content]], seed: int, payload: str
) -> None:
    async def live() -> None:
        truth, state = told(steps), State(gaps=RevisionGaps(from_beginning=True))
        arrived = deliver(render(truth.events, payload), random.Random(seed), loss=0.3)
        async with PullFeeds(URL, transport=Web(truth)) as feeds:
            for event in parsed(arrived):
                state.apply(event)
                await feeds.mend(state)
        came = {event.id for event in arrived}
        for last in {event.key: event for event in truth.changes()}.values():
            if last.id in came:
                assert same(state.get(f"{FEED}/{last.key}"), truth.records.get(last.key))

    anyio.run(live)


# Events --------------------------------------------------------------------------------------------------------------


async def test_a_feed_is_read_in_batches_to_its_end() -> None:
    truth = story()
    async with PullFeeds(URL, transport=(web := Web(truth, most=4))) as feeds:
        batches = [each async for each in feeds.follow(NAME)]
    assert [[event.sequence for event in each.events] for each in batches] == [[1, 2, 3, 4], [5, 6]]
    assert [each.position for each in batches] == ["e1.4", "e1.6"]
    assert [request.url.params.get("after") for request in web.requests] == [None, "e1.4", "e1.6"]


async def test_with_wait_a_feed_is_followed_for_ever() -> None:
    truth = story()
    web = Web(truth, most=10)
    async with PullFeeds(URL, transport=web) as feeds:
        batches = feeds.follow(NAME, "e1.6", wait=timedelta(seconds=30))

        def go_on() -> None:
            if len(web.requests) == 3:
                truth.tell("shp_1", {"status": "back"})

        web.before = go_on
        batch = await anext(batches)
        await batches.aclose()  # type: ignore[attr-defined]
    assert ([event.type for event in batch.events], batch.position) == (["dockbell.shipment.restored"], "e1.7")
    assert {request.url.params["wait"] for request in web.requests} == {"30000ms"}
    assert web.requests[0].extensions["timeout"]["read"] == 50


@pytest.mark.parametrize(
    ("wait", "asked"),
    [(timedelta(seconds=0.5), "500ms"), (timedelta(microseconds=1), "1ms"), (timedelta(seconds=60), "60000ms")],
)
async def test_a_wait_of_less_than_a_second_is_waited_for_too(wait: timedelta, asked: str) -> None:
    web = Web(story())
    async with PullFeeds(URL, transport=web) as feeds:
        await feeds.read(NAME, "e1.6", wait=wait)
    (request,) = web.requests
    assert request.url.params["wait"] == asked
    assert timedelta() < parse_duration(asked) <= WAIT_MOST


async def test_the_token_is_sent_and_keys_are_quoted() -> None:
    web = Web(story())
    async with PullFeeds(f"{URL}/", token="hush", transport=web) as feeds:
        state = State()
        await feeds.refetch(state, "main/shipments/shp%2F3%20%2B")
    (request,) = web.requests
    assert request.headers["authorization"] == "Bearer hush"
    assert request.url.raw_path == b"/state/main/shipments/shp%252F3%2520%252B"
    assert state["main/shipments/shp%2F3%20%2B"]["status"] == "packed"


@pytest.mark.parametrize("position", ["e0.3", "e1.1", "e1.7"])
async def test_a_position_that_dockbell_cannot_go_on_from_is_lost(position: str) -> None:
    async with PullFeeds(URL, transport=Web(story(), pruned=2)) as feeds:
        with pytest.raises(PositionLost, match="HTTP 410, it is position-gone") as error:
            await feeds.read(NAME, position)
    assert error.value.oldest == "e1.2"


async def test_an_answer_that_leaves_events_out_is_not_believed() -> None:
    events = [event.body for event in story().events]
    for after, bodies in ((None, events[:1] + events[2:3]), ("e1.0", events[1:3])):
        async with PullFeeds(URL, transport=answering(batch(*bodies))) as feeds:
            with pytest.raises(PullUnavailable, match="leaves out events"):
                await feeds.read(NAME, after)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (httpx.ConnectError("refused"), PullUnavailable, "ConnectError"),
        (httpx.Response(503), PullUnavailable, "HTTP 503"),
        (httpx.Response(429), PullUnavailable, "HTTP 429"),
        (problem(401, "token"), PullRefused, "HTTP 401, it is token"),
        (problem(404, "unknown-feed"), PullRefused, "it is unknown-feed"),
        (httpx.Response(302, headers={"location": "http://127.0.0.1:1"}), PullRefused, "HTTP 302"),
        (httpx.Response(400, content=b"[]"), PullRefused, "HTTP 400, Bad Request"),
        (httpx.Response(200, content=b"<html>"), PullUnavailable, "no batch"),
        (batch(b"{}"), PullUnavailable, "no batch"),
        (batch(position="soon"), PullUnavailable, "no batch"),
    ],
)
async def test_whatever_is_no_answer_says_who_must_act(
    answer: httpx.Response | Exception, kind: type[Exception], said: str
) -> None:
    async with PullFeeds(URL, token="hush", transport=answering(answer)) as feeds:
        with pytest.raises(kind, match=said) as error:
            await feeds.read(NAME, "e1.3")
    assert "hush" not in str(error.value)


# State ---------------------------------------------------------------------------------------------------------------


async def test_a_feed_is_loaded_page_by_page_and_followed_from_its_position() -> None:
    truth = Story()
    for number in range(8):
        truth.tell(f"shp_{number}", {"status": "open"})
    truth.tell("shp_3", None)
    web, state = Web(truth, most=3), State()
    state.put("main/shipments/shp_old", revision=1, sequence=1, record={})
    async with PullFeeds(URL, transport=web) as feeds:
        assert await feeds.load(state, NAME) == "e1.9"
    assert len(web.requests) == 3
    assert sorted(place.removeprefix("main/shipments/") for place in state) == sorted(truth.records)


async def test_what_happens_while_a_feed_is_loaded_is_not_lost() -> None:
    truth = Story()
    for number in range(8):
        truth.tell(f"shp_{number}", {"status": "open"})
    web, state = Web(truth, most=3), State(gaps=RevisionGaps())

    def go_on() -> None:
        if len(web.requests) == 2:
            truth.tell("shp_new", {"status": "open"})
            truth.tell("shp_0", {"status": "packed"})
            truth.tell("shp_1", None)
            truth.tell("shp_7", {"status": "packed"})
            for event in truth.events[-4:]:
                assert state.apply(parse(event.body)).missing is None

    web.before = go_on
    async with PullFeeds(URL, transport=web) as feeds:
        position = await feeds.load(state, NAME)
        assert (position, is_right(state, truth)) == ("e1.8", True)
        assert await feeds.catch_up(state, NAME, position) == "e1.12"
    assert is_right(state, truth)


async def test_a_life_that_ends_while_its_records_are_read_is_told() -> None:
    truth = story()
    truth.tell("shp_5", {"status": "open"})
    web = Web(truth, most=1)

    def end() -> None:
        if len(web.requests) == 2:
            web.story = Story(epoch="e2")

    web.before = end
    async with PullFeeds(URL, transport=web) as feeds:
        with pytest.raises(PositionLost):
            await feeds.load(State(), NAME)


async def test_a_record_is_read_again_whatever_became_of_it() -> None:
    truth = story()
    state = State({PLACE: Copy(1, 1, {"status": "open"}), "main/shipments/shp_8": Copy(4, 9, {})})
    async with PullFeeds(URL, transport=Web(truth)) as feeds:
        for place in (PLACE, "main/shipments/shp_8", "main/shipments/shp_9"):
            await feeds.refetch(state, place)
    assert state.copies == {PLACE: Copy(3, 6, None)}


@pytest.mark.parametrize(
    "answer",
    [
        page(),
        page(position="e1.3", complete=True, records=[{}], next=None),
        page(position="e", complete=True, records=[], next=None),
        batch(),
    ],
)
async def test_what_is_no_page_of_records_is_refused(answer: httpx.Response) -> None:
    async with PullFeeds(URL, transport=answering(answer)) as feeds:
        with pytest.raises(PullUnavailable, match="no page of records"):
            await feeds.load(State(), NAME)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (page(position="e1.3"), PullUnavailable),
        (batch(), PullUnavailable),
        (httpx.Response(200, content=b"<html>"), PullUnavailable),
        (httpx.Response(502), PullUnavailable),
        (problem(404, "unknown-feed"), PullRefused),
        (httpx.Response(401, content=b"<html>"), PullRefused),
        (problem(410, "endpoint-gone"), PositionLost),
    ],
)
async def test_what_is_no_record_is_refused(answer: httpx.Response, kind: type[Exception]) -> None:
    state = State({PLACE: Copy(1, 1, {})})
    async with PullFeeds(URL, transport=answering(answer)) as feeds:
        with pytest.raises(kind):
            await feeds.refetch(state, PLACE)
    assert state.copies == {PLACE: Copy(1, 1, {})}


async def test_mending_reads_what_is_lacking_and_nothing_else() -> None:
    truth = story()
    web, state = Web(truth), State(gaps=RevisionGaps(from_beginning=True))
    created, other, _, updated, *_ = parsed(render(truth.events, "thin"))
    (gap,) = parsed(lost_store().events)
    async with PullFeeds(URL, transport=web) as feeds:
        for event in (created, other, updated):
            state.apply(event)
        await feeds.mend(state)
        paths = [f"/state/main/shipments/{key}" for key in ("shp%2F3%20%2B", "shp_1")]
        assert [request.url.path for request in web.requests] == paths
        await feeds.mend(state)
        state.apply(gap)
        await feeds.mend(state)
        await feeds.mend(state)
    assert [request.url.path for request in web.requests[2:]] == ["/state/main/shipments"]
    assert is_right(state, truth)


async def test_what_dockbell_has_not_read_itself_is_read_again_later() -> None:
    truth, state = story(), State()
    web = Web(truth)
    web.is_complete = False
    state.put("main/shipments/shp_8", revision=1, sequence=1, record={})
    async with PullFeeds(URL, transport=web) as feeds:
        with pytest.raises(PullUnavailable, match="load it again later"):
            await feeds.load(state, NAME)
        assert (len(state), state.unread) == (2, {NAME})
        web.is_complete = True
        await feeds.mend(state)
    assert is_right(state, truth)


async def test_a_position_that_is_too_old_costs_a_reading_but_no_revision() -> None:
    truth, state = story(), State()
    state.put(PLACE, revision=3, sequence=4, record=None)
    async with PullFeeds(URL, transport=Web(truth, pruned=5)) as feeds:
        assert await feeds.catch_up(state, NAME, "e1.4") == "e1.6"
    assert is_right(state, truth)
    assert state.copies[PLACE] == Copy(3, 6, None, is_exact=False)


async def test_what_was_not_whole_as_its_reading_began_is_read_again_too() -> None:
    truth, state = story(), State()
    truth.tell("shp_9", {"status": "open"})
    web = Web(truth, most=1)
    web.is_complete = False

    def end_pass() -> None:
        web.is_complete = len(web.requests) == 2

    web.before = end_pass
    async with PullFeeds(URL, transport=web) as feeds:
        with pytest.raises(PullUnavailable, match="load it again later"):
            await feeds.load(state, NAME)
    assert len(web.requests) == 2


async def test_a_feed_that_is_read_differently_is_loaded_again() -> None:
    truth, state = story(), State()
    truth.state(rebaselined(FEED, NOW, ["query"]))
    truth.tell("shp_1", {"status": "open"})
    web = Web(truth)
    async with PullFeeds(URL, transport=web) as feeds:
        await feeds.catch_up(state, NAME, "e1.0")
    assert web.requests[-1].url.path == "/state/main/shipments"
    assert is_right(state, truth)


@pytest.mark.parametrize("position", ["", "3", ".3", "e1.", "e1.x", "e1.-3"])
def test_what_is_no_position_is_refused(position: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        read_position(position)


def test_a_batch_is_no_event() -> None:
    with pytest.raises(NotAnEvent):
        parse(b"[]")
