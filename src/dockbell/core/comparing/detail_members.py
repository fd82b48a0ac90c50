"""The members of a record that its list does not show, but the answer to a request for the record alone (its detail).

A change in a feed with such members waits for the detail before it is published. Until that comes, and wherever a
record is stored without an event, the stored members of the detail stay.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from dockbell.core.comparing.candidate import Candidate
from dockbell.core.comparing.page_diff import Amended, PageDiff, Write
from dockbell.core.model import JSON

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()


class DetailMembers:
    """The names of a feed's detail members, and what depends on them; false where there are none."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def __bool__(self) -> bool:
        """Return whether changes of the feed wait for details."""
        return bool(self._names)

    def take_list_part(self, stored: JSON, listed: JSON) -> JSON:
        """Return what of a stored record the list can show; ``listed`` is the record as the list shows it now."""
        if not self._names or not isinstance(stored, dict):
            return stored
        return {name: value for name, value in stored.items() if name not in self._names or name in listed}

    def merge(self, listed: bytes, detail: bytes) -> bytes:
        """Return a record as the list shows it, with the members of its detail; none is decoded."""
        members = {name: raw for name, raw in _MEMBERS.decode(detail).items() if name in self._names}
        return _ENCODER.encode(_MEMBERS.decode(listed) | members)

    def add_first(self, before: bytes, after: bytes) -> bytes:
        """Return a record that nothing was published of, with the members of its detail as they are in ``after``.

        A first look at these members is no change of the record.
        """
        known = _MEMBERS.decode(before)
        new = {name: raw for name, raw in _MEMBERS.decode(after).items() if name in self._names and name not in known}
        return _ENCODER.encode(known | new) if new else before

    def store_silently(self, candidate: Candidate, write: Write, before: bytes | None, result: PageDiff) -> None:
        """Store a record that has no event, and keep the members of its detail that are stored.

        Args:
            candidate: The record.
            write: Its snapshot, as the list shows it.
            before: The stored record; None where its body may stay, because its content is the same.
            result: Takes the snapshot.
        """
        row = write.row
        if self._names and row is not None:
            write = write._replace(body=None if before is None else self.merge(candidate.raw, before))
            result.amended.append(Amended(row, candidate.raw, candidate.modified))
        result.writes.append(write)
