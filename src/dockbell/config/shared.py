"""What processes on one store have of their configuration in common: all but what is said of the process itself."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from dockbell.config.values import Table
from dockbell.errors import ConfigError

SOURCES: Final = "sources"
_LOCAL: Final = ("include", "store", "web")
"""The keys that each process has for itself."""


def split_off_local(table: Table) -> Table:
    """Return what a file says of its own process."""
    return {key: table[key] for key in _LOCAL if key in table}


def encode_shared(table: Table, *, says_all: bool = False) -> str:
    """Return what a file says for all processes, as canonical JSON; each reads it by its own secrets and folder.

    A file that neither has sources nor includes any says nothing of them: they are looked after elsewhere. What
    ``says_all`` has no others.

    Raises:
        ConfigError: It holds what JSON cannot, a date say.
    """
    shared = {key: value for key, value in table.items() if key not in _LOCAL}
    if not shared.get(SOURCES) and not table.get("include") and not says_all:
        shared.pop(SOURCES, None)
    try:
        return encode(shared)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"configuration: cannot be converted to JSON, {error}; write the value as text") from None


def encode(shared: Table) -> str:
    return json.dumps(shared, sort_keys=True, ensure_ascii=False, allow_nan=False)


def decode(content: str) -> Table:
    found: dict[str, Any] = json.loads(content)
    return found


def find_digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


# Sources that are not of the file ------------------------------------------------------------------------------------


def keep_sources(content: str, before: str) -> str:
    """Return a content with the sources of the one before, where it says nothing of sources."""
    given = decode(content)
    if SOURCES in given:
        return content
    kept = {SOURCES: sources} if (sources := decode(before).get(SOURCES)) else {}
    return encode(given | kept)


def find_digest_aside(content: str) -> str:
    """Return the digest of a file that says all of a content but its sources.

    A revision with this digest has sources that no file has: commands look after them.
    """
    return find_digest(encode({key: value for key, value in decode(content).items() if key != SOURCES}))


def would_replace(content: str, newest: str, digest: str) -> bool:
    """Return whether a content has other sources than the newest revision, whose sources commands look after."""
    given, there = decode(content).get(SOURCES), decode(newest).get(SOURCES)
    return given is not None and bool(there) and given != there and digest == find_digest_aside(newest)


def count_losses(content: str, newest: str) -> tuple[int, int]:
    """Return how many sources of the newest revision another content drops, and how many it changes."""
    given, there = decode(content).get(SOURCES), decode(newest).get(SOURCES, {})
    if given is None:
        return 0, 0
    kept = there.keys() & given.keys()
    return len(there) - len(kept), sum(there[name] != given[name] for name in kept)
