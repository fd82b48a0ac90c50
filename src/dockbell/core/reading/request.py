"""Requests to the API as plain values, checked against its description (api-spec.md, "Endpoints")."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from dockbell.core.model import JSON, RESOURCES

MAX_LIMIT: Final = 200
"""The largest page that the API gives."""

LIMITS: Final = (200, 50, 10, 1)
"""Records per page: the API's maximum, so that a run costs the fewest requests, and less where a page is unreadable."""

_REST_MOST: Final = 64
_OURS: Final = frozenset({"limit", "cursor", "updated_since", "expand"})


class Request(msgspec.Struct, frozen=True):
    """One request, without the base URL and the key."""

    method: str
    path: str  # absolute and percent-encoded
    params: tuple[tuple[str, str], ...] = ()  # the query, decoded, in the order sent
    body: bytes | None = None  # JSON, for ``POST`` only
    etag: str | None = None  # of the answer that is known already: the API answers 304 while that is still the same

    def __str__(self) -> str:
        """Return ``GET /v1/shipments``, as in errors and logs, which never show the query."""
        return f"{self.method} {self.path}"

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.params, quote_via=quote)}" if self.params else self.path

    @property
    def collection(self) -> str:
        """``/v1/shipments`` or ``/v1/shipments/{id}``: where it goes, whatever the id."""
        _, version, name, *record = self.path.split("/")
        return f"/{version}/{name}/{{id}}" if record else self.path

    @property
    def continues(self) -> bool:
        return any(name == "cursor" for name, _ in self.params)

    @property
    def narrows(self) -> bool:
        return any(name == "updated_since" for name, _ in self.params)


def whole_list(request: Request) -> Request:
    """Return the request for the beginning of the whole list that another one asks for a page of: one record of it."""
    kept = [(name, value) for name, value in request.params if name not in {"cursor", "updated_since", "limit"}]
    return Request(request.method, request.path, (("limit", "1"), *kept))


def list_request(
    resource: str,
    *,
    limit: int | None = MAX_LIMIT,
    cursor: str | None = None,
    updated_since: datetime | None = None,
    query: Mapping[str, str | int | bool] | None = None,
    expand: tuple[str, ...] = (),
) -> Request:
    """Return the request for one page of a listing; raises ValueError where the API would not accept it.

    ``query`` holds the resource's own filters (``status``, ``sku`` …); the API may know more than its description
    shows, so any name is passed on.
    """
    if resource not in RESOURCES:
        raise ValueError(f"resource: must be one of {', '.join(RESOURCES)}, got {resource!r}")
    if limit is not None and not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f'resource "{resource}": limit must be 1 to {MAX_LIMIT}, got {limit}')
    if taken := sorted(_OURS.intersection(query or ())):
        raise ValueError(f'resource "{resource}": {taken[0]} is not a filter; remove it from query')
    params = {} if limit is None else {"limit": str(limit)}
    if updated_since is not None:
        if not RESOURCES[resource].polled:
            polled = ", ".join(name for name, each in RESOURCES.items() if each.polled)
            raise ValueError(f'resource "{resource}": updated_since is accepted by {polled} only; remove it')
        params["updated_since"] = format_since(updated_since)
    if cursor is not None:
        params["cursor"] = cursor
    if expand:
        params["expand"] = ",".join(expand)
    for name, value in (query or {}).items():
        params[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return Request("GET", RESOURCES[resource].path, tuple(params.items()))


def shipment_request(shipment_id: str, *, expand: tuple[str, ...] = ()) -> Request:
    """Return the request for one shipment, whatever characters its id holds; raises ValueError for an empty id."""
    if not shipment_id:
        raise ValueError("shipment_id: must not be empty")
    # "." and ".." would be resolved as folders on the way.
    segment = quote(shipment_id, safe="") if shipment_id.strip(".") else shipment_id.replace(".", "%2E")
    return Request("GET", f"/v1/shipments/{segment}", (("expand", ",".join(expand)),) if expand else ())


def order_request(payload: JSON) -> Request:
    """Return the request that creates a sales order; raises TypeError or ValueError where ``payload`` is no JSON."""
    return Request("POST", "/v1/sales-orders", body=json.dumps(payload, allow_nan=False).encode())


def format_since(moment: datetime) -> str:
    """Return a time as ``updated_since`` takes it: UTC with ``Z``; milliseconds only where there is a fraction.

    Finer digits are cut, never rounded up: a time that is a little early asks for a little more. Raises ValueError
    where the time has no zone.
    """
    if moment.tzinfo is None:
        raise ValueError(f"updated_since: must have a time zone, got {moment.isoformat()}; add tzinfo=UTC")
    moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds") + "Z"


class PageLimit(msgspec.Struct, frozen=True):
    """With which limit the next run of a feed begins.

    A limit holds for a whole run. Where a cursor is the number of a page, a page of another size begins somewhere else:
    records are skipped, or come a second time, and nothing in the answers says so.
    """

    level: int = 0  # the limit that the last complete run needed, as an index of ``LIMITS``
    runs: int = 0  # complete runs with it since the largest failed
    rest: int = 1  # the largest is tried again after so many of them, twice as many each time that this fails

    @property
    def begins_at(self) -> int:
        return 0 if self.runs >= self.rest else self.level

    def end_run(self, level: int, *, complete: bool) -> PageLimit:
        """Return what is remembered after a run; of one that is not complete only the limit that it needed counts."""
        if level == 0:
            return PageLimit() if complete else self
        is_in_vain = self.begins_at < level and self.level > 0
        known = replace(self, runs=0, rest=min(self.rest * 2, _REST_MOST)) if is_in_vain else self
        return replace(known, level=level, runs=known.runs + complete)
