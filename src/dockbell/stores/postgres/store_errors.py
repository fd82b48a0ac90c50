"""Whose fault it is that PostgreSQL could not do something: the server's, or our own.

What is told of an error never holds the URL, which may hold a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dockbell.errors import StoreError, StoreFull, StoreUnavailable

_REFUSED: Final = {
    "28": ("authentication failed", "check the user and the password in [store] url"),
    "3D": ("does not exist", "create the database, or name another one in [store] url"),
    "42501": ("permission denied", "make the user of [store] url the owner of the database"),
}
"""What an operator must change, by SQLSTATE or its class: a part of the server's words, and the remedy."""
_FULL: Final = ("53100", "53200")
"""A disk, or the memory, has no room (Appendix A of its manual)."""
_PASSING: Final = ("08", "25006", "25P03", "40", "53", "55P03", "57", "58", "XX001", "XX002")
"""What passes by itself or by the server's operator: lost connections, a server that ends or only reads, a transaction
that rested for too long, conflicts."""


def name_store(url: str) -> str:
    """Return what a store is called in messages: host and database, without user, password and options."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql"
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{host}{port}/{parts.get('dbname') or ''}"


@contextmanager
def translating(name: str) -> Iterator[None]:
    """Raise what the database says as an error of ours; what is our own fault stays as it is."""
    try:
        yield
    except psycopg.Error as error:
        if (blamed := blame(error, name)) is None:
            raise
        raise blamed from None  # the driver's words may quote the URL


def blame(error: psycopg.Error, name: str) -> StoreError | None:
    """Return what an error says of the store; None where the fault is our own."""
    state = error.sqlstate or ""
    words = (error.diag.message_primary or _read_words(error)).strip().lower()
    for code, (said, remedy) in _REFUSED.items():
        # Of a connection that was refused the driver gives the words alone.
        if state.startswith(code) if state else said in words:
            return StoreUnavailable(f"store {name}: {words}; {remedy}")
    if state in _FULL:
        return StoreFull(f"store {name}: {words}; free some space on the server")
    is_lost = not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if is_lost or state.startswith(_PASSING):
        return StoreUnavailable(f"store {name}: {words}; check its server")
    return None


def _read_words(error: psycopg.Error) -> str:
    """Return the line that says what happened, of the driver's several: of the last address that was tried, if any."""
    lines = str(error).strip().splitlines() or ["no connection"]
    tried = [line for line in lines if "failed: " in line]
    return tried[-1].rpartition("failed: ")[2].removeprefix("FATAL:") if tried else lines[0]
