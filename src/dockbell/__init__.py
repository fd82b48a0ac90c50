"""Turns a polled logistics API into events on MQTT and webhooks.

The tree is the architecture, and ``docs/architecture.md`` is the way through it; imports run downward only:

- ``cli``: the commands. ``demo``: everything embedded, no configuration.
- ``app``: puts the parts together and runs them. ``attendant``: sees to what operators wish.
- ``poller``, ``reconciler``, ``detailer``, ``relay``, ``herald``, ``janitor``: the agents, each ``run()`` around
  ``run_once()``; ``scheduler``: when they run. ``sources``, ``stores``, ``sinks``: the API, the database, the
  receivers.
- ``web``: the status page, pull feeds and stored records, metrics and health, over HTTP.
- ``reader``: a run over a feed, from the first page to the last, which poller and reconciler share; ``walk``: its way
  from page to page; ``tending``: what becomes of a feed when something goes wrong; ``cleaning``: what it must no longer
  store. ``intake``: what a relay reads for its sink; ``shelf``: the stored records as a sink may see them.
- ``operations``: what an operator may ask and do. ``telemetry``: a fact once, to logs and metrics.
- ``ports``: what agents need of the outside. ``network``, ``listening``: whom to trust, words for what goes wrong,
  and a quiet server on a socket. ``ownership``: files where others may write too. ``supervisor``: telling systemd how
  it stands.
- ``core``: the decisions, pure. ``config``, ``errors``. ``condition``: what conditions cost and say; ``evaluator``:
  judges those that may take long in a process of their own.
- ``sandbox``: the whole API, served with activity; a program of its own.
- ``subscriber``: for those who receive events. ``testing``: for those who write sinks.
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
