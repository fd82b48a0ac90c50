"""All places of the site in one table: what is routed, and what ``/openapi.json`` describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dockbell.admin.as_json import StatusModel
from dockbell.admin.history_as_json import WhyModel
from dockbell.core.model import JSON
from dockbell.web.actions import AcceptedCommand, Actions, CommandState, Deletions, Drift, NamedEvent, Outcome, Pause
from dockbell.web.assets import Assets
from dockbell.web.dead_letters import DeadLetters, LetterList, Letters
from dockbell.web.delays import DelayWeek, DelayWeeks
from dockbell.web.events import CloudEvent, EventDetail, EventList, Events
from dockbell.web.feeds import Feeds
from dockbell.web.live import Live
from dockbell.web.metrics import Scrape
from dockbell.web.params import LIMIT, LIMIT_MOST, LIST_LIMIT, LIST_LIMIT_MOST, Nothing
from dockbell.web.records import RecordDetail, RecordList, Records
from dockbell.web.route import PLACE, Access, Endpoint, ResponseDoc, Route, problem_doc
from dockbell.web.session import BegunSession, Session, SessionModel, Token
from dockbell.web.state import Index, IndexModel, State, StatePage, StateRecord
from dockbell.web.status import Alive, Health, Readiness, StatusEndpoints

# JSON Schemas of parameters.
_TEXT: Final[JSON] = {"type": "string"}
_POSITION: Final[JSON] = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\.[0-9]{1,18}$"}
_CURSOR: Final[JSON] = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\.[0-9]{1,18}\.[0-9]{1,18}$"}
_LIMIT: Final[JSON] = {"type": "integer", "minimum": 1, "maximum": LIMIT_MOST, "default": LIMIT}
_LIST_LIMIT: Final[JSON] = {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MOST, "default": LIST_LIMIT}
_DURATION: Final[JSON] = {"type": "string", "pattern": r"^([1-9]?[0-9]s|1m)$", "default": "0s"}

# Responses of actions.
_DONE: Final = {200: ResponseDoc("The outcome.", Outcome)}
_ACCEPTED: Final = ResponseDoc(
    "The daemon runs the command soon; `GET /commands/{number}` returns its outcome.", AcceptedCommand
)


def list_routes(
    *,
    actions: Actions,
    assets: Assets,
    dead_letters: DeadLetters,
    delays: DelayWeeks,
    events: Events,
    feeds: Feeds,
    health: Health,
    index: Index,
    live: Live,
    records: Records,
    scrape: Scrape,
    session: Session,
    state: State,
    status: StatusEndpoints,
) -> Sequence[Route]:
    ready = ResponseDoc("The daemon is ready; `reasons` is empty, or 0 without the token.", Readiness)
    not_ready = ResponseDoc(
        "The daemon is not ready; `reasons` says why, or is only their number without the token.", Readiness
    )
    return (
        # What the status page consists of, and lives on.
        Route(
            "/page/{file}",
            assets.answer,
            "Get a script, style sheet or image of the status page.",
            {
                200: ResponseDoc("The file.", media_type="*/*"),
                304: ResponseDoc("The file has not changed.", media_type=""),
            },
            access=Access.OPEN,
        ),
        Route(
            "/live",
            live.answer,
            "Stream the content of the status page as server-sent events: first all of it, then each change.",
            {
                200: ResponseDoc(
                    "The stream; dockbell ends it after 15 minutes at the latest.", media_type="text/event-stream"
                )
            },
        ),
        Route(
            "/session",
            session.answer,
            "Check whether the client has sent the token, and may act.",
            {200: ResponseDoc("What the client may do.", SessionModel)},
            access=Access.EITHER,
        ),
        Route(
            "/session",
            session.begin,
            "Start a browser session by sending the token.",
            {
                200: ResponseDoc(
                    "The session has started: `Set-Cookie` sets its cookie, `dockbell_session_` and eight hexadecimal"
                    " digits; actions must send `csrf` in `X-Dockbell-CSRF`.",
                    BegunSession,
                ),
                401: problem_doc("The token is wrong."),
                403: problem_doc("No token is configured, or a page of another origin sent the request."),
                429: problem_doc("Too many wrong tokens were sent; `Retry-After` says when to retry."),
            },
            method="POST",
            access=Access.OPEN,
            body=Token,
        ),
        Route(
            "/session",
            session.end,
            "End the browser session.",
            {
                204: ResponseDoc("The session has ended; `Set-Cookie` deletes its cookie.", media_type=""),
                401: problem_doc("The request has no valid session or token."),
            },
            method="DELETE",
        ),
        # Monitoring.
        Route(
            "/healthz",
            health.answer_alive,
            "Check that the daemon is alive. This does not use the store or a receiver, which might hang.",
            {200: ResponseDoc("The daemon is alive.", Alive)},
            access=Access.OPEN,
        ),
        Route(
            "/readyz",
            health.answer_ready,
            "Check that the daemon does its work: it can write the store, read every feed and reach every receiver.",
            {200: ready, 503: not_ready},
            access=Access.EITHER,
        ),
        Route(
            "/metrics",
            scrape.answer,
            "Get metrics for Prometheus, as OpenMetrics if the client accepts it.",
            {200: ResponseDoc("The metrics.", media_type="text/plain")},
        ),
        # What programs read.
        Route(
            "/",
            index.answer_or_page,
            "Get the status page, without a token, if the client accepts `text/html`; otherwise list the feeds.",
            {200: ResponseDoc("The feeds, each with its oldest and last position.", IndexModel)},
            access=Access.PAGE,
        ),
        Route(
            "/feeds",
            index.answer,
            "List the feeds, each with its oldest and last position.",
            {200: ResponseDoc("The feeds.", IndexModel)},
        ),
        Route(
            "/feeds/{source}/{resource}",
            feeds.answer,
            "Read events of a feed after a position; as server-sent events if the client accepts them.",
            {
                200: ResponseDoc(
                    "Events in order, without gaps.", list[CloudEvent], "application/cloudevents-batch+json"
                )
            },
            query={"after": _POSITION, "limit": _LIMIT, "wait": _DURATION},
        ),
        Route(
            "/state/{source}/{resource}",
            state.answer_page,
            "List the stored records of a feed, page by page.",
            {200: ResponseDoc("A page of records; `next` leads to the next page.", StatePage)},
            query={"cursor": _CURSOR, "limit": _LIMIT},
        ),
        Route(
            "/state/{source}/{resource}/{key}",
            state.answer_one,
            "Get one stored record.",
            {200: ResponseDoc("The record.", StateRecord)},
        ),
        # How everything stands.
        Route(
            "/status",
            status.answer_status,
            "Get the status of feeds and sinks, and what needs attention: `dockbell status --json`.",
            {200: ResponseDoc("The status.", StatusModel)},
        ),
        Route(
            "/delays/{source}/{resource}",
            delays.answer,
            "Get how long a feed's changes took to reach the sinks in the last week, in steps of two hours.",
            {200: ResponseDoc("The delays, oldest first; null for a step without changes.", DelayWeek)},
        ),
        Route(
            "/why/{source}/{resource}/{key}",
            status.answer_why,
            "Explain why a record has its events, or none: `dockbell why --json`.",
            {200: ResponseDoc("What dockbell knows about the record.", WhyModel)},
        ),
        Route(
            "/events",
            events.answer_list,
            "List recorded events, newest first. A page may be short or empty; there are more unless `next` is null.",
            {200: ResponseDoc("A page of events; `next` is `before` of the next page.", EventList)},
            query={
                "before": PLACE,
                "limit": _LIST_LIMIT,
                **dict.fromkeys(("source", "resource", "key", "type", "change", "id"), _TEXT),
            },
        ),
        Route(
            "/events/{source}/{resource}/{sequence}",
            events.answer_one,
            "Get one event, its changes and its deliveries.",
            {200: ResponseDoc("The event.", EventDetail)},
        ),
        Route(
            "/records/{source}/{resource}",
            records.answer_list,
            "Find records by a part of their key (`find`), or by a text in their key or values (`text`)."
            " A page may be short or empty; there are more unless `next` is null.",
            {200: ResponseDoc("A page of records; `next` is `after` of the next page.", RecordList)},
            query={"find": _TEXT, "text": _TEXT, "after": PLACE, "limit": _LIST_LIMIT},
        ),
        Route(
            "/records/{source}/{resource}/{key}",
            records.answer_one,
            "Get one stored record, even a deleted one, and its last events.",
            {200: ResponseDoc("The record; `text` is null once its content is erased.", RecordDetail)},
        ),
        Route(
            "/sinks/{sink}/dead",
            dead_letters.answer,
            "List the dead letters of a sink, page by page.",
            {200: ResponseDoc("A page of dead letters, and the number of all.", LetterList)},
            query={"limit": _LIST_LIMIT, "after": _TEXT},
        ),
        Route(
            "/commands/{number}",
            actions.answer_command,
            "Get the outcome of a command that the daemon runs.",
            {200: ResponseDoc("The command; `outcome` is null until it is done.", CommandState)},
        ),
        # What a client with the token may do.
        _act("/sinks/{sink}/pause", actions.pause, "Pause a sink: it gets no events until it is resumed.", Pause),
        _act("/sinks/{sink}/resume", actions.resume, "Resume a paused sink.", Nothing),
        _act("/sinks/{sink}/retry", actions.send_now, "Send events that wait for another attempt now.", Nothing),
        _act("/sinks/{sink}/replay", actions.send_again, "Send an event again, marked as a replay.", NamedEvent),
        _act("/sinks/{sink}/dead/retry", actions.retry, "Send dead letters to their sink again.", Letters),
        _act("/sinks/{sink}/dead/discard", actions.discard, "Delete dead letters.", Letters),
        _act(
            "/feeds/{source}/{resource}/reconcile",
            actions.reconcile,
            "Read a whole feed now.",
            Nothing,
            {202: _ACCEPTED},
        ),
        _act(
            "/feeds/{source}/{resource}/deletions",
            actions.decide_deletions,
            "Publish held deletions (`approve`), or keep the records (`reject`).",
            Deletions,
            {200: ResponseDoc("No deletions are held.", Outcome), 202: _ACCEPTED},
        ),
        _act(
            "/feeds/{source}/{resource}/drift",
            actions.decide_drift,
            "Store held drift without events (`absorb`), or publish it (`publish`).",
            Drift,
            {200: ResponseDoc("No drift is held.", Outcome), 202: _ACCEPTED},
        ),
    )


def _act(
    path: str,
    endpoint: Endpoint,
    words: str,
    body: type[msgspec.Struct],
    responses: Mapping[int, ResponseDoc] = _DONE,
) -> Route:
    return Route(path, endpoint, words, responses, method="POST", access=Access.ACT, body=body)
