"""All places of the site in one table: what is routed, and what ``/openapi.json`` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dockbell.web import schemas
from dockbell.web.actions import Actions, Deletions, Drift, Pause
from dockbell.web.assets import Assets
from dockbell.web.dead_letters import DeadLetters, Letters
from dockbell.web.events import Events
from dockbell.web.feeds import Feeds
from dockbell.web.health import Health
from dockbell.web.index import Index
from dockbell.web.live import Live
from dockbell.web.metrics import Scrape
from dockbell.web.params import LIST_LIMIT, LIST_LIMIT_MOST, Nothing
from dockbell.web.route import Access, Endpoint, ResponseDoc, Route, problem_doc
from dockbell.web.session import Session, Token
from dockbell.web.state import State
from dockbell.web.status import StatusEndpoints

_LIMIT: Final = schemas.few(LIST_LIMIT_MOST, LIST_LIMIT)


def list_page_routes(assets: Assets, live: Live, session: Session) -> Sequence[Route]:
    """Return what the status page consists of, and lives on."""
    return (
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
            {200: ResponseDoc("What is known of the caller.", schemas.SESSION)},
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
                    schemas.BEGUN,
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
    )


def list_monitoring_routes(health: Health, scrape: Scrape) -> Sequence[Route]:
    """Return what watches over the daemon asks."""
    readiness = ResponseDoc("What hinders it; to whoever has shown no token, how much does.", schemas.READINESS)
    return (
        Route(
            "/healthz",
            health.answer_alive,
            "Whether the daemon is alive; asks nobody who might hang.",
            {200: ResponseDoc("It is.", schemas.HEALTH)},
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
    )


def list_pull_routes(index: Index, assets: Assets, feeds: Feeds, state: State) -> Sequence[Route]:
    """Return what programs read: the pull feeds, the stored records, and what there is of both."""
    return (
        Route(
            "/",
            index.or_page(assets.answer_page),
            "The status page for whoever accepts `text/html`, which needs no token; else which feeds there are.",
            {200: ResponseDoc("Which feeds there are, and how far each reaches.", schemas.INDEX)},
            access=Access.PAGE,
        ),
        Route(
            "/feeds",
            index.answer,
            "Which feeds there are, and how far each reaches.",
            {200: ResponseDoc("The feeds.", schemas.INDEX)},
        ),
        Route(
            "/feeds/{source}/{resource}",
            feeds.answer,
            "Events of a feed after a position; as server-sent events where these are accepted.",
            {
                200: ResponseDoc(
                    "Events, in order, none left out.", schemas.EVENTS_BATCH, "application/cloudevents-batch+json"
                )
            },
            query={"after": schemas.POSITION, "limit": schemas.LIMIT, "wait": schemas.DURATION},
        ),
        Route(
            "/state/{source}/{resource}",
            state.answer_page,
            "Stored records of a feed, page by page.",
            {200: ResponseDoc("Some records, and where the next ones are.", schemas.STATE)},
            query={"cursor": schemas.CURSOR, "limit": schemas.LIMIT},
        ),
        Route(
            "/state/{source}/{resource}/{key}",
            state.answer_one,
            "One stored record.",
            {200: ResponseDoc("The record.", schemas.RECORD)},
        ),
    )


def list_status_routes(
    status: StatusEndpoints, events: Events, dead_letters: DeadLetters, actions: Actions
) -> Sequence[Route]:
    """Return what tells how everything stands, in full where the page tells it in short."""
    return (
        Route(
            "/status",
            status.answer_status,
            "How feeds and sinks stand, and the reasons to look closer: `dockbell status --json`.",
            {200: ResponseDoc("How they stand.", schemas.STATUS)},
        ),
        Route(
            "/why/{source}/{resource}/{key}",
            status.answer_why,
            "Why a record has the events that it has, or none: `dockbell why --json`.",
            {200: ResponseDoc("All that is known of it.", schemas.WHY)},
        ),
        Route(
            "/events",
            events.answer_list,
            "Recorded events, newest first. There may be more where an answer has few, or none: `next` tells.",
            {200: ResponseDoc("Some of them, and from where to go on.", schemas.EVENTS)},
            query={
                "before": schemas.PLACE,
                "limit": _LIMIT,
                **dict.fromkeys(("source", "resource", "key", "type", "change"), schemas.TEXT),
            },
        ),
        Route(
            "/events/{source}/{resource}/{sequence}",
            events.answer_one,
            "One event, what it changed, and where it is.",
            {200: ResponseDoc("The event.", schemas.EVENT)},
        ),
        Route(
            "/sinks/{sink}/dead",
            dead_letters.answer,
            "Dead letters of a sink, page by page.",
            {200: ResponseDoc("Some of them, and how many there are.", schemas.LETTERS)},
            query={"limit": _LIMIT, "after": schemas.TEXT},
        ),
        Route(
            "/wishes/{number}",
            actions.answer_command,
            "What came of something that was left for the daemon to do.",
            {200: ResponseDoc("It; `outcome` is null until it is done.", schemas.WISH)},
        ),
    )


def list_action_routes(actions: Actions) -> Sequence[Route]:
    """Return what may be done, by whoever has the token."""
    return (
        _act("/sinks/{sink}/pause", actions.pause, "Have a sink take nothing until it is resumed.", Pause),
        _act("/sinks/{sink}/resume", actions.resume, "Have a sink take events again.", Nothing),
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
        200: ResponseDoc("What came of it.", schemas.OUTCOME),
        202: ResponseDoc("The daemon does it soon; /wishes/{number} tells what came of it.", schemas.LEFT),
    }
    return Route(path, endpoint, words, responses, method="POST", access=Access.ACT, body=body)
