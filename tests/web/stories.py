"""What happens to the store of a site beside it: deliveries that fail."""

from __future__ import annotations

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import DeadLetter, Settlement
from tests.fakes import NOON
from tests.web.sites import Served


async def bury_letters(
    served: Served, sink: str, feed: Feed, *letters: tuple[int, str], error: str = "HTTP 400"
) -> None:
    """Make dead letters of events, each a sequence and a key."""
    await served.store.sink(sink).enroll("beginning")
    dead = [DeadLetter(feed, key, sequence, 3, NOON, error) for sequence, key in letters]
    await served.store.sink(sink).settle(Settlement(dead=dead))
