"""Which parts of a record a sink may see; they keep the API's text, number for number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dockbell.core import pointer

_ANY: Final = "*"
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Projection:
    """The visible parts at one place of a record and below it, made once from all pointers that lead there.

    Args:
        shows: Places of which all is shown; None for everything. Objects and arrays on the way are shown with nothing
            else in them; another value on the way leads nowhere, and is not.
        hides: Places that are left out, whatever ``shows`` says. ``*`` stands for any element of an array.
    """

    __slots__ = ("_elements", "_is_hidden", "_is_whole", "_members")

    def __init__(self, shows: Sequence[pointer.Tokens] | None, hides: Sequence[pointer.Tokens]) -> None:
        self._is_hidden = () in hides or (shows is not None and not shows)
        self._is_whole = shows is None or () in shows
        wanted = None if shows is None or self._is_whole else shows
        tokens = {place[0] for place in (*(wanted or ()), *hides) if place}

        def lead(*taken: str) -> Projection:
            return Projection(None if wanted is None else _below(wanted, *taken), _below(hides, *taken))

        self._members = {token: lead(token) for token in tokens}
        self._elements = {
            token: lead(token, _ANY) for token in tokens if token == _ANY or pointer.index(token) is not None
        }

    def cut(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        """Return the visible part of a value, None for nothing; unchanged where all of it is visible."""
        if self._is_hidden:
            return None
        if not self._members:
            return raw
        match bytes(raw).lstrip()[:1]:
            case b"{":
                return self._cut_object(raw)
            case b"[":
                return self._cut_array(raw)
        return raw if self._is_whole else None

    def _cut_object(self, raw: msgspec.Raw) -> msgspec.Raw:
        kept = {}
        for name, value in _MEMBERS.decode(raw).items():
            rule = self._members.get(name)
            shown = (value if self._is_whole else None) if rule is None else rule.cut(value)
            if shown is not None:
                kept[name] = shown
        return msgspec.Raw(msgspec.json.encode(kept))

    def _cut_array(self, raw: msgspec.Raw) -> msgspec.Raw:
        kept = []
        for position, value in enumerate(_ELEMENTS.decode(raw)):
            rule = self._elements.get(str(position), self._elements.get(_ANY))
            shown = (value if self._is_whole else None) if rule is None else rule.cut(value)
            if shown is not None:
                kept.append(shown)
        return msgspec.Raw(msgspec.json.encode(kept))

    def shows(self, place: pointer.Tokens) -> bool:
        """Return whether a place is visible, or leads to a visible one."""
        if self._is_hidden:
            return False
        if not place or not self._members:
            return True
        # The pointer does not show whether this is an object or an array: a number is taken for an index.
        is_index = pointer.index(place[0]) is not None
        below = self._elements.get(place[0], self._elements.get(_ANY)) if is_index else None
        below = below or self._members.get(place[0])
        return self._is_whole if below is None else below.shows(place[1:])


def _below(places: Iterable[pointer.Tokens], *tokens: str) -> list[pointer.Tokens]:
    """Return the rest of the pointers that begin with one of the tokens."""
    return [place[1:] for place in places if place and place[0] in tokens]
