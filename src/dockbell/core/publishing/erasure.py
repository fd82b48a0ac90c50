"""Removes data for good: members that are never stored, and the content of purged records.

The rest keeps the API's text, number for number. Of duplicate members of an object the last counts, as in all of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from dockbell.core import pointer
from dockbell.core.diff import diff
from dockbell.core.document import decode
from dockbell.core.publishing.projection import Projection

_CONTENT: Final = ("before", "after", "patch", "changed")
_RECORDS: Final = ("before", "after")
_NOTHING: Final = b"null"
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES: Final = msgspec.json.Decoder(list[str])
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_SIZE: Final = 16
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Erasure:
    """Removes the members of a feed's records that are never stored.

    Args:
        drop: Pointers to them; ``*`` stands for any element of an array.
        epoch: Of the store; the key of the hash that replaces an unreadable record. A hash without a key would let
            anyone confirm a guess of the record.
    """

    def __init__(self, drop: Sequence[str], epoch: str) -> None:
        self._epoch = epoch.encode()
        self._projection = Projection(None, [pointer.parse(place) for place in drop])

    def record(self, raw: bytes) -> bytes:
        """Return a record's raw JSON without the dropped members; the same record gives the same text each time.

        Raises:
            ValueError: It cannot be read, so the members cannot be found.
        """
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
            return b"unreadable " + blake2b(raw, digest_size=_SIZE, key=self._epoch).hexdigest().encode()

    def stored(self, raw: bytes) -> bytes:
        """Return a stored record without the dropped members; an empty object for an unreadable one."""
        try:
            return self.record(raw)
        except ValueError:
            return b"{}"

    def event(self, body: bytes) -> bytes:
        """Return a composed event without the dropped members, with a patch between what is left of the records.

        An event without such members is returned unchanged.
        """
        envelope = _MEMBERS.decode(body)
        data = _MEMBERS.decode(envelope["data"])
        cut = {name: msgspec.Raw(self.stored(bytes(data[name]))) for name in _RECORDS if _holds(data, name)}
        if all(bytes(data[name]) == bytes(raw) for name, raw in cut.items()):
            return body
        data |= cut
        if "patch" in data:
            data["patch"] = msgspec.Raw(_ENCODER.encode(diff(*(decode(bytes(data[name])) for name in _RECORDS))))
        if "changed" in data:
            places = _NAMES.decode(data["changed"])
            kept = [place for place in places if self._projection.shows(pointer.parse(place))]
            data["changed"] = msgspec.Raw(_ENCODER.encode(kept))
        return _ENCODER.encode(envelope | {"data": data})


def empty_event(body: bytes) -> bytes:
    """Return a composed event without the content of its record; one without content is returned unchanged.

    ``data.omitted`` lists the removed members, and ``data.purged`` is true. Id, number, key, revision and times stay.
    """
    envelope = _MEMBERS.decode(body)
    data = _MEMBERS.decode(envelope["data"])
    omitted = [name for name in _CONTENT if _holds(data, name)]
    if not omitted:
        return body
    kept: dict[str, object] = {name: value for name, value in data.items() if name not in omitted}
    return _ENCODER.encode(envelope | {"data": kept | {"omitted": omitted, "purged": True}})


def _holds(data: dict[str, msgspec.Raw], name: str) -> bool:
    return name in data and bytes(data[name]) != _NOTHING
