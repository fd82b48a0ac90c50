"""Events: a change, numbered and written as a structured CloudEvent 1.0; ``event.schema.json`` describes them all."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

import msgspec

from dockbell.core.key import encode
from dockbell.core.model import JSON, Change, Event, Feed
from dockbell.core.moment import format_moment

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_TEST: Final = "test"


def event_source(name: str, feed: Feed) -> str:
    """Return the ``source`` of a feed's events, ``dockbell://acme/main/shipments``."""
    return "dockbell://" + "/".join([quote(part, safe="") for part in (name, feed.source, feed.resource)])


def compose(change: Change, *, name: str, singular: str, epoch: str, sequence: int) -> Event:
    """Return the event of a change.

    Args:
        change: What happened; ``before`` and ``after`` are embedded byte for byte, but for line breaks.
        name: The name of this dockbell.
        singular: What the resource calls one record, as in event types.
        epoch: The mark of the store's life, so that no two lives share an id.
        sequence: The event's number in its feed.
    """
    data = {
        "resource": change.feed.resource,
        "key": change.key.text,
        "id": change.key.id,
        "change": change.kind,
        "revision": change.revision,
        "before": _embed(change.before),
        "after": _embed(change.after),
    }
    if change.patch is not None:
        data["patch"] = change.patch
        data["changed"] = change.changed
    data["changed_between"] = [_write_moment(moment) for moment in change.changed_between]
    data["modified_at"] = _write_moment(change.modified_at)
    data["detected_at"] = format_moment(change.detected_at)
    data["via"] = change.via
    data["late"] = change.late
    if change.reason is not None:
        data["reason"] = change.reason
    return _write_event(
        change.feed,
        f"dockbell.{singular}.{change.kind}",
        data,
        name=name,
        schema=singular,
        epoch=epoch,
        sequence=sequence,
    )


def test_event(name: str, sink: str, now: datetime, nonce: str) -> Event:
    """Return an event that no record stands behind, for ``dockbell test``; ``nonce`` sets its id apart."""
    data = {
        "resource": _TEST,
        "key": encode([sink]),
        "id": sink,
        "change": _TEST,
        "revision": 0,
        "before": None,
        "after": {"note": "a test by the operator: no record changed"},
        "detected_at": format_moment(now),
    }
    return _write_event(
        Feed("dockbell", _TEST),
        "dockbell.test",
        data,
        name=name,
        schema=_TEST,
        epoch=nonce,
        sequence=0,
    )


def _write_event(
    feed: Feed, type_: str, data: dict[str, JSON], *, name: str, schema: str, epoch: str, sequence: int
) -> Event:
    content = msgspec.Raw(_ENCODER.encode(data))
    # https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
    identity = _ENCODER.encode([epoch, feed.source, feed.resource, sequence, type_, content])
    event_id = "evt_" + blake2b(identity, digest_size=16).hexdigest()
    body = {
        "specversion": "1.0",
        "id": event_id,
        "source": event_source(name, feed),
        "type": type_,
        "subject": data["key"],
        "time": data["detected_at"],
        "datacontenttype": "application/json",
        "dataschema": f"urn:dockbell:schema:{schema}:1",
        "partitionkey": f"{feed}/{data['key']}",
        "sequence": f"{sequence:020}",
        "data": content,
    }
    return Event(
        feed=feed,
        sequence=sequence,
        key=data["key"],
        id=event_id,
        type=type_,
        change=str(data["change"]),
        revision=data["revision"],
        body=_ENCODER.encode(body),
    )


def _embed(raw: bytes | None) -> msgspec.Raw | None:
    if raw is None:
        return None
    # An event is one line, whatever the API's taste: a line break can only stand between the tokens of a JSON text.
    return msgspec.Raw(msgspec.json.format(raw, indent=-1) if b"\n" in raw or b"\r" in raw else raw)


def _write_moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(moment)
