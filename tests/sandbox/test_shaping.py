from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

if TYPE_CHECKING:
    from tests.sandbox.conftest import Open

PAGE, SINGLE = "/v1/shipments?limit=200&expand=packages", "/v1/shipments/shp_1"


def canonical(value: Any) -> Any:
    """Return a value in which order does not count and 1.0 is 1."""
    if isinstance(value, dict):
        return {name: canonical(part) for name, part in value.items()}
    return (
        sorted(map(canonical, value), key=lambda part: json.dumps(part, sort_keys=True))
        if isinstance(value, list)
        else value
    )


@pytest.mark.parametrize(
    ("path", "option"), [(PAGE, "shuffle_arrays"), (PAGE, "shuffle_members"), (SINGLE, "shuffle_members")]
)
async def test_what_is_in_a_record_can_be_in_another_order_each_time(opened: Open, path: str, option: str) -> None:
    sandbox, client = await opened()
    plain = await client.get(path)
    sandbox.set(**{option: True})
    texts = {(await client.get(path)).text for _ in range(4)}
    assert len(texts | {plain.text}) > 2
    assert {json.dumps(canonical(json.loads(text)), sort_keys=True) for text in texts} == {
        json.dumps(canonical(plain.json()), sort_keys=True)
    }


async def test_shuffled_members_leave_arrays_alone(opened: Open) -> None:
    sandbox, client = await opened()
    plain = (await client.get(PAGE)).json()
    sandbox.set(shuffle_members=True)
    assert (await client.get(PAGE)).json() == plain


async def test_whole_numbers_can_be_written_as_floats(opened: Open) -> None:
    sandbox, client = await opened()
    plain = await client.get("/v1/stock")
    assert {type(level["on_hand"]) for level in plain.json()["stock"]} == {int}
    sandbox.set(numbers="float")
    floats = await client.get("/v1/stock")
    levels = floats.json()["stock"]
    assert all(isinstance(level["on_hand"], float) for level in levels)
    assert all(isinstance(level["backorder_allowed"], bool) for level in levels)
    assert levels == plain.json()["stock"]


async def test_whole_numbers_can_be_written_now_so_now_so(opened: Open) -> None:
    _, client = await opened(numbers="mixed")
    kinds = {type(level["on_hand"]) for level in (await client.get("/v1/stock?limit=100")).json()["stock"]}
    assert kinds == {int, float}


async def test_a_poisoned_record_makes_each_page_with_it_no_json(opened: Open) -> None:
    _, client = await opened(poisoned="stock/stk_3")
    statuses = []
    cursor = ""
    for limit in (25, 3, 2, 1, 1):
        response = await client.get(f"/v1/stock?limit={limit}{cursor}")
        try:
            page = response.json()
        except json.JSONDecodeError:
            statuses.append("bad")
        else:
            statuses.append(page["stock"][-1]["id"])
            cursor = f"&cursor={page['next_cursor']}"
    assert statuses == ["bad", "bad", "stk_2", "bad", "bad"]


@pytest.mark.parametrize(
    ("poison", "part"),
    [
        ("surrogate", rb"cut inside an emoji \ud83d"),
        ("nan", b'"ratio":NaN'),
        ("invalid_utf8", b"\xff\xfe"),
        ("control", b"two\nlines"),
    ],
)
async def test_a_record_can_be_poisoned_in_one_of_its_fields(opened: Open, poison: str, part: bytes) -> None:
    sandbox, client = await opened()
    plain = (await client.get("/v1/stock?limit=2")).content
    sandbox.set(poisoned="stock/stk_2", poison=poison)
    poisoned = (await client.get("/v1/stock?limit=2")).content
    assert part in poisoned
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(poisoned)
    start = plain.index(b'"stk_2"')
    assert poisoned[:start] == plain[:start]


async def test_a_shipment_that_comes_twice_in_lists_comes_once_by_itself(opened: Open) -> None:
    sandbox, client = await opened()
    alone = (await client.get(SINGLE)).json()
    sandbox.set(doubled="shipments/shp_1")
    assert (await client.get(SINGLE)).json() == alone


async def test_a_poisoned_shipment_cannot_be_read_by_itself(opened: Open) -> None:
    _, client = await opened(poisoned="shipments/shp_1")
    with pytest.raises(json.JSONDecodeError):
        (await client.get("/v1/shipments/shp_1")).json()
    assert (await client.get("/v1/shipments/shp_2")).json()["id"] == "shp_2"


@pytest.mark.parametrize(
    ("options", "missing"), [({}, "id"), ({"id_field": "uuid"}, "uuid"), ({"stock_key": "composite"}, "sku")]
)
async def test_a_record_can_come_without_its_id(opened: Open, options: dict[str, Any], missing: str) -> None:
    sandbox, client = await opened(**options)
    sandbox.set(keyless=f"stock/{list(sandbox.records('stock'))[1]}")
    levels = (await client.get("/v1/stock?limit=3")).json()["stock"]
    assert [missing in level for level in levels] == [True, False, True]


async def test_a_record_can_come_twice_on_its_page_with_other_content(opened: Open) -> None:
    _, client = await opened(doubled="stock/stk_2")
    _, one, other, _ = (await client.get("/v1/stock?limit=3")).json()["stock"]
    assert (one["id"], other["id"]) == ("stk_2", "stk_2")
    assert one != other


async def test_a_record_of_another_resource_is_not_meant(opened: Open) -> None:
    _, client = await opened(poisoned="items/stk_1", id_form="integer", keyless="stock/1")
    assert "id" not in (await client.get("/v1/stock?limit=1")).json()["stock"][0]
    assert (await client.get("/v1/items?limit=1")).json()["items"][0]["id"] == 1
