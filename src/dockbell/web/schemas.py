"""JSON Schemas of what the site answers with, to the member: whatever is added there is added here."""

from __future__ import annotations

from typing import Final

from dockbell.core.model import JSON

TEXT: Final[JSON] = {"type": "string"}
COUNT: Final[JSON] = {"type": "integer", "minimum": 0}
FLAG: Final[JSON] = {"type": "boolean"}
SECONDS: Final[JSON] = {"type": "number"}
TIME: Final[JSON] = {"type": "string", "format": "date-time"}
ANY: Final[JSON] = {}


def some(**members: JSON) -> JSON:
    """Return the schema of an object that has all of these members, and no others."""
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


def many(items: JSON) -> JSON:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def maybe(schema: JSON) -> JSON:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(schema: JSON) -> JSON:
    """Return the schema of an object with members of any name."""
    return {"type": "object", "additionalProperties": schema}


def few(most: int, default: int) -> JSON:
    """Return the schema of a limit."""
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


# Parameters ----------------------------------------------------------------------------------------------------------

POSITION: Final[JSON] = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\.[0-9]{1,18}$"}
CURSOR: Final[JSON] = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\.[0-9]{1,18}\.[0-9]{1,18}$"}
LIMIT: Final = few(1000, 100)
DURATION: Final[JSON] = {"type": "string", "pattern": r"^([1-9]?[0-9]s|1m)$", "default": "0s"}

# Problems: https://www.rfc-editor.org/rfc/rfc9457 --------------------------------------------------------------------

PROBLEM: Final[JSON] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "pattern": "^urn:dockbell:problem:[a-z-]+$"},
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "*subject: fact, got value; remedy*"},
    },
}

# What programs read --------------------------------------------------------------------------------------------------

INDEX: Final = some(name=TEXT, version=TEXT, feeds=many(some(name=TEXT, oldest=TEXT, last=TEXT, feed=TEXT, state=TEXT)))
HEALTH: Final = some(status={"const": "ok"})
READINESS: Final = some(status={"enum": ["ready", "not ready"]}, reasons={"anyOf": [COUNT, many(TEXT)]})
CLOUD_EVENT: Final[JSON] = {
    "type": "object",
    "required": ["specversion", "id", "source", "type", "time", "sequence", "data"],
    "description": "A CloudEvent as every sink gets it; docs/reference/events.md has its schema.",
}
EVENTS_BATCH: Final = many(CLOUD_EVENT)
_KEPT: Final[JSON] = {"key": TEXT, "revision": COUNT, "record": {"type": "object"}}
STATE: Final = some(position=TEXT, complete=FLAG, records=many(some(**_KEPT)), next=maybe(TEXT), feed=TEXT)
RECORD: Final = some(position=TEXT, **_KEPT)

# Sessions ------------------------------------------------------------------------------------------------------------

SESSION: Final = some(signed_in=FLAG, can_act=FLAG, csrf=maybe(TEXT), needs_token=FLAG)
BEGUN: Final = some(csrf=TEXT)


# How everything stands -----------------------------------------------------------------------------------------------

_GAP: Final = some(**{"from": maybe(TIME), "to": TIME, "reason": TEXT})
_DRIFT: Final = some(fields=many(TEXT), decision=TEXT, since=maybe(TIME), readings=COUNT)
_SILENCE: Final[dict[str, JSON]] = {"silence": {"enum": ["", "quiet", "blind", "filtered"]}, "silence_words": TEXT}
_FEED: Final = some(
    feed=TEXT,
    records=COUNT,
    events=COUNT,
    read_at=maybe(TIME),
    last_change_at=maybe(TIME),
    watermark=maybe(TIME),
    pass_at=maybe(TIME),
    pass_due_at=maybe(TIME),
    failed_passes=COUNT,
    pass_problem=TEXT,
    held=COUNT,
    problem=TEXT,
    key=maybe(many(TEXT)),
    updated_at=maybe(TEXT),
    learned=by_name(TEXT),
    proven=FLAG,
    rebaselining=FLAG,
    lookback_seconds=maybe(SECONDS),
    lateness_seconds=maybe(SECONDS),
    held_readings=COUNT,
    quarantined=COUNT,
    quarantine=many(some(key=TEXT, problem=TEXT, last_at=TIME)),
    drift=maybe(_DRIFT),
    gap=maybe(_GAP),
    **_SILENCE,
)
_CONDITION: Final[JSON] = {"enum": ["connected", "waiting", "down", "paused", "unknown"]}
_SINK: Final = some(
    sink=TEXT,
    condition=_CONDITION,
    reason=TEXT,
    since=maybe(TIME),
    owed=COUNT,
    blocked=COUNT,
    dead=COUNT,
    held=COUNT,
    replays=COUNT,
    paused=maybe(TEXT),
    paused_at=maybe(TIME),
    oldest=maybe(TIME),
    error=TEXT,
    **_SILENCE,
)
_STORE: Final = some(bytes=COUNT, free_bytes=COUNT, disk_bytes=COUNT, disk_left_bytes=COUNT)
_WEB: Final = some(crowded_at=TIME, reason=TEXT)
STATUS: Final = some(
    at=TIME,
    daemon=maybe(TEXT),
    well=FLAG,
    reasons=many(TEXT),
    feeds=many(_FEED),
    sinks=many(_SINK),
    web=maybe(_WEB),
    store=maybe(_STORE),
)

