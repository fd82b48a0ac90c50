"""Findings: what the measurements say in words, each with its evidence; here those of a whole source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from statistics import median
from typing import Final

from dockbell.admin.probing.asking import Asker
from dockbell.admin.reasons import format_age
from dockbell.core.reading.response_headers import read_allowance
from dockbell.core.reading.survey import (
    clock_offset,
    count_foreign,
)

_SKEW_TOLD: Final = timedelta(seconds=2)


class State(StrEnum):
    """What a finding means for dockbell."""

    OK = "ok"
    NOTE = "note"  # dockbell copes with it
    FAILS = "fails"  # an operator must act
    UNTOLD = "untold"  # could not be measured


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was measured.

    Attributes:
        subject: The source or the feed, ``main`` or ``main/shipments``.
        what: What was measured, ``key``.
        found: What it is, ``/id``.
        evidence: What it was concluded from.
        state: What it means for dockbell.
    """

    subject: str
    what: str
    found: str
    evidence: str = ""
    state: State = State.OK


def tell_source(name: str, asker: Asker) -> Iterator[Finding]:
    """Yield the findings of all answers of an account: its clock, its budget, its speed."""
    answers = asker.answers
    yield Finding(name, "requests", f"{asker.sent} sent", f"{len(answers)} answered")
    if asker.stopped:
        yield Finding(name, "stopped", "yes", asker.stopped, State.FAILS if asker.failed else State.NOTE)
    if not answers:
        return
    yield _tell_clock(name, asker)
    allowance = next((found for each in answers if (found := read_allowance(each)) is not None), None)
    if allowance is None:
        evidence = f"no x-ratelimit headers in {len(answers)} answers; requests_per_minute is assumed"
        yield Finding(name, "budget", "untold", evidence, State.NOTE)
    else:
        yield Finding(name, "budget", f"{allowance.limit} requests a window", "x-ratelimit-limit")
        if (foreign := count_foreign(answers)) is None:
            yield Finding(name, "other users", "untold", "needs two answers in a window", State.UNTOLD)
        else:
            state = State.NOTE if foreign else State.OK
            yield Finding(name, "other users", f"{foreign} requests", "counted by x-ratelimit-remaining", state)
    trips = [each.received_at - each.sent_at for each in answers]
    milliseconds = median(trip / timedelta(milliseconds=1) for trip in trips)
    yield Finding(name, "latency", f"{milliseconds:.0f} ms", f"median of {len(trips)}, longest {_ms(max(trips))} ms")
    zipped = sum(each.headers.get("content-encoding", "").lower() in {"gzip", "x-gzip"} for each in answers)
    yield Finding(name, "gzip", "yes" if zipped else "no", f"{zipped} of {len(answers)} answers")


def _tell_clock(name: str, asker: Asker) -> Finding:
    offset = clock_offset(asker.answers)
    if offset is None:
        evidence = "no Date in any answer: x-ratelimit-reset or our clock is used, with a longer lookback"
        return Finding(name, "clock", "no Date", evidence, State.NOTE)
    least, most = offset
    evidence = f"Date is ahead of our clock by {format_seconds(least)} to {format_seconds(most)} s"
    if least > _SKEW_TOLD:
        return Finding(name, "clock", f"{format_age(least)} ahead of ours", evidence, State.NOTE)
    if most < -_SKEW_TOLD:
        return Finding(name, "clock", f"{format_age(-most)} behind ours", evidence, State.NOTE)
    return Finding(name, "clock", "as ours", evidence)


def _ms(duration: timedelta) -> str:
    return f"{duration / timedelta(milliseconds=1):.0f}"


def format_seconds(duration: timedelta) -> str:
    """Return a duration in seconds, with one decimal."""
    return f"{duration.total_seconds():.1f}"


def is_problem(findings: Sequence[Finding]) -> bool:
    """Return whether an operator must act."""
    return any(each.state is State.FAILS for each in findings)
