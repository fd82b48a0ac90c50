"""What becomes of each difference: a change, or what the silence rules make of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from dockbell.core.comparing.candidate import Facts
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
from dockbell.core.comparing.silence_rules import find_silence, keep, supersede
from dockbell.core.comparing.visibility import find_visible_at
from dockbell.core.model import Change, ChangeKind
from dockbell.core.moment import from_micros


def record_difference(facts: Facts, rules: RecordRules, result: PageDiff) -> None:
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


def _hold(facts: Facts, result: PageDiff) -> None:
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


def _store(facts: Facts, finding: Finding | None, rules: RecordRules, result: PageDiff) -> None:
    candidate, before = facts.candidate, facts.difference.before
    kind = _find_kind(facts) if finding is None else None
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
        _count_timing(facts, late, result)
    since, is_late = _bound_change(facts)
    is_late = is_late or late is not None
    if rules.detail and kind is not ChangeKind.SNAPSHOT:
        _await_detail(facts, kind, since, result, is_late=is_late)
        return
    difference, page = facts.difference, facts.page
    change = Change(
        feed=rules.feed,
        key=candidate.key,
        kind=kind,
        revision=result.writes[-1].revision,
        before=difference.before,
        after=candidate.raw,
        patch=difference.patch,
        changed=rules.name_changed(difference.patch, difference.previous, candidate.document),
        changed_between=(since, page.answered_at),
        modified_at=candidate.modified,
        detected_at=page.received_at,
        via=facts.context.via,
        late=is_late,
        visible_at=None if kind is ChangeKind.SNAPSHOT else find_visible_at(facts, result.writes[-1].revision),
    )
    result.changes.append(change)
    result.notes.append(candidate.note(Finding(kind.value), change))


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
            visible_at=find_visible_at(facts, write.revision),
        )
    )
    result.notes.append(candidate.note(Finding.AWAITED))


def _find_kind(facts: Facts) -> ChangeKind | None:
    """Return what a change is called; None for a baseline record that has no event."""
    known = facts.known
    if known is not None and known.gone_at is not None:
        return ChangeKind.RESTORED
    if known is not None and not known.is_met:
        return ChangeKind.UPDATED
    if _is_unknown_baseline(facts):
        return ChangeKind.SNAPSHOT if facts.context.emit else None
    return ChangeKind.UPDATED if _existed_before(facts) else ChangeKind.CREATED


def _is_unknown_baseline(facts: Facts) -> bool:
    """Return whether a record that was never seen was there when the feed was first asked for."""
    context = facts.context
    if facts.known is not None or not facts.is_baseline:
        return False
    return context.baseline or (context.settles and facts.date is not None)


def _existed_before(facts: Facts) -> bool:
    """Return whether a record that was never published existed when the feed was first asked for."""
    context, known = facts.context, facts.known
    was_met = context.baseline or (known is not None and known.raw_hash == MET_IN_FIRST_PASS)
    if not was_met and not (context.settling and facts.date is not None):
        return False
    if facts.created is not None:
        return facts.created < context.began_at
    is_skipped = known is None and facts.is_baseline  # it was there by its date, and the first pass did not show it
    return was_met or is_skipped


def _bound_change(facts: Facts) -> tuple[datetime | None, bool]:
    """Return the earliest time of a change, and whether the last complete run before should have shown it.

    The earliest time is the start of that run; but no later than the record's own date where that moved and is
    plausible, and no later than the first reading that showed it where that was held.
    """
    candidate, known, context = facts.candidate, facts.known, facts.context
    modified, until = candidate.modified, facts.page.answered_at
    since = context.unseen_since(modified, known)
    is_dated = known is None or known.is_met or candidate.has_moved
    is_late = is_dated and context.is_late(modified, since, until)
    made = context.date(modified, until) if is_dated else None
    hold = facts.hold
    if since is not None and hold is not None and hold.fingerprint == candidate.fingerprint:
        first_seen = from_micros(hold.asked_at)
        if since >= first_seen:  # the runs since then showed this reading in vain
            return (made if made is not None and made < first_seen else None), is_late
    return (since if since is None or made is None else min(since, made)), is_late


def _count_timing(facts: Facts, late: timedelta | None, result: PageDiff) -> None:
    """Count what a change says of the feed's timestamps and of earlier polls; ``late`` as ReadContext.lateness says."""
    candidate, known, polled_from = facts.candidate, facts.known, facts.context.polled_from
    modified = candidate.modified
    if modified is None:
        return
    if known is not None and not known.is_met and not candidate.has_moved:
        result.silent += 1
        return
    if late is None:
        result.on_time += 1
    else:
        result.lateness.append(late)
    is_news = known is None or candidate.has_advanced
    if is_news and polled_from is not None and modified < polled_from:
        result.missed += 1
