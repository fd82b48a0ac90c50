"""Related records, embedded on request.

Embedding only adds: each relation is one more field, named like it, at the end of the record; nothing else of it
changes. Embedded records are as their own listing shows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from dockbell.sandbox.encoding import encode
from dockbell.sandbox.records import Record, decimal, units_of
from dockbell.sandbox.table import Row, Table

Tables: TypeAlias = Mapping[str, Table]
_VAT: Final = 21


def embed(tables: Tables, resource: str, row: Row, names: Iterable[str]) -> bytes:
    """Return a row's body with the relations of these names added."""
    added = (b',"%s":%s' % (name.encode(), _RELATIONS[resource, name](tables, row)) for name in names)
    return b"".join((row.body[:-1], *added, b"}"))


def _packages(tables: Tables, shipment: Row) -> bytes:
    return _array(row.body for row in tables["packages"].linked("shipment_id", shipment.identity))


def _stock(tables: Tables, item: Row) -> bytes:
    return _array(row.body for row in tables["stock"].linked("item_id", item.identity))


def _shipment(tables: Tables, package: Row) -> bytes:
    return _found(tables["shipments"], json.loads(package.body)["shipment_id"])


def _item(tables: Tables, level: Row) -> bytes:
    return _found(tables["items"], json.loads(level.body)["item_id"])


def _warehouse(tables: Tables, level: Row) -> bytes:
    return _found(tables["warehouses"], json.loads(level.body)["warehouse_id"])


def _line_items(tables: Tables, shipment: Row) -> bytes:
    """Return the ordered lines with what is known of each item; null where it was deleted."""
    record = json.loads(shipment.body)
    return _array(encode(_line_item(tables, place, line)) for place, line in enumerate(record["lines"], 1))


def _line_item(tables: Tables, place: int, line: Record) -> Record:
    row = tables["items"].find(line["item_id"])
    item = json.loads(row.body) if row else {}
    return {
        "line": place,
        **line,
        "total": decimal(line["quantity"] * units_of(line["unit_price"])),
        "currency": "EUR",
        **{name: item.get(name) for name in ("name", "manufacturer_sku", "barcode", "weight", "hs_code")},
    }


def _invoices(_: Tables, shipment: Row) -> bytes:
    """Return the invoice of a shipment that has left, paid once it was delivered."""
    record = json.loads(shipment.body)
    if not record["shipped_at"]:
        return b"[]"
    net = sum(line["quantity"] * units_of(line["unit_price"]) for line in record["lines"])
    tax = net * _VAT // 100
    invoice = {
        "id": f"inv_{shipment.number + 1}",
        "number": f"INV-{shipment.number + 1:07d}",
        "status": "paid" if record["delivered_at"] else "open",
        "net": decimal(net),
        "tax": decimal(tax),
        "tax_rate": f"{_VAT}.0",
        "total": decimal(net + tax),
        "currency": "EUR",
        "issued_on": record["shipped_at"][:10],
        "paid_at": record["delivered_at"],
    }
    return _array([encode(invoice)])


def _array(bodies: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(bodies) + b"]"


def _found(table: Table, identity: str | int) -> bytes:
    row = table.find(identity)
    return row.body if row else b"null"


_RELATIONS: Final[dict[tuple[str, str], Callable[[Tables, Row], bytes]]] = {
    ("shipments", "packages"): _packages,
    ("shipments", "line_items"): _line_items,
    ("shipments", "invoices"): _invoices,
    ("packages", "shipment"): _shipment,
    ("items", "stock"): _stock,
    ("stock", "item"): _item,
    ("stock", "warehouse"): _warehouse,
}
