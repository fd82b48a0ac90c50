"""Webhooks: each event a signed POST (Standard Webhooks 1.0.0, CloudEvents structured), on several connections.

Here is the sink: a number of lanes, each of which attempts one request at a time, and what an answer means.
``settings`` holds what ``[sinks.NAME]`` says and its secrets give, and ``secret_reload`` notices when these change.
``batches`` gathers what one request holds, ``requests`` writes and signs it, ``permission`` asks whether it may be
sent, ``access_token`` gets the token that it bears, ``connections`` guards and reuses the connections, and ``answers``
shows what a receiver has said. This package and the sources are the home of httpx and httpcore.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, Final

import anyio
import httpcore
from anyio import to_thread
from msgspec.structs import replace

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.net.network import explain, find_cause, hint_at_tls, make_trust
from dockbell.ports import Bell, Deliveries, Settle
from dockbell.sinks.webhook.access_token import AccessToken, TokenKeeper, TokenRefused
from dockbell.sinks.webhook.answers import find_secrets, show_answer
from dockbell.sinks.webhook.batches import gather
from dockbell.sinks.webhook.connections import AddressRefused, GuardedBackend, Lane, to_core
from dockbell.sinks.webhook.permission import Permission
from dockbell.sinks.webhook.requests import RequestWriter
from dockbell.sinks.webhook.secret_reload import Reloadable
from dockbell.sinks.webhook.settings import (
    Fate,
    Headers,
    Target,
    WebhookSettings,
    make_headers,
    reveal_client_secret,
    reveal_github_secret,
    reveal_keys,
    reveal_signing_key,
)
from dockbell.telemetry import Fact, SinkConnected, Telemetry

__all__ = ["WebhookSettings", "WebhookSink", "judge", "parse_retry_after"]

_BODY_CAP: Final = 4096
_BODY_LIMIT: Final = timedelta(seconds=1)
_CONNECT_LIMIT: Final = timedelta(seconds=5)
_LOOK_EVERY: Final = timedelta(seconds=2)
_LOOK_PAUSE: Final = timedelta(seconds=1)
_RETRY_AFTER_MOST: Final = timedelta(hours=24)
_ASK_TO_WAIT: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_UNWELCOME: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_UNREACHED: Final = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError, ssl.SSLError)
_BROKEN: Final = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError)


class WebhookSink:
    """Delivers to one URL; each lane is one connection with one request at a time, of one event or of a batch."""

    Settings: ClassVar = WebhookSettings
    keeps_state = False

    def __init__(self, name: str, settings: WebhookSettings, telemetry: Telemetry) -> None:
        self.name = name
        self.window = settings.lanes * settings.batch
        self._lanes = settings.lanes
        self._telemetry = telemetry
        self._timeout = settings.timeout
        self._fates = settings.fates
        self._writer = RequestWriter(settings)
        self._permission = None if settings.origin is None else Permission(settings.origin)
        self._tokens = None if settings.oauth2 is None else TokenKeeper(settings.oauth2)
        self._batch = settings.batch
        self._linger = settings.linger
        self._keeps_answers = settings.keep_answers
        self._backend = GuardedBackend(settings.rules)
        places = (settings.url, settings.proxy)
        self._target = Reloadable(name, "url or proxy", partial(settings.find_target, name), places)
        self._keys = Reloadable(name, "secret", partial(reveal_keys, name, settings.secret), settings.secret)
        github = settings.github_secret
        find_github = partial(reveal_github_secret, name, github)
        self._github = Reloadable(name, "github_secret", find_github, [github])
        find_signing_key = partial(reveal_signing_key, name, settings.signing_key)
        self._signing_key = Reloadable(name, "signing_key", find_signing_key, [settings.signing_key])
        client_secret = None if settings.oauth2 is None else settings.oauth2.client_secret
        find_client_secret = partial(reveal_client_secret, name, settings.oauth2)
        self._client_secret = Reloadable(name, "oauth2", find_client_secret, [client_secret])
        password = None if settings.basic is None else settings.basic.password
        values = (*settings.headers.values(), settings.bearer, password)
        self._headers = Reloadable(name, "headers, bearer or basic", partial(make_headers, name, settings), values)
        files = {"ca_file": settings.ca_file, "cert_file": settings.cert_file, "key_file": settings.key_file}
        self._trust = Reloadable(name, "certificates", partial(make_trust, f"[sinks.{name}]", **files), files.values())
        self._unwelcome = Bell()
        self._answered = False
        self._has_answered = False  # ever
        self._secrets: tuple[tuple[Target, Headers, AccessToken | None], Sequence[str]] | None = None
        self._timed_out = f"timed out after {settings.timeout.total_seconds():g} s"
        # TCP and TLS get at most a third of the time each: a silent host is unreachable, not slow.
        self._extensions = {"timeout": {"connect": min(_CONNECT_LIMIT, self._timeout / 3).total_seconds()}}

    async def run(self, deliveries: Deliveries, settle: Settle) -> None:
        """Post each delivery once, as many requests at a time as there are lanes."""
        async with anyio.create_task_group() as watching:
            if any(each.can_change for each in (*self._secret_values, self._trust)):
                watching.start_soon(self._watch)
            async with anyio.create_task_group() as lanes:
                for _ in range(self._lanes):
                    lanes.start_soon(self._run_lane, deliveries, settle)
            watching.cancel_scope.cancel()

    async def probe(self) -> str:
        """Ask for an access token, where one is wanted, and send OPTIONS to the URL; any HTTP response will do.

        SinkRejected says that a certificate is not accepted, the receiver's or ours, or that it is never dialled.
        """
        target, granted = self._target.current, ""
        if self._tokens is not None:
            async with aclosing(Lane(self._backend)) as lane:
                token = await self._ask_token(lane, target, self._tokens)
            if isinstance(token, Outcome):
                raise SinkUnavailable(token.reason)
            granted = f", {self._tokens.place} grants a token"
        async with self._backend.open_pool(self._trust.current, target.proxy) as lane:
            try:
                with anyio.fail_after(self._timeout.total_seconds()):
                    response = await lane.handle_async_request(self._request(target, "OPTIONS", [], b""))
                    await response.aclose()
            except TimeoutError:
                raise SinkUnavailable(f"{target.place}: {self._timed_out}") from None
            except (*_UNREACHED, *_BROKEN) as error:
                kind = SinkRejected if _is_permanent(find_cause(error)) else SinkUnavailable
                # Without the cause: its text may be the receiver's, which may quote our request.
                raise kind(f"{target.place}: {self._explain(target, error)}") from None
        return f"{target.place} answers OPTIONS with HTTP {response.status}{granted}"

    async def _run_lane(self, deliveries: Deliveries, settle: Settle) -> None:
        async with aclosing(Lane(self._backend)) as lane:
            async for batch in gather(deliveries, self._batch, self._linger):
                outcome = await self._deliver(lane, batch)
                if outcome.kind is OutcomeKind.REFUSED and len(batch) > 1:  # which of them it refuses shows only alone
                    for delivery in batch:
                        settle(delivery, await self._deliver(lane, [delivery]))
                else:
                    for delivery in batch:
                        settle(delivery, outcome)

    async def _deliver(self, lane: Lane, batch: Sequence[Delivery]) -> Outcome:
        target = self._target.current
        try:
            keys = self._keys.current, self._github.current, self._signing_key.current
            written = self._writer.write(batch, *keys)
        except ValueError as error:
            return Outcome(OutcomeKind.UNFIT, str(error))
        if written is None:
            return Outcome(OutcomeKind.DELIVERED)
        outcome = await self._send(lane, target, *written)
        answers = outcome.kind is not OutcomeKind.UNREACHABLE
        if answers and not self._answered:
            self._telemetry.emit(SinkConnected(self.name, target.place))
        self._answered = answers
        return outcome

    async def _send(self, lane: Lane, target: Target, headers: Headers, content: bytes) -> Outcome:
        """Make one attempt, with an access token where one is wanted; a second one where the token had ended."""
        if self._tokens is None:
            return await self._ask_permission(lane, target, []) or await self._attempt(lane, target, headers, content)
        while True:
            known = self._tokens.current
            token = known or await self._ask_token(lane, target, self._tokens)
            if isinstance(token, Outcome):
                return token
            outcome = await self._ask_permission(lane, target, [token.header])
            outcome = outcome or await self._attempt(lane, target, [*headers, token.header], content)
            if outcome.status != HTTPStatus.UNAUTHORIZED:
                return outcome
            self._tokens.forget(token)
            if known is None:
                return outcome

    async def _ask_token(self, lane: Lane, target: Target, tokens: TokenKeeper) -> AccessToken | Outcome:
        """Return a token, or why there is none: then the receiver takes no event."""
        async with tokens.turn:
            if (token := tokens.current) is not None:
                return token
            request = tokens.write_request(self._client_secret.current, self._extensions)
            try:
                with anyio.fail_after(self._timeout.total_seconds()):
                    return await tokens.take(await lane.send(request, self._trust.current, target.proxy))
            except TimeoutError:
                reason = self._timed_out
            except TokenRefused as refusal:
                reason = str(refusal)
            except (*_UNREACHED, *_BROKEN) as error:
                reason = explain(error)
            return Outcome(OutcomeKind.UNREACHABLE, f"no access token from {tokens.place}: {reason}")

    async def _ask_permission(self, lane: Lane, target: Target, shown: Headers) -> Outcome | None:
        """Return when a request may be sent: None; or why none may be."""
        if (permission := self._permission) is None:
            return None
        async with permission.turn:
            if not permission.holds(target):
                headers = [(b"webhook-request-origin", permission.origin.encode()), (b"content-length", b"0"), *shown]
                try:
                    with anyio.fail_after(self._timeout.total_seconds()):
                        request = self._request(target, "OPTIONS", headers, b"")
                        async with aclosing(await lane.send(request, self._trust.current, target.proxy)) as response:
                            await _drain(response, bytearray())
                except TimeoutError:
                    return Outcome(OutcomeKind.UNREACHABLE, self._timed_out)
                except (*_UNREACHED, *_BROKEN) as error:
                    return Outcome(OutcomeKind.UNREACHABLE, self._explain(target, error))
                if (refusal := permission.judge(target, response.status, response.headers)) is not None:
                    return refusal
        await permission.wait()
        return None

    async def _attempt(self, lane: Lane, target: Target, headers: Headers, content: bytes) -> Outcome:
        outcome: Outcome | None = None
        body = bytearray()
        try:
            with anyio.fail_after(self._timeout.total_seconds()):
                request = self._request(target, "POST", headers, content)
                async with aclosing(await lane.send(request, self._trust.current, target.proxy)) as response:
                    self._has_answered = True
                    outcome = self._judge(response)
                    await _drain(response, body)
        except TimeoutError:
            outcome = outcome or Outcome(OutcomeKind.FAILED, self._timed_out)
        except (*_UNREACHED, *_BROKEN) as error:
            # A refused address is unreachable too: it is not dialled, and no event is lost.
            kind = OutcomeKind.UNREACHABLE if isinstance(error, _UNREACHED) else OutcomeKind.FAILED
            outcome = outcome or Outcome(kind, self._explain(target, error))
        if body and self._keeps_answers:
            return replace(outcome, answer=show_answer(bytes(body), self._find_secrets(target)))
        return outcome

    def _find_secrets(self, target: Target) -> Sequence[str]:
        """Return what no answer may give away; looked for once, until the target, the headers or the token change."""
        headers, token = self._headers.current, None if self._tokens is None else self._tokens.last
        of = (target, headers, token)
        if self._secrets is None or any(old is not new for old, new in zip(self._secrets[0], of, strict=True)):
            shown = headers if token is None else [*headers, token.header]
            self._secrets = of, find_secrets(target, shown)
        return self._secrets[1]

    def _explain(self, target: Target, error: Exception) -> str:
        was_cut = not (self._has_answered or isinstance(error, _UNREACHED)) and target.url.scheme == "http"
        return explain(error) + (hint_at_tls("url") if was_cut else "")

    @property
    def _secret_values(self) -> Sequence[Reloadable[Any]]:
        return self._target, self._keys, self._github, self._signing_key, self._client_secret, self._headers

    def _request(self, target: Target, method: str, headers: Headers, body: bytes) -> httpcore.Request:
        headers = [*self._headers.current, *headers]
        if not any(name == b"host" for name, _ in headers):
            headers.insert(0, (b"host", target.url.netloc))
        return httpcore.Request(method, to_core(target.url), headers=headers, content=body, extensions=self._extensions)

    def _judge(self, response: httpcore.Response) -> Outcome:
        if response.status in _UNWELCOME:
            self._unwelcome.ring()
            if self._permission is not None:
                self._permission.forget()
        retry_after = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
        return judge(response.status, retry_after.decode("latin-1"), self._fates, datetime.now(UTC))

    async def _watch(self) -> None:
        """Reload secrets and files: check them every few seconds, and read them at once after a 401 or 403."""
        rings = self._unwelcome.rings
        while True:
            force = False
            with anyio.move_on_after(_LOOK_EVERY.total_seconds()):
                rings = await self._unwelcome.wait(rings)
                force = True
            for fact in await to_thread.run_sync(self._reload, force, abandon_on_cancel=True):
                self._telemetry.emit(fact)
            await anyio.sleep(_LOOK_PAUSE.total_seconds())

    def _reload(self, force: bool) -> list[Fact]:
        # Certificates are not reloaded by force: that would replace the connections.
        facts = [each.reload(force=force) for each in self._secret_values]
        return [fact for fact in (*facts, self._trust.reload()) if fact is not None]


async def _drain(response: httpcore.Response, body: bytearray) -> None:
    """Read a short body, so that the connection can be reused; a long or slow one closes it."""
    assert isinstance(response.stream, AsyncIterable)
    with anyio.move_on_after(_BODY_LIMIT.total_seconds()):
        async for chunk in response.stream:
            body += chunk[: _BODY_CAP - len(body) + 1]
            if len(body) > _BODY_CAP:
                break


def _is_permanent(cause: BaseException) -> bool:
    """Return whether an operator must act, on our side or the receiver's."""
    is_alert = isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")  # our certificate is refused
    return is_alert or isinstance(cause, AddressRefused | ssl.SSLCertVerificationError)


