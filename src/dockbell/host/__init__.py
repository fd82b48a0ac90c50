"""What this machine gives: files, descriptors, child processes.

- ``ownership``: files where other users may write too. ``descriptors``: how many files may be open.
- ``evaluator``: evaluates costly conditions in a child process. ``clock``: a clock that is never set back.
"""