_RECORD: Final = some(
    revision=COUNT,
    modified=maybe(TIME),
    fingerprint=TEXT,
    purged=FLAG,
    gone_at=maybe(TIME),
    suspected_at=maybe(TIME),
    dormant=FLAG,
    held_at=maybe(TIME),
    awaited_at=maybe(TIME),
)
_RUN: Final = some(
    kind=TEXT,
    asked_at=TIME,
    since=maybe(TIME),
    ended_at=TIME,
    pages=COUNT,
    records=COUNT,
    events=COUNT,
    problem=TEXT,
)
_FINDING: Final = some(
    at=TIME,
    via=TEXT,
    finding=TEXT,
    says=TEXT,
    modified=maybe(TIME),
    fingerprint=maybe(TEXT),
    sequence=maybe(COUNT),
)
_TRANSIT: Final = some(stage=TEXT, attempts=COUNT, error=TEXT, at=maybe(TIME))
WHY: Final = some(
    feed=TEXT,
    key=TEXT,
    given=TEXT,
    at=TIME,
    presence=TEXT,
    why=maybe(TEXT),
    record=maybe(_RECORD),
    quarantine=many(some(problem=TEXT, first_at=TIME, last_at=TIME)),
    runs=many(_RUN),
    findings=many(_FINDING),
    events=many(
        some(
            sequence=COUNT,
            id=TEXT,
            type=TEXT,
            revision=COUNT,
            unjudged=FLAG,
            recorded_at=TIME,
            sinks=by_name(_TRANSIT),
        )
    ),
)

# Events --------------------------------------------------------------------------------------------------------------

PLACE: Final[JSON] = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
SUMMARY: Final = some(
    place=COUNT,
    feed=TEXT,
    source=TEXT,
    resource=TEXT,
    sequence=COUNT,
    key=TEXT,
    type=TEXT,
    change=TEXT,
    revision=COUNT,
    at=TIME,
    changed=many(TEXT),
    more=COUNT,
)
EVENTS: Final = some(events=many(SUMMARY), next=maybe(COUNT))
EVENT: Final = some(
    event=CLOUD_EVENT,
    recorded_at=TIME,
    differences=many(
        some(
            **{
                "path": TEXT,
                "op": {"enum": ["add", "remove", "replace"]},
                "from": ANY,
                "to": ANY,
                "from_text": maybe(TEXT),
                "to_text": maybe(TEXT),
            }
        )
    ),
    more=COUNT,
    deliveries=many(some(sink=TEXT, stage=TEXT, attempts=COUNT, error=TEXT, due=maybe(TIME))),
)

# Acts ----------------------------------------------------------------------------------------------------------------

OUTCOME: Final = some(outcome=TEXT)
LEFT: Final = some(wish=COUNT)
WISH: Final = some(wish=TEXT, feed=maybe(TEXT), outcome=maybe(TEXT))
LETTERS: Final = some(
    letters=many(
        some(
            feed=TEXT,
            sequence=COUNT,
            key=TEXT,
            type=maybe(TEXT),
            error=TEXT,
            attempts=COUNT,
            died_at=TIME,
            holds=FLAG,
        )
    ),
    next=maybe(TEXT),
    total=COUNT,
)
