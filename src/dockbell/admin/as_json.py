"""What is known of feeds and sinks, as JSON: the same for ``--json`` and over HTTP.

The structs are the models of the JSON: OpenAPI's schemas are made of them too. Times are written as in events. They
stand in one file so that one thing has one name in all answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self, TypeAlias

import msgspec

from dockbell.admin.reasons import list_reasons
from dockbell.admin.status import FeedStatus, Quiet, Silence, Status
from dockbell.core.delays import Delay
from dockbell.core.model import RunKind
from dockbell.core.moment import format_moment, write_moment
from dockbell.ports import Condition, FeedState, Member, SinkState

CONDITIONS: Final = ("connected", "waiting", "down", "paused", "unknown")

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Time: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
_Condition: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(CONDITIONS)})]


class Model(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON object with these members and no others."""

    @classmethod
    def of(cls, found: object, **others: Any) -> Self:
        """Return the model of an object: its attributes of the members' names, times as text, and the ``others``."""
        names = (name for name in cls.__struct_fields__ if name not in others)
        return cls(**{name: _write(getattr(found, name)) for name in names}, **others)


def _write(value: Any) -> Any:
    return format_moment(value) if isinstance(value, datetime) else value


# How everything stands -----------------------------------------------------------------------------------------------


class QuarantinedRecord(Model):
    key: str
    problem: str
    last_at: Time


class HeldDrift(Model):
    fields: list[str]
    decision: str
    since: Time | None
    readings: Count


class BlindGap(Model, rename={"from_": "from"}):
    from_: Time | None
    to: Time
    reason: str


class MeasuredModel(Model):
    p50_seconds: float
    p99_seconds: float
    mean_seconds: float
    count: Count


class GoalModel(Model):
    seconds: float
    share: float | None


class FeedDelayModel(Model):
    p50_seconds: float
    p99_seconds: float
    mean_seconds: float
    count: Count
    predicted_mean_seconds: float | None
    estimated: bool
    slow: bool
    sinks: dict[str, MeasuredModel]


class FeedModel(Model):
    feed: str
    paused: bool
    records: Count
    events: Count
    read_at: Time | None
    watermark: Time | None
    pass_at: Time | None
    pass_due_at: Time | None
    failed_passes: Count
    pass_problem: str
    held: Count
    problem: str
    key: list[str] | None
    updated_at: str | None
    learned: dict[str, str]
    proven: bool
    rebaselining: bool
    lookback_seconds: float | None
    lateness_seconds: float | None
    held_readings: Count
    quarantined: Count
    quarantine: list[QuarantinedRecord]
    drift: HeldDrift | None
    gap: BlindGap | None
    interval_seconds: float | None
    short_of: str
    delay: FeedDelayModel | None
    freshness_goal: GoalModel | None
    last_change_at: Time | None
    silence: Quiet
    silence_words: str


class SinkModel(Model):
    sink: str
    condition: _Condition
    reason: str
    since: Time | None
    owed: Count
    owed_at_most: bool
    blocked: Count
    dead: Count
    held: Count
    replays: Count
    paused: str | None
    paused_at: Time | None
    oldest: Time | None
    error: str
    delay: MeasuredModel | None
    silence: Quiet
    silence_words: str


class WebModel(Model):
    crowded_at: Time
    reason: str


class StoreModel(Model):
    bytes: Count
    free_bytes: Count
    disk_bytes: Count
    disk_left_bytes: Count


class ProcessModel(Model):
    process: str
    version: str
    slot: Count
    since: Time
    sources: Count
    requests_per_minute: Count
    taken_over: Count


class StatusModel(Model):
    at: Time
    daemon: str | None
    processes: list[ProcessModel]
    well: bool
    reasons: list[str]
    delay: MeasuredModel | None
    feeds: list[FeedModel]
    sinks: list[SinkModel]
    web: WebModel | None
    store: StoreModel | None


def describe_process(each: Member) -> ProcessModel:
    since = format_moment(each.began_at)
    return ProcessModel(each.name, each.version, each.slot, since, each.sources, each.requests, each.taken_over)


def describe_status(found: Status) -> StatusModel:
    reasons, crowding, disk = list_reasons(found), found.crowding, found.footprint
    return StatusModel(
        at=format_moment(found.at),
        daemon=found.holder or None,
        processes=[describe_process(each) for each in found.members],
        well=not reasons,
        reasons=list(reasons),
        delay=None if found.delay is None else describe_measured(found.delay),
        feeds=[_describe_feed(each, found.at) for each in found.feeds],
        sinks=[
            describe_sink(each, found.silences.get(each.name, Silence()), found.delays.get(each.name))
            for each in found.sinks
        ],
        web=None if crowding is None else WebModel(format_moment(crowding.at), crowding.reason),
        store=None if disk is None else StoreModel(disk.used, disk.free, disk.disk, disk.left),
    )


