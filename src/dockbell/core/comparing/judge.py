"""The judging of one page: which records are new, changed, back, or as they were (docs/guarantees.md).

Cheapest first, because nearly every record of nearly every page is unchanged: the hash of the raw slice, then the
fingerprint of the canonical form, and only for what differs there the stored body and the difference itself. What each
new record needs one of is a tuple: a frozen dataclass takes twice as long to make.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypedDict

import msgspec

from dockbell.core import pointer
from dockbell.core.comparing.canon import Canon, decode
from dockbell.core.comparing.diff import diff, touched
from dockbell.core.key import key_of
from dockbell.core.model import JSON, Change, ChangeKind, DeletionReason, Feed, Key, Page, Via
from dockbell.core.moment import parse_moment, to_micros

_DIGEST_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Stored:
    """The narrow part of a snapshot: what most comparisons need.

    Attributes:
        row: Its number in the store, stable for the life of the store.
        raw_hash: Hash of the raw slice as last committed.
        fingerprint: Hash of the canonical form.
        modified: The record's own timestamp in µs since 1970.
        revision: Its change count.
        gone: It is a tombstone.
        suspected: A complete pass did not show it.
    """

    row: int
    raw_hash: bytes
    fingerprint: bytes
    modified: int | None
    revision: int
    gone: bool
    suspected: bool


class Snapshots(Protocol):
    """Stored snapshots of one feed, read inside the transaction that the judgement is committed in."""

    def find(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return what is stored of these keys."""
        ...

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of these rows."""
        ...


class Write(NamedTuple):
    """One snapshot to insert (``row`` is None) or to replace."""

    row: int | None
    key: str
    raw_hash: bytes
    fingerprint: bytes
    modified: int | None
    revision: int
    body: bytes


@dataclass(slots=True)
class Judgement:
    """What one page comes to.

    Attributes:
        writes: Snapshots to store.
        changes: What to publish, in the order of the page.
        seen: Rows that the page showed, new ones excepted.
        cleared: Seen rows whose suspicion of absence ends.
        oldest_unseen: The oldest timestamp among new and changed records.
        problems: Records that were left out, and why.
    """

    writes: list[Write] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    cleared: list[int] = field(default_factory=list)
    oldest_unseen: datetime | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a page was read, as far as its judgement depends on it.

    Attributes:
        via: The kind of run.
        first_asked_at: S0, the service's time of the feed's first request.
        baseline: No complete pass has ended yet: unknown records dated before ``first_asked_at`` are no news.
        settling: Only one pass has ended, and its pages may have shifted: until a second has ended too, the same holds
            for records that are dated.
        emit: Publish each baseline record as a ``snapshot``.
        last_poll: The last complete poll: its ``updated_since``, and its S.
        last_pass: S of the last complete pass.
    """

    via: Via
    first_asked_at: datetime
    baseline: bool = False
    settling: bool = False
    emit: bool = False
    last_poll: tuple[datetime, datetime] | None = None
    last_pass: datetime | None = None

    def unseen_since(self, modified: datetime | None) -> datetime | None:
        """Return the start of the last complete run that would have shown a record of this date."""
        if self.last_poll is not None:
            since, asked_at = self.last_poll
            if modified >= since if modified is not None else self.via is Via.POLL:
                return asked_at if self.last_pass is None else max(asked_at, self.last_pass)
        return self.last_pass

    def is_late(self, modified: datetime | None, before: int | None) -> bool:
        """Return whether a complete run covered a record of this date and did not show it; ``before`` is in µs.

        The polls that were complete cover together all dates up to the last. A record that they did show, with the same
        date (``before``) and other content, changed silently: that says nothing of when it became visible.
        """
        if modified is None or to_micros(modified) == before:
            return False
        covered = [self.last_pass, self.last_poll and self.last_poll[1]]
        return any(moment is not None and modified < moment for moment in covered)


