"""The form in which a sink gets its events: how much of them, of which members, and at most how large.

An event is composed once, in full, and kept so in the outbox. Each sink's own form is made as it is delivered, and is
the same each time. ``before`` and ``after`` are null where there is none; what is left out is absent, and listed in
``data.omitted``. Nothing else of the event changes; least of all its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from dockbell.config import SinkSettings
from dockbell.core import pointer
from dockbell.core.diff import diff
from dockbell.core.document import decode
from dockbell.core.model import RESOURCES, ChangeKind, Event, Feed
from dockbell.core.publishing.projection import Projection

_Members: TypeAlias = dict[str, msgspec.Raw]

_CONTENT: Final = ("before", "after", "patch", "changed")
_MEMBERS: Final = msgspec.json.Decoder(_Members)
_NAMES: Final = msgspec.json.Decoder(list[str])
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


class Rendering:
    """Makes the form of one sink.

    Args:
        settings: The sink's: ``payload``, ``fields``, ``redact`` and ``max_event_size`` are used.
        state_url: Where stored records can be read, ``https://bell.example.com``; empty where they cannot.
        unordered: Feeds whose records have arrays without an order. Such an array may be stored in another order
            without an event, and a patch has indices: applied to a copy it could change another element. So none of
            their events is sent as a patch alone.
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
        content: then ``dataref`` is the URL of the record as it is stored now, if there is one.

        Args:
            event: In full, or in the form of this sink already.

        Raises:
            ValueError: It is too large even without content.
        """
        is_record = event.feed.resource in RESOURCES and bool(event.key)
        if (self.is_plain or not is_record) and len(event.body) <= self._size_max:
            return event
        size = len(event.body)
        for body in self._render(event) if is_record else ():
            size = len(body)
            if size <= self._size_max:
                return replace(event, body=body)
        raise ValueError(
            f"event {event.id}: has {size} bytes in its smallest form, got max_event_size = {self._size_max}"
        )

    def state(self, raw: bytes) -> bytes:
        """Return the part of a stored record's raw JSON that the sink may see."""
        return raw if self._projection is None else bytes(_show(self._projection, msgspec.Raw(raw)))

    def _render(self, event: Event) -> Iterator[bytes]:
        """Yield bodies with less and less content."""
        envelope = _MEMBERS.decode(event.body)
        data = _MEMBERS.decode(envelope.pop("data"))
        if self._projection is not None:
            self._project(self._projection, data)
        for left_out in self._rungs(has_patch="patch" in data, patch_tells=event.feed not in self._unordered):
            yield _ENCODER.encode({**envelope, "data": _leave_out(data, left_out)})
        thin = _leave_out(data, _CONTENT)
        if self._state_url and event.change != ChangeKind.DELETED:
            where = f"{self._state_url}/state/{event.feed}/{quote(event.key, safe='')}"
            yield _ENCODER.encode({**envelope, "dataref": where, "data": thin})
        yield _ENCODER.encode({**envelope, "data": thin})

    def _rungs(self, *, has_patch: bool, patch_tells: bool) -> Sequence[tuple[str, ...]]:
        """Return the members to leave out, step by step; an event without a patch keeps ``after``."""
        patch_only = ("before", "after") if has_patch and patch_tells else ("before",)
        if self._payload == "full":
            return (), ("before",), patch_only
        return (patch_only if self._payload == "patch" else ("before", "after", "patch"),)

    def _project(self, projection: Projection, data: _Members) -> None:
        for name in ("before", "after"):
            if _holds(data, name):
                data[name] = _show(projection, data[name])
        if "patch" in data and "before" in data and "after" in data and self._payload != "thin":
            data["patch"] = msgspec.Raw(
                _ENCODER.encode(diff(*(decode(bytes(data[name])) for name in ("before", "after"))))
            )
        if "changed" in data:
            # Not computed anew: that would need the ignored members and the arrays without an order.
            kept = [place for place in _NAMES.decode(data["changed"]) if projection.shows(pointer.parse(place))]
            data["changed"] = msgspec.Raw(_ENCODER.encode(kept))


def _show(projection: Projection, raw: msgspec.Raw) -> msgspec.Raw:
    return projection.cut(raw) or msgspec.Raw(b"{}")


def _holds(data: _Members, name: str) -> bool:
    return name in data and bytes(data[name]) != b"null"


def _leave_out(data: _Members, names: tuple[str, ...]) -> dict[str, object]:
    """Return the data without some members, which ``omitted`` lists, beside those left out before."""
    before = _NAMES.decode(data["omitted"]) if "omitted" in data else []
    left_out = [name for name in _CONTENT if name in before or (name in names and _holds(data, name))]
    kept: dict[str, object] = {name: value for name, value in data.items() if name not in left_out}
    return kept | {"omitted": left_out} if left_out else kept
