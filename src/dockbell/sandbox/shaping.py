"""How records look on a page: with related records embedded, rewritten by chance, or spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias

from dockbell.sandbox.form import Record, encode
from dockbell.sandbox.options import SandboxOptions, Settings
from dockbell.sandbox.records import decimal, edit_body, units_of
from dockbell.sandbox.table import Row, Table

Tables: TypeAlias = Mapping[str, Table]
_Relation: TypeAlias = Callable[[Tables, Row], bytes]
_VAT: Final = 21


def embed(tables: Tables, resource: str, row: Row, names: Iterable[str]) -> bytes:
    """Return a row's body with each relation added as a field of its name; nothing else changes.

    Embedded records are as their own listing shows them.
    """
    added = (b',"%s":%s' % (name.encode(), _RELATIONS[resource, name](tables, row)) for name in names)
    return b"".join((row.body[:-1], *added, b"}"))


def _linked(resource: str, field: str) -> _Relation:
    return lambda tables, row: _array(each.body for each in tables[resource].linked(field, row.identity))


def _found(resource: str, field: str) -> _Relation:
    def find(tables: Tables, row: Row) -> bytes:
        found = tables[resource].find(json.loads(row.body)[field])
        return found.body if found else b"null"

    return find


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


_RELATIONS: Final[dict[tuple[str, str], _Relation]] = {
    ("shipments", "packages"): _linked("packages", "shipment_id"),
    ("shipments", "line_items"): _line_items,
    ("shipments", "invoices"): _invoices,
    ("packages", "shipment"): _found("shipments", "shipment_id"),
    ("items", "stock"): _linked("stock", "item_id"),
    ("stock", "item"): _found("items", "item_id"),
    ("stock", "warehouse"): _found("warehouses", "warehouse_id"),
}


_HALF: Final = 0.5
_POISONS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "cut": lambda body: body[: len(body) // 2],
    "surrogate": lambda body: body[:-1] + rb',"note":"cut inside an emoji \ud83d"}',
    "nan": lambda body: body[:-1] + b',"ratio":NaN}',
    "invalid_utf8": lambda body: body[:-1] + b',"note":"\xff\xfe"}',
    "control": lambda body: body[:-1] + b',"note":"two\nlines"}',
}
"""What can be wrong with the text of one record."""


class Shaper:
    """Rewrites the bodies of records before they are sent; ``name`` returns the identity of a row."""

    def __init__(self, settings: Settings, dice: Random, name: Callable[[Row], str]) -> None:
        self._settings = settings
        self._dice = dice
        self._name = name

    def shape(self, resource: str, rows: Sequence[Row], bodies: list[bytes]) -> list[bytes]:
        options = self._settings.options
        if options.shuffle_arrays or options.shuffle_members or options.numbers != "plain":
            bodies = [encode(self._turn(json.loads(body), options)) for body in bodies]
        if options.poisoned or options.keyless or options.doubled:
            pairs = zip(rows, bodies, strict=True)
            bodies = [part for row, body in pairs for part in self._spoil(resource, row, body, options)]
        return bodies

    def _spoil(self, resource: str, row: Row, body: bytes, options: SandboxOptions) -> Iterator[bytes]:
        name = f"{resource}/{self._name(row)}"
        if name == options.poisoned:
            yield _POISONS[options.poison](body)
        elif name == options.keyless:
            record = json.loads(body)
            del record["sku" if options.id_field not in record else options.id_field]
            yield encode(record)
        else:
            yield body
        if name == options.doubled:
            yield edit_body(resource, body)

    def _turn(self, value: Any, options: SandboxOptions) -> Any:
        match value:
            case dict():
                members = [(name, self._turn(part, options)) for name, part in value.items()]
                if options.shuffle_members:
                    self._dice.shuffle(members)
                return dict(members)
            case list():
                elements = [self._turn(part, options) for part in value]
                if options.shuffle_arrays:
                    self._dice.shuffle(elements)
                return elements
            case int() if not isinstance(value, bool) and options.numbers != "plain":
                return value if options.numbers == "mixed" and self._dice.random() < _HALF else float(value)
            case _:
                return value
