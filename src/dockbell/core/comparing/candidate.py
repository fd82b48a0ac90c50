"""The records of one page on their way through the judge, stage by stage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from dockbell.core.comparing.page_diff import Finding, Note, Stored, Write
from dockbell.core.model import JSON, Change, Key, Page
from dockbell.core.moment import to_micros


class Sighting(NamedTuple):
    """A record of the page; without text where two stand under its key."""

    key: Key
    raw: bytes | None
    head: dict[str, JSON]


class Differing(NamedTuple):
    """A record of the page that is not byte for byte as stored."""

    key: Key
    raw: bytes
    raw_hash: bytes
    head: dict[str, JSON]
    known: Stored | None


class Candidate(NamedTuple):
    """The same, decoded."""

    key: Key
    raw: bytes
    raw_hash: bytes
    document: JSON
    fingerprint: bytes
    modified: datetime | None
    known: Stored | None

    @property
    def has_moved(self) -> bool:
        """Whether its timestamp is another than the stored one."""
        known = self.known
        return known is not None and self.modified is not None and to_micros(self.modified) != known.modified

    @property
    def has_advanced(self) -> bool:
        """Whether its timestamp is later than the stored one: the service itself calls it modified."""
        known, modified = self.known, self.modified
        if known is None or modified is None:
            return False
        return known.modified is None or to_micros(modified) > known.modified

    def made_at(self, page: Page) -> datetime | None:
        """Return when it came to be like this, as its timestamp says, by our clock; None where that did not move."""
        if self.modified is None or not (self.known is None or self.has_advanced):
            return None
        return self.modified + (page.received_at - page.answered_at)

    def is_older(self, page: Page, window: timedelta) -> bool:
        """Whether its timestamp is before the stored one, which is no date of the future."""
        stored = None if self.known is None else self.known.modified
        if stored is None or self.modified is None:
            return False
        return to_micros(self.modified) < stored <= to_micros(page.latest + window)

    def write(self, revision: int, superseded: bytes | None = None) -> Write:
        """Return the snapshot of it."""
        return Write(
            row=None if self.known is None else self.known.row,
            key=self.key.text,
            raw_hash=self.raw_hash,
            fingerprint=self.fingerprint,
            modified=micros(self.modified),
            revision=revision,
            body=self.raw,
            superseded=superseded,
        )

    def note(self, finding: Finding, change: Change | None = None) -> Note:
        """Return what it came to."""
        return Note(self.key.text, finding, micros(self.modified), self.fingerprint, change)


class Difference(NamedTuple):
    """A record that is new, back, or differs from the stored body.

    Attributes:
        candidate: The record.
        before: What is stored of it; None where there is nothing to compare with.
        previous: The part of that which the list shows, decoded.
        patch: From there to the record.
        fingerprint: Of what is stored, by today's rules.
    """

    candidate: Candidate
    before: bytes | None
    previous: JSON
    patch: list[dict[str, JSON]] | None
    fingerprint: bytes


def micros(moment: datetime | None) -> int | None:
    """Return a time in µs since 1970."""
    return None if moment is None else to_micros(moment)
