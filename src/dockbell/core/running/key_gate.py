"""Which requests may be sent while the API refuses some: those of other collections, and a probe now and then."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

PROBE_EVERY: Final = timedelta(minutes=1)
"""What is refused is asked for again after this time, by one request."""
KEY: Final = ""
"""The place of a refusal that concerns all collections."""

_NEVER: Final = timedelta.min


class _Closed(msgspec.Struct, frozen=True):
    """What is known of a place that is refused."""

    reason: str
    asked_at: timedelta  # when the request was sent that was refused last
    every: timedelta
    due: timedelta
    alone: bool = False  # whether others were accepted meanwhile


class KeyGate:
    """Remembers which requests of an account are refused, and lets one probe at a time test whether they still are.

    A *collection* is where a request goes, whatever its id and query: ``/v1/shipments``, ``/v1/shipments/{id}``.

    - A refusal closes its own collection, and another probe of it goes a minute later. Where another collection was
      accepted within the last minute, that is all.
    - Otherwise, and when a second collection is refused before anything is accepted, the key is in *doubt*: one
      request at a time goes, of a collection that is not closed, and at once. If it is accepted, the key is good, and
      only the refused collections stay closed. If it is refused, the *key* is closed: one probe a minute, for which
      the collections that ask take turns. So a key that dies costs three refused requests at most, beside those that
      were under way, and a collection that is refused alone can neither close the others nor use up their probes.
    - An accepted request proves something only about refusals of requests that were sent before it.
    """

    def __init__(self) -> None:
        self._closed: dict[str, _Closed] = {}  # collections, and KEY
        self._accepted: dict[str, timedelta] = {}  # when the last accepted request of a collection was sent
        self._new: set[str] = set()  # collections closed since anything was accepted
        self._probed: dict[str, timedelta] = {}
        self._turned_away: dict[str, timedelta] = {}
        self._undecided: set[str] = set()

    def place(self, collection: str) -> str | None:
        """Return what blocks requests to a collection: the collection or :data:`KEY`; None where nothing does."""
        return next((place for place in (KEY, collection) if place in self._closed), None)

    def reason(self, collection: str) -> str:
        """Return why a request to a collection would be refused, as far as is known; empty: it would not be."""
        place = self.place(collection)
        return "" if place is None else self._closed[place].reason

    def wait(self, collection: str, now: timedelta) -> timedelta:
        dues = [self._closed[place].due for place in (KEY, collection) if place in self._closed]
        return max([timedelta(0), *(due - now for due in dues)])

    def reopen(self, now: timedelta) -> None:
        """Let what is refused be probed at once: the key was replaced."""
        self._closed = {place: replace(closed, due=min(closed.due, now)) for place, closed in self._closed.items()}

    def is_closed(self, collection: str) -> bool:
        return collection in self._closed

    def is_alone(self, collection: str) -> bool:
        """Return whether others were accepted while a collection was refused: the refusal is its own, not the key's."""
        closed = self._closed.get(collection)
        return closed is not None and (
            closed.alone or any(at >= closed.asked_at for other, at in self._accepted.items() if other != collection)
        )

    def may_probe(self, collection: str, now: timedelta) -> bool:
        """Return whether a request may find out if it still is refused; one that may not waits for its turn."""
        if self.wait(collection, now) == timedelta(0) and self._has_turn(collection, now):
            return True
        self._turned_away[collection] = now
        return False

    def probing(self, collection: str, now: timedelta) -> None:
        """Record that a probe is being sent; closed collections stay closed to all other requests."""
        self._probed[collection] = now
        self._turned_away.pop(collection, None)
        self._undecided.add(collection)
        for place in (KEY, collection):
            if place in self._closed:
                self._closed[place] = replace(self._closed[place], due=now + self._closed[place].every)

    def ended(self, collection: str, now: timedelta) -> None:
        """Record that a probe is over; where it was neither refused nor accepted, another may be sent at once."""
        if collection in self._undecided:
            self._undecided.discard(collection)
            for place in (KEY, collection):
                if place in self._closed:
                    self._closed[place] = replace(self._closed[place], due=now)

    def refused(
        self,
        collection: str,
        reason: str,
        now: timedelta,
        *,
        asked_at: timedelta | None = None,
        every: timedelta = PROBE_EVERY,
        doubts: bool = True,
    ) -> None:
        """Record a refusal of a request that was sent at ``asked_at``; None: just now.

        ``every`` is the time until the next probe; ``doubts``: it may concern the key as a whole.
        """
        asked_at = now if asked_at is None else asked_at
        is_new = collection not in self._closed
        self._accepted.pop(collection, None)
        is_good = any(now - at <= PROBE_EVERY for at in self._accepted.values())
        closed = _Closed(reason, asked_at, every, now + every, self.is_alone(collection))
        self._closed[collection] = closed
        self._probed[collection] = now
        self._undecided.discard(collection)
        if is_new:
            self._new.add(collection)
        if KEY in self._closed:
            self._closed[KEY] = closed
        elif doubts and is_new and (not is_good or len(self._new) > 1):
            self._closed[KEY] = replace(closed, due=now)

    def accepted(self, collection: str, now: timedelta, *, asked_at: timedelta | None = None) -> None:
        """Record that a request was accepted that was sent at ``asked_at``; None: just now."""
        asked_at = now if asked_at is None else asked_at
        self._undecided.discard(collection)
        self._accepted[collection] = max(asked_at, self._accepted.get(collection, asked_at))
        for place in (KEY, collection):
            if place in self._closed and asked_at >= self._closed[place].asked_at:
                del self._closed[place]
        self._new = {new for new in self._new if new in self._closed and self._closed[new].asked_at > asked_at}
        if KEY not in self._closed:
            self._turned_away.clear()

    def _has_turn(self, collection: str, now: timedelta) -> bool:
        """Return whether no other collection has waited longer for the key; one that asks too late loses its turn."""
        closed = self._closed.get(KEY)
        if closed is None or now >= closed.due + closed.every:
            return True
        mine = self._probed.get(collection, _NEVER)
        return all(
            self._probed.get(other, _NEVER) >= mine
            for other, at in self._turned_away.items()
            if other != collection and now - at <= 2 * closed.every and self.wait(other, now) == timedelta(0)
        )
