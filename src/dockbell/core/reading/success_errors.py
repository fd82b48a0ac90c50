"""Errors in answers whose status is a success: an error beside the records, or a list that is not whole."""

from __future__ import annotations

from typing import Final

from dockbell.core.reading.response_json import Fields, Parser
from dockbell.core.reading.response_words import WHERE_WORDS_ARE, find_words, quote
from dockbell.errors import SourceUnavailable

ERRORS: Final = frozenset({"error", "errors"})
"""What holds anything under such a name beside the records says that these are not what they should be."""
_INCOMPLETE: Final = frozenset({"partial", "is_partial", "incomplete", "incomplete_results", "timed_out"})
"""What is true under such a name beside the records of a last page says that others are missing."""
_NOTHING: Final = frozenset({b"null", b"false", b"0", b'""', b"[]", b"{}"})


def check_no_error(subject: str, fields: Fields, parser: Parser) -> None:
    """Refuse an object that holds an error: records may stand beside it, and others may be missing."""
    for name, raw in fields.items():
        if name.lower() in ERRORS and bytes(raw).translate(None, b" \t\r\n") not in _NOTHING:
            said = find_words(parser.value(raw))
            if not said:
                beside = {member: parser.value(fields[member]) for member in WHERE_WORDS_ARE if member in fields}
                said = find_words(beside)
            fact = f"{subject}: the answer holds an error{quote(said)}"
            raise SourceUnavailable(f"{fact}, though its status is a success")


def check_whole(subject: str, fields: Fields) -> None:
    """Refuse a last page that says of itself that it is not all there is."""
    for name, raw in fields.items():
        if name.lower() in _INCOMPLETE and bytes(raw) == b"true":
            raise SourceUnavailable(f'{subject}: the answer ends the list, got "{name}": true beside the records')
