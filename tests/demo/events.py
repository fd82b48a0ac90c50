"""Events as dockbell writes them, as far as the demo looks at them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dockbell.demo.arrival import Arrival

START: Final = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return a time so many seconds after the start."""
    return START + timedelta(seconds=seconds)


def record(content: Any, seconds: float) -> dict[str, Any]:
    """Return a record as it was at a time."""
    return {"id": "shp_1", "status": content, "updated_at": at(seconds).isoformat()}


def arrival(sink: str = "mqtt", *, seconds: float = 0, **data: Any) -> Arrival:
    """Return the arrival of an event; ``data`` overrides what it says."""
    known = {
        "resource": "shipments",
        "key": "shp_1",
        "id": "shp_1",
        "change": "updated",
        "revision": 1,
        "before": {"status": "packed"},
        "after": {"status": "shipped"},
        "patch": [{"op": "replace", "path": "/status", "value": "shipped"}],
        "modified_at": at(0).isoformat(),
        "detected_at": at(0).isoformat(),
    } | data
    event_id = f"evt_{known['key']}_{known['revision']}"
    return Arrival(sink, {"id": event_id, "data": known}, at(seconds))


def statement(kind: str, sink: str = "mqtt", *, seconds: float = 0, **data: Any) -> Arrival:
    """Return the arrival of a statement about a feed; ``data`` is what it says."""
    known = {"resource": "stock", "statement": kind, "through_sequence": 7, "detected_at": at(0).isoformat()} | data
    return Arrival(sink, {"id": f"evt_{kind}", "data": known}, at(seconds))
