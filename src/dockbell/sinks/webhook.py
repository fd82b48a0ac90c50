"""Webhooks: each event a signed POST (Standard Webhooks 1.0.0, CloudEvents structured), on several connections."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, ClassVar, Final, Literal

import anyio
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream
from pydantic import AfterValidator, BeforeValidator, Field

from dockbell import __version__
from dockbell.config import ConfigPath, Interval, ProxyUrl, Secret, SinkSettings
from dockbell.core.model import DELIVERED, Delivery, Fate, Outcome
from dockbell.core.publishing.signature import parse_secret, sign
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.network import explain, find_cause, make_trust, split_url
from dockbell.telemetry import SinkConnected, Telemetry

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"

_BODY_CAP: Final = 4096
_BODY_LIMIT: Final = timedelta(seconds=1)
_CONNECT_LIMIT: Final = timedelta(seconds=5)
_RETRY_AFTER_MOST: Final = timedelta(hours=24)
_REFUSALS: Final = frozenset({400, 413, 415, 422})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "dockbell-replay",
        "transfer-encoding",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)


def _check_url(url: str) -> str:
    parts = split_url(url, schemes=("http", "https"), example='"https://erp.example.com/hooks/dockbell"')
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password; use headers")
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"cannot be used, {explain(error)}") from error
    return url


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else (value,)


class WebhookSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "webhook"``."""

    type: Literal["webhook"]
    url: Annotated[str, AfterValidator(_check_url)]
    secret: Annotated[tuple[Secret, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
    timeout: Interval = timedelta(seconds=20)
    lanes: int = Field(default=4, ge=1, le=64)
    headers: dict[str, Secret] = Field(default_factory=dict)
    ca_file: ConfigPath | None = None
    proxy: ProxyUrl | None = None


class WebhookSink:
    """Delivers to one URL; each lane is one connection with one request at a time.

    Raises:
        ConfigError: A secret, a header or the CA file cannot be used.
    """

    Settings: ClassVar = WebhookSettings
    keeps_state = False

    def __init__(self, name: str, settings: WebhookSettings, telemetry: Telemetry) -> None:
        self.name = name
        self.window = settings.lanes
        self._telemetry = telemetry
        self._url = httpx.URL(settings.url)
        self._timeout = settings.timeout
        self._proxy = settings.proxy
        self._secrets = [_reveal_secret(name, secret) for secret in settings.secret]
        self._headers = {"user-agent": f"dockbell/{__version__}"} | _reveal_headers(name, settings.headers)
        self._trust: ssl.SSLContext = make_trust(f"[sinks.{name}]", ca_file=settings.ca_file)
        self._answered = False

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        """Post each delivery once, as many at a time as there are lanes."""
        async with anyio.create_task_group() as lanes:
            for _ in range(self.window):
                lanes.start_soon(self._run_lane, deliveries, settle)

    async def probe(self) -> str:
        """Ask the URL for its OPTIONS; any answer in HTTP will do.

        Raises:
            SinkUnavailable: Nobody answers, or not in HTTP.
            SinkRejected: Its certificate is not accepted.
        """
        async with self._open_lane() as lane:
            try:
                with anyio.fail_after(self._timeout.total_seconds()):
                    response = await lane.handle_async_request(self._request("OPTIONS", {}, b""))
                    await response.aclose()
            except TimeoutError:
                raise SinkUnavailable(f"{self._place}: {self._timed_out}") from None
            except httpx.HTTPError as error:
                distrusted = isinstance(find_cause(error), ssl.SSLCertVerificationError)
                raise (SinkRejected if distrusted else SinkUnavailable)(f"{self._place}: {explain(error)}") from error
        return f"{self._place} answers OPTIONS with HTTP {response.status_code}"

    @property
    def _place(self) -> str:
        return self._url.netloc.decode()  # a path or query may hold a token

    @property
    def _timed_out(self) -> str:
        return f"timed out after {self._timeout.total_seconds():g} s"

    def _open_lane(self) -> httpx.AsyncHTTPTransport:
        """Return one connection: one pool for all lanes collapses under concurrency.

        A client around it would add what a webhook must not have: redirects, cookies, and URLs in the log.
        """
        return httpx.AsyncHTTPTransport(
            verify=self._trust, proxy=self._proxy, trust_env=False, limits=httpx.Limits(max_connections=1)
        )

    def _request(self, method: str, headers: Mapping[str, str], body: bytes) -> httpx.Request:
        # TCP and TLS get a third of the time each, at most: a host that is silent is unreachable, not slow.
        limit = min(_CONNECT_LIMIT, self._timeout / 3).total_seconds()
        timeout = {"connect": limit, "read": None, "write": None, "pool": None}
        headers = {**self._headers, **headers}
        return httpx.Request(method, self._url, headers=headers, content=body, extensions={"timeout": timeout})

    async def _run_lane(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        async with self._open_lane() as lane:
            async for delivery in deliveries:
                outcome = await self._attempt(lane, delivery)
                self._notice(outcome)
                settle(delivery, outcome)

    async def _attempt(self, lane: httpx.AsyncHTTPTransport, delivery: Delivery) -> Outcome:
        outcome: Outcome | None = None
        try:
            with anyio.fail_after(self._timeout.total_seconds()):
                request = self._request("POST", self._sign(delivery), delivery.event.body)
                async with aclosing(await lane.handle_async_request(request)) as response:
                    outcome = judge(response.status_code, response.headers, datetime.now(UTC))
                    await _drain(response)
        except TimeoutError:
            return outcome or Outcome(Fate.FAILED, self._timed_out)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            return Outcome(Fate.UNREACHABLE, explain(error))
        except httpx.HTTPError as error:
            return outcome or Outcome(Fate.FAILED, explain(error))
        return outcome

    def _sign(self, delivery: Delivery) -> dict[str, str]:
        event = delivery.event
        timestamp = int(datetime.now(UTC).timestamp())
        headers = {
            "content-type": CONTENT_TYPE,
            "webhook-id": event.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secrets, event.id, timestamp, event.body),
        }
        return headers | {"dockbell-replay": "true"} if delivery.replayed else headers

    def _notice(self, outcome: Outcome) -> None:
        answers = outcome.fate is not Fate.UNREACHABLE
        if answers and not self._answered:
            self._telemetry.emit(SinkConnected(self.name, self._place))
        self._answered = answers


def judge(status: int, headers: Mapping[str, str], now: datetime) -> Outcome:
    """Return what an answer's status says of the attempt."""
    if 200 <= status < 300:  # noqa: PLR2004  # the class of success, RFC 9110
        return DELIVERED
    reason = f"HTTP {status}"
    if status in _REFUSALS:
        return Outcome(Fate.REFUSED, reason)
    if status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
        return Outcome(Fate.FAILED, reason, parse_retry_after(headers.get("retry-after", ""), now))
    if httpx.codes.is_redirect(status):
        reason += ", redirects are not followed"
    return Outcome(Fate.FAILED, reason)


def parse_retry_after(value: str, now: datetime) -> timedelta | None:
    """Return the pause that a Retry-After header asks for, in either form (RFC 9110, 10.2.3), at most 24 hours."""
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return min(timedelta(seconds=int(value)), _RETRY_AFTER_MOST)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), _RETRY_AFTER_MOST)


async def _drain(response: httpx.Response) -> None:
    """Read a short body, so that the connection can be used again; a long or slow one ends with its connection."""
    size = 0
    with anyio.move_on_after(_BODY_LIMIT.total_seconds()):
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > _BODY_CAP:
                break


def _reveal_secret(name: str, secret: Secret) -> bytes:
    try:
        return parse_secret(secret.reveal())
    except ValueError as error:
        raise ConfigError(f"[sinks.{name}] secret: {error}") from None


def _reveal_headers(name: str, headers: Mapping[str, Secret]) -> dict[str, str]:
    revealed = {}
    for header, secret in headers.items():
        value, place = secret.reveal(), f"[sinks.{name}] headers.{header}"
        if not _HEADER_NAME.fullmatch(header):
            raise ConfigError(f"{place}: is no name of a header")
        if header.lower() in _OWN_HEADERS:
            raise ConfigError(f"{place}: is set by dockbell; remove it")
        if not value.isascii():
            raise ConfigError(f"{place}: must be printable ASCII")
        revealed[header.lower()] = value
    return revealed
