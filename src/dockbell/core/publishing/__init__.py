"""Events, and the order and time of their deliveries.

- An event. ``event``: composes it of a change, a ``statement`` on a feed as a whole, or an operator's condition.
  ``narrate``: in words. ``catalogue``: the schemas of all.
- What a sink gets of it. ``filters``, ``rendering``, ``topic``, ``signature``, ``addresses``, ``erasure``.
- A delivery. ``delivery_queue``: what may be sent now. ``read_ahead``: events in memory and under way,
  ``blocked_keys``: keys that wait for another attempt. ``retry``: whether the event or the receiver is at fault, the
  schedule and the breaker. ``settlement``: what is saved.
"""
