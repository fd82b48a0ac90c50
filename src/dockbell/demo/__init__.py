"""``dockbell demo``: the whole of dockbell on this machine, against an API that moves, for everybody to see.

- ``stage``: it put together. ``witness``: who sees everything, counts it and speaks.
- ``plan``: the configuration. ``broker``, ``subscriber``, ``receiver``: the world outside. ``arrival``: what came.
- ``account``: the sandbox's changes against the events. ``figures``: what is counted.
- ``pairing``, ``lines``, ``summary``, ``screen``: how it is shown.
"""
