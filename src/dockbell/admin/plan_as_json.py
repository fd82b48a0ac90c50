"""The plan of each source as JSON: the same for ``--json`` and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from dockbell.admin.as_json import Count, MeasuredModel, Model, describe_measured
from dockbell.admin.planning import FeedPlan, Origin, SourcePlan
from dockbell.config import format_duration
from dockbell.core.planning.division import Reason
from dockbell.core.planning.forecast import FeedForecast, Forecast


class DelayModel(Model):
    mean_seconds: float
    p99_seconds: float


class BackgroundModel(Model):
    feed: str
    kind: str
    requests_per_minute: float


class FeedPlanModel(Model):
    feed: str
    every: str | None
    at_most: str | None
    cron: str | None
    weight: float
    interval_seconds: float | None
    reason: Reason | None
    records: Count
    records_from: Origin
    cost: float
    cost_from: Origin
    changes_per_minute: float
    changes_from: Origin
    requests_per_minute: float
    part_of_budget: float
    delay: DelayModel | None
    measured: MeasuredModel | None
    measured_estimated: bool


class SourcePlanModel(Model):
    source: str
    fits: bool
    advice: str
    limit_per_minute: Count
    share: float
    budget_per_minute: float
    reserve_per_minute: float
    background_per_minute: float
    background: list[BackgroundModel]
    feeds_per_minute: float
    spare_per_minute: float
    feeds: list[FeedPlanModel]
    delay: DelayModel
    measured: MeasuredModel | None
    floor: DelayModel


class PlanModel(Model):
    fits: bool
    reasons: list[str]
    sources: list[SourcePlanModel]
    what_if: list[SourcePlanModel] | None


def describe_plan(
    plans: Sequence[SourcePlan], others: Sequence[SourcePlan] | None, reasons: Sequence[str]
) -> PlanModel:
    """Return the plan of each source; ``others``: the same with other settings."""
    what_if = None if others is None else [_describe_source_plan(each) for each in others]
    return PlanModel(not reasons, list(reasons), [_describe_source_plan(each) for each in plans], what_if)


def _describe_source_plan(plan: SourcePlan) -> SourcePlanModel:
    supply = plan.supply
    background = [BackgroundModel(str(each.feed), each.kind, _per_minute(each.requests)) for each in supply.background]
    return SourcePlanModel(
        source=plan.source,
        fits=not plan.reason,
        advice=plan.advice,
        limit_per_minute=supply.limit,
        share=plan.settings.share,
        budget_per_minute=_per_minute(supply.total),
        reserve_per_minute=_per_minute(supply.reserve),
        background_per_minute=_per_minute(supply.taken),
        background=background,
        feeds_per_minute=_per_minute(plan.division.used),
        spare_per_minute=_per_minute(plan.spare),
        feeds=[_describe_feed_plan(each, plan) for each in plan.feeds],
        delay=_describe_delay(plan.delay),
        measured=None if plan.measured is None else describe_measured(plan.measured),
        floor=_describe_delay(plan.floor),
    )


def _describe_feed_plan(each: FeedPlan, plan: SourcePlan) -> FeedPlanModel:
    settings, measured = each.settings, each.facts.delays.whole
    return FeedPlanModel(
        feed=str(each.feed),
        every="auto" if settings.is_auto else _write_duration(settings.every),
        at_most=_write_duration(settings.at_most),
        cron=settings.cron,
        weight=settings.weight,
        interval_seconds=None if each.planned is None else round(each.planned.interval.total_seconds(), 3),
        reason=None if each.planned is None else each.planned.reason,
        records=each.facts.records,
        records_from=each.facts.records_from,
        cost=round(each.demand.cost, 3),
        cost_from=each.cost_from,
        changes_per_minute=_per_minute(each.demand.rate),
        changes_from=each.facts.changes_from,
        requests_per_minute=_per_minute(each.requests),
        part_of_budget=round(each.requests / plan.supply.total, 4),
        delay=None if each.delay is None else _describe_delay(each.delay),
        measured=None if measured is None else describe_measured(measured),
        measured_estimated=not each.facts.is_dated,
    )


def _describe_delay(delay: FeedForecast | Forecast) -> DelayModel:
    return DelayModel(round(delay.mean.total_seconds(), 3), round(delay.p99.total_seconds(), 3))


def _write_duration(duration: timedelta | str | None) -> str | None:
    return format_duration(duration) if isinstance(duration, timedelta) else duration


def _per_minute(per_second: float) -> float:
    return round(per_second * 60, 3)
