"""What an operator may ask and do; the commands (and later the status page) share it.

- ``status``: how feeds and sinks stand, and the reasons to look closer.
- ``check``: what would fail: store, API, sinks.
- ``trial``: one test event through one sink.
- ``events``: the recorded events, chosen and followed.
- ``tally``: what a run over all feeds and sinks came to.
"""
