"""Which requests something is done to: those of a resource, of a kind, or those whose answer shows a record."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from starlette.types import Scope

from dockbell.sandbox.catalog import RESOURCES

Kind: TypeAlias = Literal["poll", "pass", "single", "other"]
"""A listing with ``updated_since``; a listing without; one record by its id; anything else."""

SHOWN: Final = "dockbell.shown"
"""Key of an ASGI scope: the names of the records that the answer shows, as RESOURCE/ID, set by the endpoints."""

_PREFIX: Final = "/v1/"
_SINCE: Final = b"updated_since="


def counts(scope: Scope) -> bool:
    """Tell whether a request is one of the API's, not of the sandbox's own."""
    return str(scope["path"]).startswith(_PREFIX)


def resource_of(scope: Scope) -> str:
    """Return the first part of the path of one of the API's requests."""
    return str(scope["path"]).removeprefix(_PREFIX).partition("/")[0]


def is_listing(scope: Scope) -> bool:
    """Tell whether a request asks for a page."""
    return str(scope["path"]).removeprefix(_PREFIX) in RESOURCES


def kind_of(scope: Scope) -> Kind:
    """Return the kind of one of the API's requests."""
    if is_listing(scope):
        parameters = scope["query_string"].split(b"&")
        return "poll" if any(part.startswith(_SINCE) for part in parameters) else "pass"
    return "single" if resource_of(scope) in RESOURCES else "other"


def concerns(chosen: str, scope: Scope) -> bool:
    """Tell whether one of the API's requests is for a chosen resource, or all are."""
    return chosen in ("all", resource_of(scope))
