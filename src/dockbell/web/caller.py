"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        peer: The address that it asks from.
        is_known: It has shown the token, or the cookie of a session.
        csrf: The word that the acts of its session have to bear; None where it has shown the token itself.
    """

    peer: str
    is_known: bool = False
    csrf: str | None = None
