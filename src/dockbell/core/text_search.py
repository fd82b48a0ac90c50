"""Which records have a text in one of their values: an order number, a tracking number, a name.

No index is kept: it would cost every reading something, and hold what purge must erase. A record that does not have the
text takes about seven microseconds.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<is_name>\s*:)?|(?P<number>-?\d[\d.eE+-]*)')
"""A text with its quotes, or a number, anywhere in JSON (RFC 8259); a text before a colon is a member's name."""
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_OTHERWISE_IN_JSON: Final = re.compile(r'["\\/\x00-\x1f\x7f\U00010000-\U0010ffff]')
"""What may be written by other escapes than one of four digits for each character."""


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A text to be found, in capitals or not; numbers are looked through as the API wrote them."""

    text: str
    _folded: str = field(init=False)
    _is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", self.text.casefold())
        object.__setattr__(self, "_is_plain", not _OTHERWISE_IN_JSON.search(self.text))

    def matches(self, key: str, body: bytes | None) -> bool:
        """Return whether a key string has the text, or a value of the record, but not the name of a member."""
        if self._folded in key.casefold():
            return True
        if body is None:
            return False
        record = body.decode(errors="replace")
        if self._is_plain and not self._may_be_in(record):
            return False
        return any(self._is_in(token) for token in _TOKEN.finditer(record) if not token["is_name"])

    def _may_be_in(self, record: str) -> bool:
        """Return False where the text is nowhere in a record, names of members included."""
        if "\\\\" in record:
            return True  # what looks like an escape behind it may be none
        if "\\u" in record:
            record = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), record)
        return self._folded in record.casefold()

    def _is_in(self, token: re.Match[str]) -> bool:
        value: str = token["number"] or token["text"]
        if "\\" in value:
            value = json.loads(f'"{value}"')
        return self._folded in value.casefold()
