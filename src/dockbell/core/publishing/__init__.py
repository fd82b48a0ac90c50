"""Events, and the order and time of their deliveries.

- An event. ``event``: composes it of a change. ``statement``, ``named``: of a feed as a whole, of an operator's
  condition. ``narrate``: in words. ``catalogue``: the schemas of all.
- What a sink gets of it. ``filters``, ``projection``, ``rendering``, ``topic``, ``signature``, ``addresses``,
  ``erasure``.
- A delivery. ``delivery_queue``: what may be sent now. ``read_ahead``: events in memory, ``blocked_keys``: keys that
  wait for another attempt, ``flights``: deliveries under way, ``blame``: whether the event or the receiver is at fault.
  ``retry``: the schedule and the breaker. ``settlement``, ``feed_cursor``: what is saved.
"""
