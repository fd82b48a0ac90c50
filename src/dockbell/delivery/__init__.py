"""From the outbox to the receivers: the second half of dockbell.

- ``relay``: hands the events of a sink over, in order per record, and stores what became of them.
- ``outbox_reader``: reads what a relay may hand over: new events, what failed, replays, stored records.
- ``retained_state``: the stored records as a sink may see them, for a broker's retained messages.
- ``notifier``: publishes operational alerts on the ``notices`` feed.
"""
