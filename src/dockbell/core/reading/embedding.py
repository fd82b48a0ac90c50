"""Records of one feed that stand in the records of another: ``items?expand=stock`` shows each item with its stock.

A member that only ``expand`` adds is taken out of a record to the byte, so that what is left is the text that the API
sends without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dockbell.config.resources import SIGNALS
from dockbell.core.model import JSON

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_BLANK: Final = b" \t\r\n"
_BLANKS: Final = rb"[ \t\r\n]*"
_COMMA_AFTER: Final = re.compile(_BLANKS + rb"," + _BLANKS)


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


class Added(NamedTuple):
    """What ``expand`` adds to records."""

    name: str  # the one member; empty where there is none
    alike: int  # records that have just that more
    bare: int  # records that have nothing more
    odd: int  # records that differ in anything else


def find_added(
    plain: Sequence[bytes], expanded: Sequence[bytes], form: Callable[[bytes], bytes], key: Callable[[bytes], str]
) -> Added:
    """Compare the records of one page with the same ones read with ``expand``.

    ``form`` returns what counts of a record, and ``key`` what it is known by, its date included: a record that changed
    in between is another one.
    """
    known = {key(raw): raw for raw in plain}
    added: dict[str, int] = {}
    odd = bare = 0
    for raw in expanded:
        before = known.get(key(raw))
        if before is None:
            continue
        new = [name for name in _MEMBERS.decode(raw) if name not in _MEMBERS.decode(before)]
        if not new and form(raw) == form(before):
            bare += 1
            continue
        if len(new) == 1 and form(take_out(raw, new[0])[0]) == form(before):
            added[new[0]] = added.get(new[0], 0) + 1
        else:
            odd += 1
    name = max(added, key=added.__getitem__, default="")
    odd += sum(count for other, count in added.items() if other != name)
    return Added(name, added.get(name, 0), bare, odd)


def find_member(record: bytes, relation: str, identify: Callable[[bytes], object]) -> str:
    """Return the member that holds embedded records, where the operator has them embedded; empty where none does.

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


def find_names(records: Sequence[bytes]) -> set[str]:
    """Return the names of the members of records, of those that can be read."""
    names: set[str] = set()
    for record in records:
        with suppress(*_UNREADABLE):
            names.update(_MEMBERS.decode(record))
    return names


def read_embedded(value: bytes | None) -> list[bytes]:
    """Return the records in a member: the elements of an array, or the one object that it is."""
    if value is None:
        return []
    with suppress(*_UNREADABLE):
        if value.lstrip()[:1] == b"{":
            return [value]
        return [bytes(element) for element in _ELEMENTS.decode(value)]
    return []


def take_out(record: bytes, name: str) -> tuple[bytes, bytes | None]:
    """Return a record without a member, and the member's value; None where it has no such.

    Raises:
        ValueError: The record cannot be read.
    """
    try:
        members = _MEMBERS.decode(record)
    except _UNREADABLE as error:
        raise ValueError(f"not a JSON object: {error}") from error
    value = members.pop(name, None)
    if value is None:
        return record, None
    left = next((left for left in _cut(record, name, bytes(value)) if _holds(left, members)), None)
    return _ENCODER.encode(members) if left is None else left, bytes(value)


def _cut(record: bytes, name: str, value: bytes) -> Iterator[bytes]:
    """Yield the record without what is written like the member, and the comma beside it; the last place first."""
    heads = list(re.finditer(re.escape(_ENCODER.encode(name)) + _BLANKS + rb":" + _BLANKS, record))
    for head in reversed(heads):
        if not record.startswith(value, head.end()):
            continue
        before, after = record[: head.start()], record[head.end() + len(value) :]
        if (following := _COMMA_AFTER.match(after)) is not None:
            yield before + after[following.end() :]
        elif (rest := before.rstrip(_BLANK)).endswith(b","):
            yield rest[:-1].rstrip(_BLANK) + after
        else:
            yield before + after


def _holds(record: bytes, members: dict[str, msgspec.Raw]) -> bool:
    with suppress(*_UNREADABLE):
        found = _MEMBERS.decode(record)
        return list(found) == list(members) and all(bytes(found[name]) == bytes(raw) for name, raw in members.items())
    return False


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
