"""The conformance suite that every sink must pass, for the tests of those who write sinks; it needs pytest.

In short: implement :class:`Receiver` over a real receiver of the sink's kind, and subclass :class:`SinkConformance`.
See ``docs/how-to/add-a-sink.md``.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("dockbell.testing.conformance", "dockbell.testing.rig")

from dockbell.testing.conformance import SinkConformance  # noqa: E402  # its asserts are rewritten now
from dockbell.testing.outbox import Outbox, open_outbox  # noqa: E402
from dockbell.testing.receiver import Ability, Arrival, Arrivals, Flight, Receiver  # noqa: E402
from dockbell.testing.rig import Clock, Life, Rig, open_rig, until  # noqa: E402

__all__ = [
    "Ability",
    "Arrival",
    "Arrivals",
    "Clock",
    "Flight",
    "Life",
    "Outbox",
    "Receiver",
    "Rig",
    "SinkConformance",
    "open_outbox",
    "open_rig",
    "until",
]
