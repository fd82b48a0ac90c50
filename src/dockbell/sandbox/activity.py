"""What happens in the sandbox and how often: orders live, goods move, records are edited, deleted and return.

An order is a shipment with its packages; what it promises, takes and gives back is the stock of its warehouse.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio

from dockbell.sandbox import goods, words
from dockbell.sandbox.form import Record
from dockbell.sandbox.goods import Goods
from dockbell.sandbox.records import Author, order_line, total_weight
from dockbell.sandbox.table import Row
from dockbell.sandbox.world import Step, World

OPEN: Final = ("pending", "picking", "packed", "shipped")
CLOSED: Final = ("delivered", "cancelled")
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
        """Order something that is in stock somewhere."""
        step = self._world.step()
        if wanted := self._wish():
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
        """Take an open shipment one step further; the newest are the quickest."""
        row = self._some("shipments", OPEN)
        if row is None:
            return 0
        step = self._world.step()
        shipment = step.open("shipments", row.number)
        if shipment["status"] in ("pending", "picking") and self._author.chance(0.06):
            self._cancel(step, shipment)
        else:
            self._onward[shipment["status"]](step, row.number, shipment)
        return step.commit()

    def scan(self) -> int:
        """Report where a package is, as its carrier does."""
        row = self._some("packages", ("shipped", "in_transit"))
        if row is None:
            return 0
        step = self._world.step()
        package = step.open("packages", row.number)
        last_scan, scan_count = self._author.scan(step.at), package["scan_count"] + 1
        package |= {"status": "in_transit", "last_scan": last_scan, "scan_count": scan_count}
        return step.commit()

    def delete(self) -> int:
        """Delete a closed shipment, with its packages."""
        row = self._author.pick_row(self._world.tables["shipments"], self._author.pick(CLOSED))
        if row is None:
            return 0
        return goods.delete_with(self._world.step(), row, "shipments", "packages", self._packages(row.number))

    def _pick(self, step: Step, _: int, shipment: Record) -> None:
        shipment |= {"status": "picking", "picking_at": step.time, "picker": self._author.pick(words.FIRST_NAMES)}

    def _pack(self, step: Step, number: int, shipment: Record) -> None:
        lines = shipment["lines"]
        for line in lines:
            line["picked"] = line["quantity"]
        shipment_id = self._world.tables["shipments"].rows[number].identity
        count = self._author.between(1, max(1, len(lines)))
        parts = [lines[start::count] for start in range(count)]
        packages = [self._author.package(shipment_id, shipment, part, step.at) for part in parts]
        for package in packages:
            step.add("packages", package)
        shipment |= {"status": "packed", "packed_at": step.time}
        shipment |= {"package_count": len(packages), "total_weight": total_weight(packages)}

    def _ship(self, step: Step, number: int, shipment: Record) -> None:
        for package in (step.open("packages", row.number) for row in self._packages(number)):
            tracking_number, label = self._author.label(shipment["carrier"]["code"], step.at)
            package |= {"status": "shipped", "tracking_number": tracking_number, "label": label}
        for line, level in self._levels(step, shipment):
            goods.ship(level, line["quantity"], step.time)
        shipment |= {"status": "shipped", "shipped_at": step.time}

    def _deliver(self, step: Step, number: int, shipment: Record) -> None:
        for package in (step.open("packages", row.number) for row in self._packages(number)):
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
        for line in filter(lambda each: isinstance(each, dict), lines if isinstance(lines, list) else ()):
            sku, quantity = line.get("sku"), line.get("quantity", 1)
            found = self._world.tables["items"].linked("sku", sku) if isinstance(sku, str) else []
            is_number = isinstance(quantity, int) and not isinstance(quantity, bool)
            if found and is_number and 0 < quantity <= _QUANTITY_MOST:
                wanted.append((found[0], quantity))
        return wanted

    def _warehouse_for(self, lines: list[Record]) -> str:
        """Return the id of the warehouse that has most of the first line's item, or of any."""
        stock = self._world.tables["stock"].linked("item_id", lines[0]["item_id"]) if lines else []
        levels = [self._world.form.decode(row) for row in stock]
        if levels:
            return str(max(levels, key=lambda level: level["available"])["warehouse_id"])
        warehouse = self._author.pick_row(self._world.tables["warehouses"])
        return warehouse.identity if warehouse else "whs_1"

    def _levels(self, step: Step, shipment: Record) -> list[tuple[Record, Record]]:
        """Return each line of a shipment whose item its warehouse keeps, with that stock level."""
        return [
            (line, step.open("stock", row.number))
            for line in shipment["lines"]
            for row in self._world.tables["stock"].linked("item_id", line["item_id"])
            if self._world.form.decode(row)["warehouse_id"] == shipment["warehouse_id"]
        ]

    def _packages(self, shipment: int) -> list[Row]:
        shipment_id = self._world.tables["shipments"].rows[shipment].identity
        return self._world.tables["packages"].linked("shipment_id", shipment_id)

    def _some(self, resource: str, statuses: tuple[str, ...]) -> Row | None:
        """Return a record in one of these states: half of the time one of the newest, otherwise any."""
        table = self._world.tables[resource]
        choices = [places for status in statuses if (places := table.places(changed=False, status=status))]
        if not choices:
            return None
        if self._author.chance(0.5):
            return table.rows[self._author.pick(self._author.pick(choices)[-_NEWEST:])[-1]]
        (places,) = self._author.dice.choices(choices, [len(places) for places in choices])
        return table.rows[self._author.pick(places)[-1]]


_REST, _PAUSE = 0.001, 0.05
_BEHIND_MOST: Final = 0.1
_TRIES: Final = 20


class Activity:
    def __init__(self, world: World, author: Author, rate: float) -> None:
        self.rate = rate  # changes a second that ``live`` makes; may be set at any time
        self.orders = Orders(world, author)
        self._author = author
        goods = Goods(world, author)
        weighted = (
            (20, self.orders.arrive),
            (92, self.orders.advance),
            (24, self.orders.scan),
            (20, partial(goods.change, "stock", goods.receive)),
            (16, partial(goods.change, "stock", goods.count)),
            (8, partial(goods.change, "stock", goods.move)),
            (16, partial(goods.change, "items", goods.edit_item)),
            (6, goods.change_item_status),
            (2, goods.introduce_item),
            (2, partial(goods.change, "warehouses", goods.edit_warehouse)),
            (4, self.orders.delete),
            (2, goods.delete_item),
            (1, world.restore),
        )
        self._steps = [step for weight, step in weighted for _ in range(weight)]
        self._always = goods.introduce_item  # what every world allows

    def step(self, changes: int = 1) -> int:
        """Make business steps, none cut short, until at least so many records have changed; return how many have."""
        made = 0
        while made < changes:
            made += self._step()
        return made

    async def live(self) -> None:
        """Go on making changes at the set rate, at times as random as those of real events, until cancelled.

        ``ahead`` is by how many changes the steps made so far are ahead of the rate. After the process slept, a moment
        of it is made up for, not more.
        """
        ahead, last = 0.0, anyio.current_time()
        while True:
            now = anyio.current_time()
            ahead = max(ahead - (now - last) * self.rate, -self.rate * _BEHIND_MOST)
            last = now
            while self.rate and ahead <= 0:
                ahead += self._step() * self._author.dice.expovariate(1)
            await anyio.sleep(min(max(ahead / self.rate, _REST), _PAUSE) if self.rate else _PAUSE)

    def _step(self) -> int:
        for _ in range(_TRIES):
            if made := self._author.pick(self._steps)():
                return made
        return self._always()
