"""Records of one feed that stand in the records of another: ``items?expand=stock`` shows each item with its stock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dockbell.config.resources import SIGNALS
from dockbell.core.model import JSON

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Pair(NamedTuple):
    """Two feeds of which one, polled, can show the records of the other."""

    relation: str  # what the carrier's ``expand`` is asked for
    target: str  # the resource whose records they are
    named_by: tuple[str, ...]  # pointers in a target's record that may name its carrier
    names: tuple[str, ...]  # pointers in a carrier's record to what these may hold

    @property
    def carrier(self) -> str:
        """The resource whose polls may show them."""
        return SIGNALS[self.target]


PAIRS: Final = (
    Pair(
        "stock",
        "stock",
        ("/item_id", "/sku", "/item_sku", "/product_id", "/item/id", "/item/sku"),
        ("/id", "/sku", "/uuid", "/code"),
    ),
    Pair(
        "packages",
        "packages",
        ("/shipment_id", "/shipment_number", "/shipment/id", "/shipment"),
        ("/id", "/number", "/uuid", "/code"),
    ),
)
"""Which feeds may be signals for which."""


def find_member(record: bytes, relation: str, identify: Callable[[bytes], object]) -> str:
    """Return the member that holds embedded records; empty where none does.

    Such a member is an array of objects, or one object, each with a key. The one that is called like the relation goes
    before the others.
    """
    found = []
    with suppress(*_UNREADABLE):
        for name, value in _MEMBERS.decode(record).items():
            elements = read_embedded(bytes(value))
            if elements and all(_has_key(element, identify) for element in elements):
                found.append(name)
    return relation if relation in found else found[0] if len(found) == 1 else ""


def list_embedded(record: bytes, member: str) -> list[bytes] | None:
    """Return the records in a member of a record; None where it has no such, or cannot be read."""
    with suppress(*_UNREADABLE):
        value = _MEMBERS.decode(record).get(member)
        return None if value is None else read_embedded(bytes(value))
    return None


def read_embedded(value: bytes) -> list[bytes]:
    """Return the records in the value of a member: the elements of an array, or the one object that it is."""
    with suppress(*_UNREADABLE):
        if value.lstrip()[:1] == b"{":
            return [value]
        return [bytes(element) for element in _ELEMENTS.decode(value)]
    return []


def _has_key(record: bytes, identify: Callable[[bytes], object]) -> bool:
    try:
        identify(record)
    except ValueError:
        return False
    return True


def name_scalar(value: JSON) -> str | None:
    """Return a text or an integer as text, so that 7 and "7" are one name; None for all else."""
    if type(value) is str:
        return value or None
    return str(value) if type(value) is int else None
