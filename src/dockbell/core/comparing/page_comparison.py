"""Compares one page with the stored snapshots: what is byte for byte as stored, what differs, and how.

Cheapest first, because nearly every record of nearly every page is unchanged: the hash of the raw slice, then the
fingerprint of the canonical form, and only for what differs there the stored body and the difference itself.

A record without a usable key, one that cannot be read, and two different records with one key go into quarantine
(:class:`~dockbell.core.comparing.page_diff.Bad`); the other records of the page are compared as always.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from dockbell.core.comparing.candidate import Candidate, Difference, Differing, Facts, Sighting
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.drift import Drift, extend_drift
from dockbell.core.comparing.page_diff import (
    Bad,
    Collision,
    Finding,
    Hold,
    KnownRecords,
    Note,
    PageDiff,
    Snapshots,
    Stored,
    Write,
)
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.record_rules import RecordIdentity, RecordRules
from dockbell.core.comparing.recording import record_difference
from dockbell.core.diff import diff
from dockbell.core.document import DEPTH_MAX, decode
from dockbell.core.key import key_of
from dockbell.core.model import DIGEST_SIZE, Key, Page
from dockbell.core.moment import from_micros, micros, to_micros

_MODIFIED: Final = attrgetter("modified")
_KEY_AND_MODIFIED: Final = attrgetter("key", "modified")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_RAW_HASH: Final = attrgetter("raw_hash")
_SIGHTING: Final[Callable[[Any], Sighting]] = partial(tuple.__new__, Sighting)
_DIFFERING: Final[Callable[[Any], Differing]] = partial(tuple.__new__, Differing)
_WRITE: Final[Callable[[Any], Write]] = partial(tuple.__new__, Write)
"""As their constructors, in a third of the time: they are made for each record of each page."""
_DOUBLED: Final = "appears twice on one page with different content"
_DOUBLED_MOST: Final = 3
_DOUBLED_SHARE: Final = 0.25
"""So many doubled keys on a page, or this share of its records, prove that the key was learned wrongly."""


class PageComparison:
    """One page on its way from raw records to a diff; used once. ``known`` records are not looked up."""

    def __init__(
        self,
        rules: RecordRules,
        page: Page,
        context: ReadContext,
        snapshots: Snapshots,
        known: KnownRecords | None = None,
    ) -> None:
        self._rules = rules
        self._page = page
        self._context = context
        self._snapshots = snapshots
        self._known = known
        self._result = PageDiff()

    def run(self) -> PageDiff:
        """Return what the page comes to; raises :class:`Collision` where keys stand twice on it."""
        sightings = self._identify()
        hashes = dict(zip(sightings, map(_RAW_HASH, sightings.values()), strict=True))
        stored = self._snapshots.find(hashes, [bad.digest for bad in self._result.bad])
        self._check_doubled()
        differing = self._sift(sightings, stored)
        if self._context.baseline or self._context.settles:
            differing = self._take_baseline(differing)
        candidates = self._decode(differing)
        self._list_dates(sightings, stored, candidates)
        for facts in self._compare_all(self._sort_out(candidates)):
            record_difference(facts, self._rules, self._result)
        self._mark_known_bad()
        return self._result

    def _identify(self) -> dict[str, Sighting]:
        """Return the records that are not known, by their keys, and list those that go into quarantine."""
        page, identity, canon = self._page, self._rules.identity, self._rules.canon
        if self._known is not None:
            sightings, bad = _identify_records(page, self._known.others, identity, canon)
            if not bad and len({*self._known.keys, *sightings}) == len(page.records):
                return sightings
            self._known = None  # a record has no key of its own: what it is depends on the others
        sightings, self._result.bad = _identify_records(page, range(len(page.records)), identity, canon)
        return sightings

    def _check_doubled(self) -> None:
        """Count the keys under which the page shows different records.

        Raises:
            Collision: Records share a key, and asking again may return a sound page, or they are so many that the key
                must have been learned wrongly. Otherwise they go into quarantine.
        """
        rules, result = self._rules, self._result
        doubled = {bad.digest: bad.problem for bad in result.bad if bad.problem == f"key {bad.key}: {_DOUBLED}"}
        result.doubled = len(doubled)
        if not doubled:
            return
        most = max(_DOUBLED_MOST, len(self._page.records) * _DOUBLED_SHARE)
        is_many = rules.is_key_learned and len(doubled) > most
        is_new = self._context.may_ask_again and not doubled.keys() <= set(self._snapshots.quarantined(list(doubled)))
        if is_many or is_new:
            raise Collision(next(iter(doubled.values())))

    def _sift(self, sightings: Mapping[str, Sighting], stored: Mapping[str, Stored]) -> list[Differing]:
        """Return the records that are not byte for byte as stored, and list all that were looked up and are there."""
        result, differing = self._result, []
        if not stored:  # as in a first read
            return [
                _DIFFERING((key, raw, raw_hash, head, None))
                for key, raw, raw_hash, head in sightings.values()
                if raw is not None
            ]
        for text, (key, raw, raw_hash, head) in sightings.items():
            known = stored.get(text)
            if known is not None:
                result.seen.append(known.row)
                if known.missed:
                    result.cleared.append(known.row)
                    result.notes.append(Note(text, Finding.SEEN_AGAIN))
            if raw is None or raw_hash is None:
                continue
            if known is None or known.gone_at is not None or known.raw_hash != raw_hash:
                differing.append(Differing(key, raw, raw_hash, head, known))
            elif known.held:
                result.released.append(known.row)
            elif not known.missed:
                result.as_stored[text] = known.row
        return differing

    def _take_baseline(self, differing: Sequence[Differing]) -> list[Differing]:
        """Store the silent baseline; return the other records.

        Of a record that is compared with nothing, only key and timestamp are decoded: the hash of its text stands for
        the fingerprint until its content changes.
        """
        context, result, identity = self._context, self._result, self._rules.identity
        if context.emits:
            return list(differing)
        is_baseline, is_dated, began_at = context.baseline, identity.is_modification_dated, context.began_at
        answered_at, others, oldest = self._page.answered_at, [], None
        for each, date in zip(differing, identity.dates([each.head for each in differing]), strict=True):
            # The first condition decides nearly always, and a call takes longer.
            was_there = date is not None and (date < began_at or context.was_there(date, answered_at))
            is_silent = is_baseline if date is None else was_there
            if each.known is not None or not is_silent or not _is_plain(each.raw):
                others.append(each)
                continue
            modified = None if date is None or not is_dated else to_micros(date)
            text, raw_hash = each.key.text, each.raw_hash
            result.writes.append(_WRITE((None, text, raw_hash, raw_hash, modified, 0, each.raw, None, False, None)))
            if modified is not None and (oldest is None or modified < oldest):
                oldest = modified
        if context.settles:
            result.skipped += len(result.writes)
        result.oldest_unseen = None if oldest is None else from_micros(oldest)
        return others

    def _decode(self, differing: Sequence[Differing]) -> list[Candidate]:
        canon, identity, candidates = self._rules.canon, self._rules.identity, []
        for key, raw, raw_hash, _, known in differing:
            try:
                document = decode(raw)
            except ValueError as error:
                self._result.bad.append(_bad_with_key(raw, key.text, str(error)))
                continue
            fingerprint, modified = canon.fingerprint(document), identity.modified(document)
            candidates.append(Candidate(key, raw, raw_hash, document, fingerprint, modified, micros(modified), known))
        return candidates

    def _list_dates(
        self, sightings: Mapping[str, Sighting], stored: Mapping[str, Stored], candidates: Sequence[Candidate]
    ) -> None:
        dates: dict[str, int | None] = dict.fromkeys(sightings)
        if self._known is not None:
            dates = self._take_known(self._known, sightings)
        dates.update(zip(stored, map(_MODIFIED, stored.values()), strict=True))
        dates.update(map(_KEY_AND_MODIFIED, self._result.writes))
        dates.update((each.key.text, each.micros) for each in candidates)
        self._result.dates = dates

    def _take_known(self, known: KnownRecords, others: Iterable[str]) -> dict[str, int | None]:
        """List the records that are known; return the dates of all, in the order of the page, where they are known."""
        self._result.seen += known.rows
        self._result.as_stored.update(zip(known.keys, known.rows, strict=True))
        dates: dict[str, int | None] = {}
        records = zip(known.keys, known.dates, strict=True)
        for place, key in zip(known.others, others, strict=True):
            dates.update(islice(records, place - len(dates)))
            dates[key] = None
        dates.update(records)
        return dates

    def _sort_out(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the records whose canonical form differs, or whose change of timestamp is published."""
        result, window, differing = self._result, self._context.stale_window, []
        for each in candidates:
            known = each.known
            if known is None or known.gone_at is not None or known.fingerprint != each.fingerprint or known.is_met:
                differing.append(each)
                continue
            if known.held:
                result.released.append(known.row)
            if not each.has_moved or each.is_older(self._page, window):
                continue
            if self._rules.publishes_touches:
                differing.append(each)
            else:
                self._store_touched(each, known)
        return differing

    def _store_touched(self, candidate: Candidate, known: Stored) -> None:
        """Store a record whose timestamp alone moved: the next comparison starts from there."""
        write = candidate.write(known.revision, known.superseded)
        self._rules.detail.store_silently(candidate, write, None, self._result)
        self._result.notes.append(candidate.note(Finding.TOUCHED))
        self._result.meet_unseen(candidate.modified)

    def _compare_all(self, candidates: Sequence[Candidate]) -> Iterator[Facts]:
        known = [each.known for each in candidates if each.known is not None]
        bodies = self._snapshots.bodies([each.row for each in known if each.gone_at is None])
        holds = self._snapshots.holds([each.row for each in known if each.held])
        compared = []
        for each in candidates:
            row = None if each.known is None else each.known.row
            difference = self._compare(each, None if row is None else bodies.get(row))
            if difference is not None:
                compared.append((difference, None if row is None else holds.get(row)))
        drift = self._find_drift([difference for difference, _ in compared])  # needs the whole page
        return (self._gather(difference, hold, drift) for difference, hold in compared)

    def _gather(self, difference: Difference, hold: Hold | None, drift: Drift | None) -> Facts:
        """Return all that decides what becomes of a difference; published records need no creation time."""
        identity, candidate = self._rules.identity, difference.candidate
        document, known = candidate.document, candidate.known
        date = candidate.modified if identity.is_modification_dated else identity.date(document)
        created = identity.created(document) if known is None or known.is_met else None
        return Facts(difference, candidate, known, date, created, hold, drift, self._page, self._context)

    def _compare(self, candidate: Candidate, before: bytes | None) -> Difference | None:
        """Return how a record differs from the stored one; None where it does not by today's rules."""
        rules, known = self._rules, candidate.known
        if known is None or before is None or known.is_met:
            return Difference(candidate, None, None, None, b"")
        try:
            before = rules.clean(before)
            previous = rules.detail.take_list_part(decode(before), candidate.document)
        except ValueError:  # a baseline record is first decoded here
            return Difference(candidate, None, None, None, known.fingerprint)
        # The stored fingerprint may follow other rules than today's: only what differs by these has changed.
        fingerprint = rules.canon.fingerprint(previous)
        if fingerprint == candidate.fingerprint and not (rules.publishes_touches and candidate.has_moved):
            self._store_equal(candidate, known, before)
            return None
        return Difference(candidate, before, previous, diff(previous, candidate.document), fingerprint)

    def _store_equal(self, candidate: Candidate, known: Stored, before: bytes) -> None:
        """Store how a record with the same content is written now, unless an older reading shows it."""
        if known.held:
            self._result.released.append(known.row)
        if candidate.is_older(self._page, self._context.stale_window):
            return
        write = candidate.write(known.revision, known.superseded)
        if known.revision == 0:  # a baseline's hash of its text may stay: the content is the same
            write = write._replace(fingerprint=known.fingerprint)
        self._rules.detail.store_silently(candidate, write, before, self._result)
        self._result.notes.append(candidate.note(Finding.TOUCHED if candidate.has_moved else Finding.QUIET))

    def _find_drift(self, differences: Sequence[Difference]) -> Drift | None:
        context = self._context
        if context.baseline or context.rebaselining:
            return context.drift
        unexplained = [
            (each.patch, each.previous)
            for each in differences
            if each.patch is not None and not each.candidate.has_advanced
        ]
        drift = extend_drift(context.drift, unexplained, len(self._page.records))
        self._result.drift = None if drift == context.drift else drift
        return drift

    def _mark_known_bad(self) -> None:
        result = self._result
        if not result.bad:
            return
        known = self._snapshots.quarantined([bad.digest for bad in result.bad])
        result.bad = [bad._replace(known=bad.digest in known) for bad in result.bad]
        result.notes += [Note(bad.key, Finding.QUARANTINED) for bad in result.bad if bad.key and not bad.known]


