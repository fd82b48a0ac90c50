"""Where snapshots, events and progress are kept, each page in one transaction.

- ``sql``: the statements, for any connection. ``handles``: the ports over them, for any database.
- ``sqlite``: the file that holds them. ``postgres``: the database that does.
"""
