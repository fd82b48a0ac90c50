from __future__ import annotations

from typing import Any

import pytest

from tests.web.sites import Served
from tests.web.stories import bury_letters


async def ask(served: Served, sink: str = "erp", **parameters: Any) -> Any:
    answer = await served.client.get(f"/sinks/{sink}/dead", params=parameters)
    assert answer.status_code == 200
    return answer.json()


async def test_dead_letters_are_listed_page_by_page(served: Served) -> None:
    filled = await served.fill("a", "b,c", "é/", resource="shipments")
    keys = [event.key for event in await filled.events()]
    await bury_letters(served, "erp", filled.feed, *enumerate(keys, start=1), (9, "gone"), error="HTTP 400")
    first = await ask(served, limit=3)
    assert first["letters"][0] == {
        "feed": "main/shipments",
        "sequence": 1,
        "key": "a",
        "type": "dockbell.shipment.created",
        "error": "HTTP 400",
        "answer": "",
        "attempts": 3,
        "died_at": "2026-11-21T12:00:00.000Z",
        "holds": False,
    }
    second = await ask(served, limit=3, after=first["next"])
    assert [letter["key"] for letter in first["letters"] + second["letters"]] == [*keys, "gone"]
    assert second["letters"][0]["type"] is None
    assert (first["total"], second["next"]) == (4, None)


async def test_a_sink_without_any_has_none_and_one_that_is_gone_still_has_its_own(served: Served) -> None:
    filled = await served.fill("a", resource="shipments")
    assert await ask(served) == {"letters": [], "next": None, "total": 0}
    await bury_letters(served, "gone", filled.feed, (1, "a"))
    assert (await ask(served, "gone"))["total"] == 1


@pytest.mark.parametrize("after", ["x", "", "é", "W10", "WyJhIiwiYiIsLTEsImMiXQ", "a" * 1000])
async def test_a_cursor_is_taken_only_as_it_was_given(shared: Served, after: str) -> None:
    answer = await shared.client.get("/sinks/erp/dead", params={"after": after})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("after: must be a cursor as dockbell returned it")


async def test_a_sink_that_never_was_is_not_there(shared: Served) -> None:
    answer = await shared.client.get("/sinks/epr/dead")
    assert (answer.status_code, answer.json()["detail"]) == (404, 'sink "epr": is not known; did you mean "erp"?')
