"""The parts of the status page: the status, from the store, and recent measurements, from memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dockbell._version import __version__
from dockbell.admin.as_json import (
    describe_drift,
    describe_gap,
    describe_process,
    describe_quarantine,
    describe_sink,
)
from dockbell.admin.reasons import Reason, Weight, find_reasons
from dockbell.admin.remarks import describe_feed
from dockbell.admin.silence import Silences
from dockbell.admin.status import FeedStatus, Silence, Status, load_status
from dockbell.config import Config, SourceSettings
from dockbell.core.delays import Delay
from dockbell.core.model import JSON, RESOURCES
from dockbell.core.moment import write_moment
from dockbell.ports import FeedState, ReadStore, SinkState, StoredRecord
from dockbell.telemetry.recent import Recent
from dockbell.telemetry.series import LEFT, STEP
from dockbell.web.events import summarise
from dockbell.web.live import EVENTS_MOST, FIRST_EVENTS, News
from dockbell.web.slow_parts import SlowParts

_DELETIONS_MOST: Final = 10


class PageState:
    """Reads everything that the page shows; its store is for the page alone, because its reads may take long."""

    def __init__(
        self,
        read_store: ReadStore,
        config: Callable[[], Config],
        recent: Recent,
        *,
        now: Callable[[], datetime],
        next_time: Callable[[timedelta | str, datetime], datetime],
        holder: str,
    ) -> None:
        self._read_store = read_store
        self._config = config
        self._recent = recent
        self._now = now
        self._next_time = next_time
        self._holder = holder
        self._started_at = now()
        self._silences = Silences(read_store)
        self._slow_parts = SlowParts(read_store, next_time)
        self._last: int | None = None

    async def load(self) -> Status:
        config = self._config()
        feeds, sinks, at = config.feeds(), config.sinks, self._now()
        status = await load_status(
            self._read_store, feeds, sinks, at=at, holder=self._holder, next_time=self._next_time
        )
        return await self._silences.listen(status, sinks)

    async def read_parts(self) -> Mapping[str, JSON]:
        config = self._config()
        status = await self.load()
        slow_parts = await self._slow_parts.read(config, status.at)
        reasons = find_reasons(status)
        parts: dict[str, JSON] = {"dockbell": self._describe_dockbell(config, status, reasons)}
        for each in status.feeds:
            absent: Sequence[StoredRecord] = ()
            if each.state is not None and each.state.held:
                absent = await self._read_store.find_suspected(each.state.id, _DELETIONS_MOST)
            found = [reason for reason in reasons if reason.is_about(each.feed)]
            parts[f"feed:{each.feed}"] = {
                **self._describe_feed(each, status.at),
                "reasons": [reason.words for reason in found],
                "failing": any(reason.weight is Weight.FAILING for reason in found),
                "deletions": [
                    {"key": record.key, "suspected_at": write_moment(record.suspected_at)} for record in absent
                ],
                "silence": each.silence.kind,
                "silence_words": each.silence.words,
            }
        firsts: dict[object, str] = {}
        for name in dict.fromkeys(each.feed.source for each in status.feeds):
            settings = config.sources[name]
            account = firsts.setdefault(settings.account, name)  # the first of those with the same API key
            parts[f"budget:{name}"] = self._describe_budget(name, settings, account)
        for sink in status.sinks:
            words = [reason.words for reason in reasons if reason.about == f"sink:{sink.name}"]
            kind, silence = config.sinks[sink.name].type, status.silences[sink.name]
            change_delay = status.delays.get(sink.name)
            parts[f"sink:{sink.name}"] = self._describe_sink(sink, kind, silence, words) | {
                "change_delay": _describe_delay(change_delay)
            }
        parts.update(slow_parts)
        return parts

    def reset(self) -> None:
        self._last = None

    async def read_news(self) -> News:
        """Return the events recorded since the last call; the first call returns past events."""
        newest = await self._read_store.read_latest(-1, 1)
        end = newest[-1][0] if newest else 0
        if self._last is None or self._last > end:
            self._last = max(0, end - FIRST_EVENTS)
        after = max(self._last, end - EVENTS_MOST)
        found = await self._read_store.read_latest(after, EVENTS_MOST) if after < end else ()
        skipped = after - self._last
        self._last = found[-1][0] if found else end
        return News([summarise(place, event) for place, event in found], skipped)

    def _describe_dockbell(self, config: Config, status: Status, reasons: Sequence[Reason]) -> JSON:
        return {
            "name": config.name,
            "version": __version__,
            "at": write_moment(status.at),
            "started_at": write_moment(self._started_at),
            "well": not reasons,
            "reasons": [{"text": str(each), "about": each.about, "weight": each.weight.value} for each in reasons],
            "delay": _describe_delay(status.delay),
            "processes": [msgspec.structs.asdict(describe_process(each)) for each in status.members],
            "url": None if config.web is None else config.web.base_url,
        }

    def _describe_feed(self, each: FeedStatus, at: datetime) -> dict[str, JSON]:
        feed, state = each.feed, each.state or FeedState(0, each.feed)
        lately = self._recent.feed(feed, stored=each.records)
        progress = lately.progress
        return {
            "feed": str(feed),
            "source": feed.source,
            "resource": feed.resource,
            "every": each.schedule.removeprefix("every "),
            "polled": RESOURCES[feed.resource].polled,
            "paused": each.paused,
            "records": each.records,
            "events": state.sequence,
            "read_at": write_moment(each.read_at),
            "watermark": write_moment(each.seen_until),
            "pass_at": write_moment(state.full.ended_at if state.full else None),
            "expected_at": write_moment(each.expected_at),
            "last_change_at": write_moment(each.changed_at),
            # Without the current minute: its value would change with every read, and the page computes it of read_at.
            "freshness": _describe_series(lately.end, values=[*map(_round, lately.freshness[:-1]), None]),
            "interval": {"kept": lately.kept, "late": lately.late},
            # The store has it a minute late; until then it is told how long the first changes took to be stored.
            "delay": _describe_feed_delay(each) or _describe_delay(lately.delay),
            "goal": None if each.freshness_goal is None else each.freshness_goal.total_seconds(),
            "goal_share": each.goal_share,
            "progress": progress
            and {
                "kind": progress.kind,
                "pages": progress.pages,
                "records": progress.records,
                "expected": progress.expected,
                "began_at": write_moment(progress.began_at),
                "ends_at": write_moment(progress.ends_at),
            },
            "learned": [list(pair) for pair in each.learned],
            "remarks": list(describe_feed(each, at)),
            "problem": state.problem,
            "held": state.held,
            "drift": describe_drift(each),
            "quarantined": state.quarantined,
            "bad": describe_quarantine(each),
            "gap": describe_gap(each),
        }

    def _describe_budget(self, name: str, settings: SourceSettings, account: str) -> JSON:
        lately = self._recent.budget(name)
        kinds: dict[str, Sequence[float | None]] = {kind: list(counts) for kind, counts in lately.kinds.items()}
        return {
            "source": name,
            "account": account,  # the limit is that of the API key
            "limit": lately.limit or settings.requests_per_minute,
            "allowed": int(settings.requests_per_minute * settings.share),
            "used": lately.used,
            "remaining": lately.remaining,
            **_describe_series(lately.end, kinds=kinds | {LEFT: list(lately.left)}),
        }

    def _describe_sink(self, state: SinkState, kind: str, silence: Silence, reasons: Sequence[str]) -> JSON:
        lately, found = self._recent.sink(state.name), state.found
        return msgspec.structs.asdict(describe_sink(state, silence)) | {
            "type": kind,
            "reason": state.paused or (found.reason if found else ""),
            "since": write_moment(state.paused_at or (found.since if found else None)),
            "rate": _describe_series(lately.end, values=list(lately.delivered)),
            "delay": _describe_delay(lately.delay),
            "reasons": list(reasons),
        }


def _describe_series(end: datetime, **series: JSON) -> dict[str, JSON]:
    return {"step": STEP.total_seconds(), "end": write_moment(end), **series}


def _describe_delay(delay: Delay | None) -> JSON:
    if delay is None:
        return None
    return {"p50": _round(delay.p50.total_seconds()), "p99": _round(delay.p99.total_seconds()), "count": delay.count}


def _describe_feed_delay(each: FeedStatus) -> JSON:
    whole = _describe_delay(each.delays.whole)
    if whole is None:
        return None
    estimated = not each.is_dated
    sinks = [
        {**_describe_delay(delay), "sink": sink, "estimated": estimated} for sink, delay in each.delays.sinks.items()
    ]
    return {**whole, "estimated": estimated, "sinks": sinks}


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3 if seconds < 1 else 1)
