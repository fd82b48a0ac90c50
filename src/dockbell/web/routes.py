"""All places of the site in one table: what is routed, and what ``/openapi.json`` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dockbell.admin.as_json import StatusModel
from dockbell.admin.history_as_json import WhyModel
from dockbell.core.model import JSON
from dockbell.web.actions import Actions, Deletions, Drift, LeftWish, NamedEvent, Outcome, Pause, Wish
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
    readiness = ResponseDoc("The reasons why it does not; for a client without the token, their number.", Readiness)
    return (
        # What the status page consists of, and lives on.
        Route(
            "/page/{file}",
            assets.answer,
            "A script, a style or a picture of the status page.",
            {200: ResponseDoc("The file.", media_type="*/*"), 304: ResponseDoc("It is known already.", media_type="")},
            access=Access.OPEN,
        ),
        Route(
            "/live",
            live.answer,
            "What the status page shows: server-sent events, first everything, then what changes.",
            {200: ResponseDoc("A stream without end.", media_type="text/event-stream")},
        ),
        Route(
            "/session",
            session.answer,
            "Whether the caller has shown the token, and may act.",
            {200: ResponseDoc("What is known of the caller.", SessionModel)},
            access=Access.EITHER,
        ),
        Route(
            "/session",
            session.begin,
            "Begin a session of a browser, which the token is shown to get.",
            {
                200: ResponseDoc(
                    "It has begun: a cookie, named `dockbell_session_` and eight digits of this dockbell, and the word"
                    " that acts must bear.",
                    BegunSession,
                ),
                401: problem_doc("The token is wrong."),
                403: problem_doc("No token is configured, or a page of another origin asks."),
                429: problem_doc("Too many wrong tokens were sent; `Retry-After` says when to send another."),
            },
            method="POST",
            access=Access.OPEN,
            body=Token,
        ),
        Route(
            "/session",
            session.end,
            "End the session of this browser.",
            {
                204: ResponseDoc("It has ended: the browser forgets its cookie.", media_type=""),
                401: problem_doc("There is none."),
            },
            method="DELETE",
        ),
        # Monitoring.
        Route(
            "/healthz",
            health.answer_alive,
            "Whether the daemon is alive; asks neither the store nor a receiver, which might hang.",
            {200: ResponseDoc("It is.", Alive)},
            access=Access.OPEN,
        ),
        Route(
            "/readyz",
            health.answer_ready,
            "Whether the daemon does its work: the store can be written, no feed is blind, every receiver is reached.",
            {200: readiness, 503: readiness},
            access=Access.EITHER,
        ),
        Route(
            "/metrics",
            scrape.answer,
            "Numbers for Prometheus; as OpenMetrics where that is accepted.",
            {200: ResponseDoc("Every number.", media_type="text/plain")},
        ),
        # What programs read.
        Route(
            "/",
            index.answer_or_page,
            "The status page for clients that accept `text/html`, which needs no token; else which feeds there are.",
            {200: ResponseDoc("Which feeds there are, and how far each reaches.", IndexModel)},
            access=Access.PAGE,
        ),
        Route(
            "/feeds",
            index.answer,
            "Which feeds there are, and how far each reaches.",
            {200: ResponseDoc("The feeds.", IndexModel)},
        ),
        Route(
            "/feeds/{source}/{resource}",
            feeds.answer,
            "Events of a feed after a position; as server-sent events where these are accepted.",
            {
                200: ResponseDoc(
                    "Events, in order, none left out.", list[CloudEvent], "application/cloudevents-batch+json"
                )
            },
            query={"after": _POSITION, "limit": _LIMIT, "wait": _DURATION},
        ),
        Route(
            "/state/{source}/{resource}",
            state.answer_page,
            "Stored records of a feed, page by page.",
            {200: ResponseDoc("Some records, and where the next ones are.", StatePage)},
            query={"cursor": _CURSOR, "limit": _LIMIT},
        ),
        Route(
            "/state/{source}/{resource}/{key}",
            state.answer_one,
            "One stored record.",
            {200: ResponseDoc("The record.", StateRecord)},
        ),
        # How everything stands.
        Route(
            "/status",
            status.answer_status,
            "How feeds and sinks stand, and the reasons to look closer: `dockbell status --json`.",
            {200: ResponseDoc("How they stand.", StatusModel)},
        ),
        Route(
            "/delays/{source}/{resource}",
            delays.answer,
            "How long changes of a feed took to the sinks in the last week, by two hours; null where there were none.",
            {200: ResponseDoc("The delays, the oldest first.", DelayWeek)},
        ),
        Route(
            "/why/{source}/{resource}/{key}",
            status.answer_why,
            "Why a record has the events that it has, or none: `dockbell why --json`.",
            {200: ResponseDoc("All that is known of it.", WhyModel)},
        ),
        Route(
            "/events",
            events.answer_list,
            "Recorded events, newest first. There may be more where an answer has few, or none: `next` tells.",
            {200: ResponseDoc("Some of them, and from where to go on.", EventList)},
            query={
                "before": PLACE,
                "limit": _LIST_LIMIT,
                **dict.fromkeys(("source", "resource", "key", "type", "change", "id"), _TEXT),
            },
        ),
        Route(
            "/events/{source}/{resource}/{sequence}",
            events.answer_one,
            "One event, what it changed, and where it is.",
            {200: ResponseDoc("The event.", EventDetail)},
        ),
        Route(
            "/records/{source}/{resource}",
            records.answer_list,
            "Records whose keys have a part (`find`), or that have a text in their keys or values (`text`)."
            " There may be more where an answer has few, or none: `next` tells.",
            {200: ResponseDoc("Some of them, and after which to go on.", RecordList)},
            query={"find": _TEXT, "text": _TEXT, "after": PLACE, "limit": _LIST_LIMIT},
        ),
        Route(
            "/records/{source}/{resource}/{key}",
            records.answer_one,
            "One stored record, also one that is gone, and its last events.",
            {200: ResponseDoc("It; `text` is null once its content is erased.", RecordDetail)},
        ),
        Route(
            "/sinks/{sink}/dead",
            dead_letters.answer,
            "Dead letters of a sink, page by page.",
            {200: ResponseDoc("Some of them, and how many there are.", LetterList)},
            query={"limit": _LIST_LIMIT, "after": _TEXT},
        ),
        Route(
            "/wishes/{number}",
            actions.answer_command,
            "What came of something that was left for the daemon to do.",
            {200: ResponseDoc("It; `outcome` is null until it is done.", Wish)},
        ),
        # What a client with the token may do.
        _act("/sinks/{sink}/pause", actions.pause, "Have a sink take nothing until it is resumed.", Pause),
        _act("/sinks/{sink}/resume", actions.resume, "Have a sink take events again.", Nothing),
        _act("/sinks/{sink}/retry", actions.send_now, "Have what waits for its next attempt sent at once.", Nothing),
        _act("/sinks/{sink}/replay", actions.send_again, "Have an event sent again, marked as a replay.", NamedEvent),
        _act("/sinks/{sink}/dead/retry", actions.retry, "Have dead letters offered to their sink again.", Letters),
        _act("/sinks/{sink}/dead/discard", actions.discard, "Delete dead letters.", Letters),
        _act("/feeds/{source}/{resource}/reconcile", actions.reconcile, "Have a feed read whole now.", Nothing),
        _act(
            "/feeds/{source}/{resource}/deletions",
            actions.decide_deletions,
            "Have held deletions published, or the records kept.",
            Deletions,
        ),
        _act(
            "/feeds/{source}/{resource}/drift",
            actions.decide_drift,
            "Have held drift stored without events, or published.",
            Drift,
        ),
    )


def _act(path: str, endpoint: Endpoint, words: str, body: type[msgspec.Struct]) -> Route:
    responses = {
        200: ResponseDoc("What came of it.", Outcome),
        202: ResponseDoc("The daemon does it soon; /wishes/{number} tells what came of it.", LeftWish),
    }
    return Route(path, endpoint, words, responses, method="POST", access=Access.ACT, body=body)
