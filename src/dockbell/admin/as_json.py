"""What is known of feeds, sinks and records, as JSON: the same for ``--json`` and for those who ask over HTTP.

Times are written as in events. What is added here is added to :mod:`dockbell.web.schemas`: a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dockbell.admin.explaining import explain
from dockbell.admin.reasons import list_reasons
from dockbell.admin.status import FeedStatus, Silence, Status
from dockbell.admin.why import EventTrace, RecordHistory, SinkTrace
from dockbell.core.model import JSON
from dockbell.core.moment import format_moment
from dockbell.ports import Condition, Noted, RunRecord, SinkState, StoredRecord


def write_moment(moment: datetime | None) -> str | None:
    """Return a time as text, and none as null."""
    return None if moment is None else format_moment(moment)


# How everything stands -----------------------------------------------------------------------------------------------


def describe_status(found: Status) -> dict[str, JSON]:
    """Return how feeds and sinks stand, and the reasons to look closer."""
    reasons = list_reasons(found)
    return {
        "at": write_moment(found.at),
        "daemon": found.holder or None,
        "well": not reasons,
        "reasons": list(reasons),
        "feeds": [_describe_feed(each, found.at) for each in found.feeds],
        "sinks": [_describe_sink(each, found.silences.get(each.name, Silence())) for each in found.sinks],
        "web": found.crowding and {"crowded_at": write_moment(found.crowding.at), "reason": found.crowding.reason},
        "store": found.footprint
        and {
            "bytes": found.footprint.used,
            "free_bytes": found.footprint.free,
            "disk_bytes": found.footprint.disk,
            "disk_left_bytes": found.footprint.left,
        },
    }


def describe_drift(each: FeedStatus) -> dict[str, JSON] | None:
    """Return by which members many readings of a feed differ at once; null where none do."""
    state = each.state
    if state is None or state.drift is None:
        return None
    return {
        "fields": sorted(state.drift.paths),
        "decision": state.drift.decision,
        "since": write_moment(state.drift_at),
        "readings": state.drifted,
    }


def describe_gap(each: FeedStatus) -> dict[str, JSON] | None:
    """Return the last time in which dockbell was blind; null where there is none."""
    gap = each.gap
    if gap is None:
        return None
    return {"from": write_moment(gap.began_at), "to": write_moment(gap.ended_at), "reason": gap.reason}


def describe_quarantine(each: FeedStatus) -> list[JSON]:
    """Return some of the records that cannot be told apart or read."""
    return [{"key": bad.key, "problem": bad.problem, "last_at": write_moment(bad.last_at)} for bad in each.bad]


def _describe_feed(each: FeedStatus, at: datetime) -> dict[str, JSON]:
    state, shape = each.state, each.state and each.state.shape
    return {
        "feed": str(each.feed),
        "records": each.records,
        "events": state.sequence if state else 0,
        "read_at": write_moment(each.read_at),
        "watermark": write_moment(state.progress.watermark if state else None),
        "pass_at": write_moment(state.full.ended_at if state and state.full else None),
        "pass_due_at": write_moment(each.pass_expected_at),
        "failed_passes": state.failing.count if state and state.failing else 0,
        "pass_problem": state.failing.problem if state and state.failing else "",
        "held": state.held if state else 0,
        "problem": state.problem if state else "",
        "key": shape and list(shape.key),
        "updated_at": shape and shape.updated_at,
        "learned": dict(each.learned),
        "proven": state.proven if state else False,
        "rebaselining": state.rebaselining if state else False,
        "lookback_seconds": each.lookback and each.lookback.total_seconds(),
        "lateness_seconds": state and state.lateness.quantile(at).total_seconds(),
        "held_readings": state.holds if state else 0,
        "quarantined": state.quarantined if state else 0,
        "quarantine": describe_quarantine(each),
        "drift": describe_drift(each),
        "gap": describe_gap(each),
        "last_change_at": write_moment(each.changed_at),
        **_describe_silence(each.silence),
    }


def find_condition(state: SinkState) -> str:
    """Return how a sink is, in one word; that an operator or the receiver has paused it goes before all else."""
    if state.paused:
        return "paused"
    if state.found is None:
        return Condition.UNKNOWN.value
    if state.found.condition is Condition.CONNECTED and state.blocked:
        return "waiting"
    return state.found.condition.value


def _describe_silence(silence: Silence) -> dict[str, JSON]:
    return {"silence": silence.kind, "silence_words": silence.words}


def _describe_sink(each: SinkState, silence: Silence) -> dict[str, JSON]:
    return {
        "sink": each.name,
        "condition": find_condition(each),
        "reason": each.found.reason if each.found else "",
        "since": write_moment(each.found.since if each.found else None),
        "owed": each.owed,
        "blocked": each.blocked,
        "dead": each.dead,
        "held": each.held,
        "replays": each.replays,
        "paused": each.paused or None,
        "paused_at": write_moment(each.paused_at),
        "oldest": write_moment(each.oldest),
        "error": each.error,
        **_describe_silence(silence),
    }


# One record ----------------------------------------------------------------------------------------------------------


def describe_history(account: RecordHistory, given: str) -> dict[str, JSON]:
    """Return all that is known of a record; ``given`` is the key that was asked for."""
    return {
        "feed": str(account.feed),
        "key": account.key,
        "given": given,
        "at": write_moment(account.at),
        "presence": account.presence.value,
        "why": explain(account) or None,
        "record": account.record and _describe_record(account.record),
        "quarantine": [
            {"problem": bad.problem, "first_at": write_moment(bad.first_at), "last_at": write_moment(bad.last_at)}
            for bad in account.quarantined
        ],
        "runs": [_describe_run(run) for run in account.runs],
        "findings": [_describe_note(note) for note in account.notes],
        "events": [_describe_event(told) for told in account.events],
    }


def describe_traces(transits: Sequence[SinkTrace]) -> list[JSON]:
    """Return how far an event is with each sink."""
    return [
        {
            "sink": transit.sink,
            "stage": transit.stage.value,
            "attempts": transit.attempts,
            "error": transit.error,
            "due": write_moment(transit.due),
        }
        for transit in transits
    ]


def _describe_record(record: StoredRecord) -> dict[str, JSON]:
    return {
        "revision": record.revision,
        "modified": write_moment(record.modified),
        "fingerprint": record.fingerprint.hex(),
        "purged": record.is_purged,
        "gone_at": write_moment(record.gone_at),
        "suspected_at": write_moment(record.suspected_at),
        "dormant": record.is_dormant,
        "held_at": write_moment(record.held_at),
        "awaited_at": write_moment(record.awaited_at),
    }


def _describe_run(run: RunRecord) -> dict[str, JSON]:
    return {
        "kind": run.kind,
        "asked_at": write_moment(run.asked_at),
        "since": write_moment(run.since),
        "ended_at": write_moment(run.ended_at),
        "pages": run.pages,
        "records": run.records,
        "events": run.events,
        "problem": run.problem,
    }


def _describe_note(note: Noted) -> dict[str, JSON]:
    return {
        "at": write_moment(note.at),
        "via": note.via,
        "finding": note.finding.name.lower(),
        "says": note.finding.value,
        "modified": write_moment(note.modified),
        "fingerprint": note.fingerprint and note.fingerprint.hex(),
        "sequence": note.sequence,
    }


def _describe_event(told: EventTrace) -> dict[str, JSON]:
    return {
        "sequence": told.event.sequence,
        "id": told.event.id,
        "type": told.event.type,
        "revision": told.event.revision,
        "unjudged": told.is_unjudged,
        "recorded_at": write_moment(told.recorded_at),
        "sinks": {
            transit.sink: {
                "stage": transit.stage.value,
                "attempts": transit.attempts,
                "error": transit.error,
                "at": write_moment(transit.due),
            }
            for transit in told.transits
        },
    }
