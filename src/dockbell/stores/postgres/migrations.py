"""The steps from each version of the schema to the next; ``schema.sql`` is what they come to.

The version of a store is how many of them it has begun. A migration is never changed once it was released; a new one is
added, and ``schema.sql`` with it. The first is the schema itself, so that nothing stands here for it.

Processes of two versions work on a store side by side while one after the other is upgraded. So a migration has two
parts. What follows from that for the statements and the code:

- ``pre`` adds. Whatever an older process executes must go on to work: a new column has a default or may be missing.
- A newer process must do with ``pre`` alone, and with rows that older processes write: both columns where one replaces
  another, until a later version writes the new one only.
- What a newer process stores in a column of today, a JSON object say, an older one must be able to read.
- ``post`` removes, or fills and tightens. Without it, older processes may work on the store for ever.
- The ``pre`` of a migration must not need the ``post`` of the one before, which may be waiting.
- Both parts lock what they alter while others work. So neither may take long: no index on a large table.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Migration(msgspec.Struct, frozen=True):
    """A step from one version of the schema to the next, as SQL.

    Attributes:
        pre: Executed by the first newer process that starts, while older ones may be working.
        post: Executed once no older process works on the store; from then on the store refuses older ones.
    """

    pre: str = ""
    post: str = ""


MIGRATIONS: Final = (
    Migration(),
    # How many sources of dead processes each has taken. An older process counts none, and leaves ``taken_at`` in what
    # it hands over, so that a newer one counts that as a dead process's.
    Migration(pre="ALTER TABLE holders ADD COLUMN taken_over BIGINT NOT NULL DEFAULT 0;"),
    # Attempts to deliver, and what receivers answer. An older process writes none.
    Migration(
        pre="""
        ALTER TABLE dead_letters ADD COLUMN answer TEXT COLLATE "C" NOT NULL DEFAULT '';
        CREATE TABLE attempts (
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            sink TEXT COLLATE "C" NOT NULL,
            feed BIGINT NOT NULL REFERENCES feeds,
            key TEXT COLLATE "C" NOT NULL,
            sequence BIGINT NOT NULL,
            number BIGINT NOT NULL,
            began_at BIGINT NOT NULL,
            took BIGINT NOT NULL,
            verdict TEXT COLLATE "C" NOT NULL,
            error TEXT COLLATE "C" NOT NULL,
            status BIGINT,
            answer TEXT COLLATE "C" NOT NULL,
            next_at BIGINT,
            is_replay BOOLEAN NOT NULL
        );
        CREATE INDEX attempts_key ON attempts (feed, key);
        """
    ),
    # When deletions were approved. To an older process those count against the next ones of the day, as before.
    Migration(pre="ALTER TABLE feeds ADD COLUMN approved_at BIGINT;"),
)
