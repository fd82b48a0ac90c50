"""What dockbell says of itself, and which of it a broker does not let be said: it hangs up on it, or is silent."""

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
"""How long a word is left out: it may be allowed one day."""

_clock: Final = anyio.current_time


class StatusMessages:
    """Which words have cost connections: by topic, and whether they are retained.

    Args:
        omit: Told the topic of a word that is left out from now on, and why.
    """

    def __init__(self, omit: Callable[[str, str], None]) -> None:
        self._omit = omit
        self._suspects: set[tuple[str, bool]] = set()
        self._drops: Counter[tuple[str, bool]] = Counter()
        self._left_out: dict[tuple[str, bool], tuple[float, str]] = {}

    def is_suspect(self, word: Publication) -> bool:
        """Return whether it must go out with nothing else in flight, to see whether it is to blame."""
        return _kind(word) in self._suspects

    def is_left_out(self, word: Publication) -> bool:
        """Return whether it is not to be sent."""
        return bool(self.objection(word))

    def objection(self, word: Publication) -> str:
        """Return why it is not to be sent, empty when it is."""
        until, reason = self._left_out.get(_kind(word), (float("-inf"), ""))
        return reason if _clock() < until else ""

    def note_drop(self, word: Publication, *, is_culprit: bool) -> None:
        """Note that the broker closed the connection while this was in flight; as the culprit it was so alone."""
        kind = _kind(word)
        self._suspects.add(kind)
        self._drops[kind] += is_culprit
        if is_culprit and self._drops[kind] >= _DROPS_MOST:
            self._leave_out(word, FORBIDDEN)

    def note_silence(self, word: Publication) -> None:
        """Note that the broker does not acknowledge this, but does what was sent later."""
        self._leave_out(word, IGNORED)

    def _leave_out(self, word: Publication, reason: str) -> None:
        self._left_out[_kind(word)] = _clock() + _TRY_AGAIN.total_seconds(), reason
        self._omit(word.topic, reason)

    def acquit(self, word: Publication) -> None:
        """Note that the broker has answered it."""
        self._suspects.discard(_kind(word))
        self._drops.pop(_kind(word), None)


def _kind(word: Publication) -> tuple[str, bool]:
    return word.topic, word.retain
