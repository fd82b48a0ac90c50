"""What an operator may ask and do; the commands and the status page share it.

- ``status``: how feeds and sinks stand, and the reasons to look closer.
- ``silence``: why nothing is heard of a feed, or from a sink. ``as_json``: what is known, for programs.
- ``initialising``: the first configuration: its text, and how it is put in place.
- ``check``: what would fail: store, API, sinks. ``exposure``: which files others can read or write.
- ``why``: all that is known of one record, and why nothing is published of it.
- ``wishing``: what is asked of the daemon: to read a feed whole, what becomes of what is held.
- ``replaying``: what is asked of a sink: kept events to be sent again, what becomes of dead letters.
- ``purging``: what is stored of a record is erased.
- ``trial``: one test event through one sink.
- ``events``: the recorded events, chosen and followed.
- ``tally``: what a run over all feeds and sinks came to.
"""
