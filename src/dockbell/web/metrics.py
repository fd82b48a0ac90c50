"""``GET /metrics``: counters since the start, and the status as gauges, for Prometheus."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio import to_thread
from prometheus_client import exposition
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from dockbell._version import __version__
from dockbell.admin.as_json import CONDITIONS, find_condition
from dockbell.admin.reasons import find_reasons
from dockbell.admin.status import FeedStatus, Quiet, Status
from dockbell.config import Config
from dockbell.core.comparing.drift import Decision
from dockbell.core.model import Feed, RunKind
from dockbell.core.planning.forecast import predict_wait
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.core.running.budget import Budget
from dockbell.errors import StoreError
from dockbell.ports import FeedState, SinkState
from dockbell.telemetry.metrics import DESCRIPTIONS, Description, Metrics
from dockbell.telemetry.recent import Recent
from dockbell.telemetry.series import OTHERS, BudgetLately, FeedLately

Number: TypeAlias = tuple[str, tuple[str, ...], float]
"""The name of a gauge without ``dockbell_``, the values of its labels, and its value."""

_FEED: Final = ("source", "resource")
_SUBJECTS: Final = ("daemon", "store", "web", "source", "feed", "sink")

GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "status_complete": ("1 if these numbers include those of the store, 0 if the store did not answer.", ()),
    "build_info": ("Always 1; the labels identify this dockbell.", ("version", "python")),
    "reasons": ("Reasons for an operator to look, as dockbell status counts them.", ("about",)),
    "hindrances": ("Reasons that keep dockbell from doing its work now; /readyz reports the same.", ("about",)),
    "store_writable": ("1 if the store accepts writes, 0 if it is full or does not answer.", ()),
    "store_used_bytes": ("Bytes of its file that the store uses.", ()),
    "store_reusable_bytes": ("Free bytes in the store's file, which the store uses again.", ()),
    "store_disk_free_bytes": ("Free bytes on the disk of the store.", ()),
    "store_disk_size_bytes": ("Size of the disk of the store.", ()),
    "feed_freshness_seconds": (
        "Age of what dockbell knows about a feed; none before the first complete reading.",
        _FEED,
    ),
    "feed_read_timestamp_seconds": ("When a feed was last read completely.", _FEED),
    "feed_read_due_timestamp_seconds": ("When a feed should have been read completely again at the latest.", _FEED),
    "feed_interval_seconds": ("Planned time from one reading to the next; none with a cron.", _FEED),
    "feed_predicted_delay_seconds": ("Mean time that changes wait for their reading, by the plan.", _FEED),
    "feed_slower_than_planned": (
        "1 if changes have waited over 1.5 times as long as planned for an hour.",
        _FEED,
    ),
    "feed_freshness_goal_seconds": ("Configured goal for the freshness of a feed's changes.", _FEED),
    "feed_freshness_goal_met_ratio": (
        "Share of the last hour's changes that met the freshness goal; none without changes.",
        _FEED,
    ),
    "feed_requests_short": ("1 while there are too few requests for the configured interval.", _FEED),
    "feed_pass_timestamp_seconds": ("When a feed was last read whole.", _FEED),
    "feed_pass_due_timestamp_seconds": (
        "When a polled feed should have been read whole again at the latest; until then, deletions are not seen.",
        _FEED,
    ),
    "feed_failed_passes": ("Incomplete passes since the last complete one.", _FEED),
    "feed_change_timestamp_seconds": ("When the last kept change of a feed was stored.", _FEED),
    "feed_watermark_timestamp_seconds": ("Time up to which polls have proven that nothing is missing.", _FEED),
    "feed_records": ("Stored records.", _FEED),
    "feed_last_sequence": ("Number of the last event.", _FEED),
    "feed_lookback_seconds": ("How far before the watermark polls begin.", _FEED),
    "feed_lateness_seconds": (
        "How long after their timestamps records become visible, close to the worst case.",
        _FEED,
    ),
    "feed_held_deletions": ("Absent records held because they are too many to believe; an operator decides.", _FEED),
    "feed_held_readings": ("Readings held because they are older than the stored records.", _FEED),
    "feed_held_drift": (
        "1 while fields that were added, removed or reformatted in many records wait for an operator.",
        _FEED,
    ),
    "feed_quarantined_records": ("Records that dockbell cannot read or tell apart.", _FEED),
    "feed_paused": ("1 while the source of a feed is paused, and the feed is not read.", _FEED),
    "feed_stopped": ("1 while a feed is stopped by a problem that an operator must fix.", _FEED),
    "feed_pass_progress_ratio": (
        "Progress of the running pass, relative to the last pass; none while no pass runs.",
        _FEED,
    ),
    "feed_silence": (
        "1 for the reason why a feed is silent: quiet source, blind poller, or filters.",
        (*_FEED, "kind"),
    ),
    "budget_limit_requests": ("Requests per minute that the key allows to all its users.", ("source",)),
    "budget_allowed_requests": ("Requests per minute that dockbell allows itself.", ("source",)),
    "budget_used_requests": ("Requests that dockbell sent within the last minute.", ("source",)),
    "budget_others_requests": ("Requests of the key's other users in the last full minute.", ("source",)),
    "budget_remaining_requests": ("Requests left in the API's window, if the API reports them.", ("source",)),
    "sink_owed_events": ("Events that a sink has not settled.", ("sink",)),
    "sink_oldest_owed_age_seconds": ("How long the oldest owed event has waited; 0 if there is none.", ("sink",)),
    "sink_blocked_keys": ("Keys that wait for another attempt.", ("sink",)),
    "sink_held_keys": ("Keys that wait behind a dead letter until an operator decides.", ("sink",)),
    "sink_dead_letters": ("Dead letters that an operator has neither retried nor discarded.", ("sink",)),
    "sink_waiting_replays": ("Events that wait to be sent again because an operator requested it.", ("sink",)),
    "sink_condition": ("1 for the last known condition of the receiver.", ("sink", "condition")),
    "sink_silence": (
        "1 for the reason why a sink is silent: quiet feeds, blind feeds, or its filters.",
        ("sink", "kind"),
    ),
}
"""What each of them says, and its labels, by its name."""
_PATIENCE: Final = timedelta(seconds=5)
_OPENMETRICS: Final = "application/openmetrics-text"


def _describe_status(status: Status) -> Iterator[Number]:
    reasons = find_reasons(status)
    for about in _SUBJECTS:
        yield "reasons", (about,), sum(each.kind == about for each in reasons)
        yield "hindrances", (about,), sum(each.kind == about and each.hinders for each in reasons)
    if (footprint := status.footprint) is not None:
        yield "store_used_bytes", (), footprint.used
        yield "store_reusable_bytes", (), footprint.free
        yield "store_disk_free_bytes", (), footprint.left
        yield "store_disk_size_bytes", (), footprint.disk
    for feed in status.feeds:
        yield from _describe_feed(feed, status.at)
    for sink in status.sinks:
        yield from _describe_sink(sink, status)


def _describe_pass(feed: Feed, lately: FeedLately) -> Iterator[Number]:
    if lately.progress is not None and lately.progress.expected:
        ratio = min(lately.progress.records / lately.progress.expected, 1)
        yield "feed_pass_progress_ratio", (feed.source, feed.resource), ratio


def _describe_budget(source: str, config: Config, lately: BudgetLately) -> Iterator[Number]:
    settings = config.sources[source]
    allowed = Budget(settings.requests_per_minute, settings.share).allowed
    yield "budget_limit_requests", (source,), lately.limit or settings.requests_per_minute
    yield "budget_allowed_requests", (source,), allowed
    yield "budget_used_requests", (source,), lately.used
    yield "budget_others_requests", (source,), lately.kinds[OTHERS][-2]
    if lately.remaining is not None:
        yield "budget_remaining_requests", (source,), lately.remaining


def _describe_feed(each: FeedStatus, at: datetime) -> Iterator[Number]:
    feed, state = (each.feed.source, each.feed.resource), each.state or FeedState(0, each.feed)
    yield "feed_records", feed, each.records
    yield "feed_last_sequence", feed, state.sequence
    yield "feed_held_deletions", feed, state.held
    yield "feed_held_readings", feed, state.holds
    yield "feed_held_drift", feed, state.drift is not None and state.drift.decision is Decision.HOLD
    failing = state.failing.get(RunKind.PASS)
    yield "feed_failed_passes", feed, failing.count if failing else 0
    yield "feed_quarantined_records", feed, state.quarantined
    yield "feed_paused", feed, each.paused
    yield "feed_stopped", feed, bool(state.problem) and not each.paused
    yield from _name("feed_silence", feed, each.silence.kind, [kind for kind in Quiet if kind])
    if isinstance(each.every, timedelta):
        yield "feed_interval_seconds", feed, each.every.total_seconds()
        yield "feed_predicted_delay_seconds", feed, predict_wait(each.every).total_seconds()
        yield "feed_slower_than_planned", feed, each.delays.slow is not None
        yield "feed_requests_short", feed, StoredPlan.from_json(state.plan).is_short
    if each.freshness_goal is not None:
        yield "feed_freshness_goal_seconds", feed, each.freshness_goal.total_seconds()
        if (share := each.goal_share) is not None:
            yield "feed_freshness_goal_met_ratio", feed, share
    if each.lookback is not None:
        yield "feed_lookback_seconds", feed, each.lookback.total_seconds()
    moments = {
        "feed_read_timestamp_seconds": each.read_at,
        "feed_read_due_timestamp_seconds": each.expected_at,
        "feed_pass_timestamp_seconds": state.full.ended_at if state.full else None,
        "feed_pass_due_timestamp_seconds": each.pass_expected_at,
        "feed_change_timestamp_seconds": each.changed_at,
        "feed_watermark_timestamp_seconds": each.seen_until,
    }
    for name, moment in moments.items():
        if moment is not None:
            yield name, feed, moment.timestamp()
    if each.state is not None:
        yield "feed_lateness_seconds", feed, state.lateness.quantile(at).total_seconds()
    if (age := each.find_age(at)) is not None:
        yield "feed_freshness_seconds", feed, age.total_seconds()


def _describe_sink(state: SinkState, status: Status) -> Iterator[Number]:
    sink, at = (state.name,), status.at
    yield "sink_owed_events", sink, state.owed
    age = 0 if state.oldest is None else max((at - state.oldest).total_seconds(), 0)
    yield "sink_oldest_owed_age_seconds", sink, age
    yield "sink_blocked_keys", sink, state.blocked
    yield "sink_held_keys", sink, state.held
    yield "sink_dead_letters", sink, state.dead
    yield "sink_waiting_replays", sink, state.replays
    yield from _name("sink_condition", sink, find_condition(state), CONDITIONS)
    yield from _name("sink_silence", sink, status.silences[state.name].kind, [kind for kind in Quiet if kind])


def _name(gauge: str, labels: tuple[str, ...], word: str, words: Sequence[str]) -> Iterator[Number]:
    """Yield 1 for a word, and 0 for the others."""
    for each in words:
        yield gauge, (*labels, str(each)), each == word


class Scrape(msgspec.Struct, frozen=True):
    metrics: Metrics
    recent: Recent
    load: Callable[[], Awaitable[Status]]
    check_store: Callable[[], Awaitable[None]]
    """Returns after the writer of the store has answered; raises why the store cannot be written."""
    config: Callable[[], Config]
    turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)

    async def answer(self, request: Request) -> Response:
        """Answer with all metrics, in the accepted format; one request after the other.

        Gauges of the store are left out if the store does not answer within five seconds.
        """
        # https://prometheus.io/docs/instrumenting/content_negotiation/
        accepts_openmetrics = _OPENMETRICS in request.headers.get("accept", "")
        async with self.turn:
            numbers = await self._find_numbers()
            page = _Page(self.metrics.registry, numbers)
            write = openmetrics.generate_latest if accepts_openmetrics else exposition.generate_latest
            body = await to_thread.run_sync(partial(write, page))
        kind = openmetrics.CONTENT_TYPE_LATEST if accepts_openmetrics else exposition.CONTENT_TYPE_PLAIN_0_0_4
        return Response(body, media_type=kind)

    async def _find_numbers(self) -> Sequence[Number]:
        config = self.config()
        feeds = [Feed(each.source, each.resource) for each in config.feeds()]
        self.metrics.expect(feeds, config.sinks)
        status, is_writable = await self._load_status(), await self._can_write()
        return [
            ("status_complete", (), status is not None),
            ("store_writable", (), is_writable),
            ("build_info", (__version__, platform.python_version()), 1),
            *(() if status is None else _describe_status(status)),
            *chain.from_iterable(_describe_pass(feed, self.recent.feed(feed)) for feed in feeds),
            *chain.from_iterable(
                _describe_budget(source, config, self.recent.budget(source)) for source in config.sources
            ),
        ]

    async def _load_status(self) -> Status | None:
        """Return the status; None where the store does not answer in time."""
        with anyio.move_on_after(_PATIENCE.total_seconds()), suppress(StoreError):
            return await self.load()
        return None

    async def _can_write(self) -> bool:
        with anyio.move_on_after(_PATIENCE.total_seconds()), suppress(Exception):  # each means that it cannot
            await self.check_store()
            return True
        return False


class _Page(Collector):
    """The counters and the gauges, as one registry."""

    def __init__(self, registry: Collector, numbers: Sequence[Number]) -> None:
        self._registry = registry
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        families = {
            name: GaugeMetricFamily(f"dockbell_{name}", text, labels=labels) for name, (text, labels) in GAUGES.items()
        }
        for name, labels, value in self._numbers:
            families[name].add_metric(labels, value)
        yield from families.values()


def describe_metrics() -> Sequence[Description]:
    """Return all metrics but those of the process, for the documentation."""
    described = [Description(f"dockbell_{name}", "gauge", labels, text) for name, (text, labels) in GAUGES.items()]
    return [*DESCRIPTIONS, *described]
