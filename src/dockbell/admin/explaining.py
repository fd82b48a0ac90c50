"""Why a record has no event, or none of its last reading: the first rule that applies gives the reason."""

from __future__ import annotations

from datetime import datetime

from dockbell.admin.why import RecordHistory
from dockbell.config import ResourceSettings, format_duration
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.model import Feed
from dockbell.core.reading.shape import is_own_id
from dockbell.ports import FeedState, StoredRecord


def explain(account: RecordHistory) -> str:
    """Return why a record has no event, or none of its last reading; empty where that has its event."""
    if account.settings is None:
        return f"{account.feed} is not configured, or disabled: it is not read"
    if account.state is None:
        return f'{account.feed} was never read; "dockbell run" reads it'
    if account.state.problem:
        return f"{account.feed} is stopped: {account.state.problem}"
    return (
        _explain_reading(account, account.settings.settings)
        or _explain_purge(account)
        or _explain_absence(account.record, account.state)
        or _explain_finding(account)
        or (_explain_unseen(account.state) if account.record is None else "")
        or _explain_drift(account.state)
        or ("" if account.record is None or account.events else _explain_silence(account.record, account.state))
    )


def _explain_reading(account: RecordHistory, settings: ResourceSettings) -> str:
    """Return why its last reading was not compared or not believed."""
    if account.quarantined:
        bad = account.quarantined[0]
        return f"it is in quarantine since {write_time(bad.first_at)}: {bad.problem}"
    if account.record is not None and account.record.awaited_at is not None:
        return (
            f"its event waits for its detail since {write_time(account.record.awaited_at)}, for"
            f" {format_duration(settings.detail_timeout)} at the most"
        )
    if account.record is not None and account.record.held_at is not None:
        return (
            f"a reading of it is held as stale since {write_time(account.record.held_at)}: it is older than what is"
            f" stored, and is believed when it is still the same {format_duration(settings.stale_window)} later"
        )
    return ""


def _explain_purge(account: RecordHistory) -> str:
    record = account.record
    if record is None or not record.is_purged:
        return ""
    at = next((f" at {write_time(note.at)}" for note in reversed(account.notes) if note.finding is Finding.PURGED), "")
    return f"its content was purged{at} on the operator's word; when the API shows it again, it is restored"


def _explain_absence(record: StoredRecord | None, state: FeedState) -> str:
    if record is None or record.gone_at is not None:
        return ""
    if record.is_dormant:
        reason = "the feed is read differently now" if state.rebaselining else "an operator rejected its deletion"
        return f"it is absent, and kept until it is seen again: {reason}"
    if record.suspected_at is None:
        return ""
    since = f"it is absent since {write_time(record.suspected_at)}"
    if state.held:
        return (
            f"{since}, and its deletion one of {state.held} that are held;"
            f' "dockbell deletes approve {state.feed}" or "dockbell deletes reject {state.feed}" decides'
        )
    due = "" if state.confirm_at is None else f", due at {write_time(state.confirm_at)}"
    return f"{since}, and deleted once a second pass confirms that{due}"


def _explain_finding(account: RecordHistory) -> str:
    """Return what the last finding says, where it made no event."""
    if not account.notes or account.notes[-1].sequence is not None:
        return ""
    feed, note = account.feed, account.notes[-1]
    at = write_time(note.at)
    match note.finding:
        case Finding.TOUCHED:
            return f"only its timestamp moved, at {at}; touch = true in [resources.{feed.resource}] publishes that"
        case Finding.QUIET:
            return f"the reading of {at} differs only in members that are ignored"
        case Finding.DRIFT:
            return f"the reading of {at} was held as drift; {_drift_remedy(feed)}"
        case Finding.ABSORBED | Finding.REBASELINED | Finding.UNPROVEN | Finding.POSTPONED:
            return f"the reading of {at} was {note.finding}"
        case _:
            return ""


def _explain_unseen(state: FeedState) -> str:
    if state.full is None:
        return f"no run has shown it, and no pass over {state.feed} is complete yet{_tell_failure(state)}"
    last = f"the last pass was made at {write_time(state.full.asked_at)} and had {state.full.records} records"
    if state.poll is not None:
        last += f", the last poll was made at {write_time(state.poll.asked_at)}"
    return f"no complete run has ever shown it; {last}{_tell_failure(state)}"


def _explain_drift(state: FeedState) -> str:
    if state.drift is None or state.drift.decision is not Decision.HOLD:
        return ""
    paths = ", ".join(sorted(state.drift.paths))
    return f"readings that differ by {paths} alone are held as drift; {_drift_remedy(state.feed)}"


def _explain_silence(record: StoredRecord, state: FeedState) -> str:
    """Return why a stored record has no event at all."""
    if record.revision:
        return f"its events, the last of revision {record.revision}, are older than what keep_events keeps"
    if not state.proven and (state.shape is None or not is_own_id(state.shape.key, state.feed.resource)):
        return f"key {write_key(state)} is learned, not proven yet: nothing is published until a pass is complete"
    began = "" if state.first_asked_at is None else f" of {write_time(state.first_asked_at)}"
    return f"it is unchanged since the baseline{began}, which is silent{_tell_failure(state)}"


def _tell_failure(state: FeedState) -> str:
    return "" if state.failed is None else f"; the last run is incomplete: {state.failed.problem}"


def _drift_remedy(feed: Feed) -> str:
    return f'"dockbell drift absorb {feed}" or "dockbell drift publish {feed}" decides'


def write_key(state: FeedState) -> str:
    """Return the members of a feed's key."""
    return "" if state.shape is None else " + ".join(state.shape.key)


def write_time(moment: datetime) -> str:
    """Return a time for people: UTC, in whole seconds."""
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
