"""What an operator may ask and do; the commands (and later the status page) share it.

- ``status``: how feeds and sinks stand, and the reasons to look closer.
- ``check``: what would fail: store, API, sinks.
- ``why``: all that is known of one record, and why nothing is published of it.
- ``wishing``: what is asked of the daemon: to read a feed whole, what becomes of what is held.
- ``replaying``: what is asked of a sink: kept events to be sent again, what becomes of dead letters.
- ``trial``: one test event through one sink.
- ``events``: the recorded events, chosen and followed.
- ``tally``: what a run over all feeds and sinks came to.
"""
