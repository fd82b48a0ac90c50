from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.publishing.settlement import Blocked, Settlement
from dockbell.web import events
from tests.fakes import NOON
from tests.stores import pages
from tests.web.sites import Filled, Served
from tests.web.stories import bury_letters


@pytest.fixture
async def filled(served: Served) -> Filled:
    """Return a feed that is configured, with five events."""
    filled = await served.fill("a", "b", resource="shipments")
    await filled.put("a", n=1)
    await filled.put("a", "b", n=2)
    return filled


async def ask(served: Served, **parameters: Any) -> Any:
    answer = await served.client.get("/events", params=parameters)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def test_events_are_listed_newest_first_and_page_by_page(served: Served, filled: Filled) -> None:
    first = await ask(served, limit=3)
    assert [(event["key"], event["revision"], event["change"]) for event in first["events"]] == [
        ("b", 2, "updated"),
        ("a", 3, "updated"),
        ("a", 2, "updated"),
    ]
    second = await ask(served, limit=3, before=first["next"])
    assert [event["sequence"] for event in second["events"]] == [2, 1]
    assert second["next"] is None


async def test_events_can_be_chosen(served: Served, filled: Filled) -> None:
    for parameters, sequences in (
        ({"source": "main", "resource": "shipments"}, [5, 4, 3, 2, 1]),
        ({"resource": "stock"}, []),
        ({"source": "nothing"}, []),
        ({"key": "a"}, [4, 3, 1]),
        ({"key": "a", "change": "created"}, [1]),
        ({"type": "dockbell.shipment.created"}, [2, 1]),
        ({"change": "deleted"}, []),
    ):
        assert [event["sequence"] for event in (await ask(served, **parameters))["events"]] == sequences


async def test_a_key_may_be_given_as_the_api_writes_it(served: Served) -> None:
    await served.fill("a b/c", resource="shipments")
    for key in ("a b/c", "a%20b%2Fc"):
        assert [event["key"] for event in (await ask(served, key=key))["events"]] == ["a%20b%2Fc"]


async def test_a_summary_says_what_became_what(served: Served) -> None:
    filled = await served.fill(resource="shipments")
    await pages.commit(served.store, filled.state, {"id": "a", "status": "picking"})
    await pages.commit(served.store, filled.state, {"id": "a", "status": "packed"})
    assert [event["words"] for event in (await ask(served))["events"]] == [
        "status: picking → packed",
        "status: picking",
    ]


async def test_an_event_is_found_by_its_id(served: Served, filled: Filled) -> None:
    (third,) = [event for event in await filled.events() if event.sequence == 3]
    assert [event["sequence"] for event in (await ask(served, id=third.id))["events"]] == [3]
    assert (await ask(served, id="evt_0"))["events"] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "201"),
        ("before", "-1"),
        ("before", "x"),
        ("before", "9" * 19),
        ("key", ""),
        ("at", "1"),
    ],
)
async def test_what_cannot_be_meant_is_refused(shared: Served, name: str, value: str) -> None:
    answer = await shared.client.get("/events", params={name: value})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:dockbell:problem:bad-request")


async def test_one_event_is_shown_with_what_it_changed(served: Served, filled: Filled) -> None:
    answer = (await served.client.get("/events/main/shipments/3")).json()
    (event,) = [event for event in await filled.events() if event.sequence == 3]
    assert answer["event"] == json.loads(answer["text"]) == json.loads(event.body)
    assert answer["recorded_at"] == "2026-11-21T12:00:00.000Z"
    assert answer["differences"] == [
        {"path": "/n", "op": "replace", "from": 0, "to": 1, "from_text": "0", "to_text": "1"}
    ]
    created = (await served.client.get("/events/main/shipments/1")).json()
    assert created["differences"] == [
        {"path": "/id", "op": "add", "from": None, "to": "a", "from_text": None, "to_text": '"a"'},
        {"path": "/n", "op": "add", "from": None, "to": 0, "from_text": None, "to_text": "0"},
    ]


async def test_a_statement_differs_from_nothing(served: Served, filled: Filled) -> None:
    await pages.close_pass(served.store, filled.state, statements=[pages.a_statement(verdict="exact")])
    answer = (await served.client.get("/events/main/shipments/6")).json()
    assert (answer["event"]["data"]["statement"], answer["differences"]) == ("reconciled", [])


