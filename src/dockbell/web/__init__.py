"""The daemon's HTTP server: status page, pull feeds, stored records, metrics, health, and an operator's actions.

- ``site``: the socket and all parts. ``connection``, ``allowance``: limits of clients and memory.
- ``routes``: the table of all routes; ``route`` is its row, and makes the OpenAPI document.
- ``gate``: checks a request before it is routed. ``client``: who sent it, proven by ``tokens`` or ``session``.
  ``params``: its parameters and body. ``responses``: JSON, problems, and the headers of all responses.
- ``feeds``: the events of a feed after a position, in portions or as a stream. ``long_poll``: requests that wait.
- ``state``: the list of feeds, and stored records.
- ``page/``: the status page, served by ``assets``. ``live``: its data, read by ``page_state`` once for all pages.
  ``events``, ``dead_letters``: what it asks for. ``actions``: what an operator does.
- ``status``, ``metrics``: for monitoring.

The site has read connections to the store of its own, one for the page and one for programs, so that a slow reader
delays neither commits nor the other.
"""

from __future__ import annotations

from dockbell.web.site import Site

__all__ = ["Site"]
