"""What an operator may ask and do; the command line and the web server share it.

- ``status``: the status of feeds, sinks, store and web server. ``reasons``: what is wrong with it. ``silence``: why a
  feed has no events, or a sink gets none. ``shared_read``: one read for all that ask at the same time.
- ``planning``: how often the budget lets feeds be read, and with what delay.
- ``why``: the history of one record, and why it has no event. ``as_json``: history and status for programs.
  ``plan_as_json``: the plan, too.
- ``initialising``: the first configuration, its text and its files. ``probing``: measures an API for it.
- ``check``: what would fail: store, API, sinks; sends a test event. ``exposure``: which files others can read or write.
- ``commands``: what the daemon is asked to do: a pass, a decision on deletions or drift, the erasure of a record.
- ``replaying``: replays and dead letters of a sink.
- ``state``: the stored records, all of a feed or one.
- ``events``: the recorded events, chosen and followed; the catalogue of those that there can be.
"""
