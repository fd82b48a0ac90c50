"""The permission of a receiver to be sent events, as CloudEvents has senders ask for it, against abuse.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/http-webhook.md, 4: an OPTIONS request names who wants to
send, and the answer who may, and how many requests a minute. Permission by a callback later on is not waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.model import Outcome, OutcomeKind

_ASKED_EVERY: Final = timedelta(hours=1)
_ANYBODY: Final = "*"


class Permission:
    """Whether one receiver lets us send, and how often.

    Attributes:
        origin: Who we are, a name in the DNS.
        turn: Held while it is asked for.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.turn = anyio.Lock()
        self._of: object = None
        self._until = 0.0
        self._interval = 0.0  # seconds between two requests
        self._next_at = 0.0

    def holds(self, target: object) -> bool:
        return self._of is target and anyio.current_time() < self._until

    def forget(self) -> None:
        """Ask again before the next event: the receiver does not take it."""
        self._of = None

    def judge(self, target: object, status: int, headers: Iterable[tuple[bytes, bytes]]) -> Outcome | None:
        """Note what a receiver answers; None where it permits, else what that means for the event at hand."""
        said = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
        allowed = said.get(b"webhook-allowed-origin", "")
        if not 200 <= status < 300 or allowed.lower() not in (self.origin.lower(), _ANYBODY):  # noqa: PLR2004  # success
            named = f'the receiver permits "{allowed[:80]}"' if allowed else "the receiver names no permitted origin"
            reason = f"{named} in its answer to OPTIONS, HTTP {status}"
            return Outcome(OutcomeKind.UNREACHABLE, reason, status=status)
        rate = said.get(b"webhook-allowed-rate", "")
        self._interval = 60 / int(rate) if re.fullmatch("[1-9][0-9]{0,8}", rate) else 0.0
        self._of, self._until = target, anyio.current_time() + _ASKED_EVERY.total_seconds()
        return None

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        if self._interval:
            now = anyio.current_time()
            at = max(now, self._next_at)
            self._next_at = at + self._interval
            await anyio.sleep(at - now)
