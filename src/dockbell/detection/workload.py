"""What the runs of one feed teach the planner: how often its records change, and how many requests a run takes."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from dockbell.config import ResourceSettings
from dockbell.core.model import RunKind
from dockbell.core.planning.costs import pass_cost
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import Planned
from dockbell.core.planning.rates import Lead, estimate_changes, teaches
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.ports import FeedState, RunRecord, Tally


class Workload:
    """The learned demand of one feed.

    Attributes:
        plan: What was learned, and what was decided by it.
        saved: What of it is stored.
    """

    def __init__(self, settings: ResourceSettings, *, polled: bool) -> None:
        self.plan = self.saved = StoredPlan()
        self._settings = settings
        self._kind = RunKind.POLL if polled else RunKind.PASS
        self._began: timedelta | None = None  # the run under way or else the last complete one, by the steady clock
        self._before: timedelta | None = None  # the complete run before it
        self._span: timedelta | None = None  # what the run under way shows the changes of; None: it teaches no rate
        self._records = 0  # of the last complete pass
        self._asides = 0  # requests that were sent beside polls since the last one that was counted
        self._carried = 0.0  # changes of another feed that polls have shown, since the last one that was counted

    @property
    def pages(self) -> float:
        """How many pages a pass has, as far as is known."""
        return pass_cost(self._records)

    def load(self, state: FeedState) -> None:
        """Go on with what is stored; once, when the feed is opened."""
        self.plan = self.saved = StoredPlan.from_json(state.plan)
        if state.full is not None:
            self._records = state.full.records

    def begin(self, kind: RunKind, now: timedelta, *, every: timedelta | None, is_first: bool) -> None:
        """Take in that a run begins.

        Args:
            kind: Its kind.
            now: The time by the steady clock.
            every: The interval of the feed; None where a crontab line says when.
            is_first: It meets the records for the first time, or in another shape.
        """
        if kind is not self._kind:
            return
        self._began, span = now, None if self._before is None else now - self._before
        is_telling = span is not None and every is not None and teaches(span, every, is_baseline=is_first)
        self._span = span if is_telling else None

    def take_page(self, kind: RunKind, records: int, before: Tally, after: Tally, now: datetime) -> None:
        """Take in one page of a pass, as a pass of its own over a part of the list: so a change of load shows soon.

        Args:
            kind: Of the run.
            records: How many the page holds.
            before: What the run had found before it.
            after: What the run has found now.
            now: When the page came.
        """
        pages = self.plan.cost.mean
        if kind is self._kind is RunKind.PASS and self._span is not None and pages is not None:
            changed = max(0, _count_changed(after) - _count_changed(before))
            self._learn(estimate_changes(changed, records), self._span / pages, now)

    def end(self, run: RunRecord) -> None:
        """Take in the end of a run; one that is incomplete, or of another kind, teaches nothing more."""
        if run.problem:
            return
        if run.kind is RunKind.PASS:
            self._records = run.records
        if run.kind is self._kind:
            self.plan = replace(self.plan, cost=self.plan.cost.add(max(run.pages, 1) + self._asides))
            self._asides = 0
            if run.kind is RunKind.POLL and self._span is not None:
                self._learn(_count_changed(run.tally) + self._carried, self._span, run.ended_at)
                self._carried = 0.0
            self._before = self._began

    # Signals ----------------------------------------------------------------------------------------------------------

    def ask_aside(self) -> None:
        """Take in that a request is sent beside polls, which is made as often as they are."""
        self._asides += 1

    def carry(self, changes: float) -> None:
        """Take in that changes of another feed wait for polls, too; fewer, where this is negative."""
        self._carried += changes

    def lead(self, changes: int, now: datetime, *, is_met: bool = False) -> None:
        """Take in that another feed's polls show changes, so that these do not wait for a run of this one.

        ``is_met``: a run has come before those polls all the same, and counted the changes.
        """
        rate = self.plan.rate.restore(-changes) if is_met else self.plan.rate
        self.plan = replace(self.plan, rate=rate, lead=self.plan.lead.add(changes, now))

    def end_lead(self, now: datetime) -> None:
        """Count what the signal has shown as if a run had found it: it has missed a change, or is not used any more."""
        lead = self.plan.lead.add(0, now)
        self.plan = replace(self.plan, rate=self.plan.rate.restore(lead.changes), lead=Lead())

    # ------------------------------------------------------------------------------------------------------------------

    def _learn(self, changes: float, span: timedelta, now: datetime) -> None:
        self.plan = replace(self.plan, rate=self.plan.rate.add(changes, span, now))

    def decide(self, planned: Planned) -> None:
        self.plan = replace(self.plan, every=planned.interval, reason=planned.reason)

    def demand(self, state: FeedState, lookback: timedelta, every: timedelta) -> Demand:
        """Return what the feed asks for; ``every`` is its interval now."""
        return self.plan.make_demand(state.feed, self._settings, records=self._records, lookback=lookback, every=every)


def _count_changed(tally: Tally) -> int:
    return tally.created + tally.updated + tally.restored