def _identify_records(
    page: Page, places: Sequence[int], identity: RecordIdentity, canon: Canon
) -> tuple[dict[str, Sighting], list[Bad]]:
    """Return some records of a page by key, without text where unreadable or doubled, and those for quarantine."""
    records, hashes = [page.records[place] for place in places], [page.hashes[place] for place in places]
    if not page.unsound and (plain := identity.find_plain(records)) is not None:
        texts, heads = plain
        rows = zip(map(Key, texts, texts), records, hashes, heads, strict=True)
        return dict(zip(texts, map(_SIGHTING, rows), strict=True)), []
    sightings: dict[str, Sighting] = {}
    bads: list[Bad] = []
    for index, raw, raw_hash in zip(places, records, hashes, strict=True):
        head, problem = identity.salvage_head(raw, page.unsound.get(index))
        try:
            key = key_of(head, identity.key)
        except ValueError as error:
            # Known by its content, however its text is written.
            content = _fingerprint(raw, canon) or raw
            bads.append(Bad(_digest(content), "", f"record {index + 1} of the page: {problem or error}", raw))
            continue
        if problem:
            bad = _bad_with_key(raw, key.text, problem)
            if bad in bads:
                continue
            bads.append(bad)
        first = sightings.get(key.text)
        if first is None:  # a record that cannot be read is seen all the same
            sightings[key.text] = Sighting(key, None, None, head) if problem else Sighting(key, raw, raw_hash, head)
        elif first.raw != raw and (first.raw is None or not _states_same(first.raw, raw, canon)):
            sightings[key.text] = Sighting(key, None, None, head)
            bads += [_bad_with_key(each, key.text, _DOUBLED) for each in (first.raw, raw) if each is not None]
    return sightings, bads


def _bad_with_key(raw: bytes, key: str, problem: str) -> Bad:
    return Bad(_digest(key.encode()), key, f"key {key}: {problem}", raw)


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=DIGEST_SIZE).digest()


def _states_same(one: bytes, other: bytes, canon: Canon) -> bool:
    content = _fingerprint(one, canon)
    return content is not None and content == _fingerprint(other, canon)


def _fingerprint(raw: bytes, canon: Canon) -> bytes | None:
    try:
        return canon.fingerprint(decode(raw))
    except ValueError:
        return None


def _is_plain(raw: bytes) -> bool:
    """Return whether a record can certainly be decoded, as far as a cheap look tells."""
    # Most records have no backslash, and a single byte is found faster than a pattern.
    return raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX and (b"\\" not in raw or not _SURROGATE.search(raw))
