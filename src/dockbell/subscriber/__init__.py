"""For receivers of events: verify, read, drop what was seen, keep a copy of the records, notice what is missing.

Nothing of the daemon is imported, nor needs to run here; each part works without the others:

- :class:`Verifier`: is this webhook genuine?
- :func:`parse`: from the bytes of an event, however they came, to an :class:`Event` with typed ``data``.
- :class:`Seen`: an event may come more than once; bounded memory of ids, or your own :class:`SeenIds`.
- :class:`State`: a copy of the records, made of their events in whatever order they come.
- :class:`RevisionGaps`, :class:`SequenceGaps`: what did not arrive, where that can be known.
- ``dockbell.subscriber.repair``: what did not arrive, read from dockbell's pull feeds. It alone needs httpx.

``docs/how-to/subscribe.md`` has the whole story with examples.
"""

from __future__ import annotations

from dockbell.subscriber.errors import (
    GapsUnknowable,
    NotAnEvent,
    NotGenuine,
    PositionLost,
    PullRefused,
    PullUnavailable,
    SubscriberError,
)
from dockbell.subscriber.events import (
    Change,
    Data,
    Event,
    Gap,
    Held,
    Named,
    Notice,
    Rebaselined,
    Reconciled,
    Statement,
    Test,
    Unknown,
    Verifier,
    parse,
    parse_batch,
)
from dockbell.subscriber.state import Copy, Effect, Missing, RevisionGaps, Seen, SeenIds, SequenceGaps, State, Taken

__all__ = [
    "Change",
    "Copy",
    "Data",
    "Effect",
    "Event",
    "Gap",
    "GapsUnknowable",
    "Held",
    "Missing",
    "Named",
    "NotAnEvent",
    "NotGenuine",
    "Notice",
    "PositionLost",
    "PullRefused",
    "PullUnavailable",
    "Rebaselined",
    "Reconciled",
    "RevisionGaps",
    "Seen",
    "SeenIds",
    "SequenceGaps",
    "State",
    "Statement",
    "SubscriberError",
    "Taken",
    "Test",
    "Unknown",
    "Verifier",
    "parse",
    "parse_batch",
]
