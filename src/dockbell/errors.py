"""Errors, typed by who must act.

The operator, before startup: :class:`ConfigError`.
The operator: :class:`SourceRefused`, :class:`RequestRefused`, :class:`SinkRejected`, :class:`SchemaMismatch`,
:class:`StoreMissing`, :class:`StoreInUse`, :class:`LeaseLost`, :class:`StoreIncompatible`, :class:`StoreFull`.
No one (temporary): :class:`SourceUnavailable`, :class:`PageUnreadable`, :class:`PageCut`, :class:`RateLimited`,
:class:`CursorExpired`, :class:`SinkUnavailable`, :class:`StoreUnavailable`.

Messages read *subject: fact, got value; remedy*, in lower case, and never hold a secret or a query string.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

NOT_SENT: Final = "not sent: "
"""Begins the message about a request that was not sent, because of another that failed; its message follows."""


def drop_subject(message: str) -> str:
    """Return what a message says without its subject: the same fault meets each request of a source."""
    message = message.removeprefix(NOT_SENT)
    return message.partition(": ")[2] or message


class DockbellError(Exception):
    """Base class of all errors that dockbell raises on purpose."""


class ConfigError(DockbellError):
    """The configuration cannot be used; the operator must fix it before dockbell can start.

    Attributes:
        problems: One complete message for each problem.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SourceError(DockbellError):
    """The API did not return a usable response."""


class SourceRefused(SourceError):
    """The API rejects the key (401, 403) or the request itself, or a file that the request needs cannot be used.

    Attributes:
        retry_after: When the API is asked again, unless the key is replaced; None: when the feed is read again.
    """

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RequestRefused(SourceRefused):
    """The API accepts the key but rejects this request; it may accept others."""


class SchemaMismatch(SourceError):
    """The response does not match the configuration or what dockbell learned; the operator must act."""


class SourceUnavailable(SourceError):
    """No usable response for now: connection refused, timeout, 5xx, or not JSON; dockbell retries."""


class PageUnreadable(SourceUnavailable):
    """The API responded, but not with complete, valid JSON; a smaller page may be readable."""


class PageCut(PageUnreadable):
    """The connection ended, or hung, before the whole response had come: a smaller page may come whole."""


class RateLimited(SourceUnavailable):
    """The request budget of the API key is used up (429).

    Attributes:
        retry_after: How long the API asks to wait; None if it does not say.
    """

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CursorExpired(SourceError):
    """The API no longer knows a cursor that it issued, or rejects it; dockbell must start the run again.

    Attributes:
        is_refusal: The API rejects the request (400, 422); another request with the same cursor may succeed.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class SinkError(DockbellError):
    """A sink could not be used."""


class SinkRejected(SinkError):
    """The receiver rejects dockbell (credentials, certificate, protocol); the operator must act."""


class SinkUnavailable(SinkError):
    """dockbell cannot reach the receiver for now."""


class StoreError(DockbellError):
    """The store could not be used."""


class StoreMissing(StoreError):
    """The store does not exist yet; "dockbell run" creates it."""


class StoreUnavailable(StoreError):
    """The store is unavailable for now; nothing is lost, and dockbell retries."""


class StoreFull(StoreUnavailable):
    """The disk that holds the store is full."""


class StoreInUse(StoreError):
    """Another process is using the store."""


class LeaseLost(StoreError):
    """Another process took over a feed, or all work of this process, which did not renew its lease in time."""


class StoreIncompatible(StoreError):
    """The store is not dockbell's, has the schema of another version, or was moved to another database."""


def find_cause(error: BaseException, kind: type[Exception]) -> BaseException | None:
    """Return an error, or the first of a group that task groups have nested, that is of a kind; None where none is."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := find_cause(each, kind))), None)
    return error if isinstance(error, kind) else None


def is_due_to(error: BaseException, kind: type[Exception]) -> bool:
    """Return whether an error, or one of a group that task groups have nested, is of a kind."""
    return find_cause(error, kind) is not None
