"""``GET /metrics``: counters since the start and gauges of the status, for Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Final

import anyio
from anyio import to_thread
from prometheus_client import exposition
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.status import Status
from dockbell.config import Config
from dockbell.core.model import Feed
from dockbell.errors import StoreError
from dockbell.telemetry.metrics import Description, Metrics
from dockbell.telemetry.recent import Recent
from dockbell.web import gauges, params

_PATIENCE: Final = timedelta(seconds=5)
_OPENMETRICS: Final = "application/openmetrics-text"


class Scrape:
    """The endpoint.

    Args:
        metrics: The counters.
        recent: Recent measurements.
        load: Returns the status.
        check_store: Returns after the writer of the store has answered; raises why the store cannot be written.
        config: Returns the current configuration.
    """

    def __init__(
        self,
        metrics: Metrics,
        recent: Recent,
        load: Callable[[], Awaitable[Status]],
        check_store: Callable[[], Awaitable[None]],
        config: Callable[[], Config],
    ) -> None:
        self._metrics = metrics
        self._recent = recent
        self._load = load
        self._check_store = check_store
        self._config = config
        self._turn = anyio.Lock()

    async def answer(self, request: Request) -> Response:
        """Answer with all metrics, in the accepted format; one request after the other.

        Gauges of the store are left out if the store does not answer within five seconds.
        """
        params.read_query(request)
        # https://prometheus.io/docs/instrumenting/content_negotiation/
        accepts_openmetrics = _OPENMETRICS in request.headers.get("accept", "")
        async with self._turn:
            numbers = await self._find_numbers()
            page = _Page(self._metrics.registry, numbers)
            write = openmetrics.generate_latest if accepts_openmetrics else exposition.generate_latest
            body = await to_thread.run_sync(partial(write, page))
        kind = openmetrics.CONTENT_TYPE_LATEST if accepts_openmetrics else exposition.CONTENT_TYPE_PLAIN_0_0_4
        return Response(body, media_type=kind)

    async def _find_numbers(self) -> Sequence[gauges.Number]:
        config = self._config()
        feeds = [Feed(each.source, each.resource) for each in config.feeds()]
        self._metrics.expect(feeds, config.sinks)
        status, is_writable = await self._load_status(), await self._can_write()
        return [
            *gauges.describe_program(is_complete=status is not None, is_writable=is_writable),
            *(() if status is None else gauges.describe_status(status)),
            *chain.from_iterable(gauges.describe_pass(feed, self._recent.feed(feed)) for feed in feeds),
            *chain.from_iterable(
                gauges.describe_budget(source, config, self._recent.budget(source)) for source in config.sources
            ),
        ]

    async def _load_status(self) -> Status | None:
        """Return the status; None where the store does not answer in time."""
        with anyio.move_on_after(_PATIENCE.total_seconds()), suppress(StoreError):
            return await self._load()
        return None

    async def _can_write(self) -> bool:
        with anyio.move_on_after(_PATIENCE.total_seconds()), suppress(Exception):  # each means that it cannot
            await self._check_store()
            return True
        return False


class _Page(Collector):
    """The counters and the gauges, as one registry."""

    def __init__(self, registry: Collector, numbers: Sequence[gauges.Number]) -> None:
        self._registry = registry
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its samples."""
        yield from self._registry.collect()
        families = {
            name: GaugeMetricFamily(f"dockbell_{name}", text, labels=labels)
            for name, (text, labels) in gauges.GAUGES.items()
        }
        for name, labels, value in self._numbers:
            families[name].add_metric(labels, value)
        yield from families.values()


def describe_metrics() -> Sequence[Description]:
    """Return all metrics but those of the process, for the documentation."""
    described = [
        Description(f"dockbell_{name}", "gauge", labels, text) for name, (text, labels) in gauges.GAUGES.items()
    ]
    return [*Metrics().descriptions, *described]
