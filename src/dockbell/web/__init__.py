"""The daemon's HTTP server: status page, pull feeds, stored records, metrics, health, and an operator's actions.

- ``site``: the socket and all parts. ``connection``, ``connection_limiter``, ``allowance``: limits of clients and
  memory.
- ``routes``: the table of all routes; ``route`` is its row, ``schemas`` the JSON of its responses, ``openapi`` the
  document made of it.
- ``gate``: checks a request before it is routed. ``principal``: its client, proven by ``tokens`` or ``session``;
  ``brute_force`` limits wrong tokens. ``params``: its parameters and body. ``headers``: those of all responses.
- ``feeds``: the events of a feed after a position. ``stream``: the same without end. ``long_poll``: requests that wait.
- ``state``: stored records. ``index``: the list of feeds.
- ``page/``: the status page, served by ``assets``. ``live``: its data, read by ``page_state`` once for all pages and
  given to each by ``broadcast``. ``events``, ``dead_letters``, ``status``: what it asks for. ``actions``: what it does.
- ``health``, ``metrics``: for monitoring.
- ``position``, ``portions``, ``summary``, ``problem``, ``responses``: shared forms.

The site has read connections to the store of its own, one for the page and one for programs, so that a slow reader
delays neither commits nor the other.
"""

from __future__ import annotations

from dockbell.web.site import Site

__all__ = ["Site"]
