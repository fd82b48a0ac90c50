"""Finds what became of the records of one feed: new, changed, back, gone, or as they were (docs/guarantees.md).

A page is compared in :mod:`~dockbell.core.comparing.page_comparison`. A difference is not always a change: the rules
are in :mod:`~dockbell.core.comparing.silence_rules`. Whether an absent record is deleted is decided in
:mod:`~dockbell.core.comparing.deletion_rules`. Each finding has a name, which is kept for ``dockbell why``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.deletion_rules import delete
from dockbell.core.comparing.page_comparison import PageComparison
from dockbell.core.comparing.page_diff import KnownRecords, PageDiff, Pending, Snapshots
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.record_rules import DetailMembers, RecordIdentity, RecordRules
from dockbell.core.diff import diff
from dockbell.core.document import decode
from dockbell.core.model import Change, ChangeKind, DeletionReason, Feed, Key, Page, Via


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
        """Set how records are told apart and compared; ``key`` and both times are JSON pointers.

        ``learned``: the key was learned, not configured: two records with one key prove it wrong. ``detail``: members
        that come with each record's detail, not with the list; changes wait for it. ``touch``: publish changes of the
        timestamp alone. ``clean`` takes out of a raw record what is never stored. Pages are clean when they come;
        stored records may be older than the setting, and details come as the API has them.
        """
        self._identity = RecordIdentity(key=key, updated_at=updated_at, created_at=created_at)
        self._rules = RecordRules(
            feed=feed,
            identity=self._identity,
            canon=canon,
            detail=DetailMembers(detail),
            clean=clean or bytes,
            is_key_learned=learned,
            publishes_touches=touch,
        )

    def identify(self, raw: bytes) -> Key:
        """Raises :class:`KeyMissing` where a record has no key, :class:`ValueError` where it is not JSON."""
        return self._identity.identify(raw)

    def find_own(self, raw: bytes, key: Key) -> bytes | None:
        """Return the record with this key that an answer to a request for it holds, clean; None: it holds none."""
        own = self._identity.find_own(raw, key)
        with suppress(ValueError, RecursionError):
            return None if own is None else self._rules.clean(own)
        return None

    def shows(self, raw: bytes, key: Key) -> bool:
        return self._identity.shows(raw, key)

    def find_date(self, raw: bytes) -> datetime | None:
        """Return the record's own timestamp, or its creation time in feeds that have no timestamps.

        Raises:
            ValueError: The record is not JSON.
        """
        return self._identity.date(self._identity.read_head(raw))

    def fingerprint(self, body: bytes) -> bytes:
        """Return the fingerprint of a stored record, without its detail; raises ValueError where it is not JSON."""
        return self._rules.canon.fingerprint(self._rules.detail.take_list_part(decode(body), ()))

    def detect(
        self, page: Page, context: ReadContext, snapshots: Snapshots, known: KnownRecords | None = None
    ) -> PageDiff:
        """Return what a page comes to; raises :class:`Collision` as :meth:`PageComparison.run` does.

        ``known`` records are not looked up.
        """
        return PageComparison(self._rules, page, context, snapshots, known).run()

    def complete(
        self, pending: Pending, before: bytes | None, detail: bytes | None, revision: int, *, now: datetime
    ) -> Change | None:
        """Return the change that waited for a record's detail; None where nothing is left of it.

        ``before`` is what is stored of the record; None where it is new or back. ``detail`` is the record by itself;
        None where it did not come, and the stored detail stays. ``revision`` is the record's change count before.
        """
        rules = self._rules
        before = None if before is None else rules.clean(before)
        after = rules.detail.merge(rules.clean(pending.raw), detail or before or b"{}")
        if before is not None and detail is not None and revision == 0:
            before = rules.detail.add_first(before, after)
        previous, document, patch = None if before is None else decode(before), None, None
        if previous is not None and pending.kind is ChangeKind.UPDATED:
            document = decode(after)
            if rules.canon.fingerprint(previous) == rules.canon.fingerprint(document):
                return None
            patch = diff(previous, document)
        return Change(
            feed=rules.feed,
            key=self.identify(pending.raw),
            kind=pending.kind,
            revision=revision + 1,
            before=before,
            after=after,
            patch=patch,
            changed=rules.name_changed(patch, previous, document),
            changed_between=(pending.since, pending.until),
            modified_at=pending.modified,
            detected_at=now,
            via=pending.via if detail is None else Via.DETAIL,
            late=pending.late,
            detail_missing=detail is None,
            visible_at=pending.visible_at,
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
        key, before = self.identify(body), self._rules.clean(body)
        return delete(self._rules.feed, key, revision, (since, until), reason, before=before, now=now)

    def decide(
        self, body: bytes, kind: ChangeKind, since: datetime | None, *, until: datetime, now: datetime
    ) -> Change:
        """Return the ``created``, or the ``snapshot``, of a record that the second pass had left undecided."""
        return Change(
            feed=self._rules.feed,
            key=self.identify(body),
            kind=kind,
            revision=0 if kind is ChangeKind.SNAPSHOT else 1,
            after=self._rules.clean(body),
            changed_between=(since, until),
            detected_at=now,
            via=Via.PASS,
            detail_missing=bool(self._rules.detail),
        )

    def snapshot(self, body: bytes, modified: datetime | None, *, now: datetime) -> Change:
        """Return the ``snapshot`` of a stored record that nothing was published of yet."""
        change = self.decide(body, ChangeKind.SNAPSHOT, None, until=now, now=now)
        return replace(change, modified_at=modified, via=Via.FIRST_PASS, detail_missing=False)
