"""What the daemon serves over HTTP: the status page, the pull feeds, numbers and health, and what an operator may do.

- ``site``: the socket, and all of what follows on it until the daemon stops. ``connection``: limits of one connection.
- ``places``: one table of all that there is, with whom it is for; ``place`` is its row, ``schemas`` the JSON of its
  answers, ``openapi`` what describes it for machines.
- ``gate``: who may ask, and what: before anything is routed. ``caller``: who that is, by ``tokens`` or ``session``;
  ``guesses`` lets nobody try many. ``headers``: what every answer bears.
- ``feeds``: events of a feed after a position, at once or as soon as there are some. ``stream``: the same without end.
- ``state``: stored records, by pages or one by one. ``index``: what there is. ``waiting``: the readers that wait.
- ``page/``: the status page, given out by ``assets``. ``live``: what it is told, seen by ``parts`` and put on one
  ``board`` for all. ``events``, ``letters``, ``standing``: what it asks for. ``actions``: what it does.
- ``health``, ``metrics``: what watches over the daemon asks.
- ``question``: what a request asks for. ``position``, ``summary``, ``problem``.

Everything is read through views of the store of its own, so that no reader ever delays a commit; what the page shows
through another than what the pull feeds do.
"""

from __future__ import annotations

from dockbell.web.site import Site

__all__ = ["Site"]
