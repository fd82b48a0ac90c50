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
from dockbell.core.model import DIGEST_SIZE, Change, ChangeKind, Via

UNDECIDED: Final = b"undecided"
"""Stands for the raw hash of an undated record that only the second pass has shown, until that pass has ended."""
MET_IN_FIRST_PASS: Final = b""
"""Stands for the raw hash of a record that the first pass met before the key was proven, and left to the first poll."""
MET_LATER: Final = b"later"
"""The same of a record that a later pass met and the first had not shown: it is new."""
PURGED: Final = bytes(DIGEST_SIZE)
"""Stands for the hashes of a record whose content was purged: a hash tells of what it was made of, too."""


class Hold(NamedTuple):
    """A reading that is not believed yet."""

    fingerprint: bytes  # what it showed
    asked_at: int  # the service's time of the first request that showed it, in µs since 1970


class Stored(NamedTuple):
    """The narrow part of a snapshot: what most comparisons need."""

    row: int  # its number in the store, stable for the life of the store
    raw_hash: bytes  # hash of the raw slice as last committed
    fingerprint: bytes  # hash of the canonical form; of its text for a baseline record whose content never changed
    modified: int | None  # the record's own timestamp in µs since 1970
    revision: int  # its change count
    gone_at: int | None = None  # since when it is a tombstone, by our clock, in µs since 1970; None where it is none
    missed: bool = False  # a complete pass did not show it, or it is not expected to be shown
    superseded: bytes | None = None
    """What it replaced lately, see :func:`~dockbell.core.comparing.silence_rules.supersede`."""
    held: bool = False  # a reading of it is held, which is not believed yet
    key: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it was only met while the key was not proven: nothing of it is published, and it is no baseline."""
        return len(self.raw_hash) < DIGEST_SIZE


class KnownRecords(NamedTuple):
    """The records of a page that are stored as it shows them, byte for byte, and about which nothing is to be done."""

    others: Sequence[int]  # the places of all other records on the page, in ascending order
    keys: Sequence[str]  # those of the known records, in the order of the page, as the following
    rows: Sequence[int]
    dates: Sequence[int | None]  # their own timestamps in µs since 1970


class Snapshots(Protocol):
    """Stored snapshots of one feed, read inside the transaction that the page's diff is committed in."""

    def find(self, hashes: Mapping[str, bytes | None], bad: Sequence[bytes] = ()) -> Mapping[str, Stored]:
        """Return what is stored under some keys, each with the hash of what the page shows, if that can be read.

        ``bad`` are digests that :meth:`quarantined` will be asked about. The stored records whose hashes differ, and
        these digests, are likely to be asked for next, and may be read at once.
        """

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]: ...

    def holds(self, rows: Sequence[int]) -> Mapping[int, Hold]: ...

    def quarantined(self, digests: Sequence[bytes]) -> Collection[bytes]: ...


class Write(NamedTuple):
    """One snapshot to insert (``row`` is None) or to replace."""

    row: int | None
    key: str
    raw_hash: bytes
    fingerprint: bytes
    modified: int | None
    revision: int
    body: bytes | None  # none keeps the stored one, until the record's detail has come
    superseded: bytes | None = None
    is_unexplained: bool = False  # its content changed, and its own timestamp did not advance
    replaces: bytes | None = None  # the stored fingerprint of a record that is there; None for one that is new or back


