"""Compares records that another feed's records embed with what is stored: a reading that may only make things faster.

It updates what is stored and known to be there, and nothing else: it creates, restores and deletes nothing, clears no
suspicion, holds nothing, finds no drift. Whatever is unclear is left to the feed's own next run.

Nothing but a record's own timestamp says which of two readings is the later one when their requests overlapped, or when
the one server lags behind the other. So only a record is used whose timestamp advanced, and not into the future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.page_diff import Finding, PageDiff, Snapshots, Stored
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import Change, ChangeKind, Page
from dockbell.core.moment import micros, to_micros

_SILENT = frozenset({Finding.QUIET, Finding.TOUCHED})
_OTHER_FORM_LEAST = 10
"""So many records of one answer that differ by the same members have another form than in their own list."""


class Said(NamedTuple):
    """What a signal said of a record: the content that it replaced, its own, and its timestamp in µs."""

    before: bytes
    after: bytes
    modified: int | None


@dataclass
class EmbeddedDiff:
    """What embedded records come to."""

    page_diff: PageDiff = field(default_factory=PageDiff)  # what may be stored of it
    equal: dict[str, bytes] = field(default_factory=dict)  # keys of those that are as stored, with their fingerprints
    said: dict[str, Said] = field(default_factory=dict)  # those that are later than what is stored
    stale: list[str] = field(default_factory=list)  # keys of those that look older than what is stored
    keyless: int = 0  # those that cannot be told apart
    has_other_form: bool = False  # many differ from what is stored by the same members


def compare_embedded(
    detector: ChangeDetector,
    page: Page,
    context: ReadContext,
    snapshots: Snapshots,
) -> EmbeddedDiff:
    """Compare embedded records with what is stored."""
    result = EmbeddedDiff()
    records = _identify(detector, page.records, result)
    stored = {key: known for key, known in snapshots.find(dict.fromkeys(records)).items() if _is_there(known)}
    page = replace(page, records=tuple(records[key] for key in stored), unsound={})
    found = detector.detect(page, context, snapshots)
    if found.drift is not None or found.drifted:
        result.has_other_form = max(found.drifted, len(found.changes)) >= _OTHER_FORM_LEAST
        return result
    loud = {note.key: note for note in found.notes if note.finding not in _SILENT}
    result.equal = {key: known.fingerprint for key, known in stored.items() if key not in loud}
    result.stale = [key for key, note in loud.items() if note.finding is Finding.HELD]
    for change in found.changes:
        key = change.key.text
        if not _is_later(change, stored[key], page) or _has_other_members(change):
            continue
        assert change.before is not None
        fingerprint = loud[key].fingerprint
        assert fingerprint is not None
        result.said[key] = Said(detector.fingerprint(change.before), fingerprint, micros(change.modified_at))
    result.page_diff = PageDiff(
        writes=[write for write in found.writes if write.key in result.said],
        changes=[change for change in found.changes if change.key.text in result.said],
        notes=[note for key, note in loud.items() if key in result.said],
        oldest_unseen=_find_oldest([change for change in found.changes if change.key.text in result.said]),
    )
    return result


def contradicts(said: Said, fingerprint: bytes | None, modified: int | None) -> bool:
    """Return whether the feed's own list calls the same state otherwise than a signal did.

    It shows again what the signal had replaced, or something else under the same timestamp.
    """
    is_later = modified is not None and said.modified is not None and modified > said.modified
    is_same = modified is not None and modified == said.modified
    return not is_later and (fingerprint == said.before or (is_same and fingerprint != said.after))


def _identify(detector: ChangeDetector, records: Sequence[bytes], result: EmbeddedDiff) -> dict[str, bytes]:
    """Return the records by key; none of those that stand there twice with different text."""
    found: dict[str, bytes] = {}
    doubled = set()
    for raw in records:
        try:
            key = detector.identify(raw).text
        except ValueError:
            result.keyless += 1
            continue
        if found.setdefault(key, raw) != raw:
            doubled.add(key)
    return {key: raw for key, raw in found.items() if key not in doubled}


def _is_there(known: Stored) -> bool:
    """Return whether a record is stored and nothing about it is in doubt."""
    return known.gone_at is None and not (known.missed or known.held or known.is_met)


def _is_later(change: Change, known: Stored, page: Page) -> bool:
    """Return whether its own timestamp says that a record is later than what is stored, and not later than now."""
    modified = change.modified_at
    if modified is None or known.modified is None:
        return False
    return known.modified < to_micros(modified) <= to_micros(page.answered_at)


def _has_other_members(change: Change) -> bool:
    """Return whether a record has gained or lost a member: it may be embedded in another form."""
    return any(step["op"] in ("add", "remove") and str(step["path"]).count("/") == 1 for step in change.patch or ())


def _find_oldest(changes: Sequence[Change]) -> datetime | None:
    assert all(change.kind is ChangeKind.UPDATED for change in changes)
    return min((change.modified_at for change in changes if change.modified_at is not None), default=None)
