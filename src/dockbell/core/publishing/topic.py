"""Topic templates: where an event is published on MQTT, as in ``dockbell/event/{source}/{resource}/{key}/{change}``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final

from dockbell.core.model import Event

FIELDS: Final = ("source", "resource", "key", "change")
"""The fields that a template may have in braces."""
FEED_FIELDS: Final = ("source", "resource", "change")
"""The same for statements about a feed, which have no key."""
MAX_BYTES: Final = 65_535
"""The length of an MQTT string is two bytes (MQTT 5.0, 1.5.4)."""

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_topic(template: str, *, fields: Collection[str] = FIELDS, required: Collection[str] = ()) -> str:
    """Return the template when every event gives a topic that may be published to (MQTT 5.0, 4.7).

    It may have ``fields`` in braces, and must have those that are ``required``. Else raises a ValueError that says why.
    """
    named = _FIELD.findall(template)
    literal = _FIELD.sub("x", template)
    known = " ".join(f"{{{field}}}" for field in fields) or "none"
    problems = (
        *((name not in fields, f"must not contain {{{name}}}; known: {known}") for name in named),
        ("{" in literal or "}" in literal, "must have matching braces"),
        ("+" in literal or "#" in literal, "must not contain a wildcard (+ or #)"),
        (_FORBIDDEN.search(literal) is not None, "must not contain control characters"),
        (not all(literal.split("/")), "must not have an empty level"),
        (literal.startswith("$"), "must not begin with $, which is reserved for the broker"),
        (len(literal.encode(errors="replace")) > MAX_BYTES, f"must not be longer than {MAX_BYTES} bytes"),
        *((name not in named, f"must contain {{{name}}}, or records overwrite each other") for name in required),
    )
    problem = next((text for holds, text in problems if holds), None)
    if problem is not None:
        raise ValueError(f"{problem}, got {json.dumps(template)}")
    return template


def render_topic(template: str, event: Event) -> str:
    """Return the topic of an event; raises ValueError where it is longer than MQTT allows.

    ``{change}`` is the last part of the event's type, so that named events have a topic of their own.
    """
    change = event.type.rpartition(".")[2]
    topic = template.format(source=event.feed.source, resource=event.feed.resource, key=event.key, change=change)
    if (size := len(topic.encode())) > MAX_BYTES:
        raise ValueError(f"topic: has {size} bytes, MQTT allows {MAX_BYTES}")
    return topic
