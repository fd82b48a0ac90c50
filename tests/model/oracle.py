"""What must hold between what the model's records really were and what dockbell made of them (docs/guarantees.md)."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any, Final

from dockbell.core.model import Event
from tests.model.api import TOLERATED, Listing, Version
from tests.model.rig import Rig, read

LOOKBACK: Final = timedelta(seconds=60)
LOOKBACK_BLIND: Final = timedelta(minutes=2)
STALE_WINDOW: Final = timedelta(seconds=60)
SLIPS_EXCUSED: Final = 2
"""A record that slips past a page edge in two runs in a row cannot be told from one that is not there."""


class Oracle:
    """Looks at one rig after everything that it did."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._api = rig.api
        self._keys: dict[str, str] = {}
        self._sequence = 0
        self._ids: set[str] = set()
        self._last: dict[str, dict[str, Any]] = {}
        self._place: dict[str, int] = defaultdict(lambda: -1)  # the version last told of, in the key's history
        self._contents: dict[str, list[Any]] = defaultdict(list)
        self._purged: set[str] = set()  # and not come back
        self._gone_at: dict[str, datetime] = {}  # when a deletion was last told, by our clock
        self._silent: dict[str, Any] = {}  # what was stored without an event
        self._undecided: set[str] = set()  # at the last look
        self._judged = 0  # listings
        self._provisional = self._was_provisional = True  # at the last look, and at the one before
        self._began_at: datetime | None = None
        self._baseline_ended_at: datetime | None = None
        self._settled_at: datetime | None = None  # the end of the pass that shows what the first one skipped

    # After every step -------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Judge the events that are new, and whether the store says the same as all events together (I3, I5, I6)."""
        self._keys = {self._rig.text(key): key for key in self._api.history}
        for event in await self._rig.events(self._sequence):
            self._sequence += 1
            assert event.sequence == self._sequence, f"sequence {event.sequence} follows {self._sequence - 1}"
            assert event.id not in self._ids, f"id {event.id} a second time"
            self._ids.add(event.id)
            if event.key:
                self._hear(self._keys[event.key], event, json.loads(event.body)["data"])
        await self._compare_stored()

    def _hear(self, key: str, event: Event, data: dict[str, Any]) -> None:
        told = f"event {event.sequence}, {key} {event.change} {event.revision}"
        last = self._last.get(key)
        if data.get("reason") == "purged":
            self._hear_purge(key, event, data, told)
            return
        self._purged.discard(key)
        before, after = read(data["before"]), read(data["after"])
        if last is None:
            assert event.revision == (0 if event.change == "snapshot" else 1), f"{told}: does not begin the count"
            assert event.change != "restored", f"{told}: it was never gone"
            if before is not None:
                self._place[key] = self._find(key, before, 0, f"{told}: before")
                assert self._silent.get(key, before) == before, f"{told}: another content was stored"
        else:
            assert event.revision == last["revision"] + 1, f"{told}: follows revision {last['revision']}"
            assert before == read(last["after"]), f"{told}: does not begin where revision {last['revision']} ended"
            assert (event.change == "restored") == (last["after"] is None), f"{told}: follows {last['change']}"
            assert event.change not in ("created", "snapshot"), f"{told}: it was known"
        if event.change == "created":
            assert not self._was_met_before(key), (
                f"{told}: it was there before dockbell came, and the first pass met it"
            )
        assert (event.change == "deleted") == (after is None), f"{told}: with {after}"
        assert before != after, f"{told}: nothing changed"
        if event.change != "deleted":
            if self._is_stale_at_first_sight(key, after):
                self._place[key] -= 1  # what it takes back may be told again
            else:
                self._place[key] = self._find(key, after, self._place[key] + 1, told)
        else:
            self._gone_at[key] = self._api.clock()
            if not self._was_away(key):
                assert self._may_have_slipped(key), f"{told}: it was there throughout"
                self._place[key] -= 1  # it may return as it was
        self._last[key] = data
        self._contents[key].append(after)

    def _hear_purge(self, key: str, event: Event, data: dict[str, Any], told: str) -> None:
        """It is told once, without content; what the API shows of the record may be as it was."""
        last = self._last.get(key)
        assert key in self._silent or last is not None, f"{told}: nothing was stored"
        assert key not in self._purged, f"{told}: it was purged before"
        assert event.revision == (0 if last is None else last["revision"]) + 1, f"{told}: is not the next revision"
        assert event.change == "deleted", f"{told}: is no deletion"
        assert data["before"] is data["after"] is None, f"{told}: with content"
        if not self._api.deployment.stamped and self._api.deployment.lag:
            self._place[key] = -1  # nothing is left that tells a lagging replica's reading
        elif last is not None and last["after"] is not None:
            self._place[key] -= 1
        self._purged.add(key)
        self._last[key] = data
        self._contents[key].clear()  # nor is left what was seen of it
        self._silent.pop(key, None)

    def _find(self, key: str, content: Any, start: int, told: str) -> int:
        """Return the first version from ``start`` on that had this content and has been visible."""
        versions = self._api.history[key]
        for place in range(start, len(versions)):
            if versions[place].content == content and versions[place].shown_at <= self._api.clock.service:
                return place
        was = [version.content for version in versions]
        raise AssertionError(f"{told}: tells {content}, which was not to be seen after version {start - 1} of {was}")

    def _is_stale_at_first_sight(self, key: str, content: Any) -> bool:
        """Return whether nothing shows that a reading is a lagging replica's: no timestamp, and it was never seen."""
        if self._api.deployment.stamped or not self._api.deployment.lag:
            return False
        seen = [self._silent.get(key), *self._contents[key]]
        versions = self._api.history[key]
        earlier = [each.content for each in versions[: self._place[key] + 1]]
        now = self._api.clock.service
        later = [each.content for each in versions[self._place[key] + 1 :] if each.shown_at <= now]
        return content in earlier and content not in seen and content not in later

    def _was_away(self, key: str) -> bool:
        """Return whether a record has been away since the version last told of; then that is where it stands."""
        for place in range(self._place[key] + 1, len(self._api.history[key])):
            version = self._api.history[key][place]
            if version.content is None and version.shown_at <= self._api.clock.service:
                self._place[key] = place
                return True
        return False

    def _was_met_before(self, key: str) -> bool:
        """Return whether a record that was there at dockbell's first request was on a page of the first pass.

        What a search showed, or a run that died, need not be stored: then nothing is known of the record.
        """
        if self._api.at(key, self._api.asked_at[0]) is None:
            return False
        return self._baseline_ended_at is not None and any(
            key in listing.shown and listing.ended_at <= self._baseline_ended_at
            for listing in self._api.listings
            if not (listing.is_search or listing.is_cut)
        )

    def _may_have_slipped(self, key: str) -> bool:
        slips = 0
        for listing in self._api.listings:
            if key in listing.shown:
                slips = 0
            elif listing.finished and listing.since is None:
                slips += 1
        return slips >= SLIPS_EXCUSED and self._api.deployment.cursors != "frozen"

    async def _compare_stored(self) -> None:
        stored, state = await self._rig.stored(), await self._rig.state()
        provisional = await self._rig.is_provisional()
        for key, data in self._last.items():
            told = read(data["after"])
            assert stored.get(key) == told, f"{key}: {stored.get(key)} is stored, {told} was told"
        for key, content in stored.items():
            if key in self._last:
                continue
            if key not in self._silent or self._provisional or key in self._undecided:
                self._silent[key] = content
                self._check_baseline(key, content, state.first_asked_at)
            assert self._silent[key] == content, f"{key}: went from {self._silent[key]} to {content} without an event"
        self._was_provisional, self._provisional = self._provisional, provisional
        self._undecided = self._rig.undecided()
        self._began_at = state.first_asked_at
        if state.passes and self._baseline_ended_at is None:
            self._baseline_ended_at = self._api.clock.service
        if state.passes > 1 and self._settled_at is None:
            self._settled_at = self._api.clock.service

    def _check_baseline(self, key: str, content: Any, began_at: datetime | None) -> None:
        version = self._api.history[key][self._find(key, content, 0, f"{key}, stored")]
        if self._provisional:
            return
        if version.shown_at <= self._api.asked_at[0]:
            return  # it was there before dockbell came, whatever its timestamp says
        searches = [listing for listing in self._api.listings if listing.is_search]
        if self._api.deployment.stamped:
            if any(key in each.shown and version.shown_at <= each.ended_at for each in searches):
                return  # it was there before the feed was read
            assert began_at is not None
            # A date of the future says nothing of a record that was never seen.
            known = version.stamp < began_at or version.stamp > began_at + TOLERATED
            assert known, f"{key}: {content} of {version.stamp} was stored without an event"
        else:
            end = self._settled_at
            assert end is None or version.shown_at <= end, f"{key}: {content} came later, without an event"

    # After a run ------------------------------------------------------------------------------------------------------

    async def judge_runs(self, *, complete: bool) -> None:
        """Judge whether the runs since the last call left anything out that a reader must have seen (I1)."""
        listings, self._judged = self._api.listings[self._judged :], len(self._api.listings)
        stored = await self._rig.stored()
        for listing in listings:
            if listing.since is not None and not listing.is_search:
                self._judge_window(listing, stored)
        if complete and listings and listings[-1].since is None and listings[-1].finished:
            self._judge_pass(listings[-1], stored)

    def _judge_window(self, listing: Listing, stored: dict[str, Any]) -> None:
        """What a poll does not ask for any more must have been read before."""
        first = next(each.since for each in self._api.listings if each.since is not None and not each.is_search)
        for version in listing.dropped:
            if version.stamp < first or self._is_known(version, stored) or self._is_excused(version):
                continue
            raise AssertionError(
                f"{version.key}: {version.content} of {version.stamp}, visible since {version.shown_at}, was never"
                f" read, and listing {listing.number} asks since {listing.since}"
            )

    def _judge_pass(self, listing: Listing, stored: dict[str, Any]) -> None:
        """What was there when a complete pass began is known when it has ended."""
        for key, version in self._api.view(listing.began_at).items():
            last = self._api.at(key, listing.ended_at) or version
            if self._was_provisional and self._began_at is not None and last.stamp >= self._began_at:
                continue  # left to the next run, which knows that the key is proven
            read_whole = key in listing.shown and self._api.was_there(key, listing)
            if read_whole and not self._is_known(version, stored) and not self._may_be_held(version):
                raise AssertionError(f"{key}: {version.content} was there, pass {listing.number} did not tell it")

    def _is_known(self, version: Version, stored: dict[str, Any]) -> bool:
        """Return whether this version is stored, or a later one."""
        versions = self._api.history[version.key]
        later = [each.content for each in versions[versions.index(version) :]]
        return stored.get(version.key) in later

    def _is_excused(self, version: Version) -> bool:
        """Return whether polls alone need not find a version: the conditions of the bound."""
        blind = not self._api.deployment.dated
        late = version.shown_at + self._api.deployment.lag - version.stamp
        if blind:
            late += self._api.clock.ahead
        if late > (LOOKBACK_BLIND if blind else LOOKBACK):
            return True
        if version.silent or version.backdated or self._may_be_held(version):
            return True
        covering = [
            listing
            for listing in self._api.listings
            if listing.finished
            and listing.began_at >= version.shown_at
            and (listing.since is None or listing.since <= version.stamp)
        ]
        return sum(version.key in self._api.slipped(listing) for listing in covering) >= SLIPS_EXCUSED

    def _may_be_held(self, version: Version) -> bool:
        """Return whether a version looks like one of a lagging replica, or of a record that was gone a moment ago."""
        if version.key in self._purged:  # what is there comes back, at rest at the latest
            return True
        stamp, shown_at = (at + self._api.clock.ahead for at in (version.stamp, version.shown_at))
        gone_at = self._gone_at.get(version.key)
        if gone_at is not None and stamp <= gone_at and shown_at < gone_at + STALE_WINDOW:
            return True  # our clock may have been set back since, so that a moment lasts
        if not self._api.deployment.stamped and version.content in self._contents[version.key][:-1]:
            return True  # it was told, and something else since: a lagging replica's, where that was never seen before
        versions = self._api.history[version.key]
        earlier = versions[: versions.index(version)]
        future = self._api.clock.service + TOLERATED
        return any(each.content == version.content or version.stamp < each.stamp <= future for each in earlier)

    # At rest ----------------------------------------------------------------------------------------------------------

    async def judge_rest(self) -> None:
        """Judge whether all is known, and the events tell it (I2)."""
        await self.look()
        real = {key: version.content for key, version in self._api.view(self._api.clock.service).items()}
        stored = await self._rig.stored()
        told = {key: content for key, content in self._silent.items() if key not in self._last}
        told |= {key: read(data["after"]) for key, data in self._last.items() if data["after"] is not None}
        assert stored == real, f"{_differences(stored, real)}: stored, and real"
        assert told == real, f"{_differences(told, real)}: told, and real"


def _differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = sorted(one.keys() | other.keys())
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}
