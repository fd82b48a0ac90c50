"""Reports messages that the broker does not take, without filling the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dockbell.telemetry import SinkOmits, Telemetry

_EACH: Final = 16
"""So many topics are reported one by one; after that, one each time their number has doubled."""
_MOST: Final = 1 << 14
"""The most topics that are remembered; further ones are not reported."""
_SHOWN: Final = 200


class Omissions:
    """Reports each topic that is left out, once.

    Args:
        name: The sink's.
        telemetry: Where to.
        keys: The key of the settings for each of our own topics.
    """

    def __init__(self, name: str, telemetry: Telemetry, keys: Mapping[str, str]) -> None:
        self._name = name
        self._telemetry = telemetry
        self._keys = keys
        self._states: set[str] = set()

    def report_status(self, topic: str, reason: str) -> None:
        """Report that a message about ourselves is left out, and how to fix it."""
        self._report(topic, f'{reason}; allow it at the broker, or set {self._keys[topic]} = ""')

    def report_state(self, topic: str, reason: str) -> None:
        """Report, the first time, that the state of a record is not retained."""
        if topic in self._states or len(self._states) >= _MOST:
            return
        self._states.add(topic)
        count = len(self._states)
        if count <= _EACH:
            self._report(topic, reason)
        elif count.bit_count() == 1:
            self._report(topic, f"{reason}, as {count - 1} others")

    def _report(self, topic: str, reason: str) -> None:
        self._telemetry.emit(SinkOmits(self._name, topic[:_SHOWN], reason))
