"""The steps from each version of the schema to the next; ``schema.sql`` is what they come to.

The version of a store is how many of them it has seen. A migration is never changed once it was released; a new one is
added, and ``schema.sql`` with it. The first is the schema itself, so that nothing stands here for it.
"""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final = ("",)
