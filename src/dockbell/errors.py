"""Errors, typed by who must act.

The operator before start: :class:`ConfigError`. The operator later: :class:`SourceRefused`, :class:`RequestRefused`,
:class:`SinkRejected`, :class:`SchemaMismatch`, :class:`StoreMissing`, :class:`StoreInUse`, :class:`LeaseLost`,
:class:`StoreIncompatible`, :class:`StoreFull`.
No action, it passes by itself: :class:`SourceUnavailable`, :class:`PageUnreadable`, :class:`RateLimited`,
:class:`CursorExpired`, :class:`SinkUnavailable`, :class:`StoreUnavailable`.

Messages read *subject: fact, got value; remedy*, in lower case, and never hold a secret or a query string.
"""

from __future__ import annotations

from datetime import timedelta


class DockbellError(Exception):
    """Every error that dockbell raises on purpose."""


class ConfigError(DockbellError):
    """The configuration cannot be used; the operator must change it before a start.

    Attributes:
        problems: One complete message for each thing to change.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SourceError(DockbellError):
    """Reading the API did not give a usable answer."""


class SourceRefused(SourceError):
    """The API does not accept the key (401, 403) or the request as such, or a file that it needs cannot be used."""


class RequestRefused(SourceRefused):
    """The API accepts the key, and not this request; other requests may be accepted."""


class SchemaMismatch(SourceError):
    """The API's answer does not fit what is configured or was learned; the operator must act."""


class SourceUnavailable(SourceError):
    """No usable answer for now: refused, timed out, 5xx, or not JSON; it will be asked again."""


class PageUnreadable(SourceUnavailable):
    """An answer came, but is not whole and sound JSON; a smaller page may be."""


class RateLimited(SourceUnavailable):
    """The key's budget is used up (429).

    Attributes:
        retry_after: How long the API asks to wait, where it says so.
    """

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CursorExpired(SourceError):
    """The API no longer knows a cursor that it gave, or does not accept it; the run must begin again.

    Attributes:
        is_refusal: It calls the request wrong (400, 422), so that another one with the same cursor may be right.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class SinkError(DockbellError):
    """A sink could not be used."""


class SinkRejected(SinkError):
    """The receiver refuses us (credentials, certificate, protocol); the operator must act."""


class SinkUnavailable(SinkError):
    """The receiver cannot be reached for now."""


class StoreError(DockbellError):
    """The store could not be used."""


class StoreMissing(StoreError):
    """There is no store yet; "dockbell run" makes it."""


class StoreUnavailable(StoreError):
    """The store cannot be used for now; nothing is lost, and it will be tried again."""


class StoreFull(StoreUnavailable):
    """The disk of the store is full."""


class StoreInUse(StoreError):
    """Another process holds the store."""


class LeaseLost(StoreError):
    """Another process has taken over a feed, or all that this one had, which did not renew its right in time."""


class StoreIncompatible(StoreError):
    """The file is not a dockbell store, belongs to a newer dockbell, or was moved to another database."""


def find_cause(error: BaseException, kind: type[Exception]) -> BaseException | None:
    """Return an error, or the first of a group that task groups have nested, that is of a kind; None where none is."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := find_cause(each, kind))), None)
    return error if isinstance(error, kind) else None


def is_due_to(error: BaseException, kind: type[Exception]) -> bool:
    """Return whether an error, or one of a group that task groups have nested, is of a kind."""
    return find_cause(error, kind) is not None
