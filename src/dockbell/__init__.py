"""Turns a polled logistics API into events on MQTT and webhooks.

The tree is the architecture; imports run downward only:

- ``cli``: the commands. ``demo``: everything embedded, no configuration.
- ``app``: puts the parts together and runs them.
- ``poller``, ``reconciler``, ``relay``, ``janitor``: the agents, each ``run()`` around ``run_once()``;
  ``scheduler``: when they run; ``sources``, ``stores``, ``sinks``: the API, the database, the receivers.
- ``reading``: one run over a feed, from the first page to the last, which poller and reconciler share.
- ``operations``: what an operator may ask and do. ``telemetry``: a fact once, to logs and metrics.
- ``ports``: what agents need of the outside. ``network``: whom to trust, and words for what goes wrong.
- ``core``: the decisions, pure. ``config``, ``errors``.
- ``sandbox``: the whole API, served with activity; a program of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dockbell.sources import InventoryClient

__all__ = ["InventoryClient", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the client only when it is asked for: the command line starts without httpx."""
    if name == "InventoryClient":
        from dockbell.sources import InventoryClient  # noqa: PLC0415

        return InventoryClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
