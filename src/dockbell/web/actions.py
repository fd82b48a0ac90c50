"""An operator's actions over HTTP: as the commands do.

Like the command line, an action either changes the store at once, or leaves a command there for the daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Count, Model
from dockbell.admin.commands import list_deletions, list_drift
from dockbell.admin.replaying import Replaying, Retried, discard_dead, find_sinks_with_dead, retry_dead
from dockbell.config import Config
from dockbell.config.values import show
from dockbell.core.comparing.drift import Decision
from dockbell.core.counting import count_of
from dockbell.core.model import Feed
from dockbell.ports import CommandKind, CommandStore, ReadStore, Selection
from dockbell.telemetry import Fact, Telemetry
from dockbell.web import params
from dockbell.web.client import Principal
from dockbell.web.dead_letters import Letters
from dockbell.web.params import Nothing
from dockbell.web.responses import Problem, json_response


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """The reason to pause a sink."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] = "by an operator"


class NamedEvent(msgspec.Struct, forbid_unknown_fields=True):
    """The event that is sent again."""

    feed: Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$")]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=params.PLACE_MOST)]


class Deletions(msgspec.Struct, forbid_unknown_fields=True):
    """The decision on suspended deletions."""

    decision: Literal["approve", "reject"]


class Drift(msgspec.Struct, forbid_unknown_fields=True):
    """The decision on held drift."""

    decision: Literal["absorb", "publish"]


class Outcome(Model):
    outcome: str


class AcceptedCommand(Model):
    command: Count


class CommandState(Model):
    kind: str
    feed: str | None
    outcome: str | None


class Acted(Fact, frozen=True):
    """A client that may act did something over HTTP."""

    peer: str
    subject: str
    words: str
    proxy: str = ""

    def __str__(self) -> str:
        return f"web: {self.subject}: {self.words}, asked by {Principal(self.peer, self.proxy)}"


class Actions(msgspec.Struct, frozen=True):
    """The endpoints; ``telemetry`` is told each action and its client."""

    command_store: CommandStore
    read_store: ReadStore
    config: Callable[[], Config]
    telemetry: Telemetry
    now: Callable[[], datetime]

    async def pause(self, request: Request) -> Response:
        sink = params.read_sink(request, self.config().sinks)
        reason = (await params.read_body(request, Pause)).reason.strip()
        if not reason or not reason.isprintable():
            raise params.bad_request(f"reason: must be one line of text, got {show(reason)}")
        if await self.command_store.pause(sink, reason, self.now()):
            return self._tell(request, f"sink {sink}", f"paused: {reason}", "it is paused; its events wait")
        return json_response(Outcome("it was already paused"))

    async def resume(self, request: Request) -> Response:
        sink = params.read_sink(request, self.config().sinks)
        await params.read_body(request, Nothing)
        if await self.command_store.resume(sink, self.now()):
            return self._tell(request, f"sink {sink}", "resumed", "it is resumed, and gets all events that it is owed")
        return json_response(Outcome("it was not paused"))

    async def send_now(self, request: Request) -> Response:
        sink = params.read_sink(request, self.config().sinks)
        await params.read_body(request, Nothing)
        hurried = await self.command_store.hurry(sink, self.now())
        records, replays = count_of(hurried.keys, "waiting record"), count_of(hurried.replays, "waiting replay")
        words = f"{records} and {replays} are due now"
        return self._tell(request, f"sink {sink}", f"send now: {words}", words)

    async def send_again(self, request: Request) -> Response:
        sink = params.read_sink(request, self.config().sinks)
        named = await params.read_body(request, NamedEvent)
        feed = Feed(*named.feed.split("/"))
        settings = self.config().sinks[sink]
        reaches = await self.command_store.load_reaches(sink, settings.start)
        selection = Selection((feed,), first=named.sequence, last=named.sequence)
        replaying = Replaying(self.command_store, sink, settings, reaches, selection)
        if replaying.unwanted:
            return json_response(Outcome(f"{sink} takes no events of {feed}"))
        replayed = await replaying.run(self.now(), lambda *_: None, dry=False)
        event = f"event {feed} #{named.sequence}"
        if replayed.problems:
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-event", f"{event}: is not kept; {replayed.problems[0]}")
        (count,) = replayed.feeds
        if count.filtered:
            return json_response(Outcome(f"the filters of {sink} hold it back"))
        if count.owed:
            return json_response(Outcome(f"{sink} is still owed it, and gets it anyway"))
        words = "it is sent again, marked as a replay" if count.chosen else "it is already waiting to be sent again"
        return self._tell(request, f"sink {sink}", f"{event}: {words}", words)

    async def retry(self, request: Request) -> Response:
        sink = params.read_sink(request, self.config().sinks)
        letters = await params.read_body(request, Letters)
        settings = self.config().sinks[sink]
        came = Retried()
        for selection in letters.select():
            came += await retry_dead(self.command_store, sink, settings, selection, self.now())
        return self._tell(request, f"sink {sink}", f"retry of dead letters: {came}", str(came))

    async def discard(self, request: Request) -> Response:
        sink = params.read_sink(request, [*self.config().sinks, *await find_sinks_with_dead(self.command_store)])
        letters = await params.read_body(request, Letters)
        count = released = 0
        for selection in letters.select():
            gone, going_on = await discard_dead(self.command_store, sink, selection, self.now())
            count, released = count + gone, released + going_on
        words = f"discarded {count_of(count, 'dead letter')}"
        if released:
            words += f", {count_of(released, 'record')} on hold will continue with the next event"
        return self._tell(request, f"sink {sink}", words, words)

    async def reconcile(self, request: Request) -> Response:
        feed = params.read_configured_feed(request, self.config())
        await params.read_body(request, Nothing)
        return await self._make_command(request, feed, CommandKind.RECONCILE)

    async def decide_deletions(self, request: Request) -> Response:
        feed = params.read_configured_feed(request, self.config())
        decision = (await params.read_body(request, Deletions)).decision
        if not await list_deletions(self.read_store, [feed], most=1):
            return json_response(Outcome("no deletions are held"))
        return await self._make_command(request, feed, CommandKind(f"{decision} deletions"))

    async def decide_drift(self, request: Request) -> Response:
        feed = params.read_configured_feed(request, self.config())
        decision = (await params.read_body(request, Drift)).decision
        if not any(held.decision is Decision.HOLD for held in await list_drift(self.read_store, [feed])):
            return json_response(Outcome("no drift is held"))
        return await self._make_command(request, feed, CommandKind(f"{decision} drift"))

    async def answer_command(self, request: Request) -> Response:
        number = params.read_number("number", request.path_params["number"], 0, params.PLACE_MOST)
        command = await self.command_store.find_command(number)
        if command is None:
            detail = f"command {number}: does not exist, or is no longer kept"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-command", detail)
        feed = None if command.feed is None else str(command.feed)
        outcome = None if command.outcome is None else str(command.outcome)
        return json_response(CommandState(command.kind.value, feed, outcome))

    async def _make_command(self, request: Request, feed: Feed, kind: CommandKind) -> Response:
        number = await self.command_store.make_command(feed, kind, self.now())
        self._emit(request, str(feed), kind.value)
        return json_response(AcceptedCommand(number), HTTPStatus.ACCEPTED)

    def _tell(self, request: Request, subject: str, done: str, outcome: str) -> Response:
        self._emit(request, subject, done)
        return json_response(Outcome(outcome))

    def _emit(self, request: Request, subject: str, words: str) -> None:
        principal = params.read_principal(request)
        self.telemetry.emit(Acted(principal.peer, subject, words, principal.proxy))
