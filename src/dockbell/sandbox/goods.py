"""How goods move and change: items are edited and come and go, stock is reserved, received, counted and moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dockbell.sandbox import words
from dockbell.sandbox.form import Record
from dockbell.sandbox.records import Author, decimal, units_of
from dockbell.sandbox.table import Row
from dockbell.sandbox.world import Step, World

_PLENTY = 200


def reserve(level: Record, quantity: int) -> None:
    """Promise goods to an order, as far as there are any."""
    _set_level(level, level["on_hand"], level["reserved"] + min(quantity, level["available"]))


def release(level: Record, quantity: int) -> None:
    _set_level(level, level["on_hand"], level["reserved"] - quantity)


def ship(level: Record, quantity: int, time: str) -> None:
    """Let promised goods leave, the oldest lots first."""
    left = quantity
    for lot in level["lots"]:
        taken = min(left, lot["quantity"])
        lot["quantity"] -= taken
        left -= taken
    level["lots"] = [lot for lot in level["lots"] if lot["quantity"]]
    level["last_moved_at"] = time
    _set_level(level, level["on_hand"] - quantity + left, level["reserved"] - quantity)


def receive(level: Record, lot: Record, time: str) -> None:
    level["lots"].append(lot)
    level["last_received_at"] = time
    _set_level(level, level["on_hand"] + lot["quantity"], level["reserved"])


def count(level: Record, found: int, person: str, time: str) -> None:
    """Correct a level to what was found on the shelf; the youngest lot takes the difference."""
    difference = found - level["on_hand"]
    for lot in reversed(level["lots"]):
        step = max(difference, -lot["quantity"])
        lot["quantity"] += step
        difference -= step
    level["lots"] = [lot for lot in level["lots"] if lot["quantity"]]
    level["count"] = {"at": time, "by": person, "expected": level["on_hand"], "found": found}
    _set_level(level, found, level["reserved"])


def _set_level(level: Record, on_hand: int, reserved: int) -> None:
    level["on_hand"] = on_hand
    level["reserved"] = max(0, min(reserved, on_hand))
    level["available"] = on_hand - level["reserved"]
    level["value"] = decimal(units_of(level["unit_cost"]["amount"]) * on_hand)


class Goods:
    """Business steps with goods and places; each returns how many records it changed, 0 if it cannot be made."""

    def __init__(self, world: World, author: Author) -> None:
        self._world = world
        self._author = author

    def change(self, resource: str, act: Callable[[Step, Row, Record], None]) -> int:
        """Let one of the methods below change any record of a resource."""
        row = self._any(resource)
        if row is None:
            return 0
        step = self._world.step()
        act(step, row, step.open(resource, row.number))
        return step.commit()

    def receive(self, step: Step, _: Row, level: Record) -> None:
        item = self._world.tables["items"].find(level["item_id"])
        known = self._world.form.decode(item) if item else {}
        quantity = self._author.between(1, max(12, _PLENTY - level["on_hand"]))
        receive(level, self._author.lot(known, quantity, step.at), step.time)

    def count(self, step: Step, _: Row, level: Record) -> None:
        """Count a level and find it more or less as it should be."""
        found = max(0, level["on_hand"] + self._author.between(-3, 2)) if level["lots"] else 0
        count(level, found, self._author.pick(words.FIRST_NAMES), step.time)

    def move(self, step: Step, row: Row, source: Record) -> None:
        """Move goods to another warehouse that keeps the item."""
        levels = self._world.tables["stock"].linked("item_id", source["item_id"])
        others = [other for other in levels if other.number != row.number]
        if not others or not source["available"]:
            return
        target = step.open("stock", self._author.pick(others).number)
        lot = dict(source["lots"][0])
        lot["quantity"] = self._author.between(1, min(lot["quantity"], source["available"]))
        reserved = source["reserved"]
        ship(source, lot["quantity"], step.time)
        _set_level(source, source["on_hand"], reserved)
        receive(target, lot, step.time)

    def edit_item(self, _: Step, __: Row, item: Record) -> None:
        match self._author.between(0, 3):
            case 0:
                price = units_of(item["price"]["amount"]) * self._author.between(85, 120) // 100
                item["price"] = item["price"] | {"amount": decimal(max(price, 1))}
            case 1:
                item["tags"] = sorted({*item["tags"]} ^ {self._author.pick(words.ITEM_TAGS)})
            case 2:
                item["image"] = self._author.code("https://img.example.com/new/########.webp")
            case _:
                item["reorder_point"] = self._author.between(2, 40) * 5

    def edit_warehouse(self, _: Step, __: Row, warehouse: Record) -> None:
        capacity = warehouse["capacity"]
        capacity["used"] = capacity["pallet_positions"] * self._author.between(40, 95) // 100
        if self._author.chance(0.2):
            warehouse["shift_lead"] = self._author.name()

    def change_item_status(self) -> int:
        """Discontinue an item, or sell it again."""
        inactive = self._any("items", "inactive")
        row = inactive if inactive and self._author.chance(0.3) else self._any("items", "active")
        if row is None:
            return 0
        step = self._world.step()
        item = step.open("items", row.number)
        if item["status"] == "active":
            item |= {"status": "inactive", "discontinued_at": step.time}
        else:
            item |= {"status": "active", "discontinued_at": None}
        return step.commit()

    def introduce_item(self) -> int:
        """List a new item, and stock it where there is a warehouse."""
        step = self._world.step()
        number = self._world.next_number("items")
        item = self._author.item(number, step.at)
        item_id = step.add("items", item, number)
        warehouse = self._any("warehouses")
        if warehouse is not None:
            on_hand = self._author.between(0, 60)
            step.add("stock", self._author.stock(item_id, item, warehouse.identity, on_hand, step.at))
        return step.commit()

    def delete_item(self) -> int:
        """Delete a discontinued item, with its stock."""
        row = self._any("items", "inactive")
        if row is None:
            return 0
        levels = self._world.tables["stock"].linked("item_id", row.identity)
        return delete_with(self._world.step(), row, "items", "stock", levels)

    def _any(self, resource: str, status: str | None = None) -> Row | None:
        return self._author.pick_row(self._world.tables[resource], status)


def delete_with(step: Step, row: Row, resource: str, part_resource: str, parts: Sequence[Row]) -> int:
    """Delete a record and what cannot be without it, in one step."""
    for part in parts:
        step.delete(part_resource, part.number)
    step.delete(resource, row.number)
    return step.commit()
