"""Where snapshots, events and progress are kept, each page in one transaction.

- ``sql``: the statements, for any connection. ``sqlite``: the file that holds them.
"""
