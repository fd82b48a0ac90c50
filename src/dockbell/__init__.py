"""Turns a polled logistics API into events on MQTT and webhooks.

The tree is the architecture, and ``docs/architecture.md`` is the way through it; imports run downward only:

- ``cli``: the commands. ``demo``: everything embedded, no configuration.
- ``app``: the composition root. It puts the parts together, schedules and runs them.
- ``detection``: from the API's answers to snapshots and events. ``delivery``: from the outbox to the receivers.
- ``sources``, ``stores``, ``sinks``: the API, the database, the receivers. ``web``: the status page, pull feeds and
  stored records, metrics and health, over HTTP.
- ``admin``: what an operator may ask and do. ``telemetry``: a fact once, to logs, metrics and the page.
- ``ports``: what the daemon needs of the outside. ``net``, ``host``: what adapters share of the network and of this
  machine.
- ``core``: the decisions, pure. ``config``: TOML to frozen models. ``condition``: what conditions cost and say.
- ``sandbox``: the whole API, served with activity; a program of its own. ``subscriber``: for those who receive events.
  ``testing``: for those who write sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dockbell._version import __version__

if TYPE_CHECKING:
    from dockbell.sources import InventoryClient

__all__ = ["InventoryClient", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the client only when it is asked for: the command line starts without httpx."""
    if name == "InventoryClient":
        from dockbell.sources import InventoryClient  # noqa: PLC0415

        return InventoryClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