async def test_an_event_that_was_purged_differs_in_nothing(served: Served, filled: Filled) -> None:
    await served.store.privacy.purge(pages.FEED, "a", partial(purge, pages.FEED), pages.COMPOSE)
    for sequence in range(1, 6):
        answer = (await served.client.get(f"/events/main/shipments/{sequence}")).json()
        is_purged = answer["event"]["data"]["key"] == "a"
        assert answer["event"]["data"].get("purged", False) is is_purged
        assert bool(answer["differences"]) is not is_purged
    assert all("n: " not in each["words"] for each in (await ask(served, key="a"))["events"])


async def test_a_record_of_many_changes_is_told_in_part(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "DIFFERENCES_MOST", 3)
    filled = await served.fill(resource="shipments")
    await pages.commit(served.store, filled.state, {"id": "a", "list": list(range(9))})
    answer = (await served.client.get("/events/main/shipments/1")).json()
    assert (len(answer["differences"]), answer["more"]) == (3, 7)


async def test_numbers_are_shown_to_the_digit(served: Served) -> None:
    filled = await served.fill(resource="shipments")
    await pages.commit(
        served.store, filled.state, b'{"id": "a", "n": 12345678901234567890.10, "m": 18446744073709551617}'
    )
    text = (await served.client.get("/events/main/shipments/1")).text
    assert '"to":12345678901234567890.10' in text
    assert '"to":18446744073709551617' in text


async def test_values_are_told_as_text_just_as_they_are_stored(served: Served) -> None:
    filled = await served.fill(resource="shipments")
    before = '"n":1.10,"list":[1,{"x":2.50}],"whole":{"x":[7.00,"é"]},"gone":[7.00],"null":1'
    after = '"n":1.1e5,"list":[0,{"x":2.5}],"whole":0.0,"more":12345678901234567890.10,"null":null'
    for text in (before, after):
        await pages.commit(served.store, filled.state, f'{{"id":"a",{text}}}'.encode())
    answer = (await served.client.get("/events/main/shipments/2")).json()
    assert {each["path"]: (each["from_text"], each["to_text"]) for each in answer["differences"]} == {
        "/gone/0": ("7.00", None),
        "/list/0": ("1", "0"),
        "/more": (None, "12345678901234567890.10"),
        "/n": ("1.10", "1.1e5"),
        "/null": ("1", "null"),
        "/whole": ('{"x":[7.00,"é"]}', "0.0"),
    }


async def test_hostile_text_is_text(served: Served) -> None:
    hostile = "</script><img src=x onerror=alert(1)>\u2028\x00"
    filled = await served.fill(resource="shipments")
    await pages.commit(served.store, filled.state, {"id": "a", hostile: hostile})
    answer = await served.client.get("/events/main/shipments/1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["differences"][1] == {
        "path": "/" + hostile.replace("/", "~1"),
        "op": "add",
        "from": None,
        "to": hostile,
        "from_text": None,
        "to_text": json.dumps(hostile, ensure_ascii=False),
    }


async def test_the_deliveries_of_an_event_are_told(served: Served, filled: Filled) -> None:
    await bury_letters(served, "erp", filled.feed, (1, "a"))
    await served.store.sink("floor").enroll("beginning")
    blocked = Blocked(filled.feed, "a", 3, 2, NOON, "HTTP 503")
    await served.store.sink("floor").settle(
        Settlement(positions={filled.feed: 5}, blocked={(filled.feed, "a"): blocked}, origins={filled.feed: 0})
    )

    async def stages(sequence: int) -> dict[str, Any]:
        told = (await served.client.get(f"/events/main/shipments/{sequence}")).json()["deliveries"]
        return {each["sink"]: (each["stage"], each["attempts"], each["error"]) for each in told}

    assert await stages(1) == {"erp": ("dead", 3, "HTTP 400"), "floor": ("delivered", 0, "")}
    assert (await stages(3))["floor"] == ("blocked", 2, "HTTP 503")
    assert (await stages(4))["floor"] == ("waiting", 0, "")


async def test_what_is_not_there_is_said_to_be_so(served: Served, filled: Filled) -> None:
    for place, kind in (
        ("/events/main/shipments/6", "unknown-event"),
        ("/events/main/shipments/0", "unknown-event"),
        ("/events/main/nothing/1", "unknown-feed"),
    ):
        answer = await served.client.get(place)
        assert (answer.status_code, answer.json()["type"]) == (404, f"urn:dockbell:problem:{kind}")
