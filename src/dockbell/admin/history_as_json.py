"""One record and its events as JSON, with their deliveries and the attempts: the same for ``--json`` and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dockbell.admin.as_json import Count, Model, Time
from dockbell.admin.why import EventTrace, RecordHistory, SinkTrace, explain
from dockbell.core.model import Feed
from dockbell.core.moment import format_moment, write_moment
from dockbell.core.publishing.settlement import Attempt
from dockbell.ports import Noted, StoredRecord


class RecordModel(Model):
    revision: Count
    modified: Time | None
    fingerprint: str
    purged: bool
    gone_at: Time | None
    suspected_at: Time | None
    dormant: bool
    held_at: Time | None
    awaited_at: Time | None


class QuarantineSpan(Model):
    problem: str
    first_at: Time
    last_at: Time


class RunModel(Model):
    kind: str
    asked_at: Time
    since: Time | None
    ended_at: Time
    pages: Count
    records: Count
    events: Count
    problem: str


class FindingModel(Model):
    at: Time
    via: str
    finding: str
    says: str
    modified: Time | None
    fingerprint: str | None
    sequence: Count | None


class AttemptModel(Model):
    sequence: Count
    number: Count
    at: Time
    seconds: float
    verdict: str
    error: str
    status: Count | None
    answer: str
    next_at: Time | None
    replay: bool


class SinkStage(Model):
    stage: str
    attempts: Count
    error: str
    at: Time | None
    attempt_log: list[AttemptModel]


class EventModel(Model):
    sequence: Count
    id: str
    type: str
    revision: Count
    unjudged: bool
    recorded_at: Time
    sinks: dict[str, SinkStage]


class WhyModel(Model):
    feed: str
    key: str
    given: str
    at: Time
    presence: str
    why: str | None
    record: RecordModel | None
    quarantine: list[QuarantineSpan]
    runs: list[RunModel]
    findings: list[FindingModel]
    events: list[EventModel]


class DeliveryModel(Model):
    sink: str
    stage: str
    attempts: Count
    error: str
    due: Time | None
    attempt_log: list[AttemptModel]


def describe_history(account: RecordHistory, given: str) -> WhyModel:
    """Return all that is known of a record; ``given`` is the key that was asked for."""
    return WhyModel.of(
        account,
        feed=str(account.feed),
        given=given,
        why=explain(account) or None,
        record=_describe_record(account.record) if account.record else None,
        quarantine=[QuarantineSpan.of(bad) for bad in account.quarantined],
        runs=[RunModel.of(run) for run in account.runs],
        findings=[_describe_note(note) for note in account.notes],
        events=[_describe_event(told) for told in account.events],
    )


class _StoredModel(Model):
    feed: str
    key: str
    revision: Count
    modified: Time | None
    fingerprint: str | None
    gone_at: Time | None
    record: msgspec.Raw


def write_stored(feed: Feed, record: StoredRecord) -> bytes:
    """Return what is stored of a record, its content included, on one line."""
    model = _StoredModel(
        feed=str(feed),
        key=record.key,
        revision=record.revision,
        modified=write_moment(record.modified),
        fingerprint=None if record.is_purged else record.fingerprint.hex(),
        gone_at=write_moment(record.gone_at),
        record=msgspec.Raw(record.body or b"null"),
    )
    return msgspec.json.format(msgspec.json.encode(model), indent=-1)  # some APIs write a record on several lines


def describe_traces(traces: Sequence[SinkTrace]) -> list[DeliveryModel]:
    return [DeliveryModel.of(each, attempt_log=describe_attempts(each.log)) for each in traces]


def describe_attempts(attempts: Sequence[Attempt]) -> list[AttemptModel]:
    return [
        AttemptModel.of(
            each,
            at=format_moment(each.began_at),
            seconds=round(each.took.total_seconds(), 3),
            verdict=each.verdict.value,
            replay=each.is_replay,
        )
        for each in attempts
    ]


def _describe_record(record: StoredRecord) -> RecordModel:
    return RecordModel.of(
        record, fingerprint=record.fingerprint.hex(), purged=record.is_purged, dormant=record.is_dormant
    )


def _describe_note(note: Noted) -> FindingModel:
    fingerprint = None if note.fingerprint is None else note.fingerprint.hex()
    return FindingModel.of(note, finding=note.finding.name.lower(), says=note.finding.value, fingerprint=fingerprint)


def _describe_event(told: EventTrace) -> EventModel:
    return EventModel.of(
        told.event,
        unjudged=told.is_unjudged,
        recorded_at=format_moment(told.recorded_at),
        sinks={
            each.sink: SinkStage.of(each, at=write_moment(each.due), attempt_log=describe_attempts(each.log))
            for each in told.traces
        },
    )
