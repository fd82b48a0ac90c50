"""How the records of one feed are told apart, dated, compared and stored.

A *detail* is the answer to a request for a record alone, which may have members that its list does not show. A change
in a feed with such members waits for the detail before it is published. Until that comes, and wherever a record is
stored without an event, the stored members of the detail stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Final

import msgspec

from dockbell.core import pointer
from dockbell.core.comparing.candidate import Candidate
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.page_diff import Amended, PageDiff, Write
from dockbell.core.diff import diff, touched
from dockbell.core.document import salvage
from dockbell.core.key import KeyMissing, are_plain, head_decoder, key_of
from dockbell.core.model import JSON, Feed, Key, Unsound
from dockbell.core.moment import parse_moment

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
_ERRORS: Final = frozenset({"error", "errors"})
"""Members that tell of errors: what they quote is no record."""


class RecordRules(msgspec.Struct, frozen=True):
    """The settings of one feed's comparison."""

    feed: Feed
    identity: RecordIdentity
    canon: Canon
    detail: DetailMembers
    clean: Callable[[bytes], bytes]  # takes out of a raw record what is never stored
    is_key_learned: bool  # the key was learned, not configured: two records with one key prove it wrong
    publishes_touches: bool  # changes of the timestamp alone are published

    def name_changed(self, patch: list[dict[str, JSON]] | None, previous: JSON, document: JSON) -> list[str] | None:
        """Return the pointers at which the canonical form changed, those of the patch where it did not; None: none."""
        if patch is None:
            return None
        paths = touched(patch)
        named = self.canon.sift(paths)
        if named is None:
            named = touched(diff(self.canon.form(previous), self.canon.form(document)))
        return named or paths


class DetailMembers:
    """The names of a feed's detail members, and what depends on them; false where there are none."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def take_list_part(self, stored: JSON, listed: JSON) -> JSON:
        """Return what of a stored record the list can show; ``listed`` is the record as the list shows it now."""
        if not self._names or not isinstance(stored, dict):
            return stored
        return {name: value for name, value in stored.items() if name not in self._names or name in listed}

    def merge(self, listed: bytes, detail: bytes) -> bytes:
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
        """Store a record without an event, with its stored detail; ``before`` None: its stored body may stay."""
        row = write.row
        if self._names and row is not None:
            write = write._replace(body=None if before is None else self.merge(candidate.raw, before))
            result.amended.append(Amended(row, candidate.raw, candidate.modified))
        result.writes.append(write)


class RecordIdentity:
    """Where the key and the times of one feed's records stand.

    Attributes:
        key: The pointers to the key's parts, parsed.
        is_modification_dated: :meth:`date` is the time of the last modification, not that of the creation.
    """

    def __init__(self, *, key: Sequence[str], updated_at: str | None, created_at: str | None) -> None:
        self.key = [pointer.parse(part) for part in key]
        self._updated_at = None if updated_at is None else pointer.parse(updated_at)
        self._created_at = None if created_at is None else pointer.parse(created_at)
        self._date = self._updated_at or self._created_at
        self.is_modification_dated = updated_at is not None
        self._head = head_decoder(*self.key, self._date)
        self._find_id = itemgetter(self.key[0][0]) if len(self.key) == 1 and len(self.key[0]) == 1 else None

    def identify(self, raw: bytes) -> Key:
        """Raises :class:`KeyMissing` where a record has no key, :class:`ValueError` where it is not JSON."""
        return key_of(self.read_head(raw), self.key)

    def read_head(self, raw: bytes) -> dict[str, JSON]:
        """Return the members that hold key and date; raises :class:`ValueError` where it is no JSON object."""
        try:
            return self._head.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"not a JSON object: {error}") from error

    def find_plain(self, records: Sequence[bytes]) -> tuple[list[str], list[dict[str, JSON]]] | None:
        """Return key strings and heads of the records of a page, in a third of the time that one after the other takes.

        None where one of them needs a closer look: its key is not plain text, cannot be read, or stands there twice.
        """
        if self._find_id is None:
            return None
        try:
            heads = list(map(self._head.decode, records))
            texts = list(map(self._find_id, heads))
            is_plain = are_plain(texts)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, KeyError, TypeError):
            return None
        return (texts, heads) if is_plain and len(set(texts)) == len(texts) else None

    def salvage_head(self, raw: bytes, unsound: Unsound | None) -> tuple[JSON, str]:
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
        if self.find_own(raw, key) is not None:
            return True
        if isinstance(head := salvage(raw), dict):
            for candidate in (head, *(value for name, value in head.items() if name not in _ERRORS)):
                with suppress(ValueError):
                    return key_of(candidate, self.key).text == key.text
        return False

    def modified(self, document: JSON) -> datetime | None:
        return _time(document, self._updated_at)

    def created(self, document: JSON) -> datetime | None:
        return _time(document, self._created_at)

    def date(self, document: JSON) -> datetime | None:
        """Return the record's own timestamp, or its creation time in feeds that have no timestamps."""
        return _time(document, self._date)

    def dates(self, documents: Sequence[dict[str, JSON]]) -> Sequence[datetime | None]:
        """Return what :meth:`date` returns for each of some objects."""
        tokens = self._date
        if tokens is None:
            return [None] * len(documents)
        if len(tokens) > 1:
            return [_time(document, tokens) for document in documents]
        name = tokens[0]
        return [parse_moment(document.get(name)) for document in documents]


def _time(document: JSON, tokens: pointer.Tokens | None) -> datetime | None:
    if tokens is None:
        return None
    if len(tokens) == 1 and type(document) is dict:  # nearly always, and twice as fast
        return parse_moment(document.get(tokens[0]))
    return parse_moment(pointer.resolve(document, tokens))