def judge(status: int, retry_after: str, fates: Mapping[int, Fate], now: datetime) -> Outcome:
    """Return the outcome that a response means; ``fates`` says so of some statuses, the configuration's word."""
    fate = fates.get(status)
    if 200 <= status < 300 or fate == "ok":  # noqa: PLR2004  # the class of success, RFC 9110
        return Outcome(OutcomeKind.DELIVERED, status=status)
    reason = f"HTTP {status}"
    if status == HTTPStatus.GONE and fate is None:
        return Outcome(OutcomeKind.CLOSED, reason, status=status)
    if status in _ASK_TO_WAIT:
        return Outcome(OutcomeKind.FAILED, reason, parse_retry_after(retry_after, now), status=status)
    if fate == "dead":
        return Outcome(OutcomeKind.REFUSED, reason, status=status)
    if 300 <= status < 400:  # noqa: PLR2004  # the class of redirects
        reason += ", dockbell does not follow redirects"
    return Outcome(OutcomeKind.FAILED, reason, status=status)


def parse_retry_after(value: str, now: datetime) -> timedelta | None:
    """Return the pause that a Retry-After header asks for, in either form (RFC 9110, 10.2.3), at most 24 hours."""
    if re.fullmatch(r"[0-9]+", number := value.strip()):
        return timedelta(seconds=min(float(number), _RETRY_AFTER_MOST.total_seconds()))
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(max(moment - now, timedelta(0)), _RETRY_AFTER_MOST)
    except (ValueError, OverflowError):
        return None
