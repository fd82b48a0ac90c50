"""Whom to ask while the API refuses the key: nobody but one probe a minute."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

PROBE_EVERY: Final = timedelta(minutes=1)
"""While a key is refused, one request in this time finds out whether it still is."""

_EVERYTHING: Final = ""


class Refusals:
    """Remembers what of an account is refused, and lets one request a minute through to it.

    A 401 concerns the key, so it closes everything. A 403 does too, unless another collection was answered with the
    same key within the last minute: then the key may be good for the others, and only this collection is closed.

    A *collection* is where a request goes, whatever its id and query: ``/v1/shipments``, ``/v1/shipments/{id}``.
    """

    def __init__(self) -> None:
        self._closed: dict[str, tuple[str, timedelta]] = {}  # why, and when the next probe may go
        self._accepted: dict[str, timedelta] = {}

    def reason(self, collection: str) -> str:
        """Return why a request to a collection would be refused, as far as is known; empty: it would not be."""
        return next((self._closed[place][0] for place in (_EVERYTHING, collection) if place in self._closed), "")

    def may_probe(self, collection: str, now: timedelta) -> bool:
        """Tell whether a request to a collection may find out whether it still is refused."""
        return all(now >= self._closed[place][1] for place in (_EVERYTHING, collection) if place in self._closed)

    def probing(self, collection: str, now: timedelta) -> None:
        """Take in that a request is being sent to find out; what is closed stays closed to all others."""
        for place in (_EVERYTHING, collection):
            if place in self._closed:
                self._closed[place] = (self._closed[place][0], now + PROBE_EVERY)

    def refused(self, collection: str, reason: str, now: timedelta, *, key: bool) -> None:
        """Take in a refusal; ``key`` tells that it is the key's as such (401), not this collection's (403)."""
        others = (at for place, at in self._accepted.items() if place != collection)
        good = not key and any(now - at <= PROBE_EVERY for at in others)
        self._accepted.pop(collection, None)
        self._closed[collection if good else _EVERYTHING] = (reason, now + PROBE_EVERY)

    def accepted(self, collection: str, now: timedelta) -> None:
        """Take in that the key was accepted."""
        self._accepted[collection] = now
        self._closed.pop(_EVERYTHING, None)
        self._closed.pop(collection, None)
