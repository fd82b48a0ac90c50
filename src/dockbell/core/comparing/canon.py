"""The canonical form of a record, in which two readings are equal exactly if nothing changed (docs/guarantees.md).

Objects without order, ``unordered`` arrays sorted, ignored members and the record's own timestamp out, numbers by
their value: 1.0 is 1, and neither is "1" nor true.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        self.members = {token: _Rule(pointer.below(drops, token), pointer.below(sorts, token)) for token in tokens}
        self.elements = {
            token: _Rule(pointer.below(drops, token, _ANY), pointer.below(sorts, token, _ANY))
            for token in tokens
            if token == _ANY or pointer.index(token) is not None
        }

    def form(self, value: JSON) -> JSON:
        if isinstance(value, dict):
            return self._form_object(value)
        return self._form_array(value) if isinstance(value, list) else value

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


class Canon:
    """Makes the canonical form of one feed's records; never changes.

    ``ignore``, the record's own timestamp and the order of the arrays at ``unordered`` are left out; equal elements
    still count each. ``*`` in a pointer stands for any element of an array.
    """

    def __init__(
        self, *, ignore: Sequence[str] = (), unordered: Sequence[str] = (), updated_at: str | None = None
    ) -> None:
        drops = [*ignore] if updated_at is None else [*ignore, updated_at]
        self._rule = _Rule([pointer.parse(place) for place in drops], [pointer.parse(place) for place in unordered])

    def sift(self, paths: Sequence[str]) -> list[str] | None:
        """Return, of the pointers at which two objects differ, those at which their canonical forms do.

        None where only the forms tell: parts of a member that differs are left out, or the order of an array in it.
        """
        rules, members = self._rule.members, [pointer.parse(path)[0] for path in paths]
        if any(name in rules and not rules[name].drop for name in members):
            return None
        return [path for path, name in zip(paths, members, strict=True) if name not in rules]

    def form(self, document: JSON) -> JSON:
        """Return the canonical form, which shares with the document whatever no pointer leads through."""
        return self._rule.form(document)

    def fingerprint(self, document: JSON) -> bytes:
        """Return 16 bytes that are equal for equal canonical forms, and practically only for those."""
        return blake2b(encode(self.form(document)), digest_size=16).digest()
