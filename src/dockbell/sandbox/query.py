"""What a listing is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a listing, read.

    Attributes:
        resource: The collection.
        limit: The most records on the page.
        cursor: The token of the page, None for the first.
        expand: The relations to embed.
        since: Only records changed at this time or later, microseconds since 1970.
        status: Only records in this state.
        terms: Only records with these values.
    """

    resource: str
    limit: int
    cursor: str | None = None
    expand: tuple[str, ...] = ()
    since: int | None = None
    status: str | None = None
    terms: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        """Return what must stay the same from page to page."""
        return repr((self.resource, self.since, self.status, sorted(self.terms.items()))).encode()
