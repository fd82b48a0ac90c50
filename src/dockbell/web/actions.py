"""An operator's actions over HTTP: as ``reconcile``, ``deletes``, ``drift``, ``pause``, ``resume`` and ``dead``.

Like the command line, an action either changes the store at once, or leaves a command there for the daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.commands import list_deletions, list_drift
from dockbell.admin.replaying import Retried, discard_dead, find_sinks_with_dead, retry_dead
from dockbell.config import Config
from dockbell.config.values import show
from dockbell.core.comparing.drift import Decision
from dockbell.core.model import Feed
from dockbell.ports import CommandKind, CommandStore, ReadStore
from dockbell.telemetry import Fact, Telemetry
from dockbell.web import params
from dockbell.web.dead_letters import Letters
from dockbell.web.params import Nothing
from dockbell.web.principal import Principal
from dockbell.web.problem import Problem
from dockbell.web.responses import json_response


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """The reason to pause a sink."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] = "by an operator"


class Deletions(msgspec.Struct, forbid_unknown_fields=True):
    """The decision on suspended deletions."""

    decision: Literal["approve", "reject"]


class Drift(msgspec.Struct, forbid_unknown_fields=True):
    """The decision on held drift."""

    decision: Literal["absorb", "publish"]


@dataclass(frozen=True, slots=True)
class Acted(Fact):
    """A client that may act did something over HTTP."""

    peer: str
    subject: str
    words: str
    proxy: str = ""

    def __str__(self) -> str:
        """Return the log line."""
        return f"web: {self.subject}: {self.words}, asked by {Principal(self.peer, self.proxy)}"


class Actions:
    """The endpoints.

    Args:
        command_store: Takes pauses, dead letters and commands.
        read_store: Of the store.
        config: Returns the current configuration.
        telemetry: Is told each action and its client.
        now: Our clock.
    """

    def __init__(
        self,
        command_store: CommandStore,
        read_store: ReadStore,
        config: Callable[[], Config],
        *,
        telemetry: Telemetry,
        now: Callable[[], datetime],
    ) -> None:
        self._command_store = command_store
        self._read_store = read_store
        self._config = config
        self._telemetry = telemetry
        self._now = now

    # Sinks ------------------------------------------------------------------------------------------------------------

    async def pause(self, request: Request) -> Response:
        """Pause a sink until it is resumed."""
        params.read_query(request)
        sink = self._read_sink(request)
        reason = (await params.read_body(request, Pause)).reason.strip()
        if not reason or not reason.isprintable():
            raise params.bad_request(f"reason: must be one line of text, got {show(reason)}")
        is_new = await self._command_store.pause(sink, reason, self._now())
        if is_new:
            return self._tell(request, f"sink {sink}", f"paused: {reason}", "it is paused; its events wait")
        return json_response({"outcome": "it was paused already"})

    async def resume(self, request: Request) -> Response:
        """Resume a paused sink."""
        params.read_query(request)
        sink = self._read_sink(request)
        await params.read_body(request, Nothing)
        if await self._command_store.resume(sink, self._now()):
            return self._tell(request, f"sink {sink}", "resumed", "it goes on, with all that it is owed")
        return json_response({"outcome": "it was not paused"})

    async def retry(self, request: Request) -> Response:
        """Send dead letters again."""
        params.read_query(request)
        sink = self._read_sink(request)
        letters = await params.read_body(request, Letters)
        settings = self._config().sinks[sink]
        came = Retried()
        for selection in letters.select():
            came += await retry_dead(self._command_store, sink, settings, selection, self._now())
        return self._tell(request, f"sink {sink}", f"retry of dead letters: {came}", str(came))

    async def discard(self, request: Request) -> Response:
        """Delete dead letters."""
        params.read_query(request)
        sink = self._read_sink(request, *await find_sinks_with_dead(self._command_store))
        letters = await params.read_body(request, Letters)
        count = released = 0
        for selection in letters.select():
            gone, going_on = await discard_dead(self._command_store, sink, selection, self._now())
            count, released = count + gone, released + going_on
        words = f"{count} dead letters are discarded"
        if released:
            words += f", {released} records that were on hold go on with their next event"
        return self._tell(request, f"sink {sink}", words, words)

    # Feeds ------------------------------------------------------------------------------------------------------------

    async def reconcile(self, request: Request) -> Response:
        """Start a pass over a feed."""
        params.read_query(request)
        feed = self._read_feed(request)
        await params.read_body(request, Nothing)
        return await self._make_command(request, feed, CommandKind.RECONCILE)

    async def decide_deletions(self, request: Request) -> Response:
        """Publish or drop suspended deletions."""
        params.read_query(request)
        feed = self._read_feed(request)
        decision = (await params.read_body(request, Deletions)).decision
        if not await list_deletions(self._read_store, [feed], most=1):
            return json_response({"outcome": "no deletions are held"})
        return await self._make_command(
            request, feed, CommandKind.APPROVE if decision == "approve" else CommandKind.REJECT
        )

    async def decide_drift(self, request: Request) -> Response:
        """Store held drift silently, or publish it."""
        params.read_query(request)
        feed = self._read_feed(request)
        decision = (await params.read_body(request, Drift)).decision
        if not any(held.decision is Decision.HOLD for held in await list_drift(self._read_store, [feed])):
            return json_response({"outcome": "no drift is held"})
        return await self._make_command(
            request, feed, CommandKind.ABSORB if decision == "absorb" else CommandKind.PUBLISH
        )

    async def answer_command(self, request: Request) -> Response:
        """Answer with the outcome of a command."""
        params.read_query(request)
        number = params.read_path_number(request, "number", 10**18 - 1)
        command = await self._command_store.find_command(number)
        if command is None:
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-wish", f"wish {number}: was never left")
        feed = None if command.feed is None else str(command.feed)
        outcome = None if command.outcome is None else str(command.outcome)
        return json_response({"wish": command.kind.value, "feed": feed, "outcome": outcome})

    # What they share --------------------------------------------------------------------------------------------------

    async def _make_command(self, request: Request, feed: Feed, kind: CommandKind) -> Response:
        number = await self._command_store.make_command(feed, kind, self._now())
        self._emit(request, str(feed), kind.value)
        return json_response({"wish": number}, HTTPStatus.ACCEPTED)

    def _tell(self, request: Request, subject: str, done: str, outcome: str) -> Response:
        self._emit(request, subject, done)
        return json_response({"outcome": outcome})

    def _emit(self, request: Request, subject: str, words: str) -> None:
        principal = params.read_principal(request)
        self._telemetry.emit(Acted(principal.peer, subject, words, principal.proxy))

    def _read_sink(self, request: Request, *others: str) -> str:
        """Return the sink that the path names.

        Raises:
            Problem: 404, there is no such sink.
        """
        return params.read_sink(request, [*self._config().sinks, *others])

    def _read_feed(self, request: Request) -> Feed:
        """Return the feed that the path names.

        Raises:
            Problem: 404, it is not configured.
        """
        feed = params.read_feed(request)
        params.check_configured(feed, self._config())
        return feed
