"""The messages that a broker does not take of those that dockbell publishes about itself: status and positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio

from dockbell.sinks.mqtt.publication import Publication

FORBIDDEN: Final = "the broker closes the connection on it"
IGNORED: Final = "the broker never acknowledges it"

_DROPS_MOST: Final = 2
_TRY_AGAIN: Final = timedelta(hours=1)
"""How long a message is left out: the broker's rules may change."""

_clock: Final = anyio.current_time


class StatusMessages:
    """Which messages have cost connections: by topic, and whether they are retained.

    Args:
        omit: Called with the topic of a message that is left out from now on, and the reason.
    """

    def __init__(self, omit: Callable[[str, str], None]) -> None:
        self._omit = omit
        self._suspects: set[tuple[str, bool]] = set()
        self._drops: Counter[tuple[str, bool]] = Counter()
        self._left_out: dict[tuple[str, bool], tuple[float, str]] = {}

    def is_suspect(self, message: Publication) -> bool:
        """Return whether a message must go out with nothing else in flight, to see whether it is to blame."""
        return _kind(message) in self._suspects

    def is_left_out(self, message: Publication) -> bool:
        """Return whether a message must not be sent."""
        return bool(self.find_obstacle(message))

    def find_obstacle(self, message: Publication) -> str:
        """Return why a message must not be sent; empty where it may be."""
        until, reason = self._left_out.get(_kind(message), (float("-inf"), ""))
        return reason if _clock() < until else ""

    def note_drop(self, message: Publication, *, is_culprit: bool) -> None:
        """Note that the broker closed the connection while a message was in flight; as the culprit it was alone."""
        kind = _kind(message)
        self._suspects.add(kind)
        self._drops[kind] += is_culprit
        if is_culprit and self._drops[kind] >= _DROPS_MOST:
            self._leave_out(message, FORBIDDEN)

    def note_silence(self, message: Publication) -> None:
        """Note that the broker has acknowledged later publications, but not this message."""
        self._leave_out(message, IGNORED)

    def _leave_out(self, message: Publication, reason: str) -> None:
        self._left_out[_kind(message)] = _clock() + _TRY_AGAIN.total_seconds(), reason
        self._omit(message.topic, reason)

    def acquit(self, message: Publication) -> None:
        """Note that the broker has answered a message."""
        self._suspects.discard(_kind(message))
        self._drops.pop(_kind(message), None)


def _kind(message: Publication) -> tuple[str, bool]:
    return message.topic, message.retain
