"""Pages and their cursors.

A cursor is base64url of the position and a checksum over position and query, so that a damaged one is noticed, and one
that was given for another listing or other filters too. A *keyset* position is the last record's place in the order;
an *offset* position counts the records before the page, which shifts when records come, go or move in the order.
"""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from dockbell.sandbox.refusal import Refusal
from dockbell.sandbox.table import Place, Row, Table

_CHECKSUM: Final = 6


@dataclass(frozen=True, slots=True)
class Query:
    """What a listing is asked for.

    Attributes:
        resource: The collection.
        limit: The most records on the page.
        cursor: The token of the page, None for the first.
        expand: The relations to embed.
        since: Only records changed at this time or later, microseconds since 1970.
        status: Only records in this state.
        terms: Only records with these values.
    """

    resource: str
    limit: int
    cursor: str | None = None
    expand: tuple[str, ...] = ()
    since: int | None = None
    status: str | None = None
    terms: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        """Return what must stay the same from page to page."""
        return repr((self.resource, self.since, self.status, sorted(self.terms.items()))).encode()


def take_page(table: Table, query: Query, kind: str) -> tuple[list[Row], str | None]:
    """Return the page's records and the cursor of the next page, None after the last record.

    Args:
        table: The resource's records.
        query: What is asked; with ``since`` in the order of last change, otherwise of creation.
        kind: ``keyset`` or ``offset``.

    Raises:
        Refusal: The cursor is damaged, or belongs to another query.
    """
    places = table.places(changed=query.since is not None, status=query.status, terms=query.terms)
    first = 0 if query.since is None else bisect_left(places, (query.since,))
    start = first
    if query.cursor is not None:
        position = _read_cursor(query.cursor, query, kind)
        start = bisect_right(places, position, lo=first) if kind == "keyset" else first + position[0]
    end = start + query.limit
    page = places[start:end]
    rows = [table.rows[place[-1]] for place in page]
    if end >= len(places):
        return rows, None
    return rows, _write_cursor(page[-1] if kind == "keyset" else (end - first,), query, kind)


def _write_cursor(position: Place, query: Query, kind: str) -> str:
    text = json.dumps([kind, *position]).encode()
    return base64.urlsafe_b64encode(_checksum(text, query) + text).rstrip(b"=").decode()


def _read_cursor(token: str, query: Query, kind: str) -> Place:
    try:
        raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    text = raw[_CHECKSUM:]
    if raw[:_CHECKSUM] != _checksum(text, query) or not text.startswith(f'["{kind}"'.encode()):
        sentence = "not a cursor of this listing; pass next_cursor unchanged, with the parameters of the first page"
        raise Refusal(400, "invalid_cursor", sentence, parameter="cursor")
    return tuple(json.loads(text)[1:])


def _checksum(text: bytes, query: Query) -> bytes:
    return blake2b(text, key=blake2b(query.digest).digest(), digest_size=_CHECKSUM).digest()
