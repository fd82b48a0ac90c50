"""From the API's answers to stored snapshots and events: the first half of dockbell.

- The agents. ``poller``: reads what was modified since the watermark. ``reconciler``: reads a whole list from time to
  time (``pass_timer``) and decides which absent records are deleted (``deletions``). ``absence_check``: asks for absent
  shipments one by one. ``detail_fetcher``: asks for what a list does not show.
- One run. ``reading``: reads it to its end. ``run``: its requests, ``anomalies``: what ends it before, ``run_summary``:
  what it found, ``run_checkpoint``: how far it came.
- One feed. ``feed``: its stored state, and the commit of its pages with their ``read_context``. ``profile``: what was
  learned of its listing and clocks. ``record_shape``: how its records are told apart. ``first_request``: where its
  baseline ends. ``schedule``, ``gaps``, ``problems``: when it is read, and when and why it was not.
- Requests. ``page_fetcher``: asks for pages and records, in the turn of the feed. ``lone_cursor``: cursors that an
  API takes alone only.
- ``guarded``: runs an agent, reports what goes wrong, and keeps the other feeds out of it. ``on_demand``: gives an
  agent a task only while there is work. ``scrub``: removes what must no longer be stored.
"""
