"""What sources, sinks and servers on the network share.

- ``network``: URLs, TLS trust, and words for what goes wrong. ``listening``: a server on a socket, bounded.
"""
