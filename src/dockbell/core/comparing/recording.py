"""What becomes of each difference: a change, or what the silence rules make of it."""

from __future__ import annotations

from datetime import datetime

from dockbell.core.comparing.candidate import Facts
from dockbell.core.comparing.change_kind import find_kind
from dockbell.core.comparing.change_timing import bound_change, count_timing
from dockbell.core.comparing.holding import keep, supersede
from dockbell.core.comparing.page_diff import (
    MET_IN_FIRST_PASS,
    MET_LATER,
    UNDECIDED,
    Finding,
    Held,
    PageDiff,
    Pending,
    Write,
)
from dockbell.core.comparing.record_rules import RecordRules
from dockbell.core.comparing.silence_rules import find_silence
from dockbell.core.model import Change, ChangeKind


def record_difference(facts: Facts, rules: RecordRules, result: PageDiff) -> None:
    """Add to the result what a record comes to that is unknown, gone or different."""
    finding, known = find_silence(facts), facts.known
    if known is not None and known.held and finding is not Finding.HELD:
        result.released.append(known.row)
    if finding is Finding.HELD:
        _hold(facts, result)
    elif finding is Finding.POSTPONED:
        _leave_to_poll(facts, result)
    elif finding is Finding.UNDECIDED:
        _leave_to_end_of_pass(facts, result)
    elif finding is Finding.DRIFT:
        result.drifted += 1
    else:
        _store(facts, finding, rules, result)


# Differences that are not stored as they are -------------------------------------------------------------------------


def _hold(facts: Facts, result: PageDiff) -> None:
    """Hold a reading, unless it is held already."""
    candidate, known = facts.candidate, facts.known
    hold = keep(facts.hold, candidate.fingerprint, facts.page.shown_at)
    if known is not None and hold is not facts.hold:
        result.holds.append(Held(known.row, hold, candidate.raw))
        result.notes.append(candidate.note(Finding.HELD))


def _leave_to_poll(facts: Facts, result: PageDiff) -> None:
    """Note that a record was met; the first poll, which starts before its date, publishes it."""
    candidate, known = facts.candidate, facts.known
    if known is None:
        mark = MET_IN_FIRST_PASS if facts.context.baseline else MET_LATER
        result.writes.append(candidate.write(0)._replace(raw_hash=mark))
        result.notes.append(candidate.note(Finding.POSTPONED))
    elif known.is_met and known.fingerprint != candidate.fingerprint:
        write = candidate.write(0)._replace(raw_hash=known.raw_hash, is_unexplained=not candidate.has_advanced)
        result.writes.append(write)


def _leave_to_end_of_pass(facts: Facts, result: PageDiff) -> None:
    """Store a record that is published when the pass has ended, or taken for baseline."""
    candidate, known = facts.candidate, facts.known
    result.skipped += 1
    if known is None or known.fingerprint != candidate.fingerprint:
        result.writes.append(candidate.write(0)._replace(raw_hash=UNDECIDED))
    if known is None:
        result.notes.append(candidate.note(Finding.UNDECIDED))


# Differences that are stored -----------------------------------------------------------------------------------------


def _store(facts: Facts, finding: Finding | None, rules: RecordRules, result: PageDiff) -> None:
    """Store a record, and publish its change where no finding silences it."""
    candidate, before = facts.candidate, facts.difference.before
    kind = find_kind(facts) if finding is None else None
    write = _write(facts, kind)
    if finding is None or before is None:
        result.writes.append(write)
    else:
        rules.detail.store_silently(candidate, write, before, result)
    result.meet_unseen(candidate.modified)
    if kind is not None:
        _publish(facts, kind, rules, result)
    elif finding is not None and facts.known is not None:
        result.notes.append(candidate.note(finding))


def _write(facts: Facts, kind: ChangeKind | None) -> Write:
    """Return the snapshot of a record; a change that is published counts in its revision."""
    candidate, known, context = facts.candidate, facts.known, facts.context
    is_counted = kind not in (None, ChangeKind.SNAPSHOT)
    write = candidate.write((0 if known is None else known.revision) + is_counted)
    if known is None or known.gone_at is not None:
        return write
    replaced, at = facts.difference.fingerprint, facts.page.answered_at
    return write._replace(
        superseded=supersede(known.superseded, replaced, at, context.stale_window),
        is_unexplained=context.provisional or not candidate.has_advanced,
    )


def _publish(facts: Facts, kind: ChangeKind, rules: RecordRules, result: PageDiff) -> None:
    """Add a change, or let it wait for its detail; and count what it says of the feed's timestamps."""
    candidate, known = facts.candidate, facts.known
    late = facts.context.lateness(candidate.modified, None if known is None else known.modified)
    if kind is not ChangeKind.SNAPSHOT:
        count_timing(facts, late, result)
    since, is_late = bound_change(facts)
    is_late = is_late or late is not None
    if rules.detail and kind is not ChangeKind.SNAPSHOT:
        _await_detail(facts, kind, since, result, is_late=is_late)
        return
    change = _make_change(facts, kind, since, rules, revision=result.writes[-1].revision, is_late=is_late)
    result.changes.append(change)
    result.notes.append(candidate.note(Finding(kind.value), change))


def _make_change(
    facts: Facts, kind: ChangeKind, since: datetime | None, rules: RecordRules, *, revision: int, is_late: bool
) -> Change:
    difference, candidate, page = facts.difference, facts.candidate, facts.page
    return Change(
        feed=rules.feed,
        key=candidate.key,
        kind=kind,
        revision=revision,
        before=difference.before,
        after=candidate.raw,
        patch=difference.patch,
        changed=rules.name_changed(difference.patch, difference.previous, candidate.document),
        changed_between=(since, page.answered_at),
        modified_at=candidate.modified,
        detected_at=page.received_at,
        via=facts.context.via,
        late=is_late,
        made_at=None if kind is ChangeKind.SNAPSHOT else candidate.made_at(page),
    )


def _await_detail(facts: Facts, kind: ChangeKind, since: datetime | None, result: PageDiff, *, is_late: bool) -> None:
    """Let a change wait for the record's detail; the stored revision and body stay, but for a tombstone's body."""
    candidate, known, write = facts.candidate, facts.known, result.writes[-1]
    if known is not None and known.gone_at is None:
        write = write._replace(body=None)
    result.writes[-1] = write._replace(revision=write.revision - 1)
    result.pending.append(
        Pending(
            key=candidate.key.text,
            row=None if known is None else known.row,
            raw=candidate.raw,
            kind=kind,
            since=since,
            until=facts.page.answered_at,
            modified=candidate.modified,
            late=is_late,
            via=facts.context.via,
            is_first=known is None or known.is_met,
            made_at=candidate.made_at(facts.page),
        )
    )
    result.notes.append(candidate.note(Finding.AWAITED))
