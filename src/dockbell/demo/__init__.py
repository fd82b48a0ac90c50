"""``dockbell demo``: the whole of dockbell on this machine, against an API that moves.

- ``stage``: it put together, with its configuration. ``witness``: takes in all that happens, and shows it.
- ``receivers``: the world outside. ``arrival``: what came, paired and counted.
- ``account``: the sandbox's changes against the events. ``lines``: how it is shown.
"""
