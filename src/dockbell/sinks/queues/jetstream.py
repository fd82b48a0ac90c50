"""NATS JetStream: each event a message of a stream, which the server stores once however often it is sent."""

from __future__ import annotations

import re
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from dockbell.config import ConfigPath, Secret
from dockbell.config.values import split_url
from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.errors import ConfigError
from dockbell.net.network import explain, find_cause
from dockbell.sinks.queues.queue_settings import EVENT_FIELDS, QueueSettings, fill_name, find_rest, list_fields
from dockbell.sinks.queues.queue_sink import QueueSink
from dockbell.telemetry import Telemetry

if TYPE_CHECKING:
    from nats.aio.client import Client, RawCredentials

_PORT: Final = 4222
_CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_CREDENTIALS: Final = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+).*?-+BEGIN USER NKEY SEED-+\s+(\S+)", re.DOTALL)
_WRITTEN: Final = "-----BEGIN NATS USER JWT-----\n{}\n-----BEGIN USER NKEY SEED-----\n{}\n"
_TOO_LARGE: Final = 10054
"""The code of JetStream's error for a message above the ``max_msg_size`` of its stream."""


def _check_url(url: str) -> str:
    parts = split_url(url, '"tls://nats.example.com:4222"', schemes=("nats", "tls"))
    if "@" in parts.netloc:
        raise ValueError("must not contain a user, password or token; use the keys user, password and token")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must end with the host and port")
    return url


def _check_subject(template: str) -> str:
    rest = find_rest(template, EVENT_FIELDS, filled="x")
    if not all(rest.split(".")) or any(mark in rest for mark in "{}*> \t\r\n"):
        known = list_fields(EVENT_FIELDS)
        raise ValueError(f'must be a subject without wildcards, which may contain {known}, got "{template}"')
    return template


class JetStreamSettings(QueueSettings):
    """``[sinks.NAME]`` with ``type = "nats"``."""

    tls_scheme: ClassVar = "tls"
    type: Literal["nats"]
    url: Annotated[str, AfterValidator(_check_url)]
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    credentials_file: ConfigPath | None = None
    subject: Annotated[str, AfterValidator(_check_subject)] = "dockbell.{source}.{resource}.{key}.{change}"
    in_flight: int = Field(default=20, ge=1, le=1000)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("set both user and password, or neither")
        return self


