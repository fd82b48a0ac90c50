"""An implementation of the whole API with realistic, moving records, to develop against; see docs/sandbox.md.

A program of its own: it knows nothing of dockbell but its errors.

- ``sandbox``: the whole, put together. ``server``: it on a port.
- ``options``: what can be chosen. ``settings``: what is chosen now.
- ``catalog``: the five resources as the specification has them. ``table``: the records of one, indexed.
- ``words``, ``records``, ``seed``: what the records say at the start. ``form``, ``moments``: how it is written.
- ``world``: all tables and the change log. ``replica``: tables that come later.
- ``orders``, ``goods``, ``activity``: how the records move. ``edits``: how they are moved on request.
- ``parameters``, ``query``: what is asked. ``ordering``, ``cursors``, ``paging``, ``embedding``, ``shaping``: what is
  answered. ``api``: the endpoints.
- ``gate``, ``limits``, ``faults``, ``bodies``, ``refusal``: not answering one, or badly. ``aim``: which one.
- ``answers``, ``transfer``: what HTTP does with answers. ``control``: the sandbox's own endpoints.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dockbell.sandbox.options import SandboxOptions
    from dockbell.sandbox.sandbox import Sandbox
    from dockbell.sandbox.server import serve
    from dockbell.sandbox.world import LoggedChange

__all__ = ["LoggedChange", "Sandbox", "SandboxOptions", "serve"]

_HOMES: Final = {"LoggedChange": "world", "Sandbox": "sandbox", "SandboxOptions": "options", "serve": "server"}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: the command line starts without starlette."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
