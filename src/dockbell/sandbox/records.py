"""What new records say: plausible, seeded, in several scripts; amounts and measures are decimal strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, TypeVar

from dockbell.sandbox import words
from dockbell.sandbox.form import Record, format_micros
from dockbell.sandbox.table import Row, Table

T = TypeVar("T")

HOUR: Final = 3_600_000_000
DAY: Final = 24 * HOUR
_SOME: Final = 0.25


def decimal(units: int, places: int = 2) -> str:
    """Return a number of units of the last place as a decimal string: 1250 is ``"12.50"``."""
    whole, part = divmod(units, 10**places)
    return f"{whole}.{part:0{places}d}"


def units_of(amount: str) -> int:
    """Return a decimal string counted in units of its last place: ``"12.50"`` is 1250."""
    return int(amount.replace(".", ""))


def order_line(item_id: str, item: Record, quantity: int) -> Record:
    price = item["price"]["amount"]
    return {"item_id": item_id, "sku": item["sku"], "quantity": quantity, "picked": 0, "unit_price": price}


def total_weight(packages: Iterable[Record]) -> Record:
    return {"value": decimal(sum(units_of(package["weight"]["value"]) for package in packages), 3), "unit": "kg"}


def _more(found: re.Match[bytes]) -> bytes:
    return b"%s%d" % (found[1], int(found[2]) + 1)


_EDITS: Final[dict[str, re.Pattern[bytes]]] = {
    "shipments": re.compile(rb'("package_count":)(\d+)'),
    "packages": re.compile(rb'("scan_count":)(\d+)'),
    "items": re.compile(rb'("reorder_point":)(\d+)'),
    "stock": re.compile(rb'("safety_stock":)(\d+)'),
    "warehouses": re.compile(rb'("used":)(\d+)'),
}


def edit_body(resource: str, body: bytes) -> bytes:
    """Return a record's JSON with one number raised, so that edits never lead back to what it said before."""
    return _EDITS[resource].sub(_more, body, count=1)


