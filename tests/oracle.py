"""What the change log of a sandbox and the events of a dockbell must have to do with each other.

A change that was visible only for a moment may be missing: the next reading shows a later version. So the versions that
the events of a key report must be a subsequence of the versions that the record really had, and end with the last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from threading import Lock
from typing import Any

from dockbell.sandbox import LoggedChange

Place = tuple[str, str]
"""A resource and a key string."""


def read_content(record: str | bytes | Mapping[str, Any]) -> Any:
    """Return what counts of a record: a new timestamp alone is no change."""
    fields = record if isinstance(record, Mapping) else json.loads(record)
    return {name: value for name, value in fields.items() if name != "updated_at"}


class Story:
    """What really happened to each record: its versions in order, None where it was gone."""

    def __init__(self, initial: Mapping[str, Mapping[str, bytes]], changes: Iterable[LoggedChange]) -> None:
        self.versions: dict[Place, list[Any]] = {
            (resource, identity): [read_content(raw)]
            for resource, records in initial.items()
            for identity, raw in records.items()
        }
        for change in changes:
            after = None if change.after is None else read_content(change.after)
            self.versions.setdefault((change.resource, change.identity), [None]).append(after)

    def final(self) -> dict[Place, Any]:
        """Return the records that there are at the end."""
        return {place: versions[-1] for place, versions in self.versions.items() if versions[-1] is not None}


class Account:
    """What a receiver was told: deliveries in their order, repetitions included.

    Attributes:
        statements: What was said of feeds, each once, in the order of arrival; no part of any record's chain.
        named: Events that the operator named, each once; they repeat the change that they follow.
    """

    def __init__(self) -> None:
        self.deliveries = 0
        self.statements: list[dict[str, Any]] = []
        self.named: list[dict[str, Any]] = []
        self.events: dict[Place, dict[int, dict[str, Any]]] = defaultdict(dict)
        self.order: dict[Place, list[int]] = defaultdict(list)
        self.problems: list[str] = []
        self._turn = Lock()  # some receivers have a thread of their own

    def hear(self, event: Mapping[str, Any]) -> None:
        """Note one delivery; a receiver drops what it has seen, so only the first counts."""
        data = event["data"]
        if "statement" in data or "name" in data:
            with self._turn:
                self.deliveries += 1
                self._hear_aside(event, self.statements if "statement" in data else self.named)
            return
        place, revision = (data["resource"], data["key"]), data["revision"]
        with self._turn:
            self.deliveries += 1
            known = self.events[place].get(revision)
            if known is None:
                self.events[place][revision] = dict(event)
                self.order[place].append(revision)
            elif known["id"] != event["id"]:
                self.problems.append(f"{place} revision {revision} came under two ids")
            elif known != event:
                self.problems.append(f"{place} revision {revision} came with two contents under one id")

    def _hear_aside(self, event: Mapping[str, Any], heard: list[dict[str, Any]]) -> None:
        known = next((one for one in heard if one["id"] == event["id"]), None)
        if known is None:
            heard.append(dict(event))
        elif known != event:
            self.problems.append(f"{event['type']} came with two contents under one id")

    def state(self) -> dict[Place, Any]:
        """Return the records as a subscriber would have rebuilt them."""
        with self._turn:
            latest = {place: events[max(events)]["data"]["after"] for place, events in self.events.items()}
        return {place: read_content(after) for place, after in latest.items() if after is not None}

    def judge(self, story: Story) -> list[str]:
        """Return everything that is wrong with what was told, after all has settled."""
        problems = list(self.problems)
        for place, revisions in self.order.items():
            if revisions != sorted(revisions):
                problems.append(f"{place} came in the order {revisions}")
            problems += self._judge_chain(place)
            problems += self._judge_truth(place, story.versions.get(place, []))
        told, real = self.state(), story.final()
        problems += [
            f"{place} is not as it was told" for place in told.keys() & real.keys() if told[place] != real[place]
        ]
        problems += [f"{place} was never told" for place in real.keys() - told.keys()]
        problems += [f"{place} is gone, untold" for place in told.keys() - real.keys()]
        ids = [event["id"] for events in self.events.values() for event in events.values()]
        ids += [event["id"] for event in (*self.statements, *self.named)]
        if len(ids) != len(set(ids)):
            problems.append("two events share an id")
        return problems

    def _judge_chain(self, place: Place) -> list[str]:
        events = [self.events[place][revision]["data"] for revision in sorted(self.events[place])]
        problems = [
            f"{place} goes from revision {one['revision']} to {other['revision']}"
            for one, other in pairwise(events)
            if other["revision"] != one["revision"] + 1
        ]
        problems += [
            f"{place} revision {other['revision']} does not begin where the last ended"
            for one, other in pairwise(events)
            if other["before"] != one["after"] and read_content(other["before"]) != read_content(one["after"])
        ]
        return problems

    def _judge_truth(self, place: Place, versions: list[Any]) -> list[str]:
        position = 0
        for revision in sorted(self.events[place]):
            told = self.events[place][revision]["data"]["after"]
            after = None if told is None else read_content(told)
            while position < len(versions) and versions[position] != after:
                position += 1
            if position == len(versions):
                return [f"{place} revision {revision} tells what never was, or was before what it told already"]
        return []
