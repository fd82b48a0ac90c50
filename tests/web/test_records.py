from __future__ import annotations

import json
from typing import Any

import pytest

from dockbell.stores.sql import inspection
from tests.stores import pages
from tests.web.sites import Filled, Served


@pytest.fixture
async def filled(served: Served) -> Filled:
    """Return a feed of four records, one of which is gone."""
    filled = await served.fill("SHP-1", "SHP-20", "x/y", "100%_a", resource="shipments")
    await filled.delete(2)
    return filled


async def search(served: Served, **parameters: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await served.client.get("/records/main/shipments", params=parameters)).json()
    return answer


async def find(served: Served, **parameters: Any) -> list[str]:
    return [record["key"] for record in (await search(served, **parameters))["records"]]


async def test_records_are_found_by_any_part_of_the_key(served: Served, filled: Filled) -> None:
    assert await find(served) == ["SHP-1", "SHP-20", "x%2Fy", "100%25_a"]
    assert await find(served, find="shp-") == ["SHP-1", "SHP-20"]
    assert await find(served, find="%") == ["x%2Fy", "100%25_a"]
    assert await find(served, find="_") == ["100%25_a"]
    assert await find(served, find="nothing") == []


async def test_records_are_found_by_any_text_in_their_values(served: Served) -> None:
    filled = await served.fill(resource="shipments")
    await pages.commit(served.store, filled.state, {"id": "a", "order": "SO-4711", "city": "Köln"})
    await pages.commit(served.store, filled.state, {"id": "b", "order": "SO-4712", "weight": 12.50})
    assert await find(served, text="so-471") == ["a", "b"]
    assert await find(served, text="köln") == ["a"]
    assert await find(served, text="12.5") == ["b"]
    assert await find(served, text="order") == []
    assert await find(served, text="b") == ["b"]
    answer = await served.client.get("/records/main/shipments", params={"text": "a", "find": "b"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "text: also searches keys; omit find")


async def test_a_long_feed_is_searched_in_portions(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.fill("a1", "b1", "a2", "a3", resource="shipments")
    monkeypatch.setattr(inspection, "SEARCHED_MOST", 2)
    assert (await search(served, text="a2")) == {"records": [], "next": 2}
    assert [each["key"] for each in (await search(served, text="a", after=2))["records"]] == ["a2", "a3"]
    assert (await search(served, text="a", limit=1))["next"] == 1


async def test_an_entry_says_which_record_it_is_and_whether_it_is_gone(served: Served, filled: Filled) -> None:
    (first, second) = (await search(served, find="SHP"))["records"]
    assert first == {"key": "SHP-1", "revision": 1, "modified": None, "gone_at": None}
    assert (second["revision"], second["gone_at"] is None) == (2, False)


async def test_records_are_found_in_portions(served: Served, filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await search(served, limit=3)
    assert ([each["key"] for each in first["records"]], first["next"]) == (["SHP-1", "SHP-20", "x%2Fy"], 3)
    last = await search(served, limit=3, after=first["next"])
    assert ([each["key"] for each in last["records"]], last["next"]) == (["100%25_a"], None)
    monkeypatch.setattr(inspection, "LOOKED_MOST", 2)
    assert await search(served, find="_") == {"records": [], "next": 2}
    assert (await search(served, find="_", after=2))["next"] is None


async def test_a_record_is_shown_to_the_digit_with_its_last_events_newest_first(served: Served) -> None:
    filled = await served.fill(resource="shipments")
    for number in (1.10, 12345678901234567890):
        await pages.commit(served.store, filled.state, {"id": "a b", "number": number})
    answer = (await served.client.get("/records/main/shipments/a%20b")).json()
    assert answer["text"] == '{\n  "id": "a b",\n  "number": 12345678901234567890\n}'
    assert (answer["key"], answer["revision"], answer["gone_at"]) == ("a%20b", 2, None)
    assert [(each["sequence"], each["words"]) for each in answer["events"]] == [
        (2, "number: 1.1 → 12345678901234567890"),
        (1, "number: 1.1"),
    ]


async def test_a_record_that_is_gone_is_shown_as_it_was_last(served: Served, filled: Filled) -> None:
    answer = (await served.client.get("/records/main/shipments/SHP-20")).json()
    assert json.loads(answer["text"]) == {"id": "SHP-20", "n": 0}
    assert answer["gone_at"] is not None
    assert [each["change"] for each in answer["events"]] == ["deleted", "created"]


@pytest.mark.parametrize(
    ("place", "status", "kind"),
    [
        ("/records/main/shipments/nothing", 404, "unknown-record"),
        ("/records/main/nothing", 404, "unknown-feed"),
        ("/records/main/nothing/a", 404, "unknown-feed"),
        ("/records/main/shipments?after=x", 400, "bad-request"),
        ("/records/main/shipments?limit=201", 400, "bad-request"),
    ],
)
async def test_what_is_not_there_or_cannot_be_meant_is_said(
    served: Served, filled: Filled, place: str, status: int, kind: str
) -> None:
    answer = await served.client.get(place)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:dockbell:problem:{kind}")