class Finding(StrEnum):
    """What the reading of a record came to; a finding that has an event is named like its change."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"
    SNAPSHOT = "snapshot"
    TOUCHED = "only its timestamp changed"
    QUIET = "only ignored members differ"
    HELD = "held: older than the stored record, possibly from a lagging replica"
    DRIFT = "held: the same fields changed in many records"
    AWAITED = "a change whose event waits for the detail of the record"
    ABSORBED = "stored without an event: an operator absorbed the drift"
    REBASELINED = "stored without an event: the read settings of the feed changed"
    UNPROVEN = "stored without an event: the key is not proven unique yet"
    POSTPONED = "left to the first poll: the key is not proven unique yet"
    UNDECIDED = "first seen by the second pass, without a timestamp: the end of the pass decides whether it is new"
    QUARANTINED = "in quarantine: it cannot be read, or another record has the same key"
    SUSPECTED = "absent from a complete pass"
    SEEN_AGAIN = "seen again after it was absent"
    THERE = "absent from a pass, but a request for it alone found it"
    KEPT = "absent, and kept because an operator rejected the deletion"
    PURGED = "purged by an operator: its content is erased"


class Note(NamedTuple):
    """One finding, for ``dockbell why``."""

    key: str
    finding: Finding
    modified: int | None = None  # the reading's own timestamp, in µs since 1970
    fingerprint: bytes | None = None  # what it showed; None where it could not be told
    change: Change | None = None  # the change, where it came to one


class Held(NamedTuple):
    row: int
    hold: Hold
    body: bytes


class Pending(NamedTuple):
    """A change whose event waits for the record's detail."""

    key: str
    row: int | None  # its row; None where it is new
    raw: bytes  # what the list showed
    kind: ChangeKind
    since: datetime | None  # the service's time when the last complete run began that would have shown it
    until: datetime  # the service's time of this reading
    modified: datetime | None
    late: bool  # an earlier complete run covered it and did not show it
    via: Via
    is_first: bool  # nothing was known of the record before: its event has no ``before``, whatever is stored by then
    visible_at: datetime | None = None  # when it became visible, by our clock, as estimated


class Amended(NamedTuple):
    """What a record looks like now: a change of it that waits for its detail publishes this."""

    row: int
    raw: bytes
    modified: datetime | None


class Bad(NamedTuple):
    """A record that goes into quarantine, because its key is bad or it cannot be read."""

    digest: bytes  # of its key string, or of its content where it has none; of its text where that cannot be read
    key: str  # its key string, where it has one
    problem: str
    raw: bytes
    known: bool = False  # it is in quarantine already


@dataclass(slots=True)
class PageDiff:
    """What one page comes to."""

    writes: list[Write] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    amended: list[Amended] = field(default_factory=list)
    """Records that are stored silently, though a change of them may wait for its detail."""
    notes: list[Note] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)  # rows that the page showed, new ones excepted
    cleared: list[int] = field(default_factory=list)  # seen rows that were missed
    holds: list[Held] = field(default_factory=list)
    released: list[int] = field(default_factory=list)  # rows whose held reading is settled
    bad: list[Bad] = field(default_factory=list)
    doubled: int = 0  # how many keys stand twice on the page with different content
    drift: Drift | None = None  # drift that the page shows for the first time
    drifted: int = 0  # records that wait for the operator because they differ by drift alone
    oldest_unseen: datetime | None = None
    """The oldest timestamp among new and changed records, a change of the timestamp alone included."""
    lateness: list[timedelta] = field(default_factory=list)
    """How long after their timestamps changes were still not visible, by proof of an earlier run."""
    on_time: int = 0  # changes that were not late
    missed: int = 0  # changes that polls should have shown before, and did not
    silent: int = 0  # changes whose timestamp did not move
    skipped: int = 0  # unknown records that no date proves new, met by the pass that shows what the first one skipped
    dates: dict[str, int | None] = field(default_factory=dict)
    """The timestamps of all its records by key, in the order of the page, in µs; None for one that has none."""
    as_stored: dict[str, int] = field(default_factory=dict)
    """The rows of the records that are stored as it shows them, byte for byte, and about which nothing is to be done:
    they come to the same again as long as nothing of them is written, however they are read. Only a comparison lists
    them."""

    def meet_unseen(self, modified: datetime | None) -> None:
        """Count the timestamp of a record that no earlier reading had shown in this state."""
        if modified is not None and (self.oldest_unseen is None or modified < self.oldest_unseen):
            self.oldest_unseen = modified

    @property
    def written(self) -> set[int]:
        """The stored rows of which something is written."""
        rows = {write.row for write in self.writes if write.row is not None}
        rows.update(self.cleared, self.released, (held.row for held in self.holds), (each.row for each in self.amended))
        return rows | {each.row for each in self.pending if each.row is not None}

    @property
    def is_idle(self) -> bool:
        kept = (self.writes, self.changes, self.notes, self.cleared, self.holds, self.released, self.bad, self.drift)
        return not any(kept)


class Collision(ValueError):
    """Records of one page have one key and different content: the page is odd, or the key is no key."""