def describe_drift(each: FeedStatus) -> HeldDrift | None:
    """Return by which members many readings of a feed differ at once; None where none do."""
    state = each.state
    if state is None or state.drift is None:
        return None
    return HeldDrift(sorted(state.drift.paths), state.drift.decision, write_moment(state.drift_at), state.drifted)


def describe_gap(each: FeedStatus) -> BlindGap | None:
    """Return the last time in which dockbell was blind; None where there is none."""
    gap = each.gap
    if gap is None:
        return None
    return BlindGap(write_moment(gap.began_at), format_moment(gap.ended_at), gap.reason)


def describe_quarantine(each: FeedStatus) -> list[QuarantinedRecord]:
    """Return some of the records that cannot be told apart or read."""
    return [QuarantinedRecord.of(bad) for bad in each.bad]


def find_condition(state: SinkState) -> str:
    """Return how a sink is, in one word; that an operator or the receiver has paused it goes before all else."""
    if state.paused:
        return "paused"
    if state.found is None:
        return Condition.UNKNOWN.value
    if state.found.condition is Condition.CONNECTED and state.blocked:
        return "waiting"
    return state.found.condition.value


def _describe_feed(each: FeedStatus, at: datetime) -> FeedModel:
    state, shape = each.state or FeedState(0, each.feed), each.state and each.state.shape
    failing = state.failing.get(RunKind.PASS)
    return FeedModel.of(
        state,
        feed=str(each.feed),
        paused=each.paused,
        records=each.records,
        events=state.sequence,
        read_at=write_moment(each.read_at),
        watermark=write_moment(state.progress.watermark),
        pass_at=write_moment(state.full.ended_at if state.full else None),
        pass_due_at=write_moment(each.pass_expected_at),
        failed_passes=failing.count if failing else 0,
        pass_problem=failing.problem if failing else "",
        key=list(shape.key) if shape else None,
        updated_at=shape.updated_at if shape else None,
        learned=dict(each.learned),
        lookback_seconds=None if each.lookback is None else each.lookback.total_seconds(),
        lateness_seconds=state.lateness.quantile(at).total_seconds() if each.state else None,
        held_readings=state.holds,
        quarantine=describe_quarantine(each),
        drift=describe_drift(each),
        gap=describe_gap(each),
        interval_seconds=each.every.total_seconds() if isinstance(each.every, timedelta) else None,
        short_of=each.short_of,
        delay=describe_delays(each),
        freshness_goal=describe_goal(each),
        last_change_at=write_moment(each.changed_at),
        silence=each.silence.kind,
        silence_words=each.silence.words,
    )


def describe_delays(each: FeedStatus) -> FeedDelayModel | None:
    """Return how long changes of a feed took from the API to the sinks in the last hour; None where there were none."""
    delays = each.delays
    if delays.whole is None:
        return None
    whole = describe_measured(delays.whole)
    return FeedDelayModel.of(
        whole,
        predicted_mean_seconds=None if delays.predicted is None else write_seconds(delays.predicted),
        estimated=not each.is_dated,
        slow=delays.slow is not None,
        sinks={sink: describe_measured(delay) for sink, delay in delays.sinks.items()},
    )


def describe_goal(each: FeedStatus) -> GoalModel | None:
    """Return how fresh changes are to be, and which share of the last hour's was; None without a goal."""
    goal = each.freshness_goal
    return None if goal is None else GoalModel(goal.total_seconds(), each.goal_share)


def describe_measured(delay: Delay) -> MeasuredModel:
    return MeasuredModel(write_seconds(delay.p50), write_seconds(delay.p99), write_seconds(delay.mean), delay.count)


def write_seconds(duration: timedelta) -> float:
    """Return a duration in seconds, to the millisecond."""
    return round(duration.total_seconds(), 3)


def describe_sink(each: SinkState, silence: Silence, delay: Delay | None = None) -> SinkModel:
    return SinkModel.of(
        each,
        sink=each.name,
        condition=find_condition(each),
        reason=each.found.reason if each.found else "",
        since=write_moment(each.found.since if each.found else None),
        paused=each.paused or None,
        delay=None if delay is None else describe_measured(delay),
        silence=silence.kind,
        silence_words=silence.words,
    )
