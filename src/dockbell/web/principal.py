"""The client of a request, and whether it has proven that it may ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """The client of a request.

    Attributes:
        peer: Its address; behind a trusted proxy, the one that the proxy names.
        proxy: The address of that proxy; empty where there is none.
        is_known: It has shown the token, or the cookie of a session.
        csrf: The CSRF word of its session; None where it has shown the token itself.
    """

    peer: str
    proxy: str = ""
    is_known: bool = False
    csrf: str | None = None

    def __str__(self) -> str:
        """Return both addresses, for the log."""
        return f"{self.peer} through {self.proxy}" if self.proxy else self.peer
