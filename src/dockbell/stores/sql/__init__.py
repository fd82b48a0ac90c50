"""The statements, and the mapping of their rows: plain functions of a connection, for any store that speaks SQL.

- ``snapshots``, ``feeds``, ``runs``, ``absence``, ``details``, ``outbox``: of detection. ``delivery``, ``backfill``,
  ``replays``: of delivery. ``commands``: of operators. ``inspection``, ``browsing``: read-only ones.
- ``pruning``, ``purging``, ``cleaning``: remove what is too old, what an operator erases, what a feed must not store.
- ``life``: the epoch. ``lease``: the right to write a feed. ``connection``, ``dialect``: what all of them share.

What each of them promises stands at the method of the ports that has its name.

Statements keep to what SQLite and PostgreSQL share: ``ON CONFLICT (…)``, ``CASE``, ``RETURNING``, named columns, and an
ORDER BY where the order matters. What only one of them understands comes from ``dialect``.
"""
