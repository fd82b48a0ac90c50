"""What this machine gives: files, descriptors, child processes.

- ``ownership``: files where other users may write too. ``evaluator``: evaluates costly conditions in a child process.
- ``system``: a clock that is never set back, and how many files may be open.
"""