class Author:
    """Writes new records, all by one source of chance; times are microseconds since 1970."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.dice.random() * len(choices))]

    def pick_row(self, table: Table, status: str | None = None) -> Row | None:
        places = table.places(changed=False, status=status)
        return table.rows[self.pick(places)[-1]] if places else None

    def chance(self, share: float) -> bool:
        """Return True in this share of the cases."""
        return self.dice.random() < share

    def perhaps(self, share: float, value: T) -> T | None:
        return value if self.chance(share) else None

    def between(self, least: int, most: int) -> int:
        """Return a whole number; both ends are possible."""
        return least + int(self.dice.random() * (most - least + 1))

    def code(self, pattern: str) -> str:
        """Return the pattern with a digit for each #."""
        return "".join(str(int(self.dice.random() * 10)) if sign == "#" else sign for sign in pattern)

    def warehouse(self, number: int, at: int) -> Record:
        """Return a warehouse; the first fifteen stand in different cities."""
        city = words.CITIES[number % len(words.CITIES)]
        positions = self.between(20, 400) * 50
        weekday = ["06:00", self.pick(("18:00", "20:00", "22:00"))]
        return {
            "code": f"{city.country}-{number + 1:02d}",
            "name": f"{self.pick(('Distribution centre', 'Cross-dock', 'Lager', 'Entrepôt'))} {city.name}",
            "type": self.pick(("fulfilment", "cross_dock", "returns", "bonded")),
            "address": self._address(city),
            "geo": {"latitude": city.latitude, "longitude": city.longitude},
            "timezone": city.zone,
            "contact": {"name": self.name(), "phone": self._phone(city), "email": f"dock{number + 1}@example.com"},
            "opening_hours": dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), weekday)
            | {"sat": self.perhaps(0.5, ["08:00", "14:00"]), "sun": None},
            "capacity": {"pallet_positions": positions, "used": positions * self.between(40, 95) // 100},
            "carriers": [carrier.code for carrier in words.CARRIERS if self.chance(0.7)],
            "temperature_zones": self.perhaps(_SOME, [{"name": "chilled", "min": "2.0", "max": "8.0", "unit": "C"}]),
            "cutoff": self.pick(("14:00", "15:30", "17:00")),
            "shift_lead": self.name(),
            "created_at": format_micros(at),
        }

    def item(self, number: int, at: int) -> Record:
        """Return an active item; its ``sku`` is unique, several share a ``manufacturer_sku``."""
        product = self.pick(words.PRODUCTS)
        colour, english, german = self.pick(words.COLOURS)
        brand = self.pick(words.BRANDS)
        price = product.cents * self.between(80, 140) // 100
        weight = product.grams * self.between(90, 120) // 100
        return {
            "sku": f"{product.code}-{colour}-{number + 1:05d}",
            "manufacturer_sku": f"{brand[:3].upper()}-{product.code}/{number % 40 + 11}",
            "status": "active",
            "name": f"{brand} {product.english}, {english}",
            "names": {"de": f"{product.german}, {german}"}
            | {"fr": product.french, "pl": product.polish, "ja": product.japanese},
            "brand": brand,
            "category": list(product.category),
            "barcode": {"type": "EAN13", "value": self.code("40#########") + "00"},
            "dimensions": self._dimensions(40, 600),
            "weight": {"value": decimal(weight, 3), "unit": "kg"},
            "price": {"amount": decimal(price), "currency": "EUR"},
            "cost": {"amount": decimal(price * self.between(45, 70) // 100), "currency": "EUR"},
            "tax_class": "reduced" if product.category[0] == "Food" else "standard",
            "hs_code": product.hs_code,
            "country_of_origin": self.pick(words.CITIES).country,
            "lot_tracked": product.shelf_life is not None,
            "shelf_life_days": product.shelf_life,
            "hazard": {"un_number": "UN3480", "class": "9"} if product.code == "BAT" else None,
            "attributes": {"colour": english, "material": self.pick(words.MATERIALS)},
            "reorder_point": self.between(2, 20) * 5,
            "tags": self._tags(words.ITEM_TAGS),
            "image": f"https://img.example.com/{product.code.lower()}/{number + 1}.webp",
            "discontinued_at": None,
            "created_at": format_micros(at),
        }

    def stock(self, item_id: str, item: Record, warehouse_id: str, on_hand: int, at: int) -> Record:
        """Return the stock level of an item in a warehouse; nothing of it is reserved yet."""
        cost = item["cost"]["amount"]
        first = on_hand if self.chance(0.5) else on_hand * self.between(20, 80) // 100
        return {
            "item_id": item_id,
            "sku": item["sku"],
            "warehouse_id": warehouse_id,
            "on_hand": on_hand,
            "reserved": 0,
            "available": on_hand,
            "incoming": self.perhaps(_SOME, self.between(1, 12) * 12) or 0,
            "damaged": self.perhaps(0.1, self.between(1, 3)) or 0,
            "bin": self.code(f"{self.pick('ABCDEFGH')}-##-0#"),
            "zone": self.pick(("pick", "bulk", "mezzanine", "cold")),
            "lots": [self.lot(item, size, at) for size in (first, on_hand - first) if size],
            "unit_cost": {"amount": cost, "currency": "EUR"},
            "value": decimal(units_of(cost) * on_hand),
            "safety_stock": self.between(1, 10),
            "backorder_allowed": self.chance(_SOME),
            "count": None,
            "last_received_at": format_micros(at),
            "last_moved_at": None,
            "created_at": format_micros(at),
        }

    def lot(self, item: Record, quantity: int, at: int) -> Record:
        days = item.get("shelf_life_days")
        return {
            "lot": self.code("L######"),
            "quantity": quantity,
            "received_on": format_micros(at)[:10],
            "expires_on": format_micros(at + days * DAY)[:10] if days else None,
        }

    def party(self) -> Record:
        """Return a recipient."""
        city = self.pick(words.CITIES)
        return {
            "name": self.name(),
            "company": self.perhaps(_SOME, self.pick(words.COMPANIES)),
            **self._address(city),
            "phone": self.perhaps(0.7, self._phone(city)),
            "email": self.code("customer####@example.com"),
        }

    def shipment(self, number: int, warehouse_id: str, lines: list[Record], ship_to: Record, at: int) -> Record:
        """Return a pending shipment."""
        carrier = self.pick(words.CARRIERS)
        total = sum(line["quantity"] * units_of(line["unit_price"]) for line in lines)
        return {
            "number": f"SH-{number + 1:07d}",
            "order_reference": self.code("SO-2#######"),
            "status": "pending",
            "warehouse_id": warehouse_id,
            "priority": self.pick(("standard", "standard", "standard", "express")),
            "carrier": {"code": carrier.code, "service": self.pick(carrier.services)},
            "ship_to": ship_to,
            "lines": lines,
            "package_count": 0,
            "total_weight": None,
            "declared_value": {"amount": decimal(total), "currency": "EUR"},
            "insurance": self.perhaps(0.1, {"amount": decimal(total), "provider": "Ærø Assurance"}),
            "instructions": self.perhaps(_SOME, self.pick(words.NOTES)),
            "tags": self._tags(words.SHIPMENT_TAGS),
            "picker": None,
            "promised_on": format_micros(at + self.between(2, 6) * DAY)[:10],
            **dict.fromkeys(("picking_at", "packed_at", "shipped_at", "delivered_at", "cancelled")),
            "created_at": format_micros(at),
        }

    def package(self, shipment_id: str, shipment: Record, lines: list[Record], at: int) -> Record:
        """Return a packed package without a label, with all of some lines of a shipment."""
        return {
            "shipment_id": shipment_id,
            "order_reference": shipment["order_reference"],
            "status": "packed",
            "tracking_number": None,
            "carrier": shipment["carrier"],
            "type": self.pick(("carton", "carton", "polybag", "pallet", "tube")),
            "dimensions": self._dimensions(150, 1200),
            "weight": {"value": decimal(self.between(150, 24_000), 3), "unit": "kg"},
            "contents": [{"sku": line["sku"], "quantity": line["quantity"]} for line in lines],
            "sscc": self.code("0034012345########"),
            "label": None,
            "seal": self.perhaps(_SOME, self.code("SEAL-####")),
            "fragile": "fragile" in shipment["tags"],
            "customs": self.perhaps(0.1, {"incoterm": "DAP", "contents_type": "merchandise", "eori": "NL000099998B57"}),
            "last_scan": None,
            "scan_count": 0,
            "packed_by": self.name(),
            "packed_at": format_micros(at),
            "delivered_to": None,
            "created_at": format_micros(at),
        }

    def label(self, carrier: str, at: int) -> tuple[str, Record]:
        """Return a tracking number of the carrier and the label that shows it."""
        pattern = next(known.tracking for known in words.CARRIERS if known.code == carrier)
        return self.code(pattern), {"format": self.pick(("ZPL", "PDF")), "printed_at": format_micros(at)}

    def scan(self, at: int, code: str = "", note: str = "") -> Record:
        """Return an entry of a carrier's tracking."""
        if not code:
            code, note = self.pick(words.SCANS)
        return {"code": code, "note": note, "location": self.pick(words.CITIES).name, "at": format_micros(at)}

    def name(self) -> str:
        return f"{self.pick(words.FIRST_NAMES)} {self.pick(words.LAST_NAMES)}"

    def _phone(self, city: words.City) -> str:
        return self.code(f"{city.phone} ### ## ##")

    def _address(self, city: words.City) -> Record:
        return {
            "street": f"{self.pick(city.streets)} {self.between(1, 240)}",
            "street2": self.perhaps(_SOME, f"{self.pick(('Apt', 'c/o', 'Gate', 'Étage'))} {self.between(1, 30)}"),
            "postal_code": self.code(city.postal),
            "city": city.name,
            "region": city.region,
            "country": city.country,
        }

    def _dimensions(self, least: int, most: int) -> Record:
        names = ("length", "width", "height")
        return {name: decimal(self.between(least, most), 1) for name in names} | {"unit": "cm"}

    def _tags(self, choices: Sequence[str]) -> list[str]:
        return sorted({self.pick(choices) for _ in range(self.between(0, 2))})
