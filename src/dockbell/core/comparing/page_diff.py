"""What is stored of records, and what one page comes to: the nouns that change detector and store share.

What is made for each record is a tuple: a frozen dataclass takes twice as long to make.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from dockbell.core.comparing.drift import Drift
from dockbell.core.comparing.holding import Hold
from dockbell.core.model import Change, ChangeKind, Via

DIGEST_SIZE: Final = 16
"""Bytes of every hash of a record, its raw text or its canonical form."""
UNDECIDED: Final = b"undecided"
"""Stands for the raw hash of an undated record that only the second pass has shown, until that pass has ended."""
MET_IN_FIRST_PASS: Final = b""
"""Stands for the raw hash of a record that the first pass met before the key was proven, and left to the first poll."""
MET_LATER: Final = b"later"
"""The same of a record that a later pass met and the first had not shown: it is new."""
PURGED: Final = bytes(DIGEST_SIZE)
"""Stands for the hashes of a record whose content was purged: a hash tells of what it was made of, too."""


class Stored(NamedTuple):
    """The narrow part of a snapshot: what most comparisons need.

    Attributes:
        row: Its number in the store, stable for the life of the store.
        raw_hash: Hash of the raw slice as last committed.
        fingerprint: Hash of the canonical form; of its text for a baseline record whose content never changed.
        modified: The record's own timestamp in µs since 1970.
        revision: Its change count.
        gone_at: Since when it is a tombstone, by our clock, in µs since 1970; None where it is none.
        missed: A complete pass did not show it, or it is not expected to be shown.
        superseded: What it replaced lately, see :mod:`~dockbell.core.comparing.holding`.
        held: A reading of it is held, which is not believed yet.
        key: Its key string.
    """

    row: int
    raw_hash: bytes
    fingerprint: bytes
    modified: int | None
    revision: int
    gone_at: int | None = None
    missed: bool = False
    superseded: bytes | None = None
    held: bool = False
    key: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it was only met while the key was not proven: nothing of it is published, and it is no baseline."""
        return len(self.raw_hash) < DIGEST_SIZE


