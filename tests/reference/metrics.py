"""``docs/reference/metrics.md``: every metric as it describes itself."""

from __future__ import annotations

from typing import Final

from dockbell.web.metrics import describe_metrics
from tests.reference.markdown import code, escape, page, table

_INTRODUCTION: Final = """\
With `[web]` in the configuration, `GET /metrics` answers in the text format of Prometheus. Units are base units, and
counters end with `_total`. Label values are names from your configuration and a few fixed words, never keys of records,
so their number is bounded. `source` and `resource` name a feed, `sink` names a sink. The endpoint also reports the
metrics of the process itself, `process_…`."""


def write() -> str:
    """Return the page."""
    rows = [
        (code(each.name), each.kind, ", ".join(map(code, each.labels)), escape(each.help))
        for each in sorted(describe_metrics(), key=lambda each: each.name)
    ]
    return page("Metrics", _INTRODUCTION, table(("metric", "type", "labels", "meaning"), rows))
