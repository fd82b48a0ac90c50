"""The lives of orders: they arrive, are picked, packed, shipped, delivered or cancelled, and at last deleted.

An order is a shipment with its packages; what it promises, takes and gives back is the stock of its warehouse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dockbell.sandbox import goods, words
from dockbell.sandbox.records import Author, Record, order_line, total_weight
from dockbell.sandbox.table import Row, Table
from dockbell.sandbox.world import Step, World

OPEN: Final = ("pending", "picking", "packed", "shipped")
CLOSED: Final = ("delivered", "cancelled")
_CANCELLABLE: Final = ("pending", "picking")
_ON_THE_WAY: Final = ("shipped", "in_transit")
_NEWEST: Final = 8
_REFERENCE_MOST: Final = 100
_QUANTITY_MOST: Final = 1000


class Orders:
    """Business steps with shipments and packages; each returns how many records it changed, 0 if it cannot be made."""

    def __init__(self, world: World, author: Author) -> None:
        self._world = world
        self._author = author
        self._placed = 0
        self._onward: dict[str, Callable[[Step, int, Record], None]] = {
            "pending": self._pick,
            "picking": self._pack,
            "packed": self._ship,
            "shipped": self._deliver,
        }

    def arrive(self) -> int:
        """Somebody orders something that is in stock somewhere."""
        step = self._world.step()
        wanted = self._wish()
        if not wanted:
            return 0
        self._open_shipment(step, wanted, None)
        return step.commit()

    def place(self, payload: Record) -> Record:
        """Accept a sales order and return it.

        Any object will do. What is shipped are its ``lines`` or ``line_items`` with a known ``sku`` and a ``quantity``,
        or else something; its ``reference`` becomes the shipment's ``order_reference``.
        """
        step = self._world.step()
        reference = payload.get("reference")
        if not isinstance(reference, str) or not reference.isprintable() or not 0 < len(reference) <= _REFERENCE_MOST:
            reference = None
        shipment_id, shipment = self._open_shipment(step, self._asked_for(payload) or self._wish(), reference)
        step.commit()
        self._placed += 1
        return {
            "id": f"ord_{self._placed}",
            "number": shipment["order_reference"],
            "status": "accepted",
            "shipment_id": shipment_id,
            "lines": shipment["lines"],
            "created_at": step.time,
        }

    def advance(self) -> int:
        """An open shipment comes one step further; the newest are the quickest."""
        row = self._some("shipments", OPEN)
        if row is None:
            return 0
        step = self._world.step()
        shipment = step.open("shipments", row.number)
        if shipment["status"] in _CANCELLABLE and self._author.chance(0.06):
            self._cancel(step, shipment)
        else:
            self._onward[shipment["status"]](step, row.number, shipment)
        return step.commit()

    def scan(self) -> int:
        """A carrier reports where a package is."""
        row = self._some("packages", _ON_THE_WAY)
        if row is None:
            return 0
        step = self._world.step()
        package = step.open("packages", row.number)
        package["status"] = "in_transit"
        package["last_scan"] = self._author.scan(step.at)
        package["scan_count"] += 1
        return step.commit()

    def delete(self) -> int:
        """A closed shipment is deleted, with its packages."""
        shipments = self._world.tables["shipments"]
        places = shipments.places(changed=False, status=self._author.pick(CLOSED))
        if not places:
            return 0
        row = shipments.rows[self._author.pick(places)[-1]]
        return goods.delete_with(self._world.step(), row, "shipments", "packages", self._packages(row.identity))

    def _pick(self, step: Step, _: int, shipment: Record) -> None:
        shipment |= {"status": "picking", "picking_at": step.time, "picker": self._author.pick(words.FIRST_NAMES)}

    def _pack(self, step: Step, number: int, shipment: Record) -> None:
        lines = shipment["lines"]
        for line in lines:
            line["picked"] = line["quantity"]
        shipment_id = self._world.tables["shipments"].rows[number].identity
        packages = [
            self._author.package(
                shipment_id,
                shipment,
                [{"sku": line["sku"], "quantity": line["quantity"]} for line in part],
                step.at,
            )
            for part in _split(lines, self._author.between(1, max(1, len(lines))))
        ]
        for package in packages:
            step.add("packages", package)
        shipment |= {
            "status": "packed",
            "packed_at": step.time,
            "package_count": len(packages),
            "total_weight": total_weight(packages),
        }

    def _ship(self, step: Step, number: int, shipment: Record) -> None:
        for package in self._open_packages(step, number):
            tracking_number, label = self._author.label(shipment["carrier"]["code"], step.at)
            package |= {"status": "shipped", "tracking_number": tracking_number, "label": label}
        for line, level in self._levels(step, shipment):
            goods.ship(level, line["quantity"], step.time)
        shipment |= {"status": "shipped", "shipped_at": step.time}

    def _deliver(self, step: Step, number: int, shipment: Record) -> None:
        for package in self._open_packages(step, number):
            package |= {"status": "delivered", "delivered_to": shipment["ship_to"]["name"]}
            package["last_scan"] = self._author.scan(step.at, "DELIVERED", "Delivered")
            package["scan_count"] += 1
        shipment |= {"status": "delivered", "delivered_at": step.time}

    def _cancel(self, step: Step, shipment: Record) -> None:
        for line, level in self._levels(step, shipment):
            goods.release(level, line["quantity"])
        reason = self._author.pick(("customer request", "payment failed", "address rejected", "out of stock"))
        shipment |= {"status": "cancelled", "cancelled": {"at": step.time, "reason": reason}}

    def _open_shipment(self, step: Step, wanted: list[tuple[Row, int]], reference: str | None) -> tuple[str, Record]:
        """Add the shipment of an order and promise it what is there."""
        lines = [order_line(row.identity, self._world.form.decode(row), quantity) for row, quantity in wanted]
        warehouse_id = self._warehouse_for(lines)
        number = self._world.next_number("shipments")
        shipment = self._author.shipment(number, warehouse_id, lines, self._author.party(), step.at)
        if reference:
            shipment["order_reference"] = reference
        for line, level in self._levels(step, shipment):
            goods.reserve(level, line["quantity"])
        return step.add("shipments", shipment, number), shipment

    def _wish(self) -> list[tuple[Row, int]]:
        """Return one to three active items and how many of each."""
        items = self._world.tables["items"]
        places = items.places(changed=False, status="active") or items.places(changed=False)
        if not places:
            return []
        numbers = {self._author.pick(places)[-1] for _ in range(self._author.pick((1, 1, 2, 3)))}
        return [(items.rows[number], self._author.between(1, 5)) for number in sorted(numbers)]

    def _asked_for(self, payload: Record) -> list[tuple[Row, int]]:
        lines: Any = payload.get("lines") or payload.get("line_items")
        wanted = []
        for line in lines if isinstance(lines, list) else ():
            sku, quantity = (line.get("sku"), line.get("quantity", 1)) if isinstance(line, dict) else (None, None)
            found = self._world.tables["items"].linked("sku", sku) if isinstance(sku, str) else []
            if (
                found
                and isinstance(quantity, int)
                and not isinstance(quantity, bool)
                and 0 < quantity <= _QUANTITY_MOST
            ):
                wanted.append((found[0], quantity))
        return wanted

    def _warehouse_for(self, lines: list[Record]) -> str:
        """Return the warehouse that has most of the first line's item, or any."""
        stock = self._world.tables["stock"].linked("item_id", lines[0]["item_id"]) if lines else []
        levels = [self._world.form.decode(row) for row in stock]
        if levels:
            return str(max(levels, key=lambda level: level["available"])["warehouse_id"])
        warehouses = self._world.tables["warehouses"]
        places = warehouses.places(changed=False)
        return warehouses.rows[self._author.pick(places)[-1]].identity if places else "whs_1"

    def _levels(self, step: Step, shipment: Record) -> list[tuple[Record, Record]]:
        """Return each line of a shipment whose item its warehouse keeps, with that stock level."""
        return [
            (line, step.open("stock", row.number))
            for line in shipment["lines"]
            for row in self._world.tables["stock"].linked("item_id", line["item_id"])
            if self._world.form.decode(row)["warehouse_id"] == shipment["warehouse_id"]
        ]

    def _packages(self, shipment_id: str) -> list[Row]:
        return self._world.tables["packages"].linked("shipment_id", shipment_id)

    def _open_packages(self, step: Step, number: int) -> list[Record]:
        shipment_id = self._world.tables["shipments"].rows[number].identity
        return [step.open("packages", row.number) for row in self._packages(shipment_id)]

    def _some(self, resource: str, statuses: tuple[str, ...]) -> Row | None:
        """Return a record in one of these states: half of the time one of the newest, otherwise any."""
        table: Table = self._world.tables[resource]
        choices = [places for status in statuses if (places := table.places(changed=False, status=status))]
        if not choices:
            return None
        if self._author.chance(0.5):
            return table.rows[self._author.pick(self._author.pick(choices)[-_NEWEST:])[-1]]
        (places,) = self._author.dice.choices(choices, [len(places) for places in choices])
        return table.rows[self._author.pick(places)[-1]]


def _split(lines: list[Record], count: int) -> list[list[Record]]:
    return [lines[start::count] for start in range(count)]
