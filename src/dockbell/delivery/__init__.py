"""From the outbox to the receivers: the second half of dockbell.

- ``relay``: delivers the events of a sink, in order per record. ``clock_watch``, ``checkpoints``, ``delivery_report``:
  its clock, its saved positions, its logs and metrics.
- ``outbox_reader``: reads what a relay delivers: new events, failed ones, replays, stored records.
- ``retained_state``: the stored records as a sink may see them, for a broker's retained messages.
- ``notifier``: publishes operational alerts on the ``notices`` feed.
"""
