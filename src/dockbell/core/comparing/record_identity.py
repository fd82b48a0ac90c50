"""Finds a record's key and times: the only members of a raw record that are decoded for every record of every page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypedDict

import msgspec

from dockbell.core import pointer
from dockbell.core.cutting import salvage
from dockbell.core.key import KeyMissing, key_of
from dockbell.core.model import JSON, Key, Unsound
from dockbell.core.moment import parse_moment

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ERRORS: Final = frozenset({"error", "errors"})
"""Members that tell of errors: what they quote is no record."""


class RecordIdentity:
    """Where the key and the times of one feed's records stand.

    Attributes:
        key: The pointers to the key's parts, parsed.
        is_modification_dated: :meth:`date` is the time of the last modification, not that of the creation.
    """

    def __init__(self, *, key: Sequence[str], updated_at: str | None, created_at: str | None) -> None:
        """Set the JSON pointers to the key's parts, to the record's own timestamp, and to its creation time."""
        self.key = [pointer.parse(part) for part in key]
        self._updated_at = None if updated_at is None else pointer.parse(updated_at)
        self._created_at = None if created_at is None else pointer.parse(created_at)
        self._date = self._updated_at or self._created_at
        self.is_modification_dated = updated_at is not None
        self._head = _head_decoder([*self.key, *([self._date] if self._date else [])])

    def identify(self, raw: bytes) -> Key:
        """Return the key of a raw record.

        Raises:
            KeyMissing: It has none.
            ValueError: It is not JSON.
        """
        return key_of(self.read_head(raw), self.key)

    def read_head(self, raw: bytes) -> dict[str, JSON]:
        """Return the members that hold key and date; all others are skipped.

        Raises:
            ValueError: It is no JSON object.
        """
        try:
            return self._head.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"not a JSON object: {error}") from error

    def salvage_head(self, raw: bytes, unsound: Unsound | None) -> tuple[JSON, str]:
        """Return the members that can be read, and what is wrong with the record; empty where nothing is.

        Args:
            raw: The record.
            unsound: What the source has found wrong with it.
        """
        if unsound is not None:
            return unsound.head, unsound.problem
        try:
            return self.read_head(raw), ""
        except ValueError as error:
            return salvage(raw), str(error)

    def find_own(self, raw: bytes, key: Key) -> bytes | None:
        """Return the record with this key that an answer to a request for it holds, itself or one level down.

        None where the answer holds an error, told with status 200, that quotes the key; or another record that
        contains this one.
        """
        with suppress(ValueError, RecursionError):
            try:
                return raw if self.identify(raw).text == key.text else None
            except KeyMissing:
                inside = [bytes(member) for name, member in _MEMBERS.decode(raw).items() if name not in _ERRORS]
            for candidate in inside:
                with suppress(ValueError):
                    if self.identify(candidate).text == key.text:
                        return candidate
        return None

    def shows(self, raw: bytes, key: Key) -> bool:
        """Return whether an answer to a request for this record is about it, even where it cannot be read whole."""
        return self.find_own(raw, key) is not None or self._salvage_key(raw) == key.text

    def _salvage_key(self, raw: bytes) -> str | None:
        for candidate in _objects_of(salvage(raw)):
            with suppress(ValueError):
                return key_of(candidate, self.key).text
        return None

    def modified(self, document: JSON) -> datetime | None:
        """Return the record's own timestamp."""
        return _time(document, self._updated_at)

    def created(self, document: JSON) -> datetime | None:
        """Return the record's creation time."""
        return _time(document, self._created_at)

    def date(self, document: JSON) -> datetime | None:
        """Return the record's own timestamp, or its creation time in feeds that have no timestamps."""
        return _time(document, self._date)


def _objects_of(head: JSON) -> Iterator[JSON]:
    if isinstance(head, dict):
        yield head
        yield from (value for name, value in head.items() if name not in _ERRORS)


def _time(document: JSON, tokens: pointer.Tokens | None) -> datetime | None:
    return None if tokens is None else parse_moment(pointer.resolve(document, tokens))


def _head_decoder(places: Sequence[pointer.Tokens]) -> msgspec.json.Decoder[dict[str, JSON]]:
    """Return a decoder of the members that these pointers begin with; it skips all others without building them."""
    make_dict: Any = TypedDict  # its members are known at run time only
    return msgspec.json.Decoder(make_dict("head", {tokens[0]: Any for tokens in places}, total=False))
