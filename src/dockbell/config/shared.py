"""What processes on one store have of their configuration in common: all but what is said of the process itself."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from dockbell.config.values import Table
from dockbell.errors import ConfigError

_LOCAL: Final = ("include", "store", "web")
"""The keys that each process has for itself."""


def split_off_local(table: Table) -> Table:
    """Return what a file says of its own process."""
    return {key: table[key] for key in _LOCAL if key in table}


def encode_shared(table: Table) -> str:
    """Return what a file says for all processes, as canonical JSON; each reads it by its own secrets and folder.

    A file that neither has sources nor includes any says nothing of them: they are looked after elsewhere.

    Raises:
        ConfigError: It holds what JSON cannot, a date say.
    """
    shared = {key: value for key, value in table.items() if key not in _LOCAL}
    if not shared.get("sources") and not table.get("include"):
        shared.pop("sources", None)
    try:
        return encode(shared)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"configuration: cannot be shared as JSON, {error}; write it as text") from None


def encode(shared: Table) -> str:
    return json.dumps(shared, sort_keys=True, ensure_ascii=False, allow_nan=False)


def decode(content: str) -> Table:
    found: dict[str, Any] = json.loads(content)
    return found


def find_digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
