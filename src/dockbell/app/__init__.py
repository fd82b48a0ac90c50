"""The composition root: puts store, sources, agents and sinks together from a configuration, and runs them.

The package itself offers only what opens one thing that a configuration names (``opening``), so that a command which
reads the store starts quickly. The rest is imported from its module:

- ``agents``: opens all things of a configuration, and follows a reload. ``source_agents``: one source, which is loaded,
  works and ends by itself. ``agent_task``: one agent's task.
- ``revisions``: the configuration that several processes follow. ``source_edits``: changes its sources.
- ``process``: runs the daemon until a signal. ``daemon``: runs the agents. ``scheduler``: when. ``systemd``: notifies
  the service manager. ``serving``: the web server. ``sharing``: this process's share of the sources.
- ``janitor``: prunes the store. ``command_runner``: runs an operator's commands. ``once``: one round without a daemon.
"""

from __future__ import annotations

from dockbell.app.opening import (
    back_up,
    configure,
    find_holder,
    load_config,
    load_newest,
    load_place,
    move_store,
    now,
    open_command_store,
    open_configurations,
    open_read_store,
    open_sink,
    open_source,
    probe_store,
    probe_web,
    take_store_back,
)

__all__ = [
    "back_up",
    "configure",
    "find_holder",
    "load_config",
    "load_newest",
    "load_place",
    "move_store",
    "now",
    "open_command_store",
    "open_configurations",
    "open_read_store",
    "open_sink",
    "open_source",
    "probe_store",
    "probe_web",
    "take_store_back",
]
