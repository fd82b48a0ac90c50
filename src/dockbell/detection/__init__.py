"""From the API's answers to stored snapshots and events: the first half of dockbell.

- ``poller``: reads what was modified since the watermark. ``reconciler``: reads a whole list, and decides which absent
  records are deleted. ``absence_check``: asks for absent shipments one by one. ``detail_fetcher``: asks for what a list
  does not show.
- ``reader``: reads and commits the pages of one feed. ``run``: the way from page to page, and the anomalies on it.
  ``turn``: which run may read and commit next. ``lone_cursor``: cursors that an API takes alone only.
- ``guarded``: runs an agent, reports what goes wrong, and keeps the other feeds out of it. ``scrub``: removes what must
  no longer be stored.
"""
