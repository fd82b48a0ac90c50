"""Cursors: how a position in a listing is written, and for how long it is accepted.

An opaque cursor is base64url of the position and a checksum over position and query, so that a damaged one is noticed,
and one that was given for another listing or other filters too. The other forms are bare numbers, which fit any query.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from hashlib import blake2b
from typing import Final, TypeVar

from dockbell.sandbox.ordering import Listing
from dockbell.sandbox.query import Query
from dockbell.sandbox.refusal import Refusal
from dockbell.sandbox.settings import Clock, Settings
from dockbell.sandbox.table import Place

T = TypeVar("T")

_CHECKSUM: Final = 6
_ISSUED_MOST: Final = 100_000
_STAMP_UNIT: Final = 10**9
_NUMBER_DIGITS_MOST: Final = 27


class Cursors:
    """Writes and reads cursors.

    Args:
        settings: Their form and lifetime.
        clock: What the lifetime is measured by.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._issued: dict[str, float] = {}
        self._queries: dict[str, Query] = {}

    def write(self, position: Place, turn: int, listing: Listing, query: Query) -> str:
        """Return the cursor of a position; ``turn`` tells apart those of one position."""
        options = self._settings.options
        if options.cursor_form == "opaque":
            text = json.dumps([listing.label, turn, *position]).encode()
            token = base64.urlsafe_b64encode(_checksum(text, query) + text).rstrip(b"=").decode()
        else:
            token = str(_to_number(position, listing))
        if options.cursor_lifetime:
            _remember(self._issued, token, self._clock().timestamp())
        if options.cursor_with != "anything":
            _remember(self._queries, token, query)
        return token

    def complete(self, query: Query) -> Query:
        """Return a query with the parameters of its first page, which its cursor stands for where it is given alone."""
        accepts = self._settings.options.cursor_with
        first = self._queries.get(query.cursor or "")
        if accepts == "anything" or first is None or first.resource != query.resource:
            return query
        return replace(first, cursor=query.cursor, limit=query.limit if accepts == "limit" else first.limit)

    def read(self, token: str, listing: Listing, query: Query) -> tuple[Place, int]:
        """Return the position of a cursor and its turn.

        Raises:
            Refusal: It is damaged, belongs to another query, or is too old.
        """
        options = self._settings.options
        opaque = options.cursor_form == "opaque"
        position, turn = _read_opaque(token, listing, query) if opaque else (_read_number(token, listing), 0)
        if options.cursor_lifetime:
            age = self._clock().timestamp() - self._issued.get(token, float("-inf"))
            if age > options.cursor_lifetime:
                text = f"cursors are accepted for {options.cursor_lifetime:g} s; begin again"
                raise Refusal(options.cursor_expired, "cursor_expired", text, parameter="cursor")
        return position, turn


def _remember(known: dict[str, T], token: str, value: T) -> None:
    """Keep what belongs to a token, for the latest of them."""
    known.pop(token, None)
    known[token] = value
    if len(known) > _ISSUED_MOST:
        del known[next(iter(known))]


def _read_opaque(token: str, listing: Listing, query: Query) -> tuple[Place, int]:
    try:
        raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    text = raw[_CHECKSUM:]
    if raw[:_CHECKSUM] != _checksum(text, query) or not text.startswith(f'["{listing.label}",'.encode()):
        raise _invalid()
    _, turn, *position = json.loads(text)
    return tuple(position), turn


def _read_number(token: str, listing: Listing) -> Place:
    if not (token.isascii() and token.isdigit() and len(token) <= _NUMBER_DIGITS_MOST):
        raise _invalid()
    number = int(token)
    if not listing.keyset:
        return (number,)
    if not number:
        return ()
    return divmod(number - 1, _STAMP_UNIT) if _has_stamps(listing) else (number - 1,)


def _to_number(position: Place, listing: Listing) -> int:
    if not listing.keyset:
        return int(position[0])
    if not position:
        return 0
    stamp, number = position if _has_stamps(listing) else (0, *position)
    return int(stamp * _STAMP_UNIT + number + 1)


def _has_stamps(listing: Listing) -> bool:
    return listing.label.endswith("updated_at")


def _invalid() -> Refusal:
    sentence = "not a cursor of this listing; pass next_cursor unchanged, with the parameters of the first page"
    return Refusal(400, "invalid_cursor", sentence, parameter="cursor")


def _checksum(text: bytes, query: Query) -> bytes:
    return blake2b(text, key=blake2b(query.digest).digest(), digest_size=_CHECKSUM).digest()