class Judge:
    """Compares pages of one feed with its snapshots; built once per feed, without state of its own."""

    def __init__(
        self,
        feed: Feed,
        *,
        key: Sequence[str],
        updated_at: str | None,
        created_at: str | None,
        canon: Canon,
        quiet: Collection[str] = (),
        touch: bool = False,
    ) -> None:
        """Set how records are told apart and compared.

        Args:
            feed: What is judged.
            key: The pointers to a record's key.
            updated_at: The pointer to its own timestamp.
            created_at: The pointer to its creation time.
            canon: Makes the canonical form.
            quiet: Pointers that ``changed`` does not name beside others: they say nothing that a subscriber waits for.
            touch: Publish changes of the timestamp alone.
        """
        self._feed = feed
        self._key = [pointer.parse(part) for part in key]
        self._updated_at = None if updated_at is None else pointer.parse(updated_at)
        self._created_at = None if created_at is None else pointer.parse(created_at)
        self._canon = canon
        self._quiet = frozenset(quiet)
        self._touch = touch
        self._head = _head_decoder(self._key)

    def identify(self, raw: bytes) -> Key:
        """Return the key of a raw record.

        Raises:
            KeyMissing: It has none.
            ValueError: It is not JSON.
        """
        try:
            head = self._head.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"not a JSON object: {error}") from error
        return key_of(head, self._key)

    def judge(self, page: Page, reading: Reading, snapshots: Snapshots) -> Judgement:
        """Return what a page comes to against the stored snapshots."""
        verdict = Judgement()
        keys, raws = self._identify_all(page, verdict)
        stored = snapshots.find(list(keys))
        candidates: list[tuple[Key, bytes, bytes, Stored | None]] = []
        for text, raw in raws.items():
            known = stored.get(text)
            raw_hash = blake2b(raw, digest_size=_DIGEST_SIZE).digest()
            if known is None:
                candidates.append((keys[text], raw, raw_hash, None))
                continue
            verdict.seen.append(known.row)
            if known.suspected:
                verdict.cleared.append(known.row)
            if known.gone or known.raw_hash != raw_hash:
                candidates.append((keys[text], raw, raw_hash, known))
        self._judge_candidates(candidates, page, reading, snapshots, verdict)
        return verdict

    def _identify_all(self, page: Page, verdict: Judgement) -> tuple[dict[str, Key], dict[str, bytes]]:
        keys: dict[str, Key] = {}
        raws: dict[str, bytes] = {}
        for position, raw in enumerate(page.records):
            try:
                key = self.identify(raw)
            except ValueError as error:
                verdict.problems.append(f"record {position + 1} of the page: {error}")
                continue
            if raws.setdefault(key.text, raw) != raw:
                verdict.problems.append(f"key {key.text}: stands twice on one page with different content")
                continue
            keys[key.text] = key
        return keys, raws

    def _judge_candidates(
        self,
        candidates: Sequence[tuple[Key, bytes, bytes, Stored | None]],
        page: Page,
        reading: Reading,
        snapshots: Snapshots,
        verdict: Judgement,
    ) -> None:
        differing: list[tuple[_Candidate, Stored | None]] = []
        for key, raw, raw_hash, known in candidates:
            try:
                document = decode(raw)
            except ValueError as error:
                verdict.problems.append(f"key {key.text}: {error}")
                continue
            candidate = _Candidate(
                key, raw, raw_hash, document, self._canon.fingerprint(document), self._time(document, self._updated_at)
            )
            if known is None or known.gone or known.fingerprint != candidate.fingerprint:
                differing.append((candidate, known))
            elif candidate.modified is not None and known.modified != to_micros(candidate.modified):
                # Only the timestamp moved: mostly no event, but the next comparison starts from here.
                if self._touch:
                    differing.append((candidate, known))
                else:
                    verdict.writes.append(candidate.write(known.row, known.revision))
        bodies = snapshots.bodies([known.row for _, known in differing if known is not None and not known.gone])
        for candidate, known in differing:
            before = None if known is None or known.gone else bodies[known.row]
            self._state(candidate, known, before, verdict, page=page, reading=reading)

    def _state(
        self,
        candidate: _Candidate,
        known: Stored | None,
        before: bytes | None,
        verdict: Judgement,
        *,
        page: Page,
        reading: Reading,
    ) -> None:
        """Add to the judgement what a record comes to that is unknown, gone or different."""
        previous = None if before is None else decode(before)
        # A stored fingerprint may be that of other rules than today's: only what differs by these has changed.
        if before is not None and self._canon.fingerprint(previous) == candidate.fingerprint:
            assert known is not None
            if not self._touch or known.modified == (candidate.modified and to_micros(candidate.modified)):
                verdict.writes.append(candidate.write(known.row, known.revision))
                return
        kind = self._kind(candidate, known, reading)
        counted = kind is not None and kind is not ChangeKind.SNAPSHOT
        revision = (0 if known is None else known.revision) + (1 if counted else 0)
        verdict.writes.append(candidate.write(None if known is None else known.row, revision))
        modified = candidate.modified
        if modified is not None and (verdict.oldest_unseen is None or modified < verdict.oldest_unseen):
            verdict.oldest_unseen = modified
        if kind is None:
            return
        patch = None if before is None else diff(previous, candidate.document)
        verdict.changes.append(
            Change(
                feed=self._feed,
                key=candidate.key,
                kind=kind,
                revision=revision,
                before=before,
                after=candidate.raw,
                patch=patch,
                changed=None if patch is None else self._name_changed(touched(patch)),
                changed_between=(reading.unseen_since(modified), page.answered_at),
                modified_at=modified,
                detected_at=page.received_at,
                via=reading.via,
                late=reading.is_late(modified, None if known is None else known.modified),
            )
        )

    def _name_changed(self, pointers: list[str]) -> list[str]:
        return [place for place in pointers if place not in self._quiet] or pointers

    def _kind(self, candidate: _Candidate, known: Stored | None, reading: Reading) -> ChangeKind | None:
        """Return what to call the difference; None for a silent baseline."""
        if known is not None:
            return ChangeKind.RESTORED if known.gone else ChangeKind.UPDATED
        modified = candidate.modified
        old = modified is None or modified < reading.first_asked_at
        if (reading.baseline and old) or (reading.settling and modified is not None and old):
            return ChangeKind.SNAPSHOT if reading.emit else None
        if reading.baseline:
            created = self._time(candidate.document, self._created_at)
            if created is None or created < reading.first_asked_at:
                return ChangeKind.UPDATED
        return ChangeKind.CREATED

    def bury(self, body: bytes, revision: int, since: datetime | None, *, until: datetime, now: datetime) -> Change:
        """Return the ``deleted`` of a record whose absence is confirmed, found between two service times."""
        return Change(
            feed=self._feed,
            key=self.identify(body),
            kind=ChangeKind.DELETED,
            revision=revision + 1,
            before=body,
            after=None,
            patch=None,
            changed=None,
            changed_between=(since, until),
            modified_at=None,
            detected_at=now,
            via=Via.PASS,
            reason=DeletionReason.ABSENT,
        )

    def _time(self, document: JSON, tokens: pointer.Tokens | None) -> datetime | None:
        return None if tokens is None else parse_moment(pointer.resolve(document, tokens))


class _Candidate(NamedTuple):
    """A record of the page that is not byte for byte as stored."""

    key: Key
    raw: bytes
    raw_hash: bytes
    document: JSON
    fingerprint: bytes
    modified: datetime | None

    def write(self, row: int | None, revision: int) -> Write:
        return Write(
            row=row,
            key=self.key.text,
            raw_hash=self.raw_hash,
            fingerprint=self.fingerprint,
            modified=None if self.modified is None else to_micros(self.modified),
            revision=revision,
            body=self.raw,
        )


def _head_decoder(key: Sequence[pointer.Tokens]) -> msgspec.json.Decoder[dict[str, JSON]]:
    """Return a decoder of the few members that the key stands in; it skips all others without building them."""
    make_dict: Any = TypedDict  # its members are known at run time only
    return msgspec.json.Decoder(make_dict("head", {tokens[0]: Any for tokens in key}, total=False))
