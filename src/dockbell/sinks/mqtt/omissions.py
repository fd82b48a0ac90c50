"""What is not published because the broker does not take it, told without filling the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dockbell.telemetry import SinkOmits, Telemetry

_EACH: Final = 16
"""So many topics are told one by one; after that each time their number has doubled."""
_MOST: Final = 1 << 14
"""So many are remembered, and no more told."""
_SHOWN: Final = 200


class Omissions:
    """Tells each topic that is left out once.

    Args:
        name: The sink's.
        telemetry: Told.
        keys: Which key of the settings chose a topic of ours.
    """

    def __init__(self, name: str, telemetry: Telemetry, keys: Mapping[str, str]) -> None:
        self._name = name
        self._telemetry = telemetry
        self._keys = keys
        self._states: set[str] = set()

    def tell_word(self, topic: str, reason: str) -> None:
        """Tell that something about ourselves is left out, and what to do."""
        self._tell(topic, f'{reason}; allow it at the broker, or set {self._keys[topic]} = ""')

    def tell_state(self, topic: str, reason: str) -> None:
        """Tell that nothing is retained of a record, the first time."""
        if topic in self._states or len(self._states) >= _MOST:
            return
        self._states.add(topic)
        count = len(self._states)
        if count <= _EACH:
            self._tell(topic, reason)
        elif count.bit_count() == 1:
            self._tell(topic, f"{reason}, as {count - 1} others")

    def _tell(self, topic: str, reason: str) -> None:
        self._telemetry.emit(SinkOmits(self._name, topic[:_SHOWN], reason))
