"""The outcome that an HTTP response means."""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind

_RETRY_AFTER_MOST: Final = timedelta(hours=24)
_ASK_TO_WAIT: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


def judge(status: int, retry_after: str, dead_on: Container[int], now: datetime) -> Outcome:
    """Return the outcome of an attempt.

    Args:
        status: The status of the response.
        retry_after: Its Retry-After header; empty where there is none.
        dead_on: Statuses with which the receiver refuses an event for good.
        now: Our time.
    """
    if 200 <= status < 300:  # noqa: PLR2004  # the class of success, RFC 9110
        return DELIVERED
    reason = f"HTTP {status}"
    if status == HTTPStatus.GONE:
        return Outcome(OutcomeKind.CLOSED, reason)
    if status in _ASK_TO_WAIT:
        return Outcome(OutcomeKind.FAILED, reason, parse_retry_after(retry_after, now))
    if status in dead_on:
        return Outcome(OutcomeKind.REFUSED, reason)
    if 300 <= status < 400:  # noqa: PLR2004  # the class of redirects
        reason += ", redirects are not followed"
    return Outcome(OutcomeKind.FAILED, reason)


def parse_retry_after(value: str, now: datetime) -> timedelta | None:
    """Return the pause that a Retry-After header asks for, in either form (RFC 9110, 10.2.3), at most 24 hours."""
    if re.fullmatch(r"[0-9]+", value.strip()):
        return timedelta(seconds=min(float(value), _RETRY_AFTER_MOST.total_seconds()))
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(max(moment - now, timedelta(0)), _RETRY_AFTER_MOST)
    except (ValueError, OverflowError):
        return None