class JetStreamSink(QueueSink["Client"]):
    """Publishes each event under its id, by which the server knows a repeat, and waits for the word of the stream."""

    Settings: ClassVar = JetStreamSettings
    library: ClassVar = ("nats", "nats")

    def __init__(self, name: str, settings: JetStreamSettings, telemetry: Telemetry) -> None:
        parts = urlsplit(settings.url)
        self._settings = settings
        self._host, self._port = parts.hostname or "", parts.port or _PORT
        place = f"{self._host}:{self._port}"
        super().__init__(name, telemetry, place=place, window=settings.in_flight, timeout=settings.timeout)
        ways = [way for way in ("user", "token", "credentials_file") if getattr(settings, way) is not None]
        if len(ways) > 1:
            raise ConfigError(f"[sinks.{name}] {' and '.join(ways)} exclude each other; keep one of them")
        self._find_login()  # a file that cannot be used is told at the start

    def _find_login(self) -> dict[str, Any]:
        """Return how we present ourselves, as it is now: a file may have another secret since."""
        settings = self._settings
        return {
            "user": settings.user,
            "password": None if settings.password is None else settings.password.reveal(),
            "token": None if settings.token is None else settings.token.reveal(),
            "user_credentials": self._read_credentials(),
            "tls": settings.find_trust(self.name),
        }

    def _read_credentials(self) -> RawCredentials | None:
        """Return the user's token and seed, as they are now, in the form in which the library finds them."""
        path = self._settings.credentials_file
        if path is None:
            return None
        if find_spec("nkeys") is None:
            problem = "credentials_file needs nkeys, which is not installed; pip install 'dockbell[nats]'"
            raise ConfigError(f"[sinks.{self.name}]: {problem}")
        from nats.aio.client import RawCredentials  # noqa: PLC0415  # where one is used

        try:
            found = _CREDENTIALS.search(Path(path).read_text(encoding="ascii"))
        except OSError as error:
            raise ConfigError(
                f"[sinks.{self.name}]: credentials_file cannot be read, {explain(error)}, got {path}"
            ) from error
        except UnicodeDecodeError:
            found = None
        if found is None:  # the library would look for them for ever
            wanted = "a NATS USER JWT and a USER NKEY SEED, as nsc writes them"
            raise ConfigError(f"[sinks.{self.name}]: credentials_file must contain {wanted}, got {path}")
        return RawCredentials(_WRITTEN.format(*found.groups()))

    async def _open(self) -> Client:
        from nats.errors import NoServersError  # noqa: PLC0415  # where one is used

        from dockbell.sinks.queues.jetstream_client import JetStreamClient  # noqa: PLC0415

        client, errors = JetStreamClient(), list[Exception]()

        async def note(error: Exception) -> None:
            errors.append(error)

        try:
            await client.connect(
                f"{'tls' if self._settings.is_tls else 'nats'}://{self._host}:{self._port}",
                error_cb=note,
                name="dockbell",
                allow_reconnect=False,  # the relay decides when there is another attempt
                max_reconnect_attempts=1,  # 0 would be for ever, whatever allow_reconnect says
                reconnect_time_wait=0,
                connect_timeout=max(1, int(self._settings.timeout.total_seconds())),
                **self._find_login(),
            )
        except NoServersError as error:
            errors.append(error)
        except BaseException:
            await self._discard(client)
            raise
        else:
            return client
        await self._discard(client)
        raise errors[0]  # the last says only that no server could be used

    async def _close(self, connection: Client) -> None:
        await connection.close()

    async def _describe(self, connection: Client) -> str:
        version, account = connection.connected_server_version, await connection.jetstream().account_info()
        return f"NATS {version.major}.{version.minor}.{version.patch}, streams: {account.streams}"

    async def _publish(self, connection: Client, delivery: Delivery) -> None:
        event = delivery.event
        headers = {"Content-Type": _CONTENT_TYPE, "Dockbell-Type": event.type}
        if delivery.replayed:
            headers["Dockbell-Replay"] = "true"  # without an id: the stream would drop it as a repeat
        else:
            headers["Nats-Msg-Id"] = event.id
        subject = fill_name(self._settings.subject, event)
        await connection.jetstream().publish(
            subject, event.body, headers=headers, timeout=self._settings.timeout.total_seconds()
        )

    def _judge(self, error: Exception) -> Outcome:
        from nats.errors import Error, MaxPayloadError  # noqa: PLC0415
        from nats.js.errors import APIError, NoStreamResponseError  # noqa: PLC0415

        if isinstance(error, MaxPayloadError):
            return Outcome(OutcomeKind.UNFIT, "larger than the server accepts (max_payload)")
        if isinstance(error, NoStreamResponseError):
            return Outcome(OutcomeKind.FAILED, "no JetStream stream accepts its subject")
        if isinstance(error, APIError):
            kind = OutcomeKind.REFUSED if error.err_code == _TOO_LARGE else OutcomeKind.FAILED
            return Outcome(kind, f"the server reports, {error.description}")
        text = str(error).removeprefix("nats: ").strip("'\"") if isinstance(error, Error) else explain(error)
        return Outcome(OutcomeKind.UNREACHABLE, text or type(error).__name__)

    def _refuses_us(self, error: Exception) -> bool:
        from nats.errors import AuthorizationError  # noqa: PLC0415

        refused = isinstance(error, AuthorizationError) or "authorization" in str(error).lower()
        return refused or isinstance(find_cause(error), ssl.SSLCertVerificationError)
