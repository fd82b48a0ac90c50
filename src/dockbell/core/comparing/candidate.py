"""The records of one page on their way through the change detector, stage by stage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from dockbell.core.comparing.drift import Drift
from dockbell.core.comparing.page_diff import Finding, Hold, Note, Stored, Write
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import JSON, Change, Key, Page
from dockbell.core.moment import to_micros


class Sighting(NamedTuple):
    """A record that the page shows; without text where it cannot be read, or two stand under its key."""

    key: Key
    raw: bytes | None
    raw_hash: bytes | None
    head: dict[str, JSON]


class Differing(NamedTuple):
    """A record of the page that is not byte for byte as stored."""

    key: Key
    raw: bytes
    raw_hash: bytes
    head: dict[str, JSON]
    known: Stored | None


class Candidate(NamedTuple):
    """A differing record, decoded; ``modified`` is its own timestamp, ``micros`` the same in µs since 1970."""

    key: Key
    raw: bytes
    raw_hash: bytes
    document: JSON
    fingerprint: bytes
    modified: datetime | None
    micros: int | None
    known: Stored | None

    @property
    def has_moved(self) -> bool:
        known = self.known
        return known is not None and self.micros is not None and self.micros != known.modified

    @property
    def has_advanced(self) -> bool:
        """Whether its timestamp is later than the stored one: the service itself calls it modified."""
        known, micros = self.known, self.micros
        if known is None or micros is None:
            return False
        return known.modified is None or micros > known.modified

    def is_older(self, page: Page, window: timedelta) -> bool:
        """Return whether its timestamp is before the stored one, unless that is in the service's future."""
        stored = None if self.known is None else self.known.modified
        if stored is None or self.micros is None:
            return False
        return self.micros < stored <= to_micros(page.latest + window)

    def write(self, revision: int, superseded: bytes | None = None) -> Write:
        return Write(
            row=None if self.known is None else self.known.row,
            key=self.key.text,
            raw_hash=self.raw_hash,
            fingerprint=self.fingerprint,
            modified=self.micros,
            revision=revision,
            body=self.raw,
            superseded=superseded,
            replaces=None if self.known is None or self.known.gone_at is not None else self.known.fingerprint,
        )

    def note(self, finding: Finding, change: Change | None = None) -> Note:
        return Note(self.key.text, finding, self.micros, self.fingerprint, change)


class Difference(NamedTuple):
    """A record that is new, back, or differs from the stored body."""

    candidate: Candidate
    before: bytes | None  # what is stored of it; None where there is nothing to compare with
    previous: JSON  # the part of that which the list shows, decoded
    patch: list[dict[str, JSON]] | None  # from there to the record
    fingerprint: bytes  # of what is stored, by today's rules


class Facts(NamedTuple):
    """All that decides what becomes of a difference."""

    difference: Difference
    candidate: Candidate
    known: Stored | None
    date: datetime | None  # its own timestamp, or its creation time in feeds that have no timestamps
    created: datetime | None  # its creation time, where nothing is published of it yet
    hold: Hold | None
    drift: Drift | None  # what is known of the service's new schema, this page included
    page: Page
    context: ReadContext

    @property
    def is_baseline(self) -> bool:
        """Whether its date shows no change since the feed was first asked for."""
        if self.date is None:
            return True
        if self.known is not None:
            return self.date < self.context.began_at
        return self.context.was_there(self.date, self.page.answered_at)
