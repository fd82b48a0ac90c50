"""The canonical form of a record, in which two readings are equal exactly if nothing changed (docs/guarantees.md).

Objects without order, ``unordered`` arrays sorted, ignored members and the record's own timestamp out, numbers by
their value: 1.0 is 1, and neither is "1" nor true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from dockbell.core import pointer
from dockbell.core.document import encode
from dockbell.core.model import JSON

_ANY: Final = "*"


class _Rule:
    """What is done at one place of a document and below it, made once from every pointer that leads there."""

    __slots__ = ("drop", "elements", "members", "sort")

    def __init__(self, drops: Sequence[pointer.Tokens], sorts: Sequence[pointer.Tokens]) -> None:
        self.drop = () in drops
        self.sort = () in sorts
        tokens = {place[0] for place in (*drops, *sorts) if place}
        self.members = {token: _Rule(_below(drops, token), _below(sorts, token)) for token in tokens}
        self.elements = {
            token: _Rule(_below(drops, token, _ANY), _below(sorts, token, _ANY))
            for token in tokens
            if token == _ANY or pointer.index(token) is not None
        }

    def form(self, value: JSON) -> JSON:
        """Return what becomes of a value at this place."""
        if isinstance(value, dict):
            return self._form_object(value)
        if isinstance(value, list):
            return self._form_array(value)
        return value

    def _form_object(self, members: dict[str, JSON]) -> dict[str, JSON]:
        kept = dict(members)
        for token, rule in self.members.items():
            if token in kept:
                if rule.drop:
                    del kept[token]
                else:
                    kept[token] = rule.form(kept[token])
        return kept

    def _form_array(self, elements: list[JSON]) -> list[JSON]:
        kept = []
        any_rule = self.elements.get(_ANY)
        for position, element in enumerate(elements):
            rule = self.elements.get(str(position), any_rule)
            if rule is None:
                kept.append(element)
            elif not rule.drop:
                kept.append(rule.form(element))
        if self.sort:
            kept.sort(key=encode)
        return kept


def _below(places: Iterable[pointer.Tokens], *tokens: str) -> list[pointer.Tokens]:
    """Return the rest of the pointers that begin with one of the tokens."""
    return [place[1:] for place in places if place and place[0] in tokens]


class Canon:
    """Makes the canonical form of one feed's records; never changes.

    Args:
        ignore: Pointers to what is left out; ``*`` stands for any element of an array.
        unordered: Pointers to arrays whose order means nothing; equal elements still count each.
        updated_at: The pointer to the record's own timestamp, which is left out too.
    """

    def __init__(
        self, *, ignore: Sequence[str] = (), unordered: Sequence[str] = (), updated_at: str | None = None
    ) -> None:
        drops = [*ignore] if updated_at is None else [*ignore, updated_at]
        self._rule = _Rule([pointer.parse(place) for place in drops], [pointer.parse(place) for place in unordered])

    def form(self, document: JSON) -> JSON:
        """Return the canonical form, which shares with the document whatever no pointer leads through."""
        return self._rule.form(document)

    def fingerprint(self, document: JSON) -> bytes:
        """Return 16 bytes that are equal for equal canonical forms, and practically only for those."""
        return blake2b(encode(self.form(document)), digest_size=16).digest()
