"""The composition root: puts store, sources, agents and sinks together from a configuration, and runs them.

- ``opening``: opens one thing that a configuration names. ``agents``: all of them, in line with a configuration, which
  may be another one at any time. ``daemon``: the crew at work until it is told to stop. ``once``: one round, a wish.
- ``difference``: what to begin and to end. ``post``: a piece of work that can be ended by itself.
"""

from __future__ import annotations

from dockbell.app.agents import Agents, assemble
from dockbell.app.daemon import run, run_until_signal
from dockbell.app.once import run_commands, run_once, run_purge
from dockbell.app.opening import (
    back_up,
    configure,
    find_holder,
    load_config,
    now,
    open_command_store,
    open_read_store,
    open_sink,
    open_source,
    probe_store,
    probe_web,
)

__all__ = [
    "Agents",
    "assemble",
    "back_up",
    "configure",
    "find_holder",
    "load_config",
    "now",
    "open_command_store",
    "open_read_store",
    "open_sink",
    "open_source",
    "probe_store",
    "probe_web",
    "run",
    "run_commands",
    "run_once",
    "run_purge",
    "run_until_signal",
]
