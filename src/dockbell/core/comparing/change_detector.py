"""The judging of one page: which records are new, changed, back, or as they were (docs/guarantees.md).

Cheapest first, because nearly every record of nearly every page is unchanged: the hash of the raw slice, then the
fingerprint of the canonical form, and only for what differs there the stored body and the difference itself.

What differs is not always a change. It may be older than what is stored (held), come of other fields that the service
was deployed with (drift), or of another way of reading the feed (silent). Each finding has a name, which is kept for
``dockbell why``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, TypedDict

import msgspec

from dockbell.core import pointer
from dockbell.core.comparing.candidate import Candidate, Difference, Differing, Sighting, micros
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.drift import Decision, Drift, extend_drift
from dockbell.core.comparing.holding import Hold, is_believed, keep, looks_stale, supersede
from dockbell.core.comparing.page_diff import (
    DIGEST_SIZE,
    UNDECIDED,
    Amended,
    Bad,
    Collision,
    Finding,
    Held,
    Note,
    PageDiff,
    Pending,
    ReadContext,
    Snapshots,
    Stored,
    Write,
)
from dockbell.core.cutting import salvage
from dockbell.core.diff import diff, touched
from dockbell.core.document import DEPTH_MAX, decode
from dockbell.core.key import KeyMissing, key_of
from dockbell.core.model import JSON, Change, ChangeKind, DeletionReason, Feed, Key, Page, Unsound, Via
from dockbell.core.moment import from_micros, parse_moment

_MET: Final = b""
"""Stands for the raw hash of a record that was met while the key was not proven, and is left to the first poll."""
_MET_LATER: Final = b"later"
"""The same, of a record that an earlier pass had not shown: it is new."""
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
_ERRORS: Final = frozenset({"error", "errors"})
"""Members that tell of errors: what is quoted there is no record."""
_DOUBLED: Final = "key {}: stands twice on one page with different content"
_DOUBLED_MOST: Final = 3
_DOUBLED_SHARE: Final = 0.25
"""So many keys of a page that stand twice, or this part of it, prove that the key was learned wrongly."""


class ChangeDetector:
    """Compares pages of one feed with its snapshots; built once per feed, without state of its own."""

    def __init__(
        self,
        feed: Feed,
        *,
        key: Sequence[str],
        updated_at: str | None,
        created_at: str | None,
        canon: Canon,
        learned: bool = False,
        detail: Collection[str] = (),
        touch: bool = False,
        clean: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Set how records are told apart and compared.

        Args:
            feed: What is judged.
            key: The pointers to a record's key.
            updated_at: The pointer to its own timestamp.
            created_at: The pointer to its creation time.
            canon: Makes the canonical form.
            learned: The key was learned, not configured: two records with one key prove it wrong.
            detail: Members that are not of the list but of each record's detail; changes wait for it.
            touch: Publish changes of the timestamp alone.
            clean: Takes out of a raw record what is never stored; None where that is nothing. Pages are clean when
                they come; what is stored may be from before, and a record by itself comes as the API has it.
        """
        self._feed = feed
        self._key = [pointer.parse(part) for part in key]
        self._updated_at = None if updated_at is None else pointer.parse(updated_at)
        self._created_at = None if created_at is None else pointer.parse(created_at)
        self._canon = canon
        self._learned = learned
        self._detail = frozenset(detail)
        self._touch = touch
        self._clean = clean or bytes
        self._date = self._updated_at or self._created_at
        self._head = _head_decoder([*self._key, *([self._date] if self._date else [])])

    def identify(self, raw: bytes) -> Key:
        """Return the key of a raw record.

        Raises:
            KeyMissing: It has none.
            ValueError: It is not JSON.
        """
        return key_of(self._read_head(raw), self._key)

    def find_own(self, raw: bytes, key: Key) -> bytes | None:
        """Return the record with this key that an answer to a request for it holds, itself or one level down.

        None where it holds something else, such as an error that is told with status 200, though it quotes the key, or
        another record, though this one stands in it.
        """
        with suppress(ValueError, RecursionError):
            try:
                return self._clean(raw) if self.identify(raw).text == key.text else None
            except KeyMissing:
                inside = [bytes(member) for name, member in _MEMBERS.decode(raw).items() if name not in _ERRORS]
            for candidate in inside:
                with suppress(ValueError):
                    if self.identify(candidate).text == key.text:
                        return self._clean(candidate)
        return None

    def shows(self, raw: bytes, key: Key) -> bool:
        """Return whether an answer to a request for this record is about it, whether it can be read whole or not."""
        if self.find_own(raw, key) is not None:
            return True
        head = salvage(raw)
        if not isinstance(head, dict):
            return False
        for candidate in (head, *(value for name, value in head.items() if name not in _ERRORS)):
            with suppress(ValueError):
                return key_of(candidate, self._key).text == key.text
        return False

    def fingerprint(self, body: bytes) -> bytes:
        """Return the fingerprint of a stored record, without the members of its detail.

        Raises:
            ValueError: It is not JSON.
        """
        return self._canon.fingerprint(self._take_list_part(decode(body), ()))

    def _read_head(self, raw: bytes) -> dict[str, JSON]:
        try:
            return self._head.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"not a JSON object: {error}") from error

    def detect(self, page: Page, reading: ReadContext, snapshots: Snapshots) -> PageDiff:
        """Return what a page comes to against the stored snapshots.

        Raises:
            Collision: Two records with one key, which was not so before and may not be so when asked again; or many of
                them, and the key was learned.
        """
        verdict = PageDiff()
        sightings = self._identify_all(page, verdict)
        self._check_doubled(page, reading, snapshots, verdict)
        stored = snapshots.find(list(sightings))
        readings = self._sift(sightings, stored, verdict)
        if reading.baseline or reading.settles:
            readings = self._take_baseline(readings, page, reading, verdict)
        candidates = self._read_all(readings, verdict)
        verdict.dates = dict.fromkeys(sightings)
        verdict.dates |= {text: known.modified for text, known in stored.items()}
        verdict.dates |= {write.key: write.modified for write in verdict.writes}
        verdict.dates |= {each.key.text: micros(each.modified) for each in candidates}
        self._judge_all(candidates, page, reading, snapshots, verdict)
        if verdict.bad:
            known_digests = snapshots.quarantined([bad.digest for bad in verdict.bad])
            verdict.bad = [bad._replace(known=bad.digest in known_digests) for bad in verdict.bad]
            verdict.notes += [Note(bad.key, Finding.QUARANTINED) for bad in verdict.bad if bad.key and not bad.known]
        return verdict

    def _identify_all(self, page: Page, verdict: PageDiff) -> dict[str, Sighting]:
        """Return the records of a page by their keys; without text where a key stands with two of them."""
        sightings: dict[str, Sighting] = {}
        for index, raw in enumerate(page.records):
            head, problem = self._find_head(raw, page.unsound.get(index))
            try:
                key = key_of(head, self._key)
            except ValueError as error:
                verdict.bad.append(self._bad_without_key(raw, f"record {index + 1} of the page: {problem or error}"))
                continue
            if problem:
                bad = _bad(raw, key.text, f"key {key.text}: {problem}")
                if bad in verdict.bad:
                    continue
                verdict.bad.append(bad)
            first = sightings.get(key.text)
            if first is None:  # it is there, even where nothing more can be told
                sightings[key.text] = Sighting(key, None if problem else raw, head)
            elif first.raw != raw and (first.raw is None or not self._is_same(first.raw, raw)):
                fact = _DOUBLED.format(key.text)
                sightings[key.text] = Sighting(key, None, head)
                verdict.bad += [_bad(each, key.text, fact) for each in (first.raw, raw) if each is not None]
        return sightings

    def _bad_without_key(self, raw: bytes, problem: str) -> Bad:
        """Return a bad record that only its content names: it is the same one however its text is written."""
        try:
            content = self._canon.fingerprint(decode(raw))
        except ValueError:
            content = raw
        return Bad(blake2b(content, digest_size=DIGEST_SIZE).digest(), "", problem, raw)

    def _check_doubled(self, page: Page, reading: ReadContext, snapshots: Snapshots, verdict: PageDiff) -> None:
        """Refuse a page with records under one key, unless asking again is of no use, and they may be left out."""
        doubled = {bad.digest: bad.problem for bad in verdict.bad if bad.problem == _DOUBLED.format(bad.key)}
        verdict.doubled = len(doubled)
        if not doubled:
            return
        is_many = self._learned and len(doubled) > max(_DOUBLED_MOST, len(page.records) * _DOUBLED_SHARE)
        is_new = reading.may_ask_again and not doubled.keys() <= set(snapshots.quarantined(list(doubled)))
        if is_many or is_new:
            raise Collision(next(iter(doubled.values())))

    def _find_head(self, raw: bytes, unsound: Unsound | None) -> tuple[JSON, str]:
        """Return the members of a record that matter here, and what is wrong with it; empty where nothing is."""
        if unsound is not None:
            return unsound.head, unsound.problem
        try:
            return self._read_head(raw), ""
        except ValueError as error:
            return salvage(raw), str(error)

    def _is_same(self, one: bytes, other: bytes) -> bool:
        """Return whether two texts state the same record."""
        try:
            return self._canon.fingerprint(decode(one)) == self._canon.fingerprint(decode(other))
        except ValueError:
            return False

    def _sift(
        self, sightings: Mapping[str, Sighting], stored: Mapping[str, Stored], verdict: PageDiff
    ) -> list[Differing]:
        """Return the records that are not byte for byte as stored, and note all that are there."""
        differing: list[Differing] = []
        for text, (key, raw, head) in sightings.items():
            known = stored.get(text)
            if known is not None:
                verdict.seen.append(known.row)
                if known.missed:
                    verdict.cleared.append(known.row)
                    verdict.notes.append(Note(text, Finding.SEEN_AGAIN))
            if raw is None:
                continue  # it stands there twice: which is true cannot be told
            raw_hash = blake2b(raw, digest_size=DIGEST_SIZE).digest()
            if known is None or known.gone_at is not None or known.raw_hash != raw_hash:
                differing.append(Differing(key, raw, raw_hash, head, known))
            elif known.held:
                verdict.released.append(known.row)
        return differing

    def _take_baseline(
        self, readings: Sequence[Differing], page: Page, reading: ReadContext, verdict: PageDiff
    ) -> list[Differing]:
        """Store what is baseline and silent; return the other readings.

        Nobody has compared these records yet, so that nothing of them is decoded but key and timestamp: the hash of
        their text stands for the fingerprint until their content changes.
        """
        others = []
        oldest = None
        for each in readings:
            date = self._time(each.head, self._date)
            is_silent = reading.baseline if date is None else reading.was_there(date, page.answered_at)
            if each.known is not None or not is_silent or reading.emits or not _is_plain(each.raw):
                others.append(each)
                continue
            modified = micros(date) if self._updated_at else None
            verdict.skipped += reading.settles
            verdict.writes.append(Write(None, each.key.text, each.raw_hash, each.raw_hash, modified, 0, each.raw))
            if modified is not None and (oldest is None or modified < oldest):
                oldest = modified
        verdict.oldest_unseen = None if oldest is None else from_micros(oldest)
        return others

    def _read_all(self, readings: Sequence[Differing], verdict: PageDiff) -> list[Candidate]:
        candidates = []
        for key, raw, raw_hash, _, known in readings:
            try:
                document = decode(raw)
            except ValueError as error:
                verdict.bad.append(_bad(raw, key.text, f"key {key.text}: {error}"))
                continue
            fingerprint, modified = self._canon.fingerprint(document), self._time(document, self._updated_at)
            candidates.append(Candidate(key, raw, raw_hash, document, fingerprint, modified, known))
        return candidates

    def _judge_all(
        self,
        candidates: Sequence[Candidate],
        page: Page,
        reading: ReadContext,
        snapshots: Snapshots,
        verdict: PageDiff,
    ) -> None:
        differing = []
        for each in candidates:
            known = each.known
            if known is None or known.gone_at is not None or known.fingerprint != each.fingerprint or known.is_met:
                differing.append(each)
                continue
            if known.held:
                verdict.released.append(known.row)
            if each.has_moved and not each.is_older(page, reading.stale_window):
                if self._touch:
                    differing.append(each)
                else:  # mostly no event, but the next comparison starts from here
                    self._store_silently(each, each.write(known.revision, known.superseded), None, verdict)
                    verdict.notes.append(each.note(Finding.TOUCHED))
                    verdict.meet_unseen(each.modified)
        bodies = snapshots.bodies([each.known.row for each in differing if each.known and each.known.gone_at is None])
        holds = snapshots.holds([each.known.row for each in differing if each.known and each.known.held])
        compared = [
            difference
            for each in differing
            if (difference := self._compare(each, None if each.known is None else bodies.get(each.known.row), verdict))
        ]
        drift = reading.drift
        if not (reading.baseline or reading.rebaselining):
            still = [
                (each.patch, each.previous)
                for each in compared
                if each.patch is not None and not each.candidate.has_advanced
            ]
            drift = extend_drift(drift, still, len(page.records))
            verdict.drift = None if drift == reading.drift else drift
        for difference in compared:
            known = difference.candidate.known
            hold = None if known is None else holds.get(known.row)
            self._state(difference, hold, drift, verdict, page=page, reading=reading)

    def _compare(self, candidate: Candidate, before: bytes | None, verdict: PageDiff) -> Difference | None:
        """Return how a record differs from the stored one; None where it does not by today's rules."""
        known = candidate.known
        if known is None or before is None or known.is_met:
            return Difference(candidate, None, None, None, b"")
        try:
            before = self._clean(before)
            previous = self._take_list_part(decode(before), candidate.document)
        except ValueError:  # a baseline that nobody had to read yet
            return Difference(candidate, None, None, None, known.fingerprint)
        # A stored fingerprint may be that of other rules than today's: only what differs by these has changed.
        fingerprint = self._canon.fingerprint(previous)
        if fingerprint == candidate.fingerprint and not (self._touch and candidate.has_moved):
            write = candidate.write(known.revision, known.superseded)
            if known.revision == 0:  # what stands for the fingerprint may stay: the content is the same
                write = write._replace(fingerprint=known.fingerprint)
            self._store_silently(candidate, write, before, verdict)
            verdict.notes.append(candidate.note(Finding.TOUCHED if candidate.has_moved else Finding.QUIET))
            return None
        return Difference(candidate, before, previous, diff(previous, candidate.document), fingerprint)

    def _store_silently(self, candidate: Candidate, write: Write, before: bytes | None, verdict: PageDiff) -> None:
        """Store a record that has no event, without taking from the stored one what the list does not show.

        Args:
            candidate: The record.
            write: It, as the list shows it.
            before: What is stored of it; None where that may stay, because its content is the same.
            verdict: Takes it.
        """
        row = write.row
        if self._detail and row is not None:
            write = write._replace(body=None if before is None else self._merge(candidate.raw, before))
            verdict.amended.append(Amended(row, candidate.raw, candidate.modified))
        verdict.writes.append(write)

    def _take_list_part(self, stored: JSON, listed: JSON) -> JSON:
        """Return what of a stored record the list can show: without the members of its detail."""
        if not self._detail or not isinstance(stored, dict):
            return stored
        return {name: value for name, value in stored.items() if name not in self._detail or name in listed}

    def _state(
        self,
        difference: Difference,
        hold: Hold | None,
        drift: Drift | None,
        verdict: PageDiff,
        *,
        page: Page,
        reading: ReadContext,
    ) -> None:
        """Add to the judgement what a record comes to that is unknown, gone or different."""
        candidate, known = difference.candidate, difference.candidate.known
        if known is not None and self._hold(candidate, known, hold, verdict, page=page, reading=reading):
            return
        if reading.provisional and not self._is_baseline(candidate, page, reading):
            self._meet(candidate, verdict, reading)
            return
        if self._is_undecided(candidate, reading):
            self._leave_undecided(candidate, verdict)
            return
        finding = self._silence(difference, drift, reading)
        if finding is Finding.DRIFT:
            verdict.drifted += 1
            return
        kind = None if finding is not None else self._kind(candidate, page, reading)
        revision = 0 if known is None else known.revision
        if kind is not None and kind is not ChangeKind.SNAPSHOT:
            revision += 1
        write = candidate.write(revision)
        if known is not None and known.gone_at is None:
            write = write._replace(
                superseded=supersede(known.superseded, difference.fingerprint, page.answered_at, reading.stale_window),
                is_unexplained=reading.provisional or not candidate.has_advanced,
            )
        if finding is None or difference.before is None:
            verdict.writes.append(write)
        else:
            self._store_silently(candidate, write, difference.before, verdict)
        verdict.meet_unseen(candidate.modified)
        if kind is not None:
            self._publish(difference, kind, revision, hold, verdict, page=page, reading=reading)
        elif finding is not None and known is not None:
            verdict.notes.append(candidate.note(finding))

    def _is_undecided(self, candidate: Candidate, reading: ReadContext) -> bool:
        """Return whether nothing tells a record that is new from one that the first pass has skipped."""
        known = candidate.known
        is_unknown = known is None or known.raw_hash == UNDECIDED
        return is_unknown and reading.settles and self._time(candidate.document, self._date) is None

    def _leave_undecided(self, candidate: Candidate, verdict: PageDiff) -> None:
        """Store a record that is published when the pass has ended, or taken for baseline."""
        known = candidate.known
        verdict.skipped += 1
        if known is None or known.fingerprint != candidate.fingerprint:
            verdict.writes.append(candidate.write(0)._replace(raw_hash=UNDECIDED))
        if known is None:
            verdict.notes.append(candidate.note(Finding.UNDECIDED))

    def decide(
        self, body: bytes, kind: ChangeKind, since: datetime | None, *, until: datetime, now: datetime
    ) -> Change:
        """Return the ``created``, or the ``snapshot``, of a record that the second pass had left undecided."""
        return Change(
            feed=self._feed,
            key=self.identify(body),
            kind=kind,
            revision=0 if kind is ChangeKind.SNAPSHOT else 1,
            before=None,
            after=self._clean(body),
            patch=None,
            changed=None,
            changed_between=(since, until),
            modified_at=None,
            detected_at=now,
            via=Via.PASS,
            detail_missing=bool(self._detail),
        )

    def _meet(self, candidate: Candidate, verdict: PageDiff, reading: ReadContext) -> None:
        """Leave a record to the first poll, which begins before it; note that one was met that was unknown."""
        known = candidate.known
        if known is None:
            mark = _MET if reading.baseline else _MET_LATER
            verdict.writes.append(candidate.write(0)._replace(raw_hash=mark))
            verdict.notes.append(candidate.note(Finding.POSTPONED))
        elif known.is_met and known.fingerprint != candidate.fingerprint:
            write = candidate.write(0)._replace(raw_hash=known.raw_hash, is_unexplained=not candidate.has_advanced)
            verdict.writes.append(write)

    def _publish(
        self,
        difference: Difference,
        kind: ChangeKind,
        revision: int,
        hold: Hold | None,
        verdict: PageDiff,
        *,
        page: Page,
        reading: ReadContext,
    ) -> None:
        """Add a change to the judgement, and what it says of the feed's timestamps."""
        candidate, known = difference.candidate, difference.candidate.known
        late = reading.lateness(candidate.modified, None if known is None else known.modified)
        if kind is not ChangeKind.SNAPSHOT:
            self._count(candidate, late, verdict, reading)
        since, is_late = self._bound(candidate, hold, page, reading)
        is_late = is_late or late is not None
        if self._detail and kind is not ChangeKind.SNAPSHOT:
            self._await_detail(candidate, kind, verdict, since=since, is_late=is_late, page=page, reading=reading)
            return
        change = Change(
            feed=self._feed,
            key=candidate.key,
            kind=kind,
            revision=revision,
            before=difference.before,
            after=candidate.raw,
            patch=difference.patch,
            changed=self._name_changed(difference.patch, difference.previous, candidate.document),
            changed_between=(since, page.answered_at),
            modified_at=candidate.modified,
            detected_at=page.received_at,
            via=reading.via,
            late=is_late,
            made_at=None if kind is ChangeKind.SNAPSHOT else candidate.made_at(page),
        )
        verdict.changes.append(change)
        verdict.notes.append(candidate.note(Finding(kind.value), change))

    def _bound(
        self, candidate: Candidate, hold: Hold | None, page: Page, reading: ReadContext
    ) -> tuple[datetime | None, bool]:
        """Return after what a change was made at the earliest, and whether a complete run before covered it in vain.

        That is the start of the last complete run that would have shown it; but no later than its own date where that
        moved and is plausible, and no later than when it was first seen, for a reading that was held meanwhile.
        """
        known, modified, until = candidate.known, candidate.modified, page.answered_at
        since = reading.unseen_since(modified, known)
        is_dated = known is None or known.is_met or candidate.has_moved
        is_late = is_dated and reading.is_late(modified, since, until)
        made = reading.date(modified, until) if is_dated else None
        if hold is not None and hold.fingerprint == candidate.fingerprint:
            first_seen = from_micros(hold.asked_at)
            if since is not None and since >= first_seen:  # a run that showed it, and was not believed
                return (made if made is not None and made < first_seen else None), is_late
        return (since if since is None or made is None else min(since, made)), is_late

    def _await_detail(
        self,
        candidate: Candidate,
        kind: ChangeKind,
        verdict: PageDiff,
        *,
        since: datetime | None,
        is_late: bool,
        page: Page,
        reading: ReadContext,
    ) -> None:
        """Let a change wait for the record's detail; until then, revision and body stay, but for a tombstone's body."""
        known, write = candidate.known, verdict.writes[-1]
        if known is not None and known.gone_at is None:
            write = write._replace(body=None)
        verdict.writes[-1] = write._replace(revision=write.revision - 1)
        verdict.pending.append(
            Pending(
                candidate.key.text,
                None if known is None else known.row,
                candidate.raw,
                kind,
                since,
                page.answered_at,
                candidate.modified,
                is_late,
                reading.via,
                known is None or known.is_met,
                candidate.made_at(page),
            )
        )
        verdict.notes.append(candidate.note(Finding.AWAITED))

    def _hold(
        self,
        candidate: Candidate,
        known: Stored,
        hold: Hold | None,
        verdict: PageDiff,
        *,
        page: Page,
        reading: ReadContext,
    ) -> bool:
        """Hold a reading that is older than what is stored and has not been so for long; return whether it is held."""
        if self._is_stale(candidate, known, hold, page, reading):
            held = keep(hold, candidate.fingerprint, page.shown_at)
            if held is not hold:
                verdict.holds.append(Held(known.row, held, candidate.raw))
                verdict.notes.append(candidate.note(Finding.HELD))
            return True
        if known.held:
            verdict.released.append(known.row)
        return False

    def _is_stale(
        self, candidate: Candidate, known: Stored, hold: Hold | None, page: Page, reading: ReadContext
    ) -> bool:
        """Return whether a reading is to be held: older than what is stored, and not so for long enough."""
        window, fingerprint = reading.stale_window, candidate.fingerprint
        if known.gone_at is not None:
            # By our clock, like the burial; and a baseline that nobody had to read has no fingerprint.
            is_same = fingerprint == known.fingerprint or candidate.raw_hash == known.raw_hash
            buried = from_micros(known.gone_at)
            ours_behind = page.asked_at - page.received_at
            is_older = candidate.modified is not None and candidate.modified <= buried + ours_behind
            is_return = is_same and not candidate.has_advanced
            stale = (is_return or is_older) and page.received_at - page.age < buried + window
        else:
            stale = looks_stale(
                candidate.modified,
                known.modified,
                known.superseded,
                fingerprint,
                asked_at=page.shown_at,
                answered_at=page.latest,
                window=window,
            )
        return stale and not is_believed(hold, fingerprint, page.shown_at, window)

    def _silence(self, difference: Difference, drift: Drift | None, reading: ReadContext) -> Finding | None:
        """Return why a difference is no change to publish; None where it is one."""
        candidate, known = difference.candidate, difference.candidate.known
        if reading.provisional:
            return Finding.UNPROVEN
        if known is not None and known.gone_at is not None and reading.rebaselining and reading.baseline:
            # It was gone as the feed was read then, and may merely match another query: no news, like an unknown key.
            # Where a complete pass counts still, the same records are read otherwise: then it is back.
            modified = candidate.modified
            return Finding.REBASELINED if modified is None or modified < reading.began_at else None
        if known is None or difference.patch is None or candidate.has_advanced:
            return None
        if reading.rebaselining:
            return Finding.REBASELINED
        patch, previous = difference.patch, difference.previous
        if drift is not None and drift.decision is not Decision.PUBLISH and drift.covers(patch, previous):
            return Finding.ABSORBED if drift.decision is Decision.ABSORB else Finding.DRIFT
        return None

    def _count(self, candidate: Candidate, late: timedelta | None, verdict: PageDiff, reading: ReadContext) -> None:
        """Count what a change says of the feed's timestamps and of the polls before."""
        modified, known = candidate.modified, candidate.known
        if modified is None:
            return
        if known is not None and not known.is_met and not candidate.has_moved:
            verdict.silent += 1
            return
        if late is None:
            verdict.on_time += 1
        else:
            verdict.lateness.append(late)
        is_news = known is None or candidate.has_advanced
        if is_news and reading.polled_from is not None and modified < reading.polled_from:
            verdict.missed += 1

    def _name_changed(self, patch: list[dict[str, JSON]] | None, previous: JSON, document: JSON) -> list[str] | None:
        """Return where a record really changed: by its canonical form; the whole patch where that is the same."""
        if patch is None:
            return None
        return touched(diff(self._canon.form(previous), self._canon.form(document))) or touched(patch)

    def _is_baseline(self, candidate: Candidate, page: Page, reading: ReadContext) -> bool:
        """Return whether a reading of the first pass says nothing of a change since that began, by its date."""
        date = self._time(candidate.document, self._date)
        if date is None:
            return True
        return date < reading.began_at if candidate.known else reading.was_there(date, page.answered_at)

    def _kind(self, candidate: Candidate, page: Page, reading: ReadContext) -> ChangeKind | None:
        """Return what to call the difference; None for a silent baseline."""
        known = candidate.known
        if known is not None and (known.gone_at is not None or not known.is_met):
            return ChangeKind.RESTORED if known.gone_at is not None else ChangeKind.UPDATED
        date = self._time(candidate.document, self._date)
        old = self._is_baseline(candidate, page, reading)
        if known is None and old and (reading.baseline or (reading.settles and date is not None)):
            return ChangeKind.SNAPSHOT if reading.emit else None
        was_met = reading.baseline or (known is not None and known.raw_hash == _MET)
        if was_met or (reading.settling and date is not None):
            created = self._time(candidate.document, self._created_at)
            # By its date it was there before, and the first pass has skipped it.
            was_there = was_met or (known is None and old)
            if was_there if created is None else created < reading.began_at:
                return ChangeKind.UPDATED
        return ChangeKind.CREATED

    def complete(
        self, pending: Pending, before: bytes | None, detail: bytes | None, revision: int, *, now: datetime
    ) -> Change | None:
        """Return the change that waited for a record's detail; None where nothing is left of it.

        Args:
            pending: The change.
            before: What is stored of the record; None where it is new or back.
            detail: The record by itself, as raw JSON; None where it did not come: what is stored of it stays then.
            revision: The record's change count before.
            now: Our time.
        """
        before = None if before is None else self._clean(before)
        after = self._merge(self._clean(pending.raw), detail or before or b"{}")
        if before is not None and detail is not None and revision == 0:
            before = self._add_first_detail(before, after)
        previous = None if before is None else decode(before)
        patch = None
        if previous is not None and pending.kind is ChangeKind.UPDATED:
            document = decode(after)
            if self._canon.fingerprint(previous) == self._canon.fingerprint(document):
                return None
            patch = diff(previous, document)
        return Change(
            feed=self._feed,
            key=self.identify(pending.raw),
            kind=pending.kind,
            revision=revision + 1,
            before=before,
            after=after,
            patch=patch,
            changed=self._name_changed(patch, previous, None if patch is None else document),
            changed_between=(pending.since, pending.until),
            modified_at=pending.modified,
            detected_at=now,
            via=pending.via if detail is None else Via.DETAIL,
            late=pending.late,
            detail_missing=detail is None,
            made_at=pending.made_at,
        )

    def _add_first_detail(self, before: bytes, after: bytes) -> bytes:
        """Return a record that nothing was published of, with the members of its detail as they are now.

        That they were never seen before is no change of the record.
        """
        known = _MEMBERS.decode(before)
        new = {name: raw for name, raw in _MEMBERS.decode(after).items() if name in self._detail and name not in known}
        return _ENCODER.encode(known | new) if new else before

    def _merge(self, listed: bytes, detail: bytes) -> bytes:
        """Return a record as the list shows it, with the members of its detail; none is decoded."""
        members = _MEMBERS.decode(detail)
        return _ENCODER.encode(
            _MEMBERS.decode(listed) | {name: members[name] for name in members if name in self._detail}
        )

    def deletion(
        self,
        body: bytes,
        revision: int,
        since: datetime | None,
        *,
        until: datetime,
        now: datetime,
        reason: DeletionReason = DeletionReason.ABSENT,
    ) -> Change:
        """Return the ``deleted`` of a record that was found to be gone between two service times."""
        return Change(
            feed=self._feed,
            key=self.identify(body),
            kind=ChangeKind.DELETED,
            revision=revision + 1,
            before=self._clean(body),
            after=None,
            patch=None,
            changed=None,
            changed_between=(since, until),
            modified_at=None,
            detected_at=now,
            via=Via.PASS,
            reason=reason,
        )

    def snapshot(self, body: bytes, modified: datetime | None, *, now: datetime) -> Change:
        """Return the ``snapshot`` of a stored record that nothing was published of yet."""
        return Change(
            feed=self._feed,
            key=self.identify(body),
            kind=ChangeKind.SNAPSHOT,
            revision=0,
            before=None,
            after=self._clean(body),
            patch=None,
            changed=None,
            changed_between=(None, now),
            modified_at=modified,
            detected_at=now,
            via=Via.FIRST_PASS,
        )

    def _time(self, document: JSON, tokens: pointer.Tokens | None) -> datetime | None:
        return None if tokens is None else parse_moment(pointer.resolve(document, tokens))


def _is_plain(raw: bytes) -> bool:
    """Return whether a record can be read for certain, as far as can be told cheaply."""
    return raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX and b"\\ud" not in raw


def _bad(raw: bytes, key: str, problem: str) -> Bad:
    return Bad(blake2b(key.encode(), digest_size=DIGEST_SIZE).digest(), key, problem, raw)


def _head_decoder(key: Sequence[pointer.Tokens]) -> msgspec.json.Decoder[dict[str, JSON]]:
    """Return a decoder of the few members that the key stands in; it skips all others without building them."""
    make_dict: Any = TypedDict  # its members are known at run time only
    return msgspec.json.Decoder(make_dict("head", {tokens[0]: Any for tokens in key}, total=False))
