"""The composition root: puts store, sources, agents and sinks together from a configuration, and runs them.

- ``opening``: opens one thing that a configuration names. ``crew``: all of them, in line with a configuration, which
  may be another one at any time. ``daemon``: the crew at work until it is told to stop. ``once``: one round, a wish.
- ``difference``: what to begin and to end. ``post``: a piece of work that can be ended by itself.
"""

from __future__ import annotations

from dockbell.app.crew import Crew, assemble
from dockbell.app.daemon import run, run_until_signal
from dockbell.app.once import run_once, run_purge, run_wishes
from dockbell.app.opening import (
    back_up,
    configure,
    find_holder,
    load_config,
    now,
    open_desk,
    open_sink,
    open_source,
    open_view,
    probe_store,
    probe_web,
)

__all__ = [
    "Crew",
    "assemble",
    "back_up",
    "configure",
    "find_holder",
    "load_config",
    "now",
    "open_desk",
    "open_sink",
    "open_source",
    "open_view",
    "probe_store",
    "probe_web",
    "run",
    "run_once",
    "run_purge",
    "run_until_signal",
    "run_wishes",
]
