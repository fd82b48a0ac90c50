"""One complete answer of the API, and the statuses that are no errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

NOT_FOUND: Final = frozenset({404, 410})
"""What is asked for does not exist, or no longer."""
NOT_MODIFIED: Final = 304
"""What was asked for is what was given before, under the same ``ETag``."""


@dataclass(frozen=True, slots=True)
class Response:
    """One complete answer.

    Attributes:
        status: The HTTP status.
        headers: By name in lower case.
        body: Without its content coding.
        sent_at: Our time before the request was sent.
        answered_at: Our time when the head of the answer came.
        received_at: Our time when the answer was complete.
        ticks: Our monotonic clock before the request was sent, as the time since its origin.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_at: datetime
    answered_at: datetime
    received_at: datetime
    ticks: timedelta = timedelta(0)
