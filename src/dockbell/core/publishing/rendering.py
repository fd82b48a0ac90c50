"""The form in which a sink gets its events: how much of them, of which members, and at most how large.

An event is composed once, in full, and kept so in the outbox. Each sink's own form is made as it is delivered, and is
the same each time. ``before`` and ``after`` are null where there is none; what is left out is absent, and listed in
``data.omitted``. Nothing else of the event changes; least of all its id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from dockbell.config import SinkSettings
from dockbell.core import pointer
from dockbell.core.diff import diff
from dockbell.core.document import decode
from dockbell.core.model import RESOURCES, ChangeKind, Event, Feed

Members: TypeAlias = dict[str, msgspec.Raw]

MEMBERS: Final = msgspec.json.Decoder(Members)
NAMES: Final = msgspec.json.Decoder(list[str])
ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
CONTENT: Final = ("before", "after", "patch", "changed")
"""The members of an event's data that tell of its record's content."""
RECORDS: Final = ("before", "after")

_ANY: Final = "*"
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Projection:
    """The visible parts at one place of a record and below it, in the API's own text; made once of all pointers there.

    Of the places in ``shows`` all is shown; None stands for everything. Objects and arrays on the way are shown with
    nothing else in them; another value on the way leads nowhere, and is not. Places in ``hides`` are left out, whatever
    ``shows`` says. ``*`` stands for any element of an array.
    """

    __slots__ = ("_elements", "_is_hidden", "_is_whole", "_members")

    def __init__(self, shows: Sequence[pointer.Tokens] | None, hides: Sequence[pointer.Tokens]) -> None:
        self._is_hidden = () in hides or (shows is not None and not shows)
        self._is_whole = shows is None or () in shows
        wanted = None if shows is None or self._is_whole else shows
        tokens = {place[0] for place in (*(wanted or ()), *hides) if place}

        def lead(*taken: str) -> Projection:
            return Projection(None if wanted is None else pointer.below(wanted, *taken), pointer.below(hides, *taken))

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
        for name, value in MEMBERS.decode(raw).items():
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
        if self._is_hidden:
            return False
        if not place or not self._members:
            return True
        # The pointer does not show whether this is an object or an array: a number is taken for an index.
        is_index = pointer.index(place[0]) is not None
        below = self._elements.get(place[0], self._elements.get(_ANY)) if is_index else None
        below = below or self._members.get(place[0])
        return self._is_whole if below is None else below.shows(place[1:])


class Rendering:
    """Makes the form of one sink.

    Stored records can be read at ``state_url``, ``https://bell.example.com``; empty where they cannot. The feeds in
    ``unordered`` have arrays without an order. Such an array may be stored in another order without an event, and a
    patch has indices: applied to a copy it could change another element. So none of their events is sent as a patch
    alone.
    """

    def __init__(self, settings: SinkSettings, state_url: str = "", unordered: Collection[Feed] = ()) -> None:
        self._payload = settings.payload
        self._size_max = settings.max_event_size
        self._state_url = state_url
        self._unordered = frozenset(unordered)
        self._projection = None
        if settings.fields or settings.redact:
            shown = [pointer.parse(place) for place in settings.fields] or None
            self._projection = Projection(shown, [pointer.parse(place) for place in settings.redact])

    @property
    def is_plain(self) -> bool:
        """Whether the form is the full one, but for its size."""
        return self._payload == "full" and self._projection is None

    def event(self, event: Event) -> Event:
        """Return an event with the body to send; only events of records are shaped.

        An event larger than ``max_event_size`` is sent without ``before``, else with the patch alone, else without
        content: then ``dataref`` is the URL of the record as it is stored now, if there is one. The event may have this
        form already.

        Raises:
            ValueError: It is too large even without content.
        """
        is_record = event.feed.resource in RESOURCES and event.is_of_record
        if (self.is_plain or not is_record) and len(event.body) <= self._size_max:
            return event
        size = len(event.body)
        for body in self._render(event) if is_record else ():
            size = len(body)
            if size <= self._size_max:
                return dataclasses.replace(event, body=body)
        raise ValueError(
            f"event {event.id}: has {size} bytes in its smallest form, got max_event_size = {self._size_max}"
        )

    def state(self, raw: bytes) -> bytes:
        return raw if self._projection is None else bytes(_show(self._projection, msgspec.Raw(raw)))

    def _render(self, event: Event) -> Iterator[bytes]:
        envelope = MEMBERS.decode(event.body)
        data = MEMBERS.decode(envelope.pop("data"))
        if self._projection is not None:
            for name in RECORDS:
                if holds(data, name):
                    data[name] = _show(self._projection, data[name])
            renew_difference(data, self._projection, keeps_patch=self._payload == "thin")
        for left_out in self._rungs(has_patch="patch" in data, patch_tells=event.feed not in self._unordered):
            yield ENCODER.encode({**envelope, "data": _leave_out(data, left_out)})
        thin = _leave_out(data, CONTENT)
        if self._state_url and event.change != ChangeKind.DELETED:
            where = f"{self._state_url}/state/{event.feed}/{quote(event.key, safe='')}"
            yield ENCODER.encode({**envelope, "dataref": where, "data": thin})
        yield ENCODER.encode({**envelope, "data": thin})

    def _rungs(self, *, has_patch: bool, patch_tells: bool) -> Sequence[tuple[str, ...]]:
        """Return the members to leave out, step by step; an event without a patch keeps ``after``."""
        patch_only = ("before", "after") if has_patch and patch_tells else ("before",)
        if self._payload == "full":
            return (), ("before",), patch_only
        return (patch_only if self._payload == "patch" else ("before", "after", "patch"),)


def _show(projection: Projection, raw: msgspec.Raw) -> msgspec.Raw:
    return projection.cut(raw) or msgspec.Raw(b"{}")


def renew_difference(data: Members, projection: Projection, *, keeps_patch: bool = False) -> None:
    """Bring the patch and the changed places of an event in line with its records, which were cut.

    The places are not found anew: that would need the ignored members, and the arrays without an order.
    """
    if "patch" in data and all(name in data for name in RECORDS) and not keeps_patch:
        data["patch"] = msgspec.Raw(ENCODER.encode(diff(*(decode(bytes(data[name])) for name in RECORDS))))
    if "changed" in data:
        kept = [place for place in NAMES.decode(data["changed"]) if projection.shows(pointer.parse(place))]
        data["changed"] = msgspec.Raw(ENCODER.encode(kept))


def holds(data: Members, name: str) -> bool:
    return name in data and bytes(data[name]) != b"null"


def _leave_out(data: Members, names: tuple[str, ...]) -> dict[str, object]:
    """Return the data without some members, which ``omitted`` lists, beside those left out before."""
    before = NAMES.decode(data["omitted"]) if "omitted" in data else []
    left_out = [name for name in CONTENT if name in before or (name in names and holds(data, name))]
    kept: dict[str, object] = {name: value for name, value in data.items() if name not in left_out}
    return kept | {"omitted": left_out} if left_out else kept
