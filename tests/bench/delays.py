"""How long each change took to its receiver, told from the sandbox's log, what it showed, and what arrived.

A version of a record is known by its ``updated_at``. An event tells its version and all before it that no event told:
they wait from their own moment until then.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import httpx
from starlette.requests import Request
from starlette.responses import Response

from tests.bench.servers import Shown

_GRACE: Final = 10.0
"""Seconds after which what was shown should have been delivered."""

Place: TypeAlias = tuple[str, str]
"""A resource and a key."""


class Version(NamedTuple):
    """What a change made of a record; times are Unix times."""

    stamp: str
    at: float  # when it could be read
    content: int  # a hash


class Changes:
    """All that was changed, as the sandbox logged it."""

    def __init__(self) -> None:
        self.versions: defaultdict[Place, list[Version]] = defaultdict(list)
        self._after = 0

    async def follow(self, client: httpx.AsyncClient) -> None:
        """Take in what was changed since the last time."""
        is_new = True
        while is_new:
            answer = await client.get("/sandbox/changes", params={"after": self._after, "limit": 10_000})
            page = answer.raise_for_status().json()
            for change in page["changes"]:
                after, at = change["after"], datetime.fromisoformat(change["at"]).timestamp()
                version = Version(after["updated_at"], at, _hash(after))
                self.versions[change["resource"], change["identity"]].append(version)
            is_new = page["next_after"] > self._after
            self._after = page["next_after"]


class Told(NamedTuple):
    """An event of a record, when it arrived first."""

    at: float
    source: str
    place: Place
    stamp: str
    content: int


class Receiver:
    """Takes every webhook; statements about feeds are no changes."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._ids: set[str] = set()

    async def take(self, request: Request) -> Response:
        """Answer one delivery."""
        at, event = time.time(), json.loads(await request.body())
        data = event["data"]
        if "statement" not in data and event["id"] not in self._ids:
            self._ids.add(event["id"])
            after = data["after"] or {"updated_at": ""}
            source = event["source"].split("/")[-2]
            self.told.append(Told(at, source, (data["resource"], data["key"]), after["updated_at"], _hash(after)))
        return Response(status_code=204)


class Wait(NamedTuple):
    """What became of one change for one source."""

    resource: str
    changed_at: float
    delay: float  # from the moment it could be read to the event; without one, to the end
    from_reading: float | None  # from the first answer that showed it to the event; None where either is missing
    is_told: bool
    is_lost: bool  # it was shown long enough before the end, and no event told it


def find_waits(
    changes: Changes, told: Sequence[Told], shown: Sequence[Shown], sources: Collection[str], end: float
) -> Iterator[Wait]:
    """Yield what became of each change for each source; ``shown`` names the sources by their keys."""
    told_of, shown_of = defaultdict(list), defaultdict(list)
    for event in told:
        told_of[event.source, event.place].append((event.stamp, event.at))
    for each in shown:
        shown_of[each.key, (each.resource, each.identity)].append((each.stamp, each.at))
    for place, versions in changes.versions.items():
        for source in sources:
            events, answers = sorted(told_of[source, place]), sorted(shown_of[source, place])
            for version in versions:
                event_at, shown_at = _find(events, version.stamp), _find(answers, version.stamp)
                yield Wait(
                    place[0],
                    version.at,
                    delay=(event_at or end) - version.at,
                    from_reading=event_at - shown_at if event_at and shown_at else None,
                    is_told=event_at is not None,
                    is_lost=event_at is None and shown_at is not None and shown_at < end - _GRACE,
                )


def _find(moments: Sequence[tuple[str, float]], stamp: str) -> float | None:
    """Return when the version of a stamp, or the first later one there is, was told or shown."""
    place = bisect_left(moments, (stamp,))
    return moments[place][1] if place < len(moments) else None


def count_invented(changes: Changes, told: Sequence[Told]) -> int:
    """Return how many events tell what never was, or what was told already."""
    real = {(place, each.stamp, each.content) for place, versions in changes.versions.items() for each in versions}
    last: dict[tuple[str, Place], str] = {}
    invented = 0
    for each in told:
        invented += (each.place, each.stamp, each.content) not in real or each.stamp <= last.get(each[1:3], "")
        last[each.source, each.place] = each.stamp
    return invented


def _hash(record: dict[str, Any]) -> int:
    return hash(json.dumps(record, sort_keys=True))
