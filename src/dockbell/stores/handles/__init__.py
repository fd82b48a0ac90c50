"""The handles of a store: the ports, over the statements of ``sql`` and the engine of any database that speaks it.

- ``database``: where a store is, and the ways in which processes open it. ``engine``: what it provides, for the process
  that works on it and for those that look beside it.
- ``store``, ``feed_store``, ``sink_store``, ``upkeep``: the port of the process that works on it, with its handles.
  ``read_store``, ``command_store``: for commands and the page, beside that process.
- ``session``: a connection beside that process. ``outage``: a time in which the store cannot be written.
"""