class Snapshots(Protocol):
    """Stored snapshots of one feed, read inside the transaction that the page's diff is committed in."""

    def find(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return what is stored of these keys."""
        ...

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of these rows."""
        ...

    def holds(self, rows: Sequence[int]) -> Mapping[int, Hold]:
        """Return the held readings of these rows."""
        ...

    def quarantined(self, digests: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these digests whose records are in quarantine."""
        ...


class Write(NamedTuple):
    """One snapshot to insert (``row`` is None) or to replace.

    Attributes:
        body: None keeps the stored one, until the record's detail has come.
        superseded: What it replaced lately.
        is_unexplained: Its content changed, and its own timestamp did not advance.
    """

    row: int | None
    key: str
    raw_hash: bytes
    fingerprint: bytes
    modified: int | None
    revision: int
    body: bytes | None
    superseded: bytes | None = None
    is_unexplained: bool = False


class Finding(StrEnum):
    """What the reading of a record came to; a finding that has an event is named like its change."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"
    SNAPSHOT = "snapshot"
    TOUCHED = "only its timestamp moved"
    QUIET = "differs only in what is ignored"
    HELD = "held: older than what is stored, maybe a lagging replica's"
    DRIFT = "held: many records differ by the same fields"
    AWAITED = "a change whose event waits for its detail"
    ABSORBED = "stored silently: the operator absorbed the new fields"
    REBASELINED = "stored silently: the feed is read differently now"
    UNPROVEN = "stored silently: the key is not proven unique yet"
    POSTPONED = "left to the first poll: the key is not proven unique yet"
    UNDECIDED = "met by the second pass for the first time, undated: its end decides whether it is new"
    QUARANTINED = "in quarantine: it cannot be read"
    SUSPECTED = "absent from a complete pass"
    SEEN_AGAIN = "seen again, after it was absent"
    THERE = "absent from a pass, but there when asked for"
    KEPT = "absent, and kept on the operator's word"
    PURGED = "purged on the operator's word: its content is erased"


class Note(NamedTuple):
    """One finding, for ``dockbell why``.

    Attributes:
        key: The record's key string.
        finding: What the reading came to.
        modified: The reading's own timestamp, in µs since 1970.
        fingerprint: What it showed; None where it could not be told.
        change: The change, where it came to one.
    """

    key: str
    finding: Finding
    modified: int | None = None
    fingerprint: bytes | None = None
    change: Change | None = None


class Held(NamedTuple):
    """A reading to hold."""

    row: int
    hold: Hold
    body: bytes


class Pending(NamedTuple):
    """A change whose event waits for the record's detail.

    Attributes:
        key: Its key string.
        row: Its row; None where it is new.
        raw: What the list showed.
        kind: What the change is.
        since: The service's time when the last complete run began that would have shown it.
        until: The service's time of this reading.
        modified: The record's own timestamp.
        late: An earlier complete run covered it and did not show it.
        via: Which kind of reading showed it.
        is_first: Nothing was known of the record before: its event has no ``before``, whatever is stored by then.
        made_at: ``modified`` by our clock, where the change moved it.
    """

    key: str
    row: int | None
    raw: bytes
    kind: ChangeKind
    since: datetime | None
    until: datetime
    modified: datetime | None
    late: bool
    via: Via
    is_first: bool
    made_at: datetime | None = None


class Amended(NamedTuple):
    """What a record looks like now: a change of it that waits for its detail publishes this."""

    row: int
    raw: bytes
    modified: datetime | None


class Bad(NamedTuple):
    """A record that goes into quarantine, because its key is bad or it cannot be read.

    Attributes:
        digest: Of its key string, or of its content where it has none; of its text where that cannot be read.
        key: Its key string, where it has one.
        problem: What is wrong with it.
        raw: Its raw text.
        known: It is in quarantine already.
    """

    digest: bytes
    key: str
    problem: str
    raw: bytes
    known: bool = False


@dataclass(slots=True)
class PageDiff:
    """What one page comes to.

    Attributes:
        writes: Snapshots to store.
        changes: What to publish, in the order of the page.
        pending: Changes to publish when their details have come.
        amended: Records that are stored silently, though a change of them may wait for its detail.
        notes: Findings to keep.
        seen: Rows that the page showed, new ones excepted.
        cleared: Seen rows that were missed.
        holds: Readings to hold.
        released: Rows whose held reading is settled.
        bad: Records that go into quarantine, and why.
        doubled: How many keys stand twice on the page with different content.
        drift: Drift that the page shows for the first time.
        drifted: Records that wait for the operator because they differ by drift alone.
        oldest_unseen: The oldest timestamp among new and changed records, a change of the timestamp alone included.
        lateness: How long after their timestamps changes were still not visible, by proof of an earlier run.
        on_time: Changes that were not late.
        missed: Changes that polls should have shown before, and did not.
        silent: Changes whose timestamp did not move.
        skipped: Unknown records that no date proves new, met by the pass that shows what the first one skipped.
        dates: The timestamps of all its records by key, in the order of the page, in µs; None for one that has none.
    """

    writes: list[Write] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    amended: list[Amended] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    cleared: list[int] = field(default_factory=list)
    holds: list[Held] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    doubled: int = 0
    drift: Drift | None = None
    drifted: int = 0
    oldest_unseen: datetime | None = None
    lateness: list[timedelta] = field(default_factory=list)
    on_time: int = 0
    missed: int = 0
    silent: int = 0
    skipped: int = 0
    dates: dict[str, int | None] = field(default_factory=dict)

    def meet_unseen(self, modified: datetime | None) -> None:
        """Count the timestamp of a record that no earlier reading had shown in this state."""
        if modified is not None and (self.oldest_unseen is None or modified < self.oldest_unseen):
            self.oldest_unseen = modified

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to store."""
        kept = (self.writes, self.changes, self.notes, self.cleared, self.holds, self.released, self.bad, self.drift)
        return not any(kept)


class Collision(ValueError):
    """Records of one page have one key and different content: the page is odd, or the key does not tell them apart."""
