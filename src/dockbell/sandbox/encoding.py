"""JSON as the sandbox writes it: compact, UTF-8, unicode as itself."""

from __future__ import annotations

import json
from typing import Final

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: object) -> bytes:
    """Return the JSON text of a value."""
    return _ENCODER.encode(value).encode()
