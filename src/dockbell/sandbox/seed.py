"""The records at the start: goods first, then the shipments of the last three months, oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from dockbell.sandbox import words
from dockbell.sandbox.form import Form, Record, format_micros, to_micros
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.records import DAY, HOUR, Author, order_line, total_weight
from dockbell.sandbox.table import RESOURCES, Row, Table

SEEDED_UNTIL: Final = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
"""No seeded record is younger, so that the same seed makes the same records on any day."""

_PARTIES: Final = 500
_DELIVERED, _SHIPPED = 0.85, 0.97


class _Life(NamedTuple):
    """How far a seeded shipment has come; its times, where it has them."""

    status: str
    created: int
    picking: int | None = None
    packed: int | None = None
    shipped: int | None = None
    delivered: int | None = None
    cancelled: int | None = None

    @property
    def stamp(self) -> int:
        """The time of the last change."""
        return max(time for time in self[1:] if time is not None)


def seed_tables(options: SandboxOptions, author: Author, form: Form) -> dict[str, Table]:
    """Return the tables of a new sandbox; the same for the same options and the same state of the author."""
    return {name: Table(RESOURCES[name], rows) for name, rows in _Seed(options, author, form).rows().items()}


class _Seed:
    def __init__(self, options: SandboxOptions, author: Author, form: Form) -> None:
        self._author = author
        self._form = form
        self._counts = options.counts()
        self._items: list[Record] = []
        self._stocked: dict[int, list[int]] = {}

    def rows(self) -> dict[str, list[Row]]:
        rows = {
            "warehouses": list(self._warehouses()),
            "items": list(self._make_items()),
            "stock": list(self._stock()),
            "shipments": [],
            "packages": [],
        }
        for shipment, packages in self._shipments():
            rows["shipments"].append(shipment)
            rows["packages"] += packages
        return {name: rows[name] for name in RESOURCES}

    def _warehouses(self) -> Iterator[Row]:
        for number in range(self._counts["warehouses"]):
            at = SEEDED_UNTIL - (900 - number) * DAY
            record = self._author.warehouse(number, at)
            yield self._form.encode("warehouses", number, record, at + 400 * DAY, is_new=True)

    def _make_items(self) -> Iterator[Row]:
        count = self._counts["items"]
        for number in range(count):
            at = _spread(number, count, days=700)
            record = self._author.item(number, at)
            stamp = at + int(self._author.dice.random() * (SEEDED_UNTIL - at))
            if self._author.chance(0.08):
                record |= {"status": "inactive", "discontinued_at": format_micros(stamp)}
            self._items.append({name: record[name] for name in ("sku", "price", "cost", "shelf_life_days")})
            yield self._form.encode("items", number, record, stamp, is_new=True)

    def _stock(self) -> Iterator[Row]:
        author = self._author
        count, items, warehouses = (self._counts[name] for name in ("stock", "items", "warehouses"))
        for number in range(count):
            item = number % items
            warehouse = (item * 7 + number // items) % warehouses
            self._stocked.setdefault(warehouse, []).append(item)
            at = _spread(number, count, days=120)
            on_hand = author.perhaps(0.95, author.between(1, 400)) or 0
            record = author.stock(_id("items", item), self._items[item], _id("warehouses", warehouse), on_hand, at)
            reserved = min(on_hand, author.perhaps(0.3, author.between(1, 12)) or 0)
            record |= {"reserved": reserved, "available": on_hand - reserved}
            yield self._form.encode("stock", number, record, at, is_new=True)

    def _shipments(self) -> Iterator[tuple[Row, list[Row]]]:
        author = self._author
        count = self._counts["shipments"]
        package_counts = self._package_counts()
        parties = [author.party() for _ in range(min(_PARTIES, count))]
        next_package = 0
        for number in range(count):
            created = _spread(number, count, days=90)
            has_packages = number < len(package_counts)
            life = self._life(created, number / len(package_counts) if has_packages else None)
            lines, warehouse_id = self._lines()
            record = author.shipment(number, warehouse_id, lines, author.pick(parties), created)
            numbers = range(package_counts[number] if has_packages else 0)
            packages = [self._package(_id("shipments", number), record, life) for _ in numbers]
            self._tell(record, life, [package for package, _ in packages])
            rows = [
                self._form.encode("packages", next_package + place, package, stamp, is_new=True)
                for place, (package, stamp) in enumerate(packages)
            ]
            next_package += len(packages)
            yield self._form.encode("shipments", number, record, life.stamp, is_new=True), rows

    def _package_counts(self) -> list[int]:
        """Return how many packages each of the oldest shipments has; the younger ones have none yet."""
        packages = self._counts["packages"]
        packed = min(packages, -(-self._counts["shipments"] * 85 // 100))
        counts = [1] * packed
        for _ in range(packages - packed):
            counts[self._author.between(0, packed - 1)] += 1
        return counts

    def _life(self, created: int, age: float | None) -> _Life:
        """Return the life of a shipment; ``age`` is its place among the packed ones from 0, oldest, to 1."""
        author = self._author
        picking = created + author.between(10, 300) * HOUR // 60
        packed = picking + author.between(10, 120) * HOUR // 60
        shipped = packed + author.between(30, 600) * HOUR // 60
        delivered = shipped + author.between(20, 100) * HOUR
        end = SEEDED_UNTIL
        if age is None:
            lives = {
                "pending": _Life("pending", created),
                "picking": _Life("picking", created, min(picking, end)),
                "cancelled": _Life("cancelled", created, cancelled=min(picking, end)),
            }
            return lives[author.pick(("pending", "pending", "picking", "picking", "cancelled"))]
        if age >= _SHIPPED or shipped > end:
            return _Life("packed", created, min(picking, end), min(packed, end))
        if age >= _DELIVERED or delivered > end:
            return _Life("shipped", created, picking, packed, shipped)
        return _Life("delivered", created, picking, packed, shipped, delivered)

    def _lines(self) -> tuple[list[Record], str]:
        """Return the lines of an order, and the warehouse that has the items."""
        author = self._author
        warehouse = author.between(0, self._counts["warehouses"] - 1)
        stocked = self._stocked.get(warehouse) or range(len(self._items))
        items = {author.pick(stocked) for _ in range(author.pick((1, 1, 2, 3)))}
        lines = [order_line(_id("items", item), self._items[item], author.between(1, 5)) for item in sorted(items)]
        return lines, _id("warehouses", warehouse)

    def _package(self, shipment_id: str, shipment: Record, life: _Life) -> tuple[Record, int]:
        """Return a package of a shipment, and the time of its last change."""
        author = self._author
        assert life.packed is not None
        record = author.package(shipment_id, shipment, shipment["lines"], life.packed)
        stamp = life.packed
        if life.shipped:
            stamp = life.shipped
            tracking_number, label = author.label(shipment["carrier"]["code"], stamp)
            status = author.pick(("shipped", "in_transit"))
            record |= {"status": status, "tracking_number": tracking_number, "label": label}
            if status == "in_transit":
                record |= {"last_scan": author.scan(stamp), "scan_count": 1}
        if life.delivered:
            stamp = life.delivered
            scan = author.scan(stamp, "DELIVERED", "Delivered")
            record |= {"status": "delivered", "last_scan": scan, "scan_count": author.between(3, 7)}
            record["delivered_to"] = shipment["ship_to"]["name"]
        return record, stamp

    def _tell(self, record: Record, life: _Life, packages: list[Record]) -> None:
        times = {"picking": life.picking, "packed": life.packed, "shipped": life.shipped, "delivered": life.delivered}
        record["status"] = life.status
        record["package_count"] = len(packages)
        record |= {f"{name}_at": format_micros(at) for name, at in times.items() if at}
        if life.picking:
            record["picker"] = self._author.pick(words.FIRST_NAMES)
        if life.packed:
            record["total_weight"] = total_weight(packages)
            for line in record["lines"]:
                line["picked"] = line["quantity"]
        if life.cancelled:
            record["cancelled"] = {"at": format_micros(life.cancelled), "reason": "customer request"}


def _id(resource: str, number: int) -> str:
    return f"{RESOURCES[resource].prefix}{number + 1}"


def _spread(number: int, count: int, *, days: int) -> int:
    """Return the time of the number-th of ``count`` events, spread evenly over the days before the end."""
    return SEEDED_UNTIL - days * DAY * (count - number) // (count + 1)
