"""When something is due again that happens at an interval or by a crontab line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_GRAIN: Final = timedelta(microseconds=1)
"""What makes APScheduler's "not before" an "after"."""


def next_time(every: timedelta | str, after: datetime) -> datetime:
    """Return when something is due that was last done at ``after``, at an interval or by a crontab line."""
    if isinstance(every, timedelta):
        return after + every
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415  # 30 ms that most commands need not take

    due: datetime | None = CronTrigger.from_crontab(every, UTC).get_next_fire_time(None, after + _GRAIN)
    assert due is not None
    return due
