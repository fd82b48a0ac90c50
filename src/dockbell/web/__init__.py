"""What the daemon serves over HTTP: the pull feeds, and the stored records to begin them from.

- ``site``: the socket, and all of what follows on it until the daemon stops. ``connection``: limits of one connection.
- ``gate``: who may ask: the ``Host`` header, the token, the method; before anything is routed.
- ``feeds``: events of a feed after a position, at once or as soon as there are some. ``stream``: the same without end.
- ``state``: stored records, by pages or one by one. ``index``: what there is.
- ``waiting``: the readers that wait for events. ``question``: what a request asks for. ``position``, ``problem``.

Everything is read through a view of the store of its own, so that no reader ever delays a commit.
"""

from __future__ import annotations

from dockbell.web.site import Site

__all__ = ["Site"]
