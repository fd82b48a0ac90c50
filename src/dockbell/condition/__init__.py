"""Conditions in CEL, below the configuration: what they cost and what they answer.

- ``syntax``: from a text to its tree. ``cost``: from the tree to the most steps that it takes.
- ``evaluation``: the only user of the library that evaluates them.
- ``worker``: the program of a process that evaluates what may take long. It imports nothing of the daemon, so that it
  starts quickly.
"""
