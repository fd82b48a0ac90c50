"""What an operator does from the page: what ``reconcile``, ``deletes``, ``drift``, ``pause``, ``resume``, ``dead`` do.

What the daemon has to do is left for it as a wish, as by the commands; what is only written is done at once.
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
from dockbell.web import question
from dockbell.web.caller import Caller
from dockbell.web.letters import Letters
from dockbell.web.problem import Problem
from dockbell.web.question import Nothing


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """Why a sink is paused."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] = "by an operator"


class Deletions(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of held deletions."""

    decision: Literal["approve", "reject"]


class Drift(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of held drift."""

    decision: Literal["absorb", "publish"]


@dataclass(frozen=True, slots=True)
class Acted(Fact):
    """Somebody did something over HTTP who may."""

    peer: str
    subject: str
    words: str
    proxy: str = ""

    def __str__(self) -> str:
        """Return the log line."""
        return f"web: {self.subject}: {self.words}, asked by {Caller(self.peer, self.proxy)}"


class Actions:
    """The endpoints.

    Args:
        command_store: Where acts are left.
        read_store: Of the store.
        config: Returns the configuration that is followed.
        telemetry: Is told what was done, and for whom.
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
        """Have a sink take nothing until it is resumed."""
        question.read_parameters(request)
        sink = self._read_sink(request)
        reason = (await question.read_body(request, Pause)).reason.strip()
        if not reason or not reason.isprintable():
            raise question.bad(f"reason: must be one line of text, got {show(reason)}")
        is_new = await self._command_store.pause(sink, reason, self._now())
        if is_new:
            return self._tell(request, f"sink {sink}", f"paused: {reason}", "it is paused; its events wait")
        return _answer({"outcome": "it was paused already"})

    async def resume(self, request: Request) -> Response:
        """Have a sink take events again."""
        question.read_parameters(request)
        sink = self._read_sink(request)
        await question.read_body(request, Nothing)
        if await self._command_store.resume(sink, self._now()):
            return self._tell(request, f"sink {sink}", "resumed", "it goes on, with all that it is owed")
        return _answer({"outcome": "it was not paused"})

    async def retry(self, request: Request) -> Response:
        """Have dead letters offered to their sink again."""
        question.read_parameters(request)
        sink = self._read_sink(request)
        letters = await question.read_body(request, Letters)
        settings = self._config().sinks[sink]
        came = Retried()
        for selection in letters.select():
            came += await retry_dead(self._command_store, sink, settings, selection, self._now())
        return self._tell(request, f"sink {sink}", f"retry of dead letters: {came}", str(came))

    async def discard(self, request: Request) -> Response:
        """Delete dead letters."""
        question.read_parameters(request)
        sink = self._read_sink(request, *await find_sinks_with_dead(self._command_store))
        letters = await question.read_body(request, Letters)
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
        """Have a feed read whole now."""
        question.read_parameters(request)
        feed = self._read_feed(request)
        await question.read_body(request, Nothing)
        return await self._kind(request, feed, CommandKind.RECONCILE)

    async def decide_deletions(self, request: Request) -> Response:
        """Have held deletions published, or dropped."""
        question.read_parameters(request)
        feed = self._read_feed(request)
        decision = (await question.read_body(request, Deletions)).decision
        if not await list_deletions(self._read_store, [feed], most=1):
            return _answer({"outcome": "no deletions are held"})
        return await self._kind(request, feed, CommandKind.APPROVE if decision == "approve" else CommandKind.REJECT)

    async def decide_drift(self, request: Request) -> Response:
        """Have held drift stored silently, or published."""
        question.read_parameters(request)
        feed = self._read_feed(request)
        decision = (await question.read_body(request, Drift)).decision
        if not any(held.decision is Decision.HOLD for held in await list_drift(self._read_store, [feed])):
            return _answer({"outcome": "no drift is held"})
        return await self._kind(request, feed, CommandKind.ABSORB if decision == "absorb" else CommandKind.PUBLISH)

    async def answer_command(self, request: Request) -> Response:
        """Answer what came of a wish."""
        question.read_parameters(request)
        number = question.read_path_number(request, "number", 10**18 - 1)
        command = await self._command_store.find_command(number)
        if command is None:
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-wish", f"wish {number}: was never left")
        feed = None if command.feed is None else str(command.feed)
        outcome = None if command.outcome is None else str(command.outcome)
        return _answer({"wish": command.kind.value, "feed": feed, "outcome": outcome})

    # What they share --------------------------------------------------------------------------------------------------

    async def _kind(self, request: Request, feed: Feed, kind: CommandKind) -> Response:
        number = await self._command_store.make_command(feed, kind, self._now())
        self._emit(request, str(feed), kind.value)
        return _answer({"wish": number}, HTTPStatus.ACCEPTED)

    def _tell(self, request: Request, subject: str, done: str, outcome: str) -> Response:
        self._emit(request, subject, done)
        return _answer({"outcome": outcome})

    def _emit(self, request: Request, subject: str, words: str) -> None:
        caller = question.read_caller(request)
        self._telemetry.emit(Acted(caller.peer, subject, words, caller.proxy))

    def _read_sink(self, request: Request, *others: str) -> str:
        """Return the sink that the path names.

        Raises:
            Problem: 404, there is no such sink.
        """
        return question.read_sink(request, [*self._config().sinks, *others])

    def _read_feed(self, request: Request) -> Feed:
        """Return the feed that the path names.

        Raises:
            Problem: 404, it is not configured.
        """
        feed = question.read_feed(request)
        question.check_configured(feed, self._config())
        return feed


def _answer(body: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
