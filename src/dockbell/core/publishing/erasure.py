"""Removes data for good: members that are never stored, and the content of purged records.

The rest keeps the API's text, number for number. Of duplicate members of an object the last counts, as in all of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from dockbell.core import pointer
from dockbell.core.publishing.rendering import CONTENT, ENCODER, MEMBERS, RECORDS, Projection, holds, renew_difference

_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Erasure:
    """Removes the members of a feed's records that are never stored.

    ``*`` in ``drop`` stands for any element of an array. The store's ``epoch`` is the key of the hash that replaces an
    unreadable record: a hash without a key would let anyone confirm a guess of the record.
    """

    def __init__(self, drop: Sequence[str], epoch: str) -> None:
        self._epoch = epoch.encode()
        self._projection = Projection(None, [pointer.parse(place) for place in drop])

    def record(self, raw: bytes) -> bytes:
        """Return a record without the dropped members; ValueError: it cannot be read, so they cannot be found."""
        try:
            kept = self._projection.cut(msgspec.Raw(raw))
        except _UNREADABLE as error:
            raise ValueError(f"cannot be read, so nothing of it is kept: {error}") from error
        return b"{}" if kept is None else bytes(kept)

    def page(self, records: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return the records of a page without the dropped members.

        An unreadable record is replaced by a hash, which is unreadable too, the same each time, and unlike others.
        """
        return tuple([self._page_record(raw) for raw in records])

    def _page_record(self, raw: bytes) -> bytes:
        try:
            return self.record(raw)
        except ValueError:
            return b"unreadable " + blake2b(raw, digest_size=16, key=self._epoch).hexdigest().encode()

    def stored(self, raw: bytes) -> bytes:
        """Return a stored record without the dropped members; an empty object for an unreadable one."""
        try:
            return self.record(raw)
        except ValueError:
            return b"{}"

    def event(self, body: bytes) -> bytes:
        """Return a composed event without the dropped members, and with its patch made anew; unchanged without such."""
        envelope = MEMBERS.decode(body)
        data = MEMBERS.decode(envelope["data"])
        cut = {name: msgspec.Raw(self.stored(bytes(data[name]))) for name in RECORDS if holds(data, name)}
        if all(bytes(data[name]) == bytes(raw) for name, raw in cut.items()):
            return body
        data |= cut
        renew_difference(data, self._projection)
        return ENCODER.encode(envelope | {"data": data})


def empty_event(body: bytes) -> bytes:
    """Return a composed event without the content of its record; one without content is returned unchanged.

    ``data.omitted`` lists the removed members, and ``data.purged`` is true. Id, number, key, revision and times stay.
    """
    envelope = MEMBERS.decode(body)
    data = MEMBERS.decode(envelope["data"])
    omitted = [name for name in CONTENT if holds(data, name)]
    if not omitted:
        return body
    kept: dict[str, object] = {name: value for name, value in data.items() if name not in omitted}
    return ENCODER.encode(envelope | {"data": kept | {"omitted": omitted, "purged": True}})
