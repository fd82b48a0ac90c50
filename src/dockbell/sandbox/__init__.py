"""An implementation of the whole API with realistic, moving records, to develop against; see docs/sandbox.md.

A program of its own: of dockbell it knows the errors and ``net`` only.

- ``sandbox``: the whole, put together, and on a port. ``options``: what can be chosen, and what is chosen now.
- ``words``, ``records``, ``seed``: what the records say at the start. ``form``: how they are written.
- ``table``, ``world``: where they are kept, with the log of their changes.
- ``activity``, ``goods``: how they move.
- ``api``: the endpoints. ``requests``, ``paging``, ``shaping``: what is asked, and what a page shows.
- ``gate``, ``faults``: not answering a request, or badly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dockbell.sandbox.options import SandboxOptions
    from dockbell.sandbox.sandbox import Sandbox, serve
    from dockbell.sandbox.world import LoggedChange

__all__ = ["LoggedChange", "Sandbox", "SandboxOptions", "serve"]

_HOMES: Final = {"LoggedChange": "world", "Sandbox": "sandbox", "SandboxOptions": "options", "serve": "sandbox"}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: the command line starts without starlette."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
