"""Words of the statements that only SQLite understands, in one place: an adapter puts those of its database there."""

from __future__ import annotations

from typing import Final

BY_KEY: Final = "INDEXED BY events_key"
"""After ``events``: the key narrows more than the sequence does."""
THEN_JOIN: Final = "CROSS JOIN"
"""A join in the order in which it is written: few rows on the left, perhaps a million on the right."""


LOCKED: Final = "/* FOR UPDATE */"
"""After a query in a transaction that writes: nobody else writes its rows meanwhile, as nobody does in SQLite."""
SKIP_LOCKED: Final = "/* FOR UPDATE SKIP LOCKED */"
"""The same, without the rows that another transaction is writing; SQLite has no other one."""
IS_OWN: Final = "token = ?"
"""Of ``feeds``: that this process has taken the row last. PostgreSQL refuses the statement where another one has, and
does not count its rows."""
IS_AT: Final = "sequence = /* of the feed */ ?"
"""Behind it: that the events were written behind the last one. PostgreSQL refuses the statement where they were not."""
IS_HELD: Final = "held = 1"
"""Of ``blocked``: as the index on such rows says it, else SQLite does not take it."""


def values_of(parameter: str) -> str:
    """Return a table of one column, ``value``, of the JSON array that a parameter holds."""
    return f"json_each({parameter})"
